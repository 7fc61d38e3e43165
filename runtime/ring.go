package runtime

import (
	"fmt"

	"onering/models"
)

// A Ring holds the only copy of a model's weights, which every session binds: rollout,
// scoring and training read the same memory, and the optimizer writes it. So each update
// reaches the sampler at once without a copy.
//
// If the model computes in 16 bits, the ring also has the layers' weights rounded to
// 16 bits. All sessions read these; the optimizer writes both.
type Ring struct {
	Arch    models.Architecture
	Weights *models.Weights
	// Adapter is trained in place of the Weights, which then do not change; nil without
	// Adapt.
	Adapter *models.Weights
	// LossScale multiplies all gradients so that float16 can hold them; 0 means 1.
	// It should be a power of two, which rounds nothing. Learners multiply by it and
	// Optimizers divide by it.
	LossScale float64
	// Offload says what the host's memory keeps. Set it before making anything of the ring.
	Offload Offload

	arena   *arena              // holds Weights; in the host's memory until moveTo
	adapter *arena              // holds Adapter; nil without one
	base    models.Architecture // arch of the Weights alone
	owner   *Ring               // the Ring that holds the Weights and arena; nil if this one does
	env     *Env                // the Env of the first moveTo; nil before
	shares  shares
}

// An Offload says what the host's memory keeps of weights that a device computes with.
// Optimizers copy that to the device and back in each update: 16 bytes for the moments of a
// parameter with AdamW, 8 for its weight. It changes no result. Empty means OffloadNone.
type Offload string

// OffloadAll keeps the moments, and if the device computes with a 16-bit copy also the
// float32 weights of the layers' matrices.
const (
	OffloadNone    Offload = "none"
	OffloadMoments Offload = "moments"
	OffloadAll     Offload = "all"
)

func (o Offload) moments() bool { return o == OffloadMoments || o == OffloadAll }

// NewRing makes a Ring of w. An Env on a device moves the weights there when it makes
// the first Decoder, Learner or Optimizer.
func NewRing(arch models.Architecture, w *models.Weights) (*Ring, error) {
	r := &Ring{Arch: arch, Weights: w, arena: hostArena(w), base: arch}
	if err := r.arena.nameTensors(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Adapt adds an adapter to the weights: everything made of the ring later computes with
// both, and learners and optimizers train only the adapter. arch is the Architecture with
// the adapter. Call it before making anything of the ring.
func (r *Ring) Adapt(arch models.Architecture, adapter *models.Weights) error {
	if r.env != nil || r.Adapter != nil {
		return fmt.Errorf("runtime: the ring is in use or has an adapter: an adapter comes first")
	}
	a := hostArena(adapter)
	if err := a.nameTensors(); err != nil {
		a.close()
		return err
	}
	r.Arch, r.Adapter, r.adapter = arch, adapter, a
	return nil
}

// SharedWeights returns another Ring with the same weights, without a second copy; each
// Ring may have its own adapter. Close it before r.
func (r *Ring) SharedWeights() *Ring {
	owner := r
	if r.owner != nil {
		owner = r.owner
	}
	return &Ring{Arch: r.base, Weights: r.Weights, LossScale: r.LossScale, Offload: r.Offload, arena: owner.arena, base: r.base, owner: owner}
}

// Trained returns the weights that learners and optimizers change: the adapter, or
// without one the weights.
func (r *Ring) Trained() *models.Weights {
	if r.Adapter != nil {
		return r.Adapter
	}
	return r.Weights
}

// trained is the arena of Trained.
func (r *Ring) trained() *arena {
	if r.adapter != nil {
		return r.adapter
	}
	return r.arena
}

// lossScale is LossScale with its default.
func (r *Ring) lossScale() float64 {
	if r.LossScale == 0 {
		return 1
	}
	return r.LossScale
}

// moveTo moves the weights to the memory of e, unless they are there, and makes the
// 16-bit copy. The host's memory of moved weights is freed.
func (r *Ring) moveTo(e *Env) error {
	switch {
	case r.env != nil && r.arena.memory == e.memory:
		return nil
	case r.owner == nil && !r.arena.memory.Aliases():
		return fmt.Errorf("runtime: the weights lie on %s already: close the ring and make another for %s", r.arena.memory, e.memory)
	}
	r.shares = share(r.bounds(e), r.shares.part, max(1, r.shares.parts), r.shares.bucket)
	a, err := r.moveWeights(e)
	if err != nil {
		return err
	}
	var adapter *arena
	if r.Adapter != nil {
		if adapter, err = moved(e, r.Adapter, nil); err != nil {
			if r.owner == nil {
				a.close()
			}
			return err
		}
	}
	if r.owner == nil {
		r.arena.close()
	}
	r.arena, r.env = a, e
	e.Forget(r.Weights)
	if adapter != nil {
		r.adapter.close()
		r.adapter = adapter
		e.Forget(r.Adapter)
	}
	return nil
}

// moveWeights returns the arena of the weights in the memory of e, with their 16-bit
// copy. A Ring with another's weights uses the other's arena.
func (r *Ring) moveWeights(e *Env) (*arena, error) {
	if r.owner != nil {
		err := r.owner.moveTo(e)
		return r.owner.arena, err
	}
	from, to := r.Arch.Copied()
	offload := r.Offload == OffloadAll && from < to && r.Weights.Narrow == nil && !e.memory.Aliases()
	var held []piece
	if offload || r.Divided() {
		held = hostArena(r.Weights).without(from, to)
	}
	a, err := moved(e, r.Weights, held)
	if err != nil {
		return nil, err
	}
	if held != nil {
		where, own := e.memory, r.shares.own()
		if offload {
			where = host
		}
		if !r.Divided() {
			own = nil
		}
		err = a.keep(where, from, to, own)
	}
	switch {
	case err != nil:
	case r.Weights.Narrow != nil:
		err = a.narrowed()
	case from < to:
		err = a.lessen(r.Arch.Geometry().Compute, from, to)
	}
	if err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// moved holds w, or the given pieces of it, in the memory of e, with a Value for each tensor.
func moved(e *Env, w *models.Weights, pieces []piece) (*arena, error) {
	a, err := e.holdPieces(w, e.memory, pieces, false)
	if err != nil {
		return nil, err
	}
	if err := a.nameTensors(); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// bind binds every weight that the Program reads. prefix is the part of names that the
// Program's inputs leave out: the prefix of a layer, or "".
func (r *Ring) bind(b *Binding, prefix string) error {
	return b.bindAll(models.Parameter, func(p models.Port) (*Value, error) {
		tensors := r.arena.tensors
		if c := r.arena.rounded; c != nil && p.DType == c.dtype {
			tensors = c.tensors
		}
		v := tensors[prefix+p.Name]
		if v == nil {
			v = r.adapter.tensor(prefix + p.Name)
		}
		if v == nil {
			return nil, fmt.Errorf("runtime: program %q reads %q, which the model lacks in %v", b.s.name, prefix+p.Name, p.DType)
		}
		return v, nil
	})
}

// Close frees everything except the host's weights, which stay as they were last
// downloaded.
func (r *Ring) Close() {
	if r.owner == nil {
		r.arena.close()
	}
	r.adapter.close()
}
