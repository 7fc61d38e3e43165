package runtime

import (
	"cmp"
	"fmt"

	"onering/models"
)

// A Ring holds the only copy of a model's weights, which every session binds: rollout, scoring and training read the
// same memory, and the optimizer writes it. So each update reaches the sampler at once without a copy.
//
// If the model computes in 16 bits, the ring also has the layers' weights rounded to 16 bits. All sessions read
// these; the optimizer writes both. On the CPU a ring without an adapter has of these the lower 16 bits beside the
// rounded ones, and not the float32 itself: together they are it (see tiles.Halves).
type Ring struct {
	Arch    models.Architecture
	Weights *models.Weights
	// Adapter is trained in place of the Weights, which then do not change; nil without Adapt.
	Adapter *models.Weights
	// LossScale multiplies all gradients so that float16 can hold them; 0 means 1. It should be a power of two, which
	// rounds nothing. Learners multiply by it and Optimizers divide by it.
	LossScale float64
	// Offload says what the host's memory keeps. Set it before making anything of the ring.
	Offload Offload

	arena    *arena              // where Weights lie; nil until moveTo
	adapter  *arena              // where Adapter lies; nil until moveTo, or without one
	base     models.Architecture // arch of the Weights alone
	owner    *Ring               // the Ring that has the arena; nil if this one does
	env      *Env                // that of moveTo; nil before
	division division
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

func (o Offload) hasMoments() bool { return o == OffloadMoments || o == OffloadAll }

// NewRing makes a Ring of w. An Env on a device moves the weights there when it makes
// the first Decoder, Learner or Optimizer.
func NewRing(arch models.Architecture, w *models.Weights) *Ring {
	return &Ring{Arch: arch, Weights: w, base: arch}
}

// Adapt adds an adapter to the weights: everything made of the ring later computes with
// both, and learners and optimizers train only the adapter. arch is the Architecture with
// the adapter. Call it before making anything of the ring.
func (r *Ring) Adapt(arch models.Architecture, adapter *models.Weights) error {
	if r.env != nil || r.Adapter != nil {
		return fmt.Errorf("runtime: the ring is in use or has an adapter: an adapter comes first")
	}
	r.Arch, r.Adapter = arch, adapter
	return nil
}

// SharedWeights returns another Ring with the same weights, without a second copy; each
// Ring may have its own adapter. Close it before r.
func (r *Ring) SharedWeights() *Ring {
	owner := r
	if r.owner != nil {
		owner = r.owner
	}
	return &Ring{Arch: r.base, Weights: r.Weights, LossScale: r.LossScale, Offload: r.Offload, base: r.base, owner: owner}
}

// Trained returns the weights that learners and optimizers change: the adapter, or without one the weights.
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

// moveTo finds places for the weights and the adapter in the memory of e, unless they have some, and copies them
// there. It also divides the elements among the parts of Divide. The host's memory of weights on a device is freed.
func (r *Ring) moveTo(e *Env) error {
	if r.env != nil && r.env.memory == e.memory {
		return nil
	}
	if r.env != nil {
		return fmt.Errorf("runtime: the weights lie on %s already: close the ring and make another for %s", r.env.memory, e.memory)
	}
	r.division = divideRanges(r.cutRanges(e), r.division.part, max(1, r.division.parts), r.division.bucket)
	var err error
	if r.owner != nil { // r is from SharedWeights, and its owner has the arena
		err = r.owner.moveTo(e)
		r.arena = r.owner.arena
	} else {
		r.arena, err = r.placeWeights(e)
	}
	if err == nil && r.Adapter != nil {
		r.adapter, err = e.newUploadedArena(r.Adapter)
	}
	if err != nil {
		r.Close()
		return err
	}
	r.env = e
	e.Forget(r.Weights)
	if r.Adapter != nil {
		e.Forget(r.Adapter)
	}
	return nil
}

// placeWeights decides where each element lies, and copies the weights there. Matrices of which Programs read a
// rounded copy have float32 masters, too, which only updates read. These lie in the memory of e, or on the host
// (Offload); where the ring is Divided, this rank has only a part of them. A CPU in bfloat16 without an adapter has
// their lower 16 bits alone, since the rounded copy has the upper ones.
func (r *Ring) placeWeights(e *Env) (*arena, error) {
	w := r.Weights
	from, to := r.Arch.Copied()
	roundedCopy := block{piece{from, to}, e.memory, r.Arch.Geometry().Compute, nil} // empty if that is float32; newArena sets the address
	masters := matrices(w.Layout, from, to)
	readInFloat32 := piece{0, len(w.Data)}.without(masters)
	if n := w.Narrow; n != nil { // w.Narrow has these matrices, in fewer bits, and w.Data lacks them
		readInFloat32, masters = piece{0, len(w.Data)}.without(matrices(w.Layout, n.From, n.To)), nil
	}
	if r.Divided() { // only if w.Narrow is nil
		masters = nil
		for _, p := range r.division.ownPieces() {
			masters = append(masters, p.without(readInFloat32)...) // the matrices among this rank's elements
		}
	}
	mastersIn := e.memory
	if r.Offload == OffloadAll {
		mastersIn = host
	}
	masterBlocks := blocksIn(masters, mastersIn)
	if e.memory.IsHost() && roundedCopy.dtype == models.BF16 && r.Adapter == nil {
		for i := range masterBlocks {
			masterBlocks[i].dtype = roundedCopy.dtype // the lower halves
		}
	}
	a, err := e.newArena(w, append(blocksIn(readInFloat32, e.memory), masterBlocks...), roundedCopy)
	if err == nil {
		a.readInFloat32 = readInFloat32
		err = a.fill()
	}
	return a, err
}

// bind binds every weight that the Program reads. prefix is the part of names that the
// Program's inputs leave out: the prefix of a layer, or "".
func (r *Ring) bind(b *Binding, prefix string) error {
	return b.bindAll(models.Parameter, func(p models.Port) (*Value, error) {
		v := cmp.Or(r.arena.value(prefix+p.Name, p.DType), r.adapter.value(prefix+p.Name, p.DType))
		if v == nil {
			return nil, fmt.Errorf("runtime: program %q reads %q, which the model lacks in %v", b.s.name, prefix+p.Name, p.DType)
		}
		return v, nil
	})
}

// Close frees everything except the host's weights, which stay as they were last downloaded.
func (r *Ring) Close() {
	if r.owner == nil {
		r.arena.close()
	}
	r.adapter.close()
}
