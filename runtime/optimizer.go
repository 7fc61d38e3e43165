package runtime

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"onering/models"
	"onering/models/ports"
	"onering/runtime/internal/tiles"
)

// An Optimizer holds an optimizer's state and updates a Ring's weights in place. It
// divides norms and updates by the Ring's LossScale, by which the gradients are
// multiplied.
type Optimizer struct {
	// State is the optimizer's state for each parameter, such as moments, by name in
	// checkpoints.
	State map[string]*models.Weights
	// Updates counts the updates so far.
	Updates int

	env       *Env
	ring      *Ring
	gradients *models.Weights
	rule      models.Optimizer
	arenas    map[string]*arena // the arenas of State, by port
	norm      *norm
	updates   []*update
	scalars   buffer // the rule's numbers, in the order of their names
	staging   staging
}

// An optimizerPart is a tensor, or a range of all elements.
type optimizerPart struct {
	binding    *Binding          // of its update; nil if code or the device's kernel updates it
	p, g, copy *Value            // weights, gradients, and the weights' 16-bit copy (may be nil)
	state      map[string]*Value // state by port
}

// NewOptimizer makes an Optimizer with a state of zeros.
func (e *Env) NewOptimizer(r *Ring, gradients *models.Weights, rule models.Optimizer) (*Optimizer, error) {
	if err := r.moveTo(e); err != nil {
		return nil, err
	}
	o := &Optimizer{
		env: e, ring: r, gradients: gradients, rule: rule,
		State: make(map[string]*models.Weights), arenas: make(map[string]*arena),
		scalars: e.buffer(models.F32), staging: staging{memory: e.memory},
	}
	if err := o.open(); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// open makes the state, loads the Programs and cuts the arenas into parts.
func (o *Optimizer) open() error {
	if o.ring.shares.parts > 1 && o.rule.ByTensor() {
		return errors.New("runtime: this optimizer updates whole tensors, so it cannot be kept in parts")
	}
	memory, own := o.env.memory, o.ring.shares.own()
	if o.ring.Offload.moments() {
		memory = host
	}
	for _, s := range o.rule.State() {
		w, err := models.NewWeights(o.ring.Trained().Layout)
		if err != nil {
			return err
		}
		o.State[s.Name] = w
		if o.arenas[s.Port], err = o.env.holdPieces(w, memory, own, true); err != nil {
			return err
		}
	}
	if err := o.openNorm(); err != nil {
		return err
	}
	if err := o.addParts(o.ring.shares.bounds); err != nil {
		return err
	}
	for _, u := range o.updates {
		if err := o.load(u); err != nil {
			return err
		}
	}
	return o.reserve()
}

// reserve allocates all memory for updates: running out in the middle of an update would
// leave weights that belong to no step.
func (o *Optimizer) reserve() error {
	o.staging.open(o.env, o.keptOnHost())
	for _, u := range o.updates {
		for _, p := range u.parts {
			for i := range o.staging.slots {
				if _, err := o.staging.at(i, p); err != nil {
					return err
				}
			}
		}
	}
	return o.scalars.allocate(len(o.rule.Scalars(1, 0)) + 1) // full size, so that a copy takes the whole buffer
}

// keptOnHost returns the ranges of the host's memory that updates read and write beside a
// device. Several threads clear new memory before the device locks it.
func (o *Optimizer) keptOnHost() (kept [][]byte) {
	keep := func(a *arena, r piece) (at unsafe.Pointer, bytes int) {
		at, bytes = a.address(r.from), (r.to-r.from)*a.dtype.Size()
		kept = append(kept, unsafe.Slice((*byte)(at), bytes))
		return at, bytes
	}
	for _, a := range o.arenas {
		if a.memory == o.env.memory {
			continue
		}
		for _, r := range a.held() {
			a.memory.Zero(keep(a, r))
		}
	}
	if o.stagesWeights() {
		for _, r := range o.ring.trained().masters.held() {
			keep(o.ring.trained().masters, r)
		}
	}
	return kept
}

// stagesWeights says whether the host holds weights for updates on a device.
func (o *Optimizer) stagesWeights() bool {
	m := o.ring.trained().masters
	return m != nil && m.memory != o.env.memory
}

// addParts adds the tensors or the ranges of elements as parts.
func (o *Optimizer) addParts(bounds []int) error {
	if o.rule.ByTensor() {
		for _, name := range o.ring.Trained().Layout.Names() {
			place, _ := o.ring.Trained().Layout.Find(name)
			if err := o.addPart(place.Offset, place.Shape, place.Shape); err != nil {
				return fmt.Errorf("runtime: the optimizer's update of %s: %w", name, err)
			}
		}
		return nil
	}
	for i, first := range bounds[:len(bounds)-1] {
		if !o.ring.shares.owns(i) {
			continue
		}
		for last := bounds[i+1]; first < last; {
			size := last - first
			if (o.ring.Offload.moments() || o.stagesWeights()) && !o.env.memory.Aliases() {
				size = min(size, stagedAtOnce)
			}
			if err := o.addPart(first, []int{size}, nil); err != nil {
				return err
			}
			first += size
		}
	}
	return nil
}

// addPart adds the elements from from on as a part, in tensors of the given dimensions.
// shape is the shape of the optimizer's Program, nil for any range.
func (o *Optimizer) addPart(from int, dims, shape []int) (err error) {
	size := 1
	for _, d := range dims {
		size *= d
	}
	part := &optimizerPart{state: make(map[string]*Value)}
	copy, rounded := models.F32, o.ring.trained().rounded
	if rounded != nil && rounded.holds(from, from+size) {
		copy = o.ring.Arch.Geometry().Compute
	}
	if part.g, err = o.env.arenaOf(o.gradients).view(from, int64s(dims)...); err != nil {
		return err
	}
	u, err := o.updateOf(shape, copy)
	if err != nil {
		part.g.Close()
		return err
	}
	u.parts = append(u.parts, part) // from here on Close frees it
	weights := o.ring.trained()
	if m := weights.masters; m != nil && m.holds(from, from+size) {
		weights = m
	}
	if part.p, err = weights.view(from, int64s(dims)...); err != nil {
		return err
	}
	for port, a := range o.arenas {
		if part.state[port], err = a.view(from, int64s(dims)...); err != nil {
			return err
		}
	}
	if copy != models.F32 {
		part.copy, err = rounded.view(from, int64s(dims)...)
	}
	return err
}

// updateOf returns the update for parts of a shape and with a 16-bit copy of a type.
func (o *Optimizer) updateOf(shape []int, copy models.DType) (*update, error) {
	for _, u := range o.updates {
		if u.copy == copy && slices.Equal(u.shape, shape) {
			return u, nil
		}
	}
	p, err := o.rule.Program(shape, copy)
	if err != nil {
		return nil, err
	}
	u := &update{program: p, shape: shape, copy: copy}
	o.updates = append(o.updates, u)
	return u, nil
}

// Update updates the weights with the gradients multiplied by clip. The gradients do
// not change. After an error some weights may be updated and others not.
func (o *Optimizer) Update(rate, clip float64) error {
	scalars := o.rule.Scalars(o.Updates+1, rate)
	scalars[ports.Clip] = clip / o.ring.lossScale()
	if err := o.give(scalars); err != nil {
		return err
	}
	var parts []*optimizerPart
	for _, u := range o.updates {
		if u.code == nil {
			parts = append(parts, u.parts...)
		} else if err := u.runTiles(o.env.Threads(), scalars); err != nil {
			return err
		}
	}
	run := func(p *optimizerPart) error {
		if p.binding == nil {
			return o.runKernel(p, scalars)
		}
		return o.run(p)
	}
	if err := o.staging.each(parts, run); err != nil {
		return err
	}
	if err := o.ring.trained().renew(); err != nil {
		return err
	}
	o.Updates++
	return nil
}

// give passes the scalars to the runs.
func (o *Optimizer) give(scalars map[string]float64) error {
	names := slices.Sorted(maps.Keys(scalars))
	for _, u := range o.updates {
		if reads := scalarsOf(u.program); u.code == nil && !slices.Equal(reads, names) {
			return fmt.Errorf("runtime: the optimizer gives %q, and its update %q reads %q", names, u.program.Name, reads)
		}
	}
	data, _, err := sized[float32](&o.scalars, int64(len(names)))
	if err != nil {
		return err
	}
	for i, name := range names {
		data[i] = float32(scalars[name])
	}
	return o.scalars.push()
}

// run updates a part that is on the device, by a session.
func (o *Optimizer) run(p *optimizerPart) error {
	b := binder{b: p.binding}
	b.in(portScalars, o.scalars.value, nil)
	b.in(ports.Param, p.p, nil)
	b.in(ports.Grad, p.g, nil)
	b.out(ports.ParamOut, p.p, nil)
	for port, v := range p.state {
		b.in(port, v, nil)
		b.out(port+"1", v, nil)
	}
	if p.copy != nil {
		b.out(ports.Copy, p.copy, nil)
	}
	return b.run()
}

// runKernel updates a part that is on the device, with the device's kernel.
func (o *Optimizer) runKernel(p *optimizerPart, scalars map[string]float64) error {
	at := map[string]unsafe.Pointer{ports.Param: p.p.data, ports.Grad: p.g.data}
	for port, v := range p.state {
		at[port] = v.data
	}
	half := false
	if p.copy != nil {
		at[ports.Copy], half = p.copy.data, p.copy.dtype == models.F16
	}
	return o.env.memory.Kernels.Update(p.p.bytes/models.F32.Size(), at, half, scalars)
}

// An update is a Program and the parts that it updates: in runs of sessions or, on the
// CPU if every operator is element-wise, by code with bit-identical results, or by a
// kernel of the device. Code reads and writes weights, gradients and moments once, 28
// bytes for each parameter with AdamW.
type update struct {
	program models.Program
	shape   []int        // the Program's shape; nil for any range
	copy    models.DType // type of the 16-bit copy, or F32
	parts   []*optimizerPart
	binding *Binding // nil if code or the device's kernel updates the parts
	code    *tiles.Code
}

// load makes the code or the session of an update.
func (o *Optimizer) load(u *update) (err error) {
	if o.env.memory.Aliases() {
		// ONNX Runtime runs Programs that are not element-wise.
		if u.code, err = tiles.Compile(u.program); err == nil {
			return nil
		}
	}
	return o.loadSession(u)
}

// loadSession makes the session of an update, unless the device has a kernel for it.
func (o *Optimizer) loadSession(u *update) (err error) {
	if k := o.env.memory.Kernels; k != nil && k.Updates(u.program.Name) {
		return nil
	}
	if u.binding, err = loadBinding(o.env, withScalars(u.program)); err != nil {
		return err
	}
	for _, p := range u.parts {
		p.binding = u.binding
	}
	return nil
}

// runTiles updates the parts with the Program's code.
func (u *update) runTiles(threads int, scalars map[string]float64) error {
	numbers := make([]float32, len(u.code.Scalars))
	for i, name := range u.code.Scalars {
		x, ok := scalars[name]
		if !ok {
			return fmt.Errorf("runtime: the optimizer gives no %q, which its update reads", name)
		}
		numbers[i] = float32(x)
	}
	failed := make([]error, len(u.parts))
	models.AtOnce(threads, len(u.parts), func(i int) {
		p := u.parts[i]
		arrays := make([][]float32, len(u.code.Inputs))
		for i, name := range u.code.Inputs {
			v := p.state[name]
			switch name {
			case ports.Param:
				v = p.p
			case ports.Grad:
				v = p.g
			}
			arrays[i] = valuesOf[float32](v)
		}
		failed[i] = u.code.Run(arrays, numbers)
	})
	return errors.Join(failed...)
}

// Close frees the sessions and the state.
func (o *Optimizer) Close() {
	if o.norm != nil {
		o.norm.close()
	}
	for _, u := range o.updates {
		closeSessions(u.binding)
		for _, part := range u.parts {
			closeValues(part.p, part.g, part.copy)
			for _, v := range part.state {
				closeValues(v)
			}
		}
	}
	o.scalars.close()
	o.staging.close()
	for _, a := range o.arenas {
		a.close()
	}
	for _, w := range o.State {
		w.Close()
	}
}
