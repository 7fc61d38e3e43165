package runtime

import (
	"errors"
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
//
// The Ring's LossScale is divided out of the norm and of the update; the
// gradients keep it where they lie.
type Optimizer struct {
	// First and Second are the running means of g and g^2; Steps counts the
	// updates made.
	First, Second *models.Weights
	Steps         int

	env        *Env
	ring       *Ring
	gradients  *models.Weights
	moments    [2]*arena
	norm, step *Binding
	stepCopy   *Binding // for elements that have a copy; nil where none have
	slices     []optimizerSlice
	scalars    map[string]*scratch[float32]
	sums       scratch[float32] // of squares, by slice
	found      scratch[float32] // how many gradients are not finite, by slice; in float16
}

// An optimizerSlice is the same elements of the four arenas and of the copy,
// which may be nil, and where the sum of the squares of its gradients goes and
// how many are not finite.
type optimizerSlice struct{ p, g, m, v, copy, sum, found *Value }

// OptimizerOptions say where an Optimizer keeps what. They change no result.
type OptimizerOptions struct {
	// Offload keeps the moments in the host's memory: each step then takes them
	// to the device and back, 16 bytes a parameter.
	Offload bool
}

// ErrOverflow says that gradients were too large for float16 with the Ring's
// LossScale. Nothing was updated.
var ErrOverflow = errors.New("runtime: gradients overflow float16")

const (
	// sliceElements bounds a slice, so that the dozen passes over it stay in
	// the cache.
	sliceElements = 1 << 18
	// deviceElements bounds it on a device, where it is the launches that are
	// to be few and what is between the passes that is not to be large.
	deviceElements = 1 << 24
)

// NewOptimizer starts with zero moments.
func (e *Env) NewOptimizer(r *Ring, gradients *models.Weights, options OptimizerOptions) (o *Optimizer, err error) {
	if err := r.on(e); err != nil {
		return nil, err
	}
	o = &Optimizer{env: e, sums: aside[float32](e), found: aside[float32](e), ring: r, gradients: gradients, scalars: make(map[string]*scratch[float32])}
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
	for i, w := range []*models.Weights{o.First, o.Second} {
		if options.Offload {
			o.moments[i] = &arena{host: w}
		} else if o.moments[i], err = e.hold(w, true); err != nil {
			return nil, err
		}
	}
	norm, step, err := r.Arch.Optimizer()
	if err != nil {
		return nil, err
	}
	programs := map[**Binding]models.Program{&o.norm: norm, &o.step: step}
	if r.arena.copy != nil {
		if programs[&o.stepCopy], _, _, err = r.Arch.Copy(); err != nil {
			return nil, err
		}
	}
	for b, p := range programs {
		s, err := e.Load(p)
		if err != nil {
			return nil, err
		}
		if *b, err = s.NewBinding(); err != nil {
			return nil, err
		}
	}
	if err := o.slice(); err != nil {
		return nil, err
	}
	return o, nil
}

// slice cuts the arenas into slices. What has a copy begins one and ends one.
func (o *Optimizer) slice() error {
	total, step := len(o.ring.Weights.Data), sliceElements
	if o.env.memory != nil {
		step = deviceElements
	}
	c := o.ring.arena.copy
	edges := []int{total}
	if c != nil {
		edges = []int{c.from, c.to, total}
	}
	var bounds []int // of the slices
	for from := 0; from < total; {
		bounds = append(bounds, from)
		for from == edges[0] {
			edges = edges[1:]
		}
		from = min(from+step, edges[0])
	}
	n := len(bounds)
	bounds = append(bounds, total)
	o.slices = make([]optimizerSlice, n)
	if _, _, err := o.sums.of(int64(n)); err != nil {
		return err
	}
	if _, _, err := o.found.of(int64(n)); err != nil {
		return err
	}
	sums, found := blockOf(o.env, &o.sums), blockOf(o.env, &o.found)
	for i := range o.slices {
		from, to, s := bounds[i], bounds[i+1], &o.slices[i]
		size := int64(to - from)
		var err error
		keep := func(to **Value, v *Value, failed error) {
			*to, err = v, errors.Join(err, failed)
		}
		for _, t := range []struct {
			v    **Value
			from *arena
		}{{&s.p, o.ring.arena}, {&s.g, o.env.held(o.gradients)}, {&s.m, o.moments[0]}, {&s.v, o.moments[1]}} {
			v, failed := t.from.value(from, to, size)
			keep(t.v, v, failed)
		}
		if c != nil && from >= c.from && to <= c.to {
			v, failed := c.block.value(from-c.from, size)
			keep(&s.copy, v, failed)
		}
		v, failed := sums.value(i)
		keep(&s.sum, v, failed)
		v, failed = found.value(i, 1)
		keep(&s.found, v, failed)
		if err != nil {
			return err
		}
	}
	return nil
}

// GradNorm returns the 2-norm of all gradients, without the LossScale. NaN and
// infinities are an error that names the tensor; in float16 ErrOverflow.
func (o *Optimizer) GradNorm() (float64, error) {
	total := 0.0
	_, scaled := o.norm.s.index[output]["found"]
	for _, s := range o.slices {
		b := binder{b: o.norm}
		b.in("g", s.g, nil)
		b.out("sum", s.sum, nil)
		if scaled {
			o.scalar(&b, "unscale", 1/o.ring.lossScale())
			b.out("found", s.found, nil)
		}
		if err := b.run(); err != nil {
			return 0, err
		}
	}
	if scaled {
		if err := o.found.pull(); err != nil {
			return 0, err
		}
		for _, n := range o.found.data[:len(o.slices)] {
			if n != 0 {
				return 0, ErrOverflow
			}
		}
	}
	if err := o.sums.pull(); err != nil {
		return 0, err
	}
	for _, sum := range o.sums.data[:len(o.slices)] {
		total += float64(sum)
	}
	if !scaled { // by a program that knows nothing of it
		total /= o.ring.lossScale() * o.ring.lossScale()
	}
	if math.IsNaN(total) || math.IsInf(total, 0) {
		if err := o.env.Download(o.gradients); err != nil {
			return 0, err
		}
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
	plain, copying := binder{b: o.step}, binder{b: o.stepCopy}
	for name, x := range map[string]float64{
		"clip": clip / o.ring.lossScale(), "beta1": a.Beta1, "rest1": 1 - a.Beta1, "beta2": a.Beta2, "rest2": 1 - a.Beta2, "eps": a.Eps,
		"rate": a.LearningRate / (1 - math.Pow(a.Beta1, t)),
		"root": 1 / math.Sqrt(1-math.Pow(a.Beta2, t)),
		"keep": 1 - a.LearningRate*a.WeightDecay,
	} {
		o.scalar(&plain, name, x)
		if o.stepCopy != nil {
			o.scalar(&copying, name, x)
		}
	}
	for _, s := range o.slices {
		b := &plain
		if s.copy != nil {
			b = &copying
			b.out("copy", s.copy, nil)
		}
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

// scalar binds a number.
func (o *Optimizer) scalar(b *binder, name string, x float64) {
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

// Close frees the sessions and the moments.
func (o *Optimizer) Close() {
	for _, b := range []*Binding{o.norm, o.step, o.stepCopy} {
		if b != nil {
			b.s.Close()
		}
	}
	for _, s := range o.slices {
		for _, v := range []*Value{s.p, s.g, s.m, s.v, s.copy, s.sum, s.found} {
			if v != nil {
				v.Close()
			}
		}
	}
	for _, s := range o.scalars {
		s.close()
	}
	o.sums.close()
	o.found.close()
	for _, a := range o.moments {
		a.close()
	}
	for _, w := range []*models.Weights{o.First, o.Second} {
		if w != nil {
			w.Close()
		}
	}
}
