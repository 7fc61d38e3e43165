package runtime

import (
	"fmt"
	"unsafe"

	"onering/models"
)

// FirstNonFinite returns the first layer of which the output has a NaN or an
// infinity, and the index of a sequence that has it. The embedding is layer -1. ok
// is false if all outputs are finite, or if the pass was not kept and so no longer
// has them.
func (p *Pass) FirstNonFinite() (layer, sequence int, ok bool) {
	if p.activations == nil {
		return 0, 0, false
	}
	d := p.learner.geometry.Hidden
	var spare []byte
	for i := range p.activations.x[:p.learner.geometry.Layers+1] {
		v := p.activations.x[i].value
		spare = mirror(v.memory, v.data, v.bytes, spare)
		if err := v.memory.download(unsafe.Pointer(&spare[0]), v.data, v.bytes); err != nil {
			return 0, 0, false
		}
		x := unsafe.Slice((*float32)(unsafe.Pointer(&spare[0])), v.bytes/4)
		at := 0
		for s, q := range p.sequences {
			for _, e := range x[at*d : (at+q.fed())*d] {
				if e-e != 0 {
					return i - 1, s, true
				}
			}
			at += q.fed()
		}
	}
	return 0, 0, false
}

// A NotFiniteError names a tensor that has a NaN or an infinity.
type NotFiniteError struct {
	What, Tensor string
	Index        int
	Value        float32
}

func (e *NotFiniteError) Error() string {
	return fmt.Sprintf("runtime: the %s of %s is %v at element %d; nothing was updated", e.What, e.Tensor, e.Value, e.Index)
}

// NotFinite returns an error that names the first element of w that is NaN or
// infinite. If all are finite, the error says that the sum of squares overflowed.
func NotFinite(what string, w *models.Weights) error {
	for _, name := range w.Layout.Names() {
		data, _, _ := w.View(name)
		for i, x := range data {
			if x-x != 0 {
				return &NotFiniteError{what, name, i, x}
			}
		}
	}
	return fmt.Errorf("runtime: the squares of the %s overflow float32; nothing was updated", what)
}
