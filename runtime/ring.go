package runtime

import (
	"fmt"

	"onering/models"
)

// A Ring is the one copy of a model's weights as values that every session
// binds: rollout, scoring and training read the same memory and the optimizer
// writes it, so an update reaches the sampler at once and without a copy.
//
// Where the model computes in 16 bits the layers' weights lie there a second
// time, rounded, for all sessions to read: the optimizer's step writes both.
type Ring struct {
	Arch    models.Architecture
	Weights *models.Weights
	// LossScale is what all gradients of the weights are multiplied by on their
	// way back, so that float16 can hold them; 0 is 1. A power of two rounds
	// nothing. Learners multiply by it and Optimizers divide by it.
	LossScale float64

	arena *arena // of Weights: the host's own elements until on
	env   *Env   // that on was called with; nil before
}

// NewRing makes a value of every tensor of the layout, by its Hugging Face name
// and by its fused name. They go to a device when an Env first uses them there.
func NewRing(arch models.Architecture, w *models.Weights) (*Ring, error) {
	r := &Ring{Arch: arch, Weights: w, arena: hostArena(w)}
	if err := r.arena.nameTensors(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// lossScale is LossScale with its default.
func (r *Ring) lossScale() float64 {
	if r.LossScale == 0 {
		return 1
	}
	return r.LossScale
}

// on takes the weights to the memory of e, once, and rounds those that are
// computed with in 16 bits. The host forgets what a device has.
func (r *Ring) on(e *Env) error {
	switch {
	case r.env != nil && r.arena.memory == e.memory:
		return nil
	case !r.arena.memory.aliases():
		return fmt.Errorf("runtime: the weights lie on %s already: close the ring and make another for %s", r.arena.memory, e.memory)
	}
	from, to := r.Arch.Copied()
	a, err := e.hold(r.Weights, false)
	if err != nil {
		return err
	}
	if from < to {
		err = a.round(r.Arch.Geometry().Compute, from, to)
	}
	if err == nil {
		err = a.nameTensors()
	}
	if err != nil {
		a.close()
		return err
	}
	r.arena.close()
	r.arena, r.env = a, e
	e.Forget(r.Weights)
	return nil
}

// bind gives a session's binding every weight it has an input for. prefix is
// what the session's names lack: a layer's prefix, or "".
func (r *Ring) bind(b *Binding, prefix string) error {
	return b.bindAll(models.Parameter, func(p models.Port) (*Value, error) {
		tensors := r.arena.tensors
		if c := r.arena.rounded; c != nil && p.DType == c.dtype {
			tensors = c.tensors
		}
		v := tensors[prefix+p.Name]
		if v == nil {
			return nil, fmt.Errorf("runtime: program %q reads %q, which the model lacks in %v", b.s.name, prefix+p.Name, p.DType)
		}
		return v, nil
	})
}

// Close gives back what the ring has besides the host's weights, which stay as
// they were last downloaded.
func (r *Ring) Close() { r.arena.close() }
