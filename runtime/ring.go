package runtime

import (
	"fmt"
	"math"
	"slices"

	"onering/models"
)

// A Ring is the one copy of a model's weights as values that every session
// binds: rollout, scoring and training read the same memory and the optimizer
// writes it, so an update reaches the sampler at once and without a copy.
type Ring struct {
	Arch    models.Architecture
	Weights *models.Weights

	values map[string]*Value
}

// NewRing binds nothing yet; it makes a value for every tensor of the layout,
// by its Hugging Face name and by its fused name.
func NewRing(arch models.Architecture, w *models.Weights) (*Ring, error) {
	r := &Ring{Arch: arch, Weights: w}
	var err error
	if r.values, err = arenaValues(w); err != nil {
		return nil, err
	}
	return r, nil
}

// arenaValues returns a value for every name of the arena's layout.
func arenaValues(w *models.Weights) (map[string]*Value, error) {
	values := make(map[string]*Value)
	names := slices.Clone(w.Layout.Names())
	for _, f := range w.Layout.Fused() {
		names = append(names, f.Name)
	}
	for _, name := range names {
		if values[name] != nil {
			continue
		}
		data, shape, ok := w.View(name)
		if !ok {
			return nil, fmt.Errorf("runtime: the layout has no tensor %q", name)
		}
		v, err := NewValue(data, int64s(shape)...)
		if err != nil {
			closeValues(values)
			return nil, fmt.Errorf("runtime: tensor %q: %w", name, err)
		}
		values[name] = v
	}
	return values, nil
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
		if v := r.values[prefix+p.Name]; v != nil {
			if err := b.Input(p.Name, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close lets go of the values; the weights stay.
func (r *Ring) Close() { closeValues(r.values) }

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
