package runtime

import (
	"fmt"
	"slices"
	"unsafe"

	"onering/models"
)

// A block is some elements of one type where the sessions of an Env find them:
// the host's memory, or a device's.
type block struct {
	env   *Env
	dtype models.DType
	at    unsafe.Pointer
	n     int
}

// allocate makes a block of n elements, which on a device may be anything.
func (e *Env) allocate(d models.DType, n int) (b block, err error) {
	b = block{env: e, dtype: d, n: n}
	if e.memory == nil {
		b.at = unsafe.Pointer(unsafe.SliceData(make([]uint64, max(1, (b.bytes(n)+7)/8)))) // aligned for any type
		return b, nil
	}
	b.at, err = e.memory.alloc(b.bytes(n))
	return b, err
}

// newBlock makes a block of n zeros.
func (e *Env) newBlock(d models.DType, n int) (block, error) {
	b, err := e.allocate(d, n)
	if err != nil {
		return block{}, fmt.Errorf("runtime: %.2f GB on %s: %w", 1e-9*float64(b.bytes(n)), e.Device(), err)
	}
	if e.memory == nil {
		return b, nil
	}
	if err := e.memory.zero(b.at, b.bytes(n)); err != nil {
		b.free()
		return block{}, err
	}
	return b, nil
}

// blockOf is what a scratch holds.
func blockOf(e *Env, s *scratch[float32]) block {
	if e.memory != nil {
		return s.block
	}
	return block{env: e, dtype: models.F32, at: unsafe.Pointer(unsafe.SliceData(s.data)), n: s.elements()}
}

// bytes is the size of n elements.
func (b block) bytes(n int) int { return n * b.dtype.Size() }

// element is where element i lies.
func (b block) element(i int) unsafe.Pointer { return unsafe.Add(b.at, b.bytes(i)) }

// host is n elements from i on as bytes, of a block in the host's memory.
func (b block) host(i, n int) []byte { return unsafe.Slice((*byte)(b.element(i)), b.bytes(n)) }

// value views the elements from first on.
func (b block) value(first int, shape ...int64) (*Value, error) {
	if b.env.memory != nil {
		return deviceValue(b.env, b.dtype, b.element(first), shape...)
	}
	n, err := size(b.dtype, shape)
	if err == nil && b.bytes(first)+n > b.bytes(b.n) {
		err = fmt.Errorf("runtime: a tensor of shape %v at %d of %d elements", shape, first, b.n)
	}
	if err != nil {
		return nil, err
	}
	return newValue(b.dtype, b.element(first), n, shape)
}

// copyRuns copies runs of width elements, which begin at element fromAt of from
// and every fromStride after it, to at and every stride after it.
func (b block) copyRuns(at, stride int, from block, fromAt, fromStride, width, runs int) error {
	if b.env.memory == nil {
		for i := range runs {
			copy(b.host(at+i*stride, width), from.host(fromAt+i*fromStride, width))
		}
		return nil
	}
	return b.env.memory.copyRuns(b.element(at), b.bytes(stride), from.element(fromAt), b.bytes(fromStride), b.bytes(width), runs)
}

func (b *block) free() {
	if b.at != nil && b.env.memory != nil {
		b.env.memory.free(b.at)
	}
	*b = block{}
}

// A room is a reusable block of any type and the Value over its first elements,
// for what no code but the graphs' reads or writes. It grows as needed and makes
// a new Value only when the shape changes.
type room struct {
	block block
	value *Value
	shape []int64
}

// of returns the Value of the given shape. What the room held before is lost
// when it grows.
func (r *room) of(e *Env, d models.DType, shape ...int64) (*Value, error) {
	if r.value != nil && slices.Equal(r.shape, shape) {
		return r.value, nil
	}
	n := 1
	for _, d := range shape {
		n *= int(d)
	}
	fail := func(err error) (*Value, error) {
		return nil, fmt.Errorf("runtime: a buffer of shape %v on %s: %w", shape, e.Device(), err)
	}
	if r.block.at == nil || r.block.n < n {
		r.close()
		b, err := e.allocate(d, max(1, n+n/8))
		if err != nil {
			return fail(err)
		}
		r.block = b
	}
	v, err := r.block.value(0, shape...)
	if err != nil {
		return fail(err)
	}
	if r.value != nil {
		r.value.Close()
	}
	r.value, r.shape = v, append(r.shape[:0], shape...)
	return v, nil
}

func (r *room) close() {
	if r.value != nil {
		r.value.Close()
	}
	r.block.free()
	*r = room{}
}
