package runtime

import (
	"fmt"
	"math"

	"onering/models"
)

// AdamW are the settings of one step; the names are PyTorch's.
type AdamW struct {
	LearningRate, Beta1, Beta2, Eps, WeightDecay float64
	// MaxGradNorm scales the gradients so that their norm is at most this; 0
	// leaves them alone.
	MaxGradNorm float64
}

// An Optimizer holds AdamW's moments and updates a Ring's weights in place.
type Optimizer struct {
	// First and Second are the running means of g and g^2; Steps counts the
	// updates made.
	First, Second *models.Weights
	Steps         int

	ring       *Ring
	gradients  *models.Weights
	norm, step *Binding
	slices     []optimizerSlice
	scalars    map[string]*scratch[float32]
	sum        scratch[float32]
}

// An optimizerSlice is the same elements of the four arenas.
type optimizerSlice struct{ p, g, m, v *Value }

// sliceElements bounds a slice, so that the dozen passes over it stay in the
// cache.
const sliceElements = 1 << 18

// NewOptimizer starts with zero moments.
func (e *Env) NewOptimizer(r *Ring, gradients *models.Weights) (o *Optimizer, err error) {
	o = &Optimizer{ring: r, gradients: gradients, scalars: make(map[string]*scratch[float32])}
	made := o // which a return of nil hides
	defer func() {
		if err != nil {
			made.Close()
		}
	}()
	if o.First, err = models.NewWeights(r.Weights.Layout); err != nil {
		return nil, err
	}
	if o.Second, err = models.NewWeights(r.Weights.Layout); err != nil {
		return nil, err
	}
	norm, step, err := r.Arch.Optimizer()
	if err != nil {
		return nil, err
	}
	for b, p := range map[**Binding]models.Program{&o.norm: norm, &o.step: step} {
		s, err := e.Load(p)
		if err != nil {
			return nil, err
		}
		if *b, err = s.NewBinding(); err != nil {
			return nil, err
		}
	}
	for from := 0; from < len(r.Weights.Data); from += sliceElements {
		to := min(from+sliceElements, len(r.Weights.Data))
		var s optimizerSlice
		for _, t := range []struct {
			v    **Value
			from *models.Weights
		}{{&s.p, r.Weights}, {&s.g, gradients}, {&s.m, o.First}, {&s.v, o.Second}} {
			if *t.v, err = NewValue(t.from.Data[from:to], int64(to-from)); err != nil {
				return nil, err
			}
		}
		o.slices = append(o.slices, s)
	}
	return o, nil
}

// GradNorm returns the 2-norm of all gradients. NaN and infinities are an
// error that names the tensor.
func (o *Optimizer) GradNorm() (float64, error) {
	total := 0.0
	for _, s := range o.slices {
		b := binder{b: o.norm}
		b.in("g", s.g, nil)
		sum, v, err := o.sum.of()
		b.out("sum", v, err)
		if err := b.run(); err != nil {
			return 0, err
		}
		total += float64(sum[0])
	}
	if math.IsNaN(total) || math.IsInf(total, 0) {
		return 0, NotFinite("gradient", o.gradients)
	}
	return math.Sqrt(total), nil
}

// A NotFiniteError names a tensor that holds NaN or an infinity.
type NotFiniteError struct {
	What, Tensor string
	Index        int
	Value        float32
}

func (e *NotFiniteError) Error() string {
	return fmt.Sprintf("runtime: the %s of %s is %v at element %d; nothing was updated", e.What, e.Tensor, e.Value, e.Index)
}

// NotFinite returns an error naming the first element of w that is NaN or
// infinite, or one that says that only a sum overflowed.
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

// Step clips the gradients by their norm, updates the weights and returns the
// norm before clipping. The gradients are left as they are.
func (o *Optimizer) Step(a AdamW) (norm float64, err error) {
	if norm, err = o.GradNorm(); err != nil {
		return 0, err
	}
	clip := 1.0
	if a.MaxGradNorm > 0 {
		// As torch.nn.utils.clip_grad_norm_ does.
		clip = min(1, a.MaxGradNorm/(norm+1e-6))
	}
	t := float64(o.Steps + 1)
	b := binder{b: o.step}
	for name, x := range map[string]float64{
		"clip": clip, "beta1": a.Beta1, "rest1": 1 - a.Beta1, "beta2": a.Beta2, "rest2": 1 - a.Beta2, "eps": a.Eps,
		"rate": a.LearningRate / (1 - math.Pow(a.Beta1, t)),
		"root": 1 / math.Sqrt(1-math.Pow(a.Beta2, t)),
		"keep": 1 - a.LearningRate*a.WeightDecay,
	} {
		s := o.scalars[name]
		if s == nil {
			s = &scratch[float32]{}
			o.scalars[name] = s
		}
		data, v, err := s.of()
		b.in(name, v, err)
		if err == nil {
			data[0] = float32(x)
		}
	}
	for _, s := range o.slices {
		b.in("p", s.p, nil)
		b.in("g", s.g, nil)
		b.in("m", s.m, nil)
		b.in("v", s.v, nil)
		b.out("p1", s.p, nil)
		b.out("m1", s.m, nil)
		b.out("v1", s.v, nil)
		if err := b.run(); err != nil {
			return 0, err
		}
	}
	o.Steps++
	return norm, nil
}

// Close frees the sessions and the moments.
func (o *Optimizer) Close() {
	for _, b := range []*Binding{o.norm, o.step} {
		if b != nil {
			b.s.Close()
		}
	}
	for _, s := range o.slices {
		for _, v := range []*Value{s.p, s.g, s.m, s.v} {
			v.Close()
		}
	}
	for _, s := range o.scalars {
		s.close()
	}
	o.sum.close()
	for _, w := range []*models.Weights{o.First, o.Second} {
		if w != nil {
			w.Close()
		}
	}
}
