package runtime

import (
	"unsafe"

	"onering/models"
	"onering/models/ports"
)

// rowOperations read and write rows of float32 matrices [M,D] by indices, int64 [n], for
// the embedding and the head of a Learner. Go code does it in the host's memory, Programs
// do it in a device's.
type rowOperations interface {
	// gather makes y[i] = x[ids[i]] for y [n,D].
	gather(x, ids, y *Value) error
	// scatter clears x and makes x[ids[i]] = rows[i]; no id occurs twice.
	scatter(rows, ids, x *Value) error
	// add makes x[ids[i]] += rows[i].
	add(rows *Value, ids *buffer, x *Value) error
	close()
}

// openRows chooses the row operations for the memory of l.
func (l *Learner) openRows() (rowOperations, error) {
	if l.env.memory.Aliases() {
		return hostRows{}, nil
	}
	p, err := l.arch().Rows()
	if err != nil {
		return nil, err
	}
	return newDeviceRows(l.env, p)
}

// hostRows implements rowOperations in Go.
type hostRows struct{}

// valuesOf returns the elements of a Value in the host's memory.
func valuesOf[T Element](v *Value) []T {
	return unsafe.Slice((*T)(v.data), v.bytes/v.dtype.Size())
}

// width returns D of a matrix [M,D].
func width(v *Value) int { return int(v.shape[1]) }

func (hostRows) gather(x, ids, y *Value) error {
	from, to, d := valuesOf[float32](x), valuesOf[float32](y), width(y)
	for i, id := range valuesOf[int64](ids) {
		copy(to[i*d:(i+1)*d], from[int(id)*d:])
	}
	return nil
}

func (hostRows) scatter(rows, ids, x *Value) error {
	from, to, d := valuesOf[float32](rows), valuesOf[float32](x), width(x)
	clear(to)
	for i, id := range valuesOf[int64](ids) {
		copy(to[int(id)*d:(int(id)+1)*d], from[i*d:])
	}
	return nil
}

func (hostRows) add(rows *Value, ids *buffer, x *Value) error {
	from, to, d := valuesOf[float32](rows), valuesOf[float32](x), width(x)
	for i, id := range elements[int64](ids) {
		y := to[int(id)*d:][:d]
		for j, x := range from[i*d:][:d] {
			y[j] += x
		}
	}
	return nil
}

func (hostRows) close() {}

// deviceRows implements rowOperations with the Programs of Architecture.Rows.
type deviceRows struct {
	env                                    *Env
	gatherProgram, addProgram, pairProgram *Binding

	sums                [2]buffer // [m,D], the newest sums of pairs and the previous ones
	ids                 buffer    // int64 [m], the indices of the newest sums
	left, right, paired buffer    // [m], see pairs
}

func newDeviceRows(e *Env, p models.RowPrograms) (_ rowOperations, err error) {
	r := &deviceRows{
		env: e, sums: [2]buffer{e.buffer(models.F32), e.buffer(models.F32)},
		ids: hostBuffer(models.I64), left: hostBuffer(models.I64), right: hostBuffer(models.I64), paired: hostBuffer(models.F32),
	}
	for b, p := range map[**Binding]models.Program{&r.gatherProgram: p.Gather, &r.addProgram: p.Add, &r.pairProgram: p.Pair} {
		if *b, err = loadBinding(e, p); err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

func (r *deviceRows) gather(x, ids, y *Value) error {
	b := binder{b: r.gatherProgram}
	b.in(ports.Table, x, nil)
	b.in(ports.RowIDs, ids, nil)
	b.out(ports.RowsOut, y, nil)
	return b.run()
}

func (r *deviceRows) scatter(rows, ids, x *Value) error {
	if err := x.memory.Zero(x.data, x.bytes); err != nil {
		return err
	}
	return r.addAt(rows, ids, x)
}

// addAt makes x[ids[i]] += rows[i]. The device's kernel decides the order of rows with
// equal indices, which varies on a GPU.
func (r *deviceRows) addAt(rows, ids, x *Value) error {
	b := binder{b: r.addProgram}
	b.in(ports.Table, x, nil)
	b.in(ports.RowIDs, ids, nil)
	b.in(ports.Rows, rows, nil)
	b.out(ports.TableOut, x, nil)
	return b.run()
}

func (r *deviceRows) add(rows *Value, ids *buffer, x *Value) error {
	if r.env.memory.InOrder {
		return r.addAt(rows, ids.value, x)
	}
	return r.addPaired(rows, elements[int64](ids), x)
}

// addPaired makes x[ids[i]] += rows[i] with the same bits each time: it sums the rows
// of an index two at a time until each index has one.
func (r *deviceRows) addPaired(rows *Value, ids []int64, x *Value) error {
	for turn := 0; ; turn++ {
		left, right, paired, sums := pairs(ids)
		if len(sums) == len(ids) {
			break
		}
		m, b := int64(len(sums)), binder{b: r.pairProgram}
		b.in(ports.Rows, rows, nil)
		copy(fill[int64](&b, ports.PairLeft, &r.left, m), left)
		copy(fill[int64](&b, ports.PairRight, &r.right, m), right)
		copy(fill[float32](&b, ports.Paired, &r.paired, m, 1), paired)
		v, err := r.sums[turn%2].of(m, x.shape[1])
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
	return r.addAt(rows, v, x)
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

func (r *deviceRows) close() {
	closeSessions(r.gatherProgram, r.addProgram, r.pairProgram)
	closeBuffers(&r.sums[0], &r.sums[1], &r.ids, &r.left, &r.right, &r.paired)
}
