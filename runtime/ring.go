package runtime

import (
	"fmt"
	"math"

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

	arena  *arena
	values map[string]*Value
}

// NewRing binds nothing yet; it makes a value for every tensor of the layout,
// by its Hugging Face name and by its fused name.
func NewRing(arch models.Architecture, w *models.Weights) (*Ring, error) {
	r := &Ring{Arch: arch, Weights: w, arena: &arena{host: w}}
	var err error
	if r.values, err = r.arena.values(); err != nil {
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

// on takes the weights to the device of e, once, and rounds those that are
// computed with in 16 bits. What is on a device the host forgets.
func (r *Ring) on(e *Env) error {
	switch {
	case r.arena.env == e:
		return nil
	case r.arena.at != nil:
		return fmt.Errorf("runtime: the weights lie on %s already: close the ring and make another for %s", r.arena.env.Device(), e.Device())
	case r.arena.env != nil && e.memory == nil && r.arena.env.memory == nil:
		return nil
	}
	_, from, to, err := r.Arch.Copy()
	if err != nil {
		return err
	}
	a, err := e.hold(r.Weights, false)
	if err != nil {
		return err
	}
	if from < to {
		if err := a.round(r.Arch.Geometry().Compute, from, to); err != nil {
			a.close()
			return err
		}
	}
	values, err := a.values()
	if err != nil {
		a.close()
		return err
	}
	closeValues(r.values)
	r.arena, r.values = a, values
	e.Forget(r.Weights)
	return nil
}

func closeValues(values map[string]*Value) {
	for _, v := range values {
		v.Close()
	}
}

func int64s(shape []int) []int64 {
	out := make([]int64, len(shape))
	for i, n := range shape {
		out[i] = int64(n)
	}
	return out
}

// bind gives a session's binding every weight it has an input for. prefix is
// what the session's names lack: a layer's prefix, or "".
func (r *Ring) bind(b *Binding, prefix string) error {
	for _, p := range b.s.ports[input] {
		v := r.values[prefix+p.Name]
		if c := r.arena.copy; c != nil && p.DType == c.block.dtype && c.values[prefix+p.Name] != nil {
			v = c.values[prefix+p.Name]
		}
		if v != nil {
			if err := b.Input(p.Name, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close lets go of the values; the weights stay, those on a device as the host
// last downloaded them.
func (r *Ring) Close() {
	closeValues(r.values)
	r.arena.close()
}

// rotary returns the cosines and sines [n,K/2] of the rotary embedding, in
// float32 throughout as Hugging Face's models compute them.
func rotary(n int, g models.Geometry) (cos, sin []float32) {
	half := g.HeadDim / 2
	cos, sin = make([]float32, n*half), make([]float32, n*half)
	for i := range half {
		freq := float32(1 / math.Pow(g.RopeTheta, float64(2*i)/float64(g.HeadDim)))
		for p := range n {
			angle := float64(float32(p) * freq)
			cos[p*half+i], sin[p*half+i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	return cos, sin
}
