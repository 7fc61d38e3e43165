package runtime

import (
	"errors"
	"fmt"
	"math"

	"onering/models"
	"onering/models/ports"
)

// An Optimizer holds an optimizer's state and updates a Ring's weights in place.
//
// It divides the Ring's LossScale out of the norm and of the update; the
// gradients themselves keep it.
type Optimizer struct {
	// State is what is kept for each parameter, by its name in checkpoints.
	State map[string]*models.Weights
	// Updates counts the updates made.
	Updates int

	env       *Env
	ring      *Ring
	gradients *models.Weights
	rule      models.Optimizer
	arenas    map[string]*arena // of State, by port
	norm      *Binding
	slices    []normSlice
	programs  map[string]*Binding // that update, by shape and whether they write a copy
	parts     []optimizerPart
	scalars   map[string]*buffer
	sums      buffer // of squares, by slice
	found     buffer // how many gradients are not finite, by slice; in float16
}

// A normSlice is a slice of the gradients, and where the sum of its squares goes
// and how many of its elements are not finite.
type normSlice struct{ g, sum, found *Value }

// An optimizerPart is what one run of an update's Program changes: a slice of all
// elements, or a tensor.
type optimizerPart struct {
	program    *Binding
	p, g, copy *Value // copy is nil where the elements have no 16-bit copy
	state      map[string]*Value
}

// OptimizerOptions say where an Optimizer keeps what. They change no result.
type OptimizerOptions struct {
	// Offload keeps the state in the host's memory: each update then takes it to
	// the device and back, for AdamW 16 bytes a parameter.
	Offload bool
}

// ErrOverflow says that gradients were too large for float16 with the Ring's
// LossScale. Nothing was updated.
var ErrOverflow = errors.New("runtime: gradients overflow float16")

// NewOptimizer starts with a state of zeros.
func (e *Env) NewOptimizer(r *Ring, gradients *models.Weights, rule models.Optimizer, options OptimizerOptions) (*Optimizer, error) {
	if err := r.on(e); err != nil {
		return nil, err
	}
	o := &Optimizer{
		env: e, ring: r, gradients: gradients, rule: rule, sums: e.buffer(models.F32), found: e.buffer(models.F32),
		State: make(map[string]*models.Weights), arenas: make(map[string]*arena), programs: make(map[string]*Binding), scalars: make(map[string]*buffer),
	}
	if err := o.open(options); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// open makes the state, loads the Programs and cuts the arenas into parts.
func (o *Optimizer) open(options OptimizerOptions) error {
	for _, s := range o.rule.State() {
		w, err := models.NewWeights(o.ring.Weights.Layout)
		if err != nil {
			return err
		}
		o.State[s.Name] = w
		if options.Offload {
			o.arenas[s.Port] = hostArena(w)
		} else if o.arenas[s.Port], err = o.env.hold(w, true); err != nil {
			return err
		}
	}
	norm, err := o.ring.Arch.GradNorm()
	if err != nil {
		return err
	}
	if o.norm, err = o.load(norm); err != nil {
		return err
	}
	if err := o.slice(); err != nil {
		return err
	}
	if o.rule.ByTensor() {
		for _, name := range o.ring.Weights.Layout.Names() {
			place, _ := o.ring.Weights.Layout.Find(name)
			if err := o.addPart(place.Offset, place.Shape, place.Shape); err != nil {
				return fmt.Errorf("runtime: the optimizer's update of %s: %w", name, err)
			}
		}
		return nil
	}
	bounds := o.bounds()
	for i, from := range bounds[:len(bounds)-1] {
		if err := o.addPart(from, []int{bounds[i+1] - from}, nil); err != nil {
			return err
		}
	}
	return nil
}

func (o *Optimizer) load(p models.Program) (*Binding, error) {
	s, err := o.env.Load(p)
	if err != nil {
		return nil, err
	}
	return s.NewBinding()
}

// slice cuts the gradients for their norm.
func (o *Optimizer) slice() error {
	bounds := o.bounds()
	n := len(bounds) - 1
	o.slices = make([]normSlice, n)
	if _, err := o.sums.of(int64(n)); err != nil {
		return err
	}
	if _, err := o.found.of(int64(n)); err != nil {
		return err
	}
	for i := range o.slices {
		var err error
		s := &o.slices[i]
		if s.g, err = o.env.held(o.gradients).view(bounds[i], int64(bounds[i+1]-bounds[i])); err != nil {
			return err
		}
		if s.sum, err = o.sums.view(i); err != nil {
			return err
		}
		if s.found, err = o.found.view(i, 1); err != nil {
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

// addPart adds the elements from from on, of the given dimensions, which a Program
// for shape updates.
func (o *Optimizer) addPart(from int, dims, shape []int) (err error) {
	size := 1
	for _, d := range dims {
		size *= d
	}
	o.parts = append(o.parts, optimizerPart{state: make(map[string]*Value)})
	part := &o.parts[len(o.parts)-1]
	if part.p, err = o.ring.arena.view(from, int64s(dims)...); err != nil {
		return err
	}
	if part.g, err = o.env.held(o.gradients).view(from, int64s(dims)...); err != nil {
		return err
	}
	for port, a := range o.arenas {
		if part.state[port], err = a.view(from, int64s(dims)...); err != nil {
			return err
		}
	}
	copy := models.F32
	if c := o.ring.arena.rounded; c != nil && c.holds(from, from+size) {
		copy = o.ring.Arch.Geometry().Compute
		if part.copy, err = c.view(from, int64s(dims)...); err != nil {
			return err
		}
	}
	key := fmt.Sprint(shape, copy)
	if o.programs[key] == nil {
		p, err := o.rule.Program(shape, copy)
		if err != nil {
			return err
		}
		if o.programs[key], err = o.load(p); err != nil {
			return err
		}
	}
	part.program = o.programs[key]
	return nil
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

// Update updates the weights at a learning rate with the gradients multiplied by
// clip. The gradients stay as they are. After an error part of the weights may be
// updated.
func (o *Optimizer) Update(rate, clip float64) error {
	scalars := o.rule.Scalars(o.Updates+1, rate)
	scalars[ports.Clip] = clip / o.ring.lossScale()
	for _, program := range o.programs {
		b := binder{b: program}
		for name, x := range scalars {
			o.scalar(&b, name, x)
		}
		if b.err != nil {
			return b.err
		}
	}
	for _, part := range o.parts {
		b := binder{b: part.program}
		b.in(ports.Param, part.p, nil)
		b.in(ports.Grad, part.g, nil)
		b.out(ports.ParamOut, part.p, nil)
		for port, v := range part.state {
			b.in(port, v, nil)
			b.out(port+"1", v, nil)
		}
		if part.copy != nil {
			b.out(ports.Copy, part.copy, nil)
		}
		if err := b.run(); err != nil {
			return err
		}
	}
	o.Updates++
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

// Close frees the sessions and the state.
func (o *Optimizer) Close() {
	closeSessions(o.norm)
	for _, program := range o.programs {
		closeSessions(program)
	}
	for _, s := range o.slices {
		closeValues(s.g, s.sum, s.found)
	}
	for _, part := range o.parts {
		closeValues(part.p, part.g, part.copy)
		for _, v := range part.state {
			closeValues(v)
		}
	}
	for _, s := range o.scalars {
		s.close()
	}
	closeBuffers(&o.sums, &o.found)
	for _, a := range o.arenas {
		a.close()
	}
	for _, w := range o.State {
		w.Close()
	}
}
