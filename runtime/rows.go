package runtime

import (
	"unsafe"

	"onering/models"
	"onering/models/ports"
)

// A rowPrograms reads and writes rows of float32 matrices [M,D] by indices, int64 [n], for
// the embedding and the head of a Learner.
type rowPrograms struct {
	memory                                 *memory
	gatherProgram, addProgram, pairProgram *Binding // the last is nil if additions keep their order
	embedProgram, learnProgram             *Binding // of the embedding: the first two, unless it is scaled or has 16 bits

	sums                [2]buffer // [m,D], the newest sums of pairs and the previous ones
	ids                 buffer    // int64 [m], the indices of the newest sums
	left, right, paired buffer    // [m], see pairs
}

// openRows loads the Programs that look rows up and add them, and finds the embedding (l.embedding). Gather and Add
// serve as Embed and Learn, too, unless the architecture has other ones for the embedding. Pair is for learn, where
// the device adds rows of equal indices in no fixed order.
func (l *Learner) openRows() (err error) {
	p, err := l.arch().Rows()
	if err != nil {
		return err
	}
	e, r := l.env, &l.rows
	*r = rowPrograms{
		memory: e.memory, sums: [2]buffer{e.buffer(models.F32), e.buffer(models.F32)},
		ids: hostBuffer(models.I64), left: hostBuffer(models.I64), right: hostBuffer(models.I64), paired: hostBuffer(models.F32),
	}
	if r.gatherProgram, err = loadBinding(e, p.Gather); err == nil {
		r.addProgram, err = loadBinding(e, p.Add)
	}
	if err == nil && !e.memory.InOrder {
		r.pairProgram, err = loadBinding(e, p.Pair)
	}
	r.embedProgram, r.learnProgram = r.gatherProgram, r.addProgram
	if p.Embed.Name != p.Gather.Name && err == nil {
		r.embedProgram, err = loadBinding(e, p.Embed)
	}
	if p.Learn.Name != p.Add.Name && err == nil {
		r.learnProgram, err = loadBinding(e, p.Learn)
	}
	l.embedding = l.ring.arena.value(l.geometry.Embedding, portType(p.Embed, ports.Table))
	return err
}

// valuesOf returns the elements of a Value in the host's memory.
func valuesOf[T Element](v *Value) []T {
	return unsafe.Slice((*T)(v.data), v.bytes/v.dtype.Size())
}

// gather makes y[i] = x[ids[i]] for y [n,D].
func (r *rowPrograms) gather(x, ids, y *Value) error { return r.gatherBy(r.gatherProgram, x, ids, y) }

// embed is gather from the embedding.
func (r *rowPrograms) embed(x, ids, y *Value) error { return r.gatherBy(r.embedProgram, x, ids, y) }

func (r *rowPrograms) gatherBy(program *Binding, x, ids, y *Value) error {
	b := program.begin()
	b.in(ports.Table, x, nil)
	b.in(ports.RowIDs, ids, nil)
	b.out(ports.RowsOut, y, nil)
	return b.run()
}

// scatter clears x and makes x[ids[i]] = rows[i]; no id occurs twice.
func (r *rowPrograms) scatter(rows, ids, x *Value) error {
	if err := x.memory.Zero(x.data, x.bytes); err != nil {
		return err
	}
	return r.addBy(r.addProgram, rows, ids, x)
}

// addBy makes x[ids[i]] += rows[i]. The device's kernel decides the order of rows with
// equal indices, which varies on a GPU.
func (r *rowPrograms) addBy(program *Binding, rows, ids, x *Value) error {
	b := program.begin()
	b.in(ports.Table, x, nil)
	b.in(ports.RowIDs, ids, nil)
	b.in(ports.Rows, rows, nil)
	b.out(ports.TableOut, x, nil)
	return b.run()
}

// learn makes x[ids[i]] += rows[i] for gradients x of the embedding, with the same bits each time. Where additions
// have no order, it sums the rows of an index two at a time until each index has one.
func (r *rowPrograms) learn(rows *Value, indices *buffer, x *Value) error {
	if r.memory.InOrder {
		return r.addBy(r.learnProgram, rows, indices.value, x)
	}
	ids := elements[int64](indices)
	for turn := 0; ; turn++ {
		left, right, paired, sums := pairs(ids) // sum j is row left[j], plus row right[j] if paired[j] is 1
		if len(sums) == len(ids) {              // no index occurs twice
			break
		}
		m, b := int64(len(sums)), r.pairProgram.begin()
		b.in(ports.Rows, rows, nil)
		copy(fill[int64](b, ports.PairLeft, &r.left, m), left)
		copy(fill[int64](b, ports.PairRight, &r.right, m), right)
		copy(fill[float32](b, ports.Paired, &r.paired, m, 1), paired)
		v, err := r.sums[turn%2].resize(m, x.shape[1]) // not the buffer that holds rows
		b.out(ports.RowsOut, v, err)
		if err := b.run(); err != nil {
			return err
		}
		rows, ids = v, sums
	}
	host, v, err := sized[int64](&r.ids, int64(len(ids)))
	if err != nil {
		return err
	}
	copy(host, ids)
	return r.addBy(r.learnProgram, rows, v, x)
}

// pairs halves how often each index occurs. Sum j is row left[j], plus row right[j] where
// paired[j] is 1, and the sum's index is sums[j].
func pairs(ids []int64) (left, right []int64, paired []float32, sums []int64) {
	open := make(map[int64]int) // for each index the sum that has no right row yet
	for i, id := range ids {
		if j, ok := open[id]; ok {
			right[j], paired[j] = int64(i), 1
			delete(open, id)
			continue
		}
		open[id] = len(sums)
		left, right, paired, sums = append(left, int64(i)), append(right, int64(i)), append(paired, 0), append(sums, id)
	}
	return left, right, paired, sums
}

func (r *rowPrograms) close() {
	if r.embedProgram != r.gatherProgram {
		closeSessions(r.embedProgram)
	}
	if r.learnProgram != r.addProgram {
		closeSessions(r.learnProgram)
	}
	closeSessions(r.gatherProgram, r.addProgram, r.pairProgram)
	closeBuffers(&r.sums[0], &r.sums[1], &r.ids, &r.left, &r.right, &r.paired)
}
