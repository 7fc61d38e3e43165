package runtime

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"onering/models"
)

// An arena holds the elements of a models.Weights, all or a range of them, in the memory
// that sessions read, with a Value for each tensor that has a name. Weights, gradients,
// the moments of an optimizer and the 16-bit copies of weights are arenas; they live as
// long as the Ring, Learner or Optimizer that made them. If the memory is the host's
// ("aliases"), the arena's elements and the host's are the same. In any other memory, the
// host's elements are those of the last download.
type arena struct {
	memory   *memory
	weights  *models.Weights
	from, to int          // the range of elements that it holds
	pieces   []piece      // the parts of that range that it holds, in order; nil means all
	dtype    models.DType // F32, or the 16-bit type that a copy is rounded to
	at       unsafe.Pointer
	tensors  map[string]*Value // tensors by plain and by fused name; empty until nameTensors
	rounded  *arena            // the 16-bit copy of a range of the elements; nil if no graph reads one
	masters  *arena            // float32 elements of that range for updates, where the arena lacks the matrices; nil if it has all
	env      *Env              // the Env whose Upload and Download find this arena; may be nil
}

// A piece is a range of the elements of a models.Weights: those from from (included) to
// to (excluded).
type piece struct{ from, to int }

// hostArena returns an arena of the host's own elements.
func hostArena(w *models.Weights) *arena {
	return &arena{memory: host, weights: w, to: len(w.Data), dtype: models.F32, at: unsafe.Pointer(unsafe.SliceData(w.Data))}
}

