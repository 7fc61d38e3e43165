package runtime

import (
	"unsafe"

	"onering/models"
	"onering/models/ports"
)

// rowOperations read and write rows of float32 matrices [M,D] by indices, int64
// [n], for the embedding and the head of a Learner. There are two implementations,
// because ONNX Runtime's ScatterND may add rows with the same index in any order,
// and then the last bits of the sum differ from run to run. Go code adds them in
// order, but works only in memory that aliases the host's.
type rowOperations interface {
	// gather makes y[i] = x[ids[i]] for y [n,D].
	gather(x, ids, y *Value) error
	// scatter clears x and makes x[ids[i]] = rows[i]; no id occurs twice.
	scatter(rows, ids, x *Value) error
	// add makes x[ids[i]] += rows[i].
	add(rows, ids, x *Value) error
	// token computes the part of the head's gradients that comes from the logits of
	// the tokens y [n], for w = dL/dlogp [n,1], the head e [V,D] and its input h
	// [n,D]: dh[i] = w[i] e[y[i]] and de[y[i]] += w[i] h[i]; de may be nil.
	token(e, de, h, y, w, dh *Value) error
	close()
}

// openRows chooses the row operations for the memory of l.
func (l *Learner) openRows() (rowOperations, error) {
	if l.env.memory.aliases() {
		return hostRows{}, nil
	}
	gather, add, token, err := l.arch().Rows()
	if err != nil {
		return nil, err
	}
	r := &deviceRows{}
	for b, p := range map[**Binding]models.Program{&r.gatherProgram: gather, &r.addProgram: add, &r.tokenProgram: token} {
		if *b, err = loadBinding(l.env, p); err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
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

func (hostRows) add(rows, ids, x *Value) error {
	from, to, d := valuesOf[float32](rows), valuesOf[float32](x), width(x)
	for i, id := range valuesOf[int64](ids) {
		addScaled(to[int(id)*d:(int(id)+1)*d], 1, from[i*d:(i+1)*d])
	}
	return nil
}

func (hostRows) token(e, de, h, y, w, dh *Value) error {
	head, gradient := valuesOf[float32](e), []float32(nil)
	if de != nil {
		gradient = valuesOf[float32](de)
	}
	in, out, ids, d := valuesOf[float32](h), valuesOf[float32](dh), valuesOf[int64](y), width(h)
	clear(out)
	for i, weight := range valuesOf[float32](w) {
		if weight == 0 {
			continue
		}
		row := int(ids[i]) * d
		addScaled(out[i*d:(i+1)*d], weight, head[row:row+d])
		if gradient != nil {
			addScaled(gradient[row:row+d], weight, in[i*d:(i+1)*d])
		}
	}
	return nil
}

func (hostRows) close() {}

// addScaled adds a x to y.
func addScaled(y []float32, a float32, x []float32) {
	x = x[:len(y)]
	for i := range y {
		y[i] += a * x[i]
	}
}

// deviceRows implements rowOperations with the Programs of Architecture.Rows.
type deviceRows struct{ gatherProgram, addProgram, tokenProgram *Binding }

func (r *deviceRows) gather(x, ids, y *Value) error {
	b := binder{b: r.gatherProgram}
	b.in(ports.Table, x, nil)
	b.in(ports.RowIDs, ids, nil)
	b.out(ports.RowsOut, y, nil)
	return b.run()
}

func (r *deviceRows) scatter(rows, ids, x *Value) error {
	if err := x.memory.zero(x.data, x.bytes); err != nil {
		return err
	}
	return r.add(rows, ids, x)
}

func (r *deviceRows) add(rows, ids, x *Value) error {
	b := binder{b: r.addProgram}
	b.in(ports.Table, x, nil)
	b.in(ports.RowIDs, ids, nil)
	b.in(ports.Rows, rows, nil)
	b.out(ports.TableOut, x, nil)
	return b.run()
}

func (r *deviceRows) token(e, de, h, y, w, dh *Value) error {
	b := binder{b: r.tokenProgram}
	b.in(ports.HeadSlice, e, nil)
	if de != nil {
		b.in(ports.HeadSliceGrad, de, nil)
		b.in(ports.Normed, h, nil)
		b.out(ports.HeadSliceGradOut, de, nil)
	}
	b.in(ports.Targets, y, nil)
	b.in(ports.LogProbGrad, w, nil)
	b.out(ports.NormedGrad, dh, nil)
	return b.run()
}

func (r *deviceRows) close() { closeSessions(r.gatherProgram, r.addProgram, r.tokenProgram) }
