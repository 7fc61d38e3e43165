package runtime

import (
	"errors"
	"fmt"
	"math"

	"onering/models"
	"onering/models/ports"
)

// AdamW are the settings of one update; the names are PyTorch's.
type AdamW struct{ LearningRate, Beta1, Beta2, Eps, WeightDecay float64 }

// An Optimizer holds AdamW's moments and updates a Ring's weights in place.
//
// It divides the Ring's LossScale out of the norm and of the update; the
// gradients themselves keep it.
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
	stepCopy   *Binding // for elements that have a 16-bit copy; nil where none have
	slices     []optimizerSlice
	scalars    map[string]*buffer
	sums       buffer // of squares, by slice
	found      buffer // how many gradients are not finite, by slice; in float16
}

// An optimizerSlice is the same elements of weights, gradients, moments and of
// the weights' 16-bit copy, which may be nil, and where the sum of the squares of
// its gradients goes and how many of them are not finite.
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

// NewOptimizer starts with zero moments.
func (e *Env) NewOptimizer(r *Ring, gradients *models.Weights, options OptimizerOptions) (*Optimizer, error) {
	if err := r.on(e); err != nil {
		return nil, err
	}
	o := &Optimizer{env: e, ring: r, gradients: gradients, scalars: make(map[string]*buffer), sums: e.buffer(models.F32), found: e.buffer(models.F32)}
	if err := o.open(options); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// open makes the moments, loads the Programs and cuts the arenas into slices.
func (o *Optimizer) open(options OptimizerOptions) (err error) {
	for i, w := range []**models.Weights{&o.First, &o.Second} {
		if *w, err = models.NewWeights(o.ring.Weights.Layout); err != nil {
			return err
		}
		if options.Offload {
			o.moments[i] = hostArena(*w)
		} else if o.moments[i], err = o.env.hold(*w, true); err != nil {
			return err
		}
	}
	norm, step, err := o.ring.Arch.Optimizer()
	if err != nil {
		return err
	}
	programs := map[**Binding]models.Program{&o.norm: norm, &o.step: step}
	if o.ring.arena.rounded != nil {
		if programs[&o.stepCopy], _, _, err = o.ring.Arch.Copy(); err != nil {
			return err
		}
	}
	for b, p := range programs {
		s, err := o.env.Load(p)
		if err != nil {
			return err
		}
		if *b, err = s.NewBinding(); err != nil {
			return err
		}
	}
	return o.slice()
}

// slice cuts the arenas into slices.
func (o *Optimizer) slice() error {
	bounds := o.bounds()
	n := len(bounds) - 1
	o.slices = make([]optimizerSlice, n)
	if _, err := o.sums.of(int64(n)); err != nil {
		return err
	}
	if _, err := o.found.of(int64(n)); err != nil {
		return err
	}
	for i := range o.slices {
		if err := o.slices[i].open(o, bounds[i], bounds[i+1], i); err != nil {
			return err
		}
	}
	return nil
}

// bounds are where the slices begin, and the number of all elements. What has a
// 16-bit copy begins one and ends one.
func (o *Optimizer) bounds() (bounds []int) {
	total := len(o.ring.Weights.Data)
	edges := []int{total}
	if c := o.ring.arena.rounded; c != nil {
		edges = []int{c.from, c.to, total}
	}
	for from := 0; from < total; {
		bounds = append(bounds, from)
		for from == edges[0] {
			edges = edges[1:]
		}
		from = min(from+o.env.memory.elementwise(), edges[0])
	}
	return append(bounds, total)
}

// open makes the Values of slice i, the elements from and up to to.
func (s *optimizerSlice) open(o *Optimizer, from, to, i int) (err error) {
	size := int64(to - from)
	for _, t := range []struct {
		v    **Value
		from *arena
	}{{&s.p, o.ring.arena}, {&s.g, o.env.held(o.gradients)}, {&s.m, o.moments[0]}, {&s.v, o.moments[1]}} {
		if *t.v, err = t.from.view(from, size); err != nil {
			return err
		}
	}
	if c := o.ring.arena.rounded; c != nil && c.holds(from, to) {
		if s.copy, err = c.view(from, size); err != nil {
			return err
		}
	}
	if s.sum, err = o.sums.view(i); err != nil {
		return err
	}
	s.found, err = o.found.view(i, 1)
	return err
}

// GradNorm returns the 2-norm of all gradients, without the LossScale. NaN and
// infinities are an error that names the tensor; in float16 ErrOverflow.
func (o *Optimizer) GradNorm() (float64, error) {
	total := 0.0
	_, scaled := o.norm.s.index[output][ports.NotFinite]
	for _, s := range o.slices {
		b := binder{b: o.norm}
		b.in(ports.Grad, s.g, nil)
		b.out(ports.SquareSum, s.sum, nil)
		if scaled {
			o.scalar(&b, ports.Unscale, 1/o.ring.lossScale())
			b.out(ports.NotFinite, s.found, nil)
		}
		if err := b.run(); err != nil {
			return 0, err
		}
	}
	if scaled {
		found, err := pulled[float32](&o.found)
		if err != nil {
			return 0, err
		}
		for _, n := range found {
			if n != 0 {
				return 0, ErrOverflow
			}
		}
	}
	sums, err := pulled[float32](&o.sums)
	if err != nil {
		return 0, err
	}
	for _, sum := range sums {
		total += float64(sum)
	}
	if !scaled { // the Program does not divide by the LossScale
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

// Update updates the weights with the gradients multiplied by clip. The gradients
// stay as they are. After an error part of the weights may be updated.
func (o *Optimizer) Update(a AdamW, clip float64) error {
	t := float64(o.Steps + 1)
	plain, copying := binder{b: o.step}, binder{b: o.stepCopy}
	for name, x := range map[string]float64{
		ports.Clip: clip / o.ring.lossScale(), ports.Beta1: a.Beta1, ports.Beta1Rest: 1 - a.Beta1, ports.Beta2: a.Beta2, ports.Beta2Rest: 1 - a.Beta2, ports.Eps: a.Eps,
		ports.Rate:        a.LearningRate / (1 - math.Pow(a.Beta1, t)),
		ports.SecondScale: 1 / math.Sqrt(1-math.Pow(a.Beta2, t)),
		ports.Keep:        1 - a.LearningRate*a.WeightDecay,
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
			b.out(ports.Copy, s.copy, nil)
		}
		b.in(ports.Param, s.p, nil)
		b.in(ports.Grad, s.g, nil)
		b.in(ports.First, s.m, nil)
		b.in(ports.Second, s.v, nil)
		b.out(ports.ParamOut, s.p, nil)
		b.out(ports.FirstOut, s.m, nil)
		b.out(ports.SecondOut, s.v, nil)
		if err := b.run(); err != nil {
			return err
		}
	}
	o.Steps++
	return nil
}

// scalar binds a number.
func (o *Optimizer) scalar(b *binder, name string, x float64) {
	s := o.scalars[name]
	if s == nil {
		empty := hostBuffer(models.F32)
		s = &empty
		o.scalars[name] = s
	}
	if data := fill[float32](b, name, s); data != nil {
		data[0] = float32(x)
	}
}

// Close frees the sessions and the moments.
func (o *Optimizer) Close() {
	closeSessions(o.norm, o.step, o.stepCopy)
	for _, s := range o.slices {
		closeValues(s.p, s.g, s.m, s.v, s.copy, s.sum, s.found)
	}
	for _, s := range o.scalars {
		s.close()
	}
	closeBuffers(&o.sums, &o.found)
	for _, a := range o.moments {
		a.close()
	}
	for _, w := range []*models.Weights{o.First, o.Second} {
		if w != nil {
			w.Close()
		}
	}
}