// holdPieces makes an arena of w, or of some of its elements, in the memory of e or the
// host; nil pieces mean all elements. Pieces are adjacent in the arena, unless it uses
// the host's own elements. Upload and Download find the arena afterwards. If fresh is
// true, w holds zeros only and is not copied.
func (e *Env) holdPieces(w *models.Weights, in *memory, pieces []piece, fresh bool) (*arena, error) {
	a := hostArena(w)
	a.env, a.pieces = e, pieces
	e.arenas.Store(w, a)
	err := a.allocate(in)
	if err != nil || in.Aliases() {
		return a, err
	}
	if fresh {
		err = a.zero()
	} else {
		err = a.upload()
	}
	if err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// allocate places an arena, of the host's elements or a new one, in a memory. The content
// of a new one is unknown.
func (a *arena) allocate(in *memory) (err error) {
	if in.Aliases() && a.at != nil {
		return nil
	}
	bytes := a.bytes()
	a.memory, a.at = in, nil
	if a.at, err = in.Alloc(max(1, bytes)); err != nil {
		a.close()
		return fmt.Errorf("runtime: %.2f GB on %s: %w", float64(bytes)*1e-9, in, err)
	}
	return nil
}

// arenaOf returns the arena that hold made for w, or one over the host's elements if
// there is none.
func (e *Env) arenaOf(w *models.Weights) *arena {
	if a, ok := e.arenas.Load(w); ok {
		return a.(*arena)
	}
	return hostArena(w)
}

// Download copies from the device to the host: the weights of a Ring, the gradients of a
// Learner or the moments of an Optimizer. On the CPU both are the same memory and nothing
// is copied. Elements that a divided Ring lacks in float32 get the rounded values that
// Programs read.
func (e *Env) Download(w ...*models.Weights) (err error) {
	for _, w := range w {
		if err == nil {
			err = e.download(w, 0, len(w.Data), true)
		}
	}
	return err
}

// download is Download for some elements. lacks says whether to convert elements that
// exist only in 16 bits.
func (e *Env) download(w *models.Weights, from, to int, lacks bool) error {
	a := e.arenaOf(w)
	err := a.moveAll(from, to, true)
	if c := a.rounded; c != nil && lacks {
		kept := slices.Clone(a.held())
		if a.masters != nil {
			kept = append(kept, a.masters.held()...)
		}
		for _, p := range between(max(from, c.from), min(to, c.to), kept) {
			if err == nil {
				err = c.convert(p.from, p.to, true)
			}
		}
	}
	return copying("from", err)
}

// Upload copies from the host to the device what Download copies from there, and
// rounds the 16-bit copies again. Call it after changing elements of w. On the CPU
// only the 16-bit copies have to be made again.
func (e *Env) Upload(w ...*models.Weights) (err error) {
	for _, w := range w {
		if err == nil {
			err = e.arenaOf(w).upload()
		}
	}
	return copying("to", err)
}

// DownloadPart is Download for the elements from (included) to to (excluded), except
// those that a divided Ring lacks.
func (e *Env) DownloadPart(w *models.Weights, from, to int) error {
	return e.download(w, from, to, e.arenaOf(w).masters == nil) // otherwise other ranks have the rest
}

// UploadPart is Upload for the elements from (included) to to (excluded) of gradients.
func (e *Env) UploadPart(w *models.Weights, from, to int) error {
	return copying("to", e.arenaOf(w).moveAll(from, to, false))
}

func copying(direction string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("runtime: copying %s the device: %w", direction, err)
}

// Forget returns the host's memory of w to the system, except elements that exist only
// there. The host's elements are unknown until the next Download.
func (e *Env) Forget(w ...*models.Weights) {
	for _, w := range w {
		e.ForgetPart(w, 0, len(w.Data))
	}
}

// ForgetPart is Forget for the elements from (included) to to (excluded).
func (e *Env) ForgetPart(w *models.Weights, from, to int) {
	var kept []piece
	for a := e.arenaOf(w); a != nil; a = a.masters {
		if a.memory.Aliases() {
			kept = append(kept, a.held()...)
		}
	}
	for _, p := range between(from, to, kept) {
		w.ForgetPart(p.from, p.to)
	}
}

// between returns the elements from (included) to to (excluded) that no piece has.
func between(from, to int, pieces []piece) (rest []piece) {
	slices.SortFunc(pieces, func(p, q piece) int { return p.from - q.from })
	for _, p := range append(pieces, piece{to, to}) {
		if end := min(p.from, to); from < end {
			rest = append(rest, piece{from, end})
		}
		from = max(from, p.to)
	}
	return rest
}

// edges returns the first element of each tensor that the arena holds; an arena and its
// pieces begin at one. Fused tensors do not count.
func (a *arena) edges() (edges []int) {
	for _, h := range a.held() {
		edges = append(edges, h.from)
		for _, name := range a.weights.Layout.Names() {
			if p, _ := a.weights.Layout.Find(name); h.from < p.Offset && p.Offset < h.to {
				edges = append(edges, p.Offset)
			}
		}
	}
	slices.Sort(edges)
	return slices.Compact(edges)
}

// held returns the ranges that the arena holds.
func (a *arena) held() []piece {
	if a.pieces != nil {
		return a.pieces
	}
	return []piece{{a.from, a.to}}
}

// common returns the parts of the ranges that the arena holds; nil ranges mean all elements.
func (a *arena) common(ranges []piece) (common []piece) {
	if ranges == nil {
		return a.held()
	}
	for _, r := range ranges {
		for _, h := range a.held() {
			if from, to := max(r.from, h.from), min(r.to, h.to); from < to {
				common = append(common, piece{from, to})
			}
		}
	}
	return common
}

// bytes is the size of all elements.
func (a *arena) bytes() int { return a.before(a.to) * a.dtype.Size() }

// before counts the elements before element i that the arena holds.
func (a *arena) before(i int) (n int) {
	for _, h := range a.held() {
		n += max(0, min(i, h.to)-h.from)
	}
	return n
}

// holds reports whether the arena has the elements from (included) to to (excluded)
// without gaps.
func (a *arena) holds(from, to int) bool {
	return slices.ContainsFunc(a.held(), func(h piece) bool { return h.from <= from && to <= h.to })
}

// address returns the address of element i of the weights.
func (a *arena) address(i int) unsafe.Pointer {
	if a.dtype != models.F32 || !a.memory.Aliases() { // otherwise it uses the host's own elements
		i = a.before(i)
	}
	return unsafe.Add(a.at, i*a.dtype.Size())
}

// move copies elements that the arena holds between it and the host.
func (a *arena) move(from, to int, down bool) error {
	bytes := (to - from) * a.dtype.Size()
	if bytes == 0 {
		return nil
	}
	host := unsafe.Pointer(unsafe.SliceData(a.weights.Data[from:to]))
	if down {
		return a.memory.Download(host, a.address(from), bytes)
	}
	return a.memory.Upload(a.address(from), host, bytes)
}

// moveAll is move for all elements of a range that the arena or its masters hold.
func (a *arena) moveAll(from, to int, down bool) error {
	for _, h := range a.common([]piece{{from, to}}) {
		if err := a.move(h.from, h.to, down); err != nil {
			return err
		}
	}
	if a.masters != nil {
		return a.masters.moveAll(from, to, down)
	}
	return nil
}

// view returns a Value whose first element is element first of the weights. The caller
// closes it.
func (a *arena) view(first int, shape ...int64) (*Value, error) {
	n, err := sizeOf(a.dtype, shape)
	if err != nil {
		return nil, err
	}
	if last := first + n/a.dtype.Size(); !a.holds(first, last) {
		return nil, fmt.Errorf("runtime: a tensor of shape %v at element %d lies outside the elements %d to %d that this arena holds", shape, first, a.from, a.to)
	}
	return newValue(a.memory, a.dtype, a.address(first), n, shape)
}

// nameTensors makes a Value for each tensor of the layout that lies completely in the arena.
func (a *arena) nameTensors() error {
	a.tensors = make(map[string]*Value)
	l := a.weights.Layout
	names := append([]string{}, l.Names()...)
	for _, f := range l.Fused() {
		names = append(names, f.Name)
	}
	for _, name := range names {
		p, ok := l.Find(name)
		if !ok {
			return fmt.Errorf("runtime: the layout has no tensor %q", name)
		}
		if a.tensors[name] != nil || !a.holds(p.Offset, p.Offset+p.Size) {
			continue
		}
		v, err := a.view(p.Offset, int64s(p.Shape)...)
		if err != nil {
			return fmt.Errorf("runtime: tensor %q: %w", name, err)
		}
		a.tensors[name] = v
	}
	return nil
}

// tensor returns the Value of a tensor by its name in Programs; nil if the arena has
// none, or is nil.
func (a *arena) tensor(name string) *Value {
	if a == nil {
		return nil
	}
	if v := a.tensors[name]; v != nil {
		return v
	}
	return a.tensors[models.AdapterPrefix+name]
}

// keep stores the float32 elements from (included) to to (excluded), or only those in the
// pieces own, in the arena's or the host's memory. The arena itself has some of them for
// Programs.
func (a *arena) keep(in *memory, from, to int, own []piece) error {
	m := hostArena(a.weights)
	m.from, m.to = from, to
	m.pieces = append([]piece{}, m.common(own)...)
	err := m.allocate(in)
	if err == nil {
		a.masters = m
		err = m.moveAll(from, to, false)
	}
	return err
}

// renew copies to the arena the elements that its masters also hold.
func (a *arena) renew() error {
	m := a.masters
	if m == nil {
		return nil
	}
	for _, p := range a.common(m.held()) {
		to, from, bytes := a.address(p.from), m.address(p.from), (p.to-p.from)*a.dtype.Size()
		err := error(nil)
		if m.memory == a.memory {
			err = a.memory.CopyRuns([]unsafe.Pointer{to}, []unsafe.Pointer{from}, Runs{Width: bytes, Count: 1})
		} else {
			err = a.memory.Upload(to, from, bytes)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// without returns the arena's elements except the matrices from from (included) to to
// (excluded), which Programs read in 16 bits. Programs read the norms' vectors there in
// float32.
func (a *arena) without(from, to int) (pieces []piece) {
	edges := append(a.edges(), a.to)
	for i, first := range edges[:len(edges)-1] {
		name, _ := a.weights.Layout.NameOf(first)
		p, _ := a.weights.Layout.Find(name)
		n := len(pieces)
		switch {
		case from <= first && first < to && len(p.Shape) > 1:
		case n > 0 && pieces[n-1].to == first:
			pieces[n-1].to = edges[i+1]
		default:
			pieces = append(pieces, piece{first, edges[i+1]})
		}
	}
	return pieces
}

// narrowed names the tensors that the host's weights hold only in 16 bits.
func (a *arena) narrowed() error {
	n := a.weights.Narrow
	a.rounded = &arena{memory: a.memory, weights: a.weights, from: n.From, to: n.To, dtype: n.DType, at: unsafe.Pointer(unsafe.SliceData(n.Data))}
	if err := a.rounded.nameTensors(); err != nil || n.Scales == nil {
		return err
	}
	for name := range a.rounded.tensors {
		p, _ := a.weights.Layout.Find(name)
		if len(p.Shape) != 2 {
			continue
		}
		v, err := NewValue(n.ScalesOf(p), int64(p.Shape[0]), int64(p.Shape[1]/models.Block))
		if err != nil {
			return fmt.Errorf("runtime: the scales of %q: %w", name, err)
		}
		a.tensors[name+models.ScaleSuffix] = v
	}
	return nil
}

// roundAtOnce bounds how many rounded elements the host holds on the way to a device.
const roundAtOnce = 1 << 22

// upload copies the host's elements to the arena and to its 16-bit copy, rounded to
// the type of each.
func (a *arena) upload() error {
	if a.dtype == models.F32 {
		if err := a.moveAll(a.from, a.to, false); err != nil || a.rounded == nil {
			return err
		}
		return a.rounded.upload()
	}
	if a.weights.Narrow != nil {
		return nil // the arena uses the host's own elements
	}
	return a.convert(a.from, a.to, false)
}

// convert copies elements between the host and an arena of 16 bits.
func (a *arena) convert(from, to int, down bool) (err error) {
	var part []byte
	for first := from; first < to && err == nil; first += roundAtOnce {
		data := a.weights.Data[first:min(first+roundAtOnce, to)]
		part = mirror(a.memory, a.address(first), len(data)*a.dtype.Size(), part)
		at := unsafe.Pointer(unsafe.SliceData(part))
		if down {
			err = a.memory.Download(at, a.address(first), len(part))
			models.Decode(data, part, a.dtype)
			continue
		}
		models.Encode(part, data, a.dtype)
		err = a.memory.Upload(a.address(first), at, len(part))
	}
	return err
}

// zero sets all elements to zero.
func (a *arena) zero() error {
	for _, h := range a.held() {
		if err := a.memory.Zero(a.address(h.from), (h.to-h.from)*a.dtype.Size()); err != nil {
			return err
		}
	}
	return nil
}

// lessen makes another arena that holds the elements from (included) to to (excluded)
// rounded to a 16-bit type.
func (a *arena) lessen(d models.DType, from, to int) error {
	a.rounded = &arena{weights: a.weights, from: from, to: to, dtype: d}
	err := a.rounded.allocate(a.memory)
	if err == nil {
		err = a.rounded.upload()
	}
	if err != nil {
		return err
	}
	return a.rounded.nameTensors()
}

// close frees the Values, the 16-bit copy, and the elements unless they are the
// host's own. A nil arena is fine.
func (a *arena) close() {
	if a == nil {
		return
	}
	for _, v := range a.tensors {
		v.Close()
	}
	a.rounded.close()
	a.masters.close()
	if a.env != nil {
		a.env.arenas.Delete(a.weights)
	}
	if a.at != nil {
		a.memory.Free(a.at)
	}
	*a = arena{memory: a.memory, weights: a.weights, dtype: a.dtype}
}

// int64s converts a shape to the type that ONNX Runtime takes.
func int64s(shape []int) []int64 {
	out := make([]int64, len(shape))
	for i, n := range shape {
		out[i] = int64(n)
	}
	return out
}

// A Need is the memory that a part of a run needs, in bytes. Each part states its own
// Needs, and an estimate adds them up.
type Need struct {
	What string // what the memory is for, such as "moments"; several parts may name the same
	// Device counts memory of the device (for the CPU the host's), and Host counts the
	// host's memory beside a GPU.
	Device, Host int64
	// Setting is the setting that lowers the need; empty if none does.
	Setting string
}

// RingNeeds returns the needs of a Ring's weights: offload is the Ring's field, parts into
// how many parts it is divided (the largest counts), and weights in fewer bits are included.
func RingNeeds(arch models.Architecture, compute models.Compute, offload Offload, parts int) []Need {
	from, to := arch.Copied()
	weights, fewer := int64(arch.Layout().Size), int64(arch.Geometry().Compute.Size()*(to-from))
	if l := arch.AdapterLayout(); l != nil {
		weights += int64(l.Size)
	}
	if compute.Narrow() { // in place of float32
		weights, fewer = weights-int64(to-from), int64(models.NarrowBytes(compute.Base, to-from))
	}
	need := Need{What: "weights", Device: 4 * weights}
	if divided := parts > 1 && arch.AdapterLayout() == nil; (offload == OffloadAll || divided) && from < to && !compute.Narrow() {
		l, own := arch.Layout(), int64(4*(to-from))
		a := &arena{weights: &models.Weights{Layout: l}, to: l.Size}
		a.pieces = a.without(from, to)
		if divided {
			own = (own + int64(parts) - 1) / int64(parts)
		}
		if need.Device -= 4 * int64(l.Size-a.before(a.to)); offload == OffloadAll {
			need.Host = own
		} else {
			need.Device += own
		}
	}
	return []Need{need, {What: "weights in fewer bits", Device: fewer}}
}

// OptimizerNeeds returns the needs of an Optimizer's state, of which the largest of so many
// parts counts, and of moving what the host holds to the device in updates.
func OptimizerNeeds(arch models.Architecture, rule models.Optimizer, offload Offload, parts int) []Need {
	elements := cmp.Or(arch.AdapterLayout(), arch.Layout()).Size
	n := Need{What: "moments", Device: int64((4*len(rule.State())*elements + parts - 1) / parts)}
	kept := 0 // tensors of a part
	if offload.moments() {
		n.Device, n.Host = 0, n.Device
		kept += len(rule.State())
	}
	if offload == OffloadAll && arch.AdapterLayout() == nil {
		kept++
	}
	return []Need{n, {What: "other", Device: int64(4 * kept * stagingSlots * min(stagedAtOnce, elements))}}
}

// DecoderNeeds returns the needs of a Decoder: its cache for so many tokens of rows and
// prompts, a step of so many rows, and a prefill of so many tokens.
func DecoderNeeds(g models.Geometry, provider models.Provider, rows, cached, prefill int64) []Need {
	size := int64(g.Compute.Size())
	running := 4 * rows * int64(g.Vocab) // logits
	if provider != models.CPU {
		// the values for drawing from logits; the widest values of a prefill
		running = 4*running + prefill*(4*4*int64(g.Hidden)+3*size*int64(g.FFN))
	}
	return []Need{
		{What: "KV cache", Device: cached * size * 2 * int64(g.Layers*g.KVHeads*g.CacheWidth), Setting: "rollout.slots"},
		{What: "activations", Device: running, Setting: "rollout.slots"},
	}
}
