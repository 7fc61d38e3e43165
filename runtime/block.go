package runtime

import (
	"fmt"
	"unsafe"

	"onering/models"
)

// A block is some float32 where the sessions of an Env find them: the host's, or
// a device's.
type block struct {
	env  *Env
	data []float32      // on the CPU
	at   unsafe.Pointer // on a device
	n    int
}

// newBlock makes a block of n zeros.
func (e *Env) newBlock(n int) (block, error) {
	b := block{env: e, n: n}
	if e.memory == nil {
		b.data = make([]float32, n)
		return b, nil
	}
	var err error
	if b.at, err = e.memory.alloc(4 * n); err != nil {
		return block{}, fmt.Errorf("runtime: %.2f GB on %s: %w", 4e-9*float64(n), e.Device(), err)
	}
	if err := e.memory.zero(b.at, 4*n); err != nil {
		b.free()
		return block{}, err
	}
	return b, nil
}

// blockOf is what a scratch holds.
func blockOf(e *Env, s *scratch[float32]) block {
	return block{env: e, data: s.data, at: s.at, n: s.elements()}
}

// value views the first elements.
func (b block) value(shape ...int64) (*Value, error) {
	if b.at == nil {
		n := int64(1)
		for _, d := range shape {
			n *= d
		}
		return NewValue(b.data[:n], shape...)
	}
	return deviceValue(b.env, models.F32, b.at, shape...)
}

// copyRuns copies runs of width elements, which begin at element fromAt of from
// and every fromStride after it, to at and every stride after it.
func (b block) copyRuns(at, stride int, from block, fromAt, fromStride, width, runs int) error {
	if b.at == nil {
		for i := range runs {
			copy(b.data[at+i*stride:], from.data[fromAt+i*fromStride:][:width])
		}
		return nil
	}
	return b.env.memory.copyRuns(unsafe.Add(b.at, 4*at), 4*stride, unsafe.Add(from.at, 4*fromAt), 4*fromStride, 4*width, runs)
}

func (b *block) free() {
	if b.at != nil {
		b.env.memory.free(b.at)
	}
	*b = block{}
}
