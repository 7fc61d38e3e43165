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

// An Optimizer holds an optimizer's state and updates a Ring's weights in place. It divides norms and updates by the
// Ring's LossScale, by which the gradients are multiplied.
type Optimizer struct {
	// State is the optimizer's state for each parameter, such as moments, by name in checkpoints.
	State map[string]*models.Weights
	// Updates counts the updates so far.
	Updates int

	env          *Env
	ring         *Ring
	gradients    *models.Weights
	rule         models.Optimizer
	norm         norm
	updates      []*update
	parts        []part
	scalars      buffer // the rule's numbers, in the order of their names
	joinedHalves buffer // the float32 of a part that the ring has in halves, while a session updates it
	staging      staging
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
		State: make(map[string]*models.Weights), scalars: e.buffer(models.F32), joinedHalves: e.buffer(models.F32), staging: staging{memory: e.memory},
	}
	if err := o.open(); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// open makes the state, cuts the arenas into parts, loads the Programs and allocates all memory of updates.
func (o *Optimizer) open() error {
	if o.ring.division.parts > 1 && o.rule.ByTensor() {
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
		if _, err = o.env.newZeroArena(w, in, o.ring.division.ownPieces()); err != nil {
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

// reserve allocates all memory for updates, on the device and for the halves: running out in the middle of an update
// would leave weights that belong to no step.
func (o *Optimizer) reserve() error {
	o.staging.open(o.env, o.hostRanges())
	for _, p := range o.parts {
		for i := range o.staging.slots {
			if _, err := o.staging.onDevice(i, p); err != nil {
				return err
			}
		}
	}
	if err := o.joinedHalves.allocate(o.joinedElements()); err != nil {
		return err
	}
	const anyStep, anyRate = 1, 0
	return o.scalars.allocate(len(o.rule.Scalars(anyStep, anyRate)) + 1) // and ports.Clip: of full size, so that a copy takes the whole buffer
}

// joinedElements returns how many elements the largest part has whose halves are put together for a session.
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

// hostRanges returns the ranges of the host's memory that updates on a device read and write: what blocks of the
// trained weights and of the state lie on the host. Blocks of one array that are less than a page apart are one
// range.
func (o *Optimizer) hostRanges() (ranges [][]byte) {
	weights := []*models.Weights{o.ring.Trained()}
	for _, w := range o.State {
		weights = append(weights, w)
	}
	for _, w := range weights {
		var x piece // the range so far
		flush := func() {
			if x.size() > 0 {
				ranges = append(ranges, models.Bytes(w.Data[x.from:x.to]))
			}
		}
		for _, b := range o.env.arenaOf(w).blocks {
			switch {
			case b.memory == o.env.memory: // the device's own
			case x.size() > 0 && b.from < x.to+lockedPage:
				x.to = b.to
			default:
				flush()
				x = b.piece
			}
		}
		flush()
	}
	return ranges
}

// addParts cuts what this Optimizer owns into parts: whole tensors, or ranges of elements
// that lie together. Parts of which the host has moments or weights are small, since they are copied to the device.
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
	s := &o.ring.division
	for i, first := range s.bounds[:len(s.bounds)-1] {
		if !s.owns(i) {
			continue
		}
		for _, b := range weights.blocks {
			x := b.intersect(piece{first, s.bounds[i+1]})
			size := x.size()
			if o.ring.Offload.hasMoments() && !o.env.memory.IsHost() || b.memory != o.env.memory {
				size = stagedAtOnce // the host has the moments or the weights
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

// addPart adds elements as a part: the Values of the weights, their rounded copy if there is one, gradients and state
// by port, and the update of their shape, which is nil if the optimizer takes any range.
func (o *Optimizer) addPart(x piece, shape []int) error {
	weights, copyType := o.ring.trained(), models.F32
	if weights.roundedCopy.intersect(x) == x {
		copyType = weights.roundedCopy.dtype
	}
	from, err := weights.blockOf(x)
	if err != nil {
		return err
	}
	writtenCopy := copyType
	if from.dtype != models.F32 {
		writtenCopy = models.F32 // none: the Program gets float32, put together from halves, and Split rounds its result
	}
	u, err := o.updateOf(shape, writtenCopy)
	if err != nil {
		return err
	}
	dims := []int64{int64(x.size())}
	if shape != nil {
		dims = int64s(shape)
	}
	p := part{u, make(map[string]*Value)}
	o.parts = append(o.parts, p) // from here on Close frees it
	if copyType != models.F32 {
		if p.values[ports.Copy], err = weights.roundedCopy.view(x.from, dims...); err != nil {
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

// updateOf returns the update for parts of a shape whose Program writes a 16-bit copy of a type, none if that is F32.
func (o *Optimizer) updateOf(shape []int, copyType models.DType) (*update, error) {
	for _, u := range o.updates {
		if u.copyType == copyType && slices.Equal(u.shape, shape) {
			return u, nil
		}
	}
	p, err := o.rule.Program(shape, copyType)
	if err != nil {
		return nil, err
	}
	u := &update{program: p, shape: shape, copyType: copyType}
	o.updates = append(o.updates, u)
	return u, nil
}

// Update updates the weights with the gradients multiplied by clip. The gradients do not change. After an error some
// weights may be updated and others not. Parts with code run on several threads of the CPU, the others one by one, by
// a session or by the device's kernel.
func (o *Optimizer) Update(rate, clip float64) error {
	scalars := o.rule.Scalars(o.Updates+1, rate)
	scalars[ports.Clip] = clip / o.ring.lossScale()
	if err := o.uploadScalars(scalars); err != nil {
		return err
	}
	var tiled, others []part // updated by code, and by sessions or a kernel
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
	err := o.staging.eachPart(others, func(p part) error {
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

// uploadScalars passes the scalars to sessions, in the order of their names. It returns an error if an update by a
// session or a kernel does not read exactly these.
func (o *Optimizer) uploadScalars(scalars map[string]float64) error {
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

// run updates a part that is on the device, by a session. Weights in halves are float32 meanwhile.
func (o *Optimizer) run(p part) error {
	if h := p.halves(); h != nil {
		joined, v, err := sized[float32](&o.joinedHalves, p.values[ports.Param].shape...)
		if err != nil {
			return err
		}
		h.Join(joined)
		defer h.Split(joined)
		p.values = maps.Clone(p.values)
		p.values[ports.Param] = v
		delete(p.values, ports.Copy) // Split rounds it
	}
	b := p.update.binding.begin()
	b.in(portScalars, o.scalars.value, nil)
	for port, v := range p.values {
		switch port {
		case ports.Copy:
			b.out(port, v, nil)
		case ports.Grad:
			b.in(port, v, nil)
		default: // weights and state are written in place, as outputs with a 1 behind the name
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
	return o.env.memory.Kernels.Update(p.values[ports.Param].bytes/models.F32.Size(), at, p.update.copyType == models.F16, scalars)
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

// joinedTiles has the memory for as many, of each thread.
var joinedTiles = sync.Pool{New: func() any { return make([]float32, joinedAtOnce) }}

// runTiles updates a part on the CPU by the Program's code, and then its rounded copy, if there is one.
func (p part) runTiles(scalars map[string]float64) error {
	code := p.update.code
	arrays, numbers := make([][]float32, len(code.Inputs)), make([]float32, len(code.Scalars))
	halves := p.halves()
	for i, port := range code.Inputs {
		if halves == nil || port != ports.Param { // else runHalves puts the weights together
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
		models.Encode(unsafe.Slice((*byte)(v.data), v.bytes), valuesOf[float32](p.values[ports.Param]), p.update.copyType)
	}
	return err
}

// runHalves runs the code on arrays, in place of whose number i it takes the numbers in halves: joinedAtOnce elements
// at a time, it joins them, runs the code, and splits the results.
func runHalves(code *tiles.Code, h tiles.Halves, i int, arrays [][]float32, scalars []float32) error {
	joined, tile := joinedTiles.Get().([]float32), make([][]float32, len(arrays))
	defer joinedTiles.Put(joined)
	for from := 0; from < len(h.Low); from += len(joined) {
		to := min(from+len(joined), len(h.Low))
		for k, a := range arrays {
			if k == i {
				tile[k] = joined[:to-from]
			} else {
				tile[k] = a[from:to]
			}
		}
		halves := tiles.Halves{High: h.High[from:to], Low: h.Low[from:to]}
		halves.Join(tile[i])
		if err := code.Run(tile, scalars); err != nil {
			return err
		}
		halves.Split(tile[i])
	}
	return nil
}

// An update is a Program that updates parts: in runs of sessions or, on the CPU if every operator is element-wise, by
// code with bit-identical results, or by a kernel of the device. Code reads and writes weights, gradients and moments
// once, 28 bytes for each parameter with AdamW.
type update struct {
	program  models.Program
	shape    []int        // the Program's shape; nil for any range
	copyType models.DType // type of the 16-bit copy, or F32
	binding  *Binding     // nil if code or the device's kernel updates the parts
	code     *tiles.Code
}

// load makes the code of an update, on the CPU if all its operators are element-wise, or else the session or nothing
// where the device has a kernel.
func (o *Optimizer) load(u *update) (err error) {
	if o.env.memory.IsHost() {
		// ONNX Runtime runs Programs that are not element-wise. A copy is rounded afterwards.
		p := u.program
		if u.copyType != models.F32 {
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
	closeBuffers(&o.scalars, &o.joinedHalves)
	o.staging.close()
	for _, w := range o.State {
		o.env.arenaOf(w).close()
		w.Close()
	}
}
