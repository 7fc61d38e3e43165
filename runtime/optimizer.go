package runtime

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
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
	norm      norm
	updates   []*update
	parts     []part
	scalars   buffer // the rule's numbers, in the order of their names
	joined    buffer // a tensor that the ring has in halves, while a session updates it
	staging   staging
}

// A part is a tensor or a range of elements that one run updates: weights, gradients, state
// and the weights' 16-bit copy, if there is one, by port.
type part struct {
	update *update
	values map[string]*Value
}

// NewOptimizer makes an Optimizer with a state of zeros.
func (e *Env) NewOptimizer(r *Ring, gradients *models.Weights, rule models.Optimizer) (*Optimizer, error) {
	if err := r.moveTo(e); err != nil {
		return nil, err
	}
	o := &Optimizer{
		env: e, ring: r, gradients: gradients, rule: rule,
		State: make(map[string]*models.Weights), scalars: e.buffer(models.F32), joined: e.buffer(models.F32), staging: staging{memory: e.memory},
	}
	if err := o.open(); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// open makes the state, cuts the arenas into parts, loads the Programs and allocates all
// memory of updates.
func (o *Optimizer) open() error {
	if o.ring.shares.parts > 1 && o.rule.ByTensor() {
		return errors.New("runtime: this optimizer updates whole tensors, so it cannot be kept in parts")
	}
	in := o.env.memory
	if o.ring.Offload.hasMoments() {
		in = host
	}
	for _, x := range o.rule.State() {
		w, err := models.NewWeights(o.ring.Trained().Layout)
		if err != nil {
			return err
		}
		o.State[x.Name] = w
		if _, err = o.env.holdZeros(w, in, o.ring.shares.ownPieces()); err != nil {
			return err
		}
	}
	if err := o.openNorm(); err != nil {
		return err
	}
	if err := o.addParts(); err != nil {
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
	for _, p := range o.parts {
		for i := range o.staging.slots {
			if _, err := o.staging.at(i, p); err != nil {
				return err
			}
		}
	}
	if err := o.joined.allocate(o.joinedElements()); err != nil {
		return err
	}
	return o.scalars.allocate(len(o.rule.Scalars(1, 0)) + 1) // full size, so that a copy takes the whole buffer
}

// joinedElements returns how many elements the largest part has whose halves are put together
// for a session.
func (o *Optimizer) joinedElements() (n int) {
	for _, p := range o.parts {
		if h := p.halves(); h != nil && p.update.code == nil {
			n = max(n, len(h.Low))
		}
	}
	return n
}

// lockedPage is how many elements the largest page of the host's memory has. Pages are locked
// as a whole, so blocks that are nearer are locked together.
const lockedPage = 1 << 14

// keptOnHost returns the ranges of the host's memory that updates read and write beside a
// device.
func (o *Optimizer) keptOnHost() (kept [][]byte) {
	weights := []*models.Weights{o.ring.Trained()}
	for _, w := range o.State {
		weights = append(weights, w)
	}
	for _, w := range weights {
		var x piece
		keep := func() {
			if x.size() > 0 {
				kept = append(kept, models.Bytes(w.Data[x.from:x.to]))
			}
		}
		for _, b := range o.env.arenaOf(w).blocks {
			switch {
			case b.memory == o.env.memory:
			case x.size() > 0 && b.from < x.to+lockedPage:
				x.to = b.to
			default:
				keep()
				x = b.piece
			}
		}
		keep()
	}
	return kept
}

// addParts cuts what this Optimizer owns into parts: whole tensors, or ranges of elements
// that lie together. Those that the host keeps a part of are small enough to be staged.
func (o *Optimizer) addParts() error {
	weights, l := o.ring.trained(), o.ring.Trained().Layout
	if o.rule.ByTensor() {
		for _, name := range l.Names() {
			place, _ := l.Find(name)
			if err := o.addPart(piece{place.Offset, place.Offset + place.Size}, place.Shape); err != nil {
				return fmt.Errorf("runtime: the optimizer's update of %s: %w", name, err)
			}
		}
		return nil
	}
	s := &o.ring.shares
	for i, first := range s.bounds[:len(s.bounds)-1] {
		if !s.owns(i) {
			continue
		}
		for _, b := range weights.blocks {
			x := b.and(piece{first, s.bounds[i+1]})
			size := x.size()
			if o.ring.Offload.hasMoments() && !o.env.memory.IsHost() || b.memory != o.env.memory {
				size = stagedAtOnce
			}
			for ; x.from < x.to; x.from += size {
				if err := o.addPart(piece{x.from, min(x.from+size, x.to)}, nil); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// addPart adds elements as a part; shape is that of the optimizer's Program, nil for any
// range.
func (o *Optimizer) addPart(x piece, shape []int) error {
	weights, copied := o.ring.trained(), models.F32
	if weights.copy.and(x) == x {
		copied = weights.copy.dtype
	}
	from, err := weights.of(x)
	if err != nil {
		return err
	}
	program := copied
	if from.dtype != models.F32 {
		program = models.F32 // the halves are put together for it
	}
	u, err := o.updateOf(shape, program)
	if err != nil {
		return err
	}
	dims := []int64{int64(x.size())}
	if shape != nil {
		dims = int64s(shape)
	}
	p := part{u, make(map[string]*Value)}
	o.parts = append(o.parts, p) // from here on Close frees it
	if copied != models.F32 {
		if p.values[ports.Copy], err = weights.copy.view(x.from, dims...); err != nil {
			return err
		}
	}
	of := map[string]*arena{ports.Param: weights, ports.Grad: o.env.arenaOf(o.gradients)}
	for _, s := range o.rule.State() {
		of[s.Port] = o.env.arenaOf(o.State[s.Name])
	}
	for _, port := range slices.Sorted(maps.Keys(of)) {
		if p.values[port], err = of[port].view(x.from, dims...); err != nil {
			return err
		}
	}
	return nil
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
	var tiled, others []part
	for _, p := range o.parts {
		if p.update.code != nil {
			tiled = append(tiled, p)
		} else {
			others = append(others, p)
		}
	}
	failed := make([]error, len(tiled))
	models.AtOnce(o.env.Threads(), len(tiled), func(i int) { failed[i] = tiled[i].runTiles(scalars) })
	if err := errors.Join(failed...); err != nil {
		return err
	}
	err := o.staging.each(others, func(p part) error {
		if p.update.binding == nil {
			return o.runKernel(p, scalars)
		}
		return o.run(p)
	})
	if err != nil {
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
func (o *Optimizer) run(p part) error {
	if h := p.halves(); h != nil {
		whole, v, err := sized[float32](&o.joined, p.values[ports.Param].shape...)
		if err != nil {
			return err
		}
		h.Join(whole)
		defer h.Split(whole)
		p.values = maps.Clone(p.values)
		p.values[ports.Param] = v
		delete(p.values, ports.Copy)
	}
	b := p.update.binding.begin()
	b.in(portScalars, o.scalars.value, nil)
	for port, v := range p.values {
		switch port {
		case ports.Copy:
			b.out(port, v, nil)
		case ports.Grad:
			b.in(port, v, nil)
		default: // weights and state are written in place
			b.in(port, v, nil)
			b.out(port+"1", v, nil)
		}
	}
	return b.run()
}

// runKernel updates a part that is on the device, with the device's kernel.
func (o *Optimizer) runKernel(p part, scalars map[string]float64) error {
	at := make(map[string]unsafe.Pointer)
	for port, v := range p.values {
		at[port] = v.data
	}
	return o.env.memory.Kernels.Update(p.values[ports.Param].bytes/models.F32.Size(), at, p.update.copy == models.F16, scalars)
}

// halves returns the halves of the weights of a part; nil if it has them in float32.
func (p part) halves() *tiles.Halves {
	v := p.values[ports.Param]
	if v.dtype == models.F32 {
		return nil
	}
	h := tiles.HalvesAt(p.values[ports.Copy].data, v.data, v.bytes/v.dtype.Size())
	return &h
}

// joinedAtOnce is how many elements of halves an update puts together at once: few enough that
// they stay in the cache of a core, and enough that the calls of C take no time.
const joinedAtOnce = 1 << 14

// joinedParts has the memory for as many, of each thread.
var joinedParts = sync.Pool{New: func() any { return make([]float32, joinedAtOnce) }}

// runTiles updates a part on the CPU by the Program's code.
func (p part) runTiles(scalars map[string]float64) error {
	code := p.update.code
	arrays, numbers := make([][]float32, len(code.Inputs)), make([]float32, len(code.Scalars))
	halves := p.halves()
	for i, port := range code.Inputs {
		if halves == nil || port != ports.Param {
			arrays[i] = valuesOf[float32](p.values[port])
		}
	}
	for i, name := range code.Scalars {
		x, ok := scalars[name]
		if !ok {
			return fmt.Errorf("runtime: the optimizer gives no %q, which its update reads", name)
		}
		numbers[i] = float32(x)
	}
	if halves != nil {
		return runHalves(code, *halves, slices.Index(code.Inputs, ports.Param), arrays, numbers)
	}
	err := code.Run(arrays, numbers)
	if v := p.values[ports.Copy]; v != nil && err == nil {
		models.Encode(unsafe.Slice((*byte)(v.data), v.bytes), valuesOf[float32](p.values[ports.Param]), p.update.copy)
	}
	return err
}

// runHalves runs the code on arrays of which number i is in halves, in the order of elements.
func runHalves(code *tiles.Code, h tiles.Halves, i int, arrays [][]float32, numbers []float32) error {
	whole, some := joinedParts.Get().([]float32), make([][]float32, len(arrays))
	defer joinedParts.Put(whole)
	for from := 0; from < len(h.Low); from += len(whole) {
		to := min(from+len(whole), len(h.Low))
		for k, a := range arrays {
			if k == i {
				some[k] = whole[:to-from]
			} else {
				some[k] = a[from:to]
			}
		}
		part := tiles.Halves{High: h.High[from:to], Low: h.Low[from:to]}
		part.Join(some[i])
		if err := code.Run(some, numbers); err != nil {
			return err
		}
		part.Split(some[i])
	}
	return nil
}

// An update is a Program that updates parts: in runs of sessions or, on the CPU if every
// operator is element-wise, by code with bit-identical results, or by a kernel of the
// device. Code reads and writes weights, gradients and moments once, 28 bytes for each
// parameter with AdamW.
type update struct {
	program models.Program
	shape   []int        // the Program's shape; nil for any range
	copy    models.DType // type of the 16-bit copy, or F32
	binding *Binding     // nil if code or the device's kernel updates the parts
	code    *tiles.Code
}

// load makes the code or the session of an update.
func (o *Optimizer) load(u *update) (err error) {
	if o.env.memory.IsHost() {
		// ONNX Runtime runs Programs that are not element-wise. A copy is rounded afterwards.
		p := u.program
		if u.copy != models.F32 {
			if p, err = o.rule.Program(u.shape, models.F32); err != nil {
				return err
			}
		}
		if u.code, err = tiles.Compile(p); err == nil {
			return nil
		}
	}
	return o.loadSession(u)
}

// loadSession makes the session of an update, unless the device has a kernel for it.
func (o *Optimizer) loadSession(u *update) (err error) {
	if o.env.memory.Kernels.Updates(u.program.Name) {
		return nil
	}
	u.binding, err = loadBinding(o.env, withScalars(u.program))
	return err
}

// Close frees the sessions and the state.
func (o *Optimizer) Close() {
	o.norm.close()
	for _, u := range o.updates {
		closeSessions(u.binding)
	}
	for _, p := range o.parts {
		closeValues(slices.Collect(maps.Values(p.values))...)
	}
	closeBuffers(&o.scalars, &o.joined)
	o.staging.close()
	for _, w := range o.State {
		o.env.arenaOf(w).close()
		w.Close()
	}
}
