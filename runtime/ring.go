package runtime

import (
	"fmt"

	"onering/models"
)

// A Ring holds the only copy of a model's weights, which every session binds:
// rollout, scoring and training read the same memory, and the optimizer writes it.
// So the sampler has each update at once, and nothing is copied.
//
// If the model computes in 16 bits, the ring also has the layers' weights rounded to
// 16 bits. All sessions read these; the optimizer writes both.
type Ring struct {
	Arch    models.Architecture
	Weights *models.Weights
	// LossScale multiplies all gradients so that float16 can hold them; 0 means 1.
	// It should be a power of two, which rounds nothing. Learners multiply by it and
	// Optimizers divide by it.
	LossScale float64

	arena *arena // holds Weights; in the host's memory until moveTo
	env   *Env   // the Env of the first moveTo; nil before
}

// NewRing makes a Ring of w. An Env on a device moves the weights there when it makes
// the first Decoder, Learner or Optimizer.
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

// moveTo moves the weights to the memory of e, unless they are there, and makes the
// 16-bit copy. The host's memory of weights on a device is given back.
func (r *Ring) moveTo(e *Env) error {
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

// bind binds every weight that the Program reads. prefix is what the names of the
// Program's inputs lack: the prefix of a layer, or "".
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

// Close frees everything except the host's weights, which stay as they were last
// downloaded.
func (r *Ring) Close() { r.arena.close() }
