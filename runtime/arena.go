package runtime

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"onering/models"
	"onering/runtime/internal/tiles"
)

// An arena is where the elements of a models.Weights lie for sessions: those of weights, of gradients or of a moment.
// It lives as long as the Ring, Learner or Optimizer that made it. Float32 elements on the host are those of the
// Weights themselves. Of elements on a device, those of the Weights are from the last Download.
type arena struct {
	env           *Env
	weights       *models.Weights
	blocks        []block                            // the float32 elements, or lower halves of some, in order; those in gaps are of other ranks
	roundedCopy   block                              // elements that Programs read in fewer bits, rounded from those in blocks; zero without one
	readInFloat32 []piece                            // the float32 elements that Programs read
	values        map[models.DType]map[string]*Value // tensors by plain and by fused name; empty until makeValues is called
	free          func() error                       // frees the memory of blocks and roundedCopy that is not the host's of the Weights; nil if there is none
}

// A piece is a range of the elements of a Layout: those from from (included) to to (excluded).
type piece struct{ from, to int }

// intersect returns the elements that both have; there may be none.
func (p piece) intersect(q piece) piece {
	from := max(p.from, q.from)
	return piece{from, max(from, min(p.to, q.to))}
}

func (p piece) size() int { return p.to - p.from }

// without returns the elements of p that no piece of an ordered list has.
func (p piece) without(pieces []piece) (rest []piece) {
	for _, q := range append(slices.Clone(pieces), piece{p.to, p.to}) {
		if x := p.intersect(piece{p.from, q.from}); x.size() > 0 {
			rest = append(rest, x)
		}
		p.from = max(p.from, q.to)
	}
	return rest
}

// matrices returns where the matrices of a Layout lie, adjacent ones as one piece, from element from (included), where a
// tensor begins, to element to (excluded). It leaves out all other tensors, such as those of norms and convolutions,
// which Programs read in float32, so that they need no copy in the type of computing.
func matrices(l *models.Layout, from, to int) (pieces []piece) {
	end := to                                         // of the tensor at hand, with padding: where the next one begins
	for _, name := range slices.Backward(l.Names()) { // Names are in the order of offsets
		p, _ := l.Find(name)
		x := (piece{p.Offset, end})
		if from <= p.Offset && p.Offset < to {
			end = p.Offset
			if n := len(pieces); len(p.Shape) == 2 && n > 0 && pieces[n-1].from == x.to {
				pieces[n-1].from = x.from
			} else if len(p.Shape) == 2 {
				pieces = append(pieces, x)
			}
		}
	}
	slices.Reverse(pieces)
	return pieces
}

// A block is a piece of a models.Weights whose elements are adjacent in a memory and have
// one type. Elements that a Ring holds in halves are in two: their upper halves, rounded, in
// the copy, and here their lower halves, which have the type of the copy but are no numbers.
type block struct {
	piece
	memory *memory
	dtype  models.DType
	at     unsafe.Pointer // of element from
}

func (b block) bytes() int { return b.size() * b.dtype.Size() }

// address returns the address of element i of the weights.
func (b block) address(i int) unsafe.Pointer { return unsafe.Add(b.at, (i-b.from)*b.dtype.Size()) }

// roundAtOnce bounds how many rounded elements the host holds on the way to a device.
const roundAtOnce = 1 << 22

// Values of the parameter way of copies between the host's elements of a Weights and its blocks.
const toBlocks, toHost = false, true

// move copies elements p of w, which the block has, from the host to it (way toBlocks) or back (toHost). Unless the block
// is in float32, it rounds them on the way there, and widens them on the way back.
func (b block) move(w *models.Weights, p piece, way bool) (err error) {
	if b.dtype == models.F32 && p.size() > 0 {
		data := unsafe.Pointer(unsafe.SliceData(w.Data[p.from:p.to]))
		if way == toHost {
			return b.memory.Download(data, b.address(p.from), 4*p.size())
		}
		return b.memory.Upload(b.address(p.from), data, 4*p.size())
	}
	var part []byte
	for first := p.from; first < p.to && err == nil; first += roundAtOnce {
		data := w.Data[first:min(first+roundAtOnce, p.to)]
		part = hostBytes(b.memory, b.address(first), len(data)*b.dtype.Size(), part) // of a block on the host its own bytes
		at := unsafe.Pointer(unsafe.SliceData(part))
		if way == toHost {
			err = b.memory.Download(at, b.address(first), len(part))
			models.Decode(data, part, b.dtype)
			continue
		}
		models.Encode(part, data, b.dtype)
		err = b.memory.Upload(b.address(first), at, len(part))
	}
	return err
}

// view returns a Value whose first element is element first of the weights. The caller closes it.
func (b block) view(first int, shape ...int64) (*Value, error) {
	n, err := sizeOf(b.dtype, shape)
	if err != nil {
		return nil, err
	}
	return newValue(b.memory, b.dtype, b.address(first), n, shape)
}

// hostArena returns an arena of the host's own elements.
func hostArena(w *models.Weights) *arena {
	all := piece{0, len(w.Data)}
	return &arena{weights: w, blocks: []block{{all, host, models.F32, unsafe.Pointer(unsafe.SliceData(w.Data))}}, readInFloat32: []piece{all}}
}

// blocksIn returns pieces in float32 as blocks of a memory, which have no place in it yet.
func blocksIn(pieces []piece, m *memory) (blocks []block) {
	for _, p := range pieces {
		blocks = append(blocks, block{piece: p, memory: m, dtype: models.F32})
	}
	return blocks
}

// newArena makes the arena of w, and enters it where Upload and Download find it. It joins adjacent blocks, which are
// given in any order, and gives each an address, in w.Data itself for float32 on the host, else in one new
// allocation. roundedCopy, empty if there is none, is the block of elements rounded to fewer bits; it gets an address
// too. New memory has no content yet.
func (e *Env) newArena(w *models.Weights, blocks []block, roundedCopy block) (*arena, error) {
	a := &arena{env: e, weights: w, roundedCopy: roundedCopy, readInFloat32: []piece{{0, len(w.Data)}}} // all; placeWeights sets fewer
	slices.SortFunc(blocks, func(x, y block) int { return x.from - y.from })
	for _, b := range blocks {
		if n := len(a.blocks); n > 0 && a.blocks[n-1].to == b.from && a.blocks[n-1].memory == b.memory && a.blocks[n-1].dtype == b.dtype {
			a.blocks[n-1].to = b.to
		} else {
			a.blocks = append(a.blocks, b)
		}
	}
	var needMemory []*block // beside w.Data
	for i := range a.blocks {
		if b := &a.blocks[i]; b.memory.IsHost() && b.dtype == models.F32 {
			b.at = unsafe.Pointer(&w.Data[b.from])
		} else {
			needMemory = append(needMemory, b)
		}
	}
	if roundedCopy.size() > 0 {
		needMemory = append(needMemory, &a.roundedCopy)
	}
	size, offsets := 0, make([]int, len(needMemory))
	for i, b := range needMemory {
		// Modulo 64, an element's offset here is that from the start of the weights: tensors begin on multiples of 64
		// bytes, as on the host.
		size += (b.dtype.Size()*b.from - size) & 63
		offsets[i] = size
		size += b.bytes()
	}
	if size > 0 {
		at, free, err := e.allocateLasting(size)
		if err != nil {
			return nil, fmt.Errorf("runtime: %.2f GB on %s: %w", float64(size)*1e-9, e.memory, err)
		}
		a.free = free
		for i, b := range needMemory {
			b.at = unsafe.Add(at, offsets[i])
		}
	}
	e.arenas.Store(w, a)
	return a, nil
}

// allocateLasting allocates memory for as long as a model lives, and returns what frees it. On the host it
// is not Go's, or Go's collector would wait until there is as much garbage as there are weights.
func (e *Env) allocateLasting(bytes int) (at unsafe.Pointer, free func() error, err error) {
	if e.memory.IsHost() {
		return models.Allocate(bytes)
	}
	at, err = e.memory.Alloc(bytes)
	return at, func() error { e.memory.Free(at); return nil }, err
}

// newZeroArena is newArena for pieces in one memory, whose elements are all zero.
func (e *Env) newZeroArena(w *models.Weights, in *memory, pieces []piece) (*arena, error) {
	a, err := e.newArena(w, blocksIn(pieces, in), block{})
	if err == nil && !e.memory.IsHost() {
		err = a.zero()
	}
	return a, err
}

// newUploadedArena is newArena for all elements on the device of e, with the content of w.
func (e *Env) newUploadedArena(w *models.Weights) (*arena, error) {
	a, err := e.newArena(w, blocksIn([]piece{{0, len(w.Data)}}, e.memory), block{})
	if err == nil {
		err = a.fill()
	}
	return a, err
}

// fill copies the elements from the host and makes the Values of the tensors.
func (a *arena) fill() error {
	if err := a.upload(forgetFloat32); err != nil {
		return err
	}
	return a.makeValues()
}

// makeValues makes the Values that sessions bind, by type and name: one for each tensor, alone or fused with others,
// that lies completely in a float32 block or in roundedCopy, and those of makeNarrowValues. A tensor may have one in
// each.
func (a *arena) makeValues() error {
	l := a.weights.Layout
	a.values = map[models.DType]map[string]*Value{models.F32: {}, a.roundedCopy.dtype: {}}
	names := l.ReadNames()
	for _, f := range l.Fused() {
		names = append(names, f.Name)
	}
	if err := a.makeNarrowValues(names); err != nil {
		return err
	}
	for _, b := range append(withoutHalves(a.blocks), a.roundedCopy) { // halves are no numbers
		for _, name := range names {
			p, _ := l.Find(name)
			if x := (piece{p.Offset, p.Offset + p.Size}); b.intersect(x) != x || a.values[b.dtype][name] != nil {
				continue // not in this block, or made by makeNarrowValues
			}
			v, err := b.view(p.Offset, int64s(p.Shape)...)
			if err != nil {
				return fmt.Errorf("runtime: tensor %q: %w", name, err)
			}
			a.values[b.dtype][name] = v
		}
	}
	return nil
}

// makeNarrowValues makes a Value for each matrix that the host's Weights have in fewer bits alone (Narrow), and for its scales.
func (a *arena) makeNarrowValues(names []string) error {
	n := a.weights.Narrow
	for _, name := range names {
		p, _ := a.weights.Layout.Find(name)
		if !n.Holds(p) {
			continue
		}
		d, shape, data := n.Stored(p)
		v, err := newValue(host, d, unsafe.Pointer(unsafe.SliceData(data)), len(data), int64s(shape))
		if scales := n.ScalesOf(p); err == nil && scales != nil {
			a.values[models.F32][name+models.ScaleSuffix], err = NewValue(scales, int64(p.Shape[0]), int64(p.Shape[1]/models.BlockOf(n.DType)))
		}
		if err != nil {
			return fmt.Errorf("runtime: tensor %q: %w", name, err)
		}
		if a.values[d] == nil {
			a.values[d] = map[string]*Value{}
		}
		a.values[d][name] = v
	}
	return nil
}

// value returns the tensor that a Program reads in a type by its name in the layout, which
// an adapter's tensors have with a prefix; nil if there is none, or if the arena is nil.
func (a *arena) value(name string, d models.DType) *Value {
	if a == nil {
		return nil
	}
	return cmp.Or(a.values[d][name], a.values[d][models.AdapterPrefix+name])
}

// arenaOf returns the arena that newArena made for w, or one over the host's elements if there is none.
func (e *Env) arenaOf(w *models.Weights) *arena {
	if a, ok := e.arenas.Load(w); ok {
		return a.(*arena)
	}
	return hostArena(w)
}

// withoutHalves returns blocks without those of lower halves.
func withoutHalves(blocks []block) []block {
	return slices.DeleteFunc(slices.Clone(blocks), func(b block) bool { return b.dtype != models.F32 })
}

// pieces returns the elements of some blocks that are in a memory; nil means any.
func pieces(of []block, in *memory) (pieces []piece) {
	for _, b := range of {
		if in == nil || b.memory == in {
			pieces = append(pieces, b.piece)
		}
	}
	return pieces
}

// blockOf returns the block that has the elements of p.
func (a *arena) blockOf(p piece) (block, error) {
	for _, b := range a.blocks {
		if b.intersect(p) == p {
			return b, nil
		}
	}
	return block{}, fmt.Errorf("runtime: elements %d to %d do not lie together here", p.from, p.to)
}

// view returns a Value of float32 elements or of lower halves, of which the first is element
// first of the weights. The caller closes it.
func (a *arena) view(first int, shape ...int64) (*Value, error) {
	return a.viewIn(models.F32, first, shape...)
}

// viewIn returns a Value over the elements from first on, as many as the shape has, in a type: float32, or that
// of the copy.
func (a *arena) viewIn(d models.DType, first int, shape ...int64) (*Value, error) {
	if d != models.F32 {
		return a.roundedCopy.view(first, shape...)
	}
	n, err := sizeOf(models.F32, shape)
	if err != nil {
		return nil, err
	}
	b, err := a.blockOf(piece{first, first + n/4})
	if err != nil {
		return nil, err
	}
	return b.view(first, shape...)
}

// OnHost reports whether the host has all elements of w all the time: Download copies nothing.
func (e *Env) OnHost(w *models.Weights) bool {
	return len(piece{0, len(w.Data)}.without(pieces(withoutHalves(e.arenaOf(w).blocks), host))) == 0
}

// Download copies from the device to the host: the weights of a Ring, the gradients of a Learner or the moments of an
// Optimizer. On the CPU both are the same memory, and only what a Ring holds in halves is put together. Elements that
// a divided Ring lacks in float32 get the rounded values that Programs read.
func (e *Env) Download(w ...*models.Weights) error {
	for _, w := range w {
		a := e.arenaOf(w)
		lacking := a.roundedCopy.without(pieces(a.blocks, nil))
		err := e.DownloadPart(w, 0, len(w.Data))
		for _, p := range lacking {
			err = cmp.Or(err, copying("from", a.roundedCopy.move(w, p, toHost)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Upload copies from the host to the device what Download copies from there, and
// rounds the 16-bit copies again. Call it after changing elements of w, all of which the
// host must have. On the CPU only copies and halves have to be made again.
func (e *Env) Upload(w ...*models.Weights) error {
	for _, w := range w {
		if err := e.arenaOf(w).upload(keepFloat32); err != nil {
			return copying("to", err)
		}
	}
	return nil
}

// Values of the parameter forget: whether the host's float32 memory of elements that are now in halves goes back to the
// system, part by part, so that the two never take memory at once.
const keepFloat32, forgetFloat32 = false, true

// upload copies the host's elements to the blocks and to roundedCopy. A move to lower halves sets the upper ones, too.
func (a *arena) upload(forget bool) error {
	err := a.move(piece{0, len(a.weights.Data)}, toBlocks, forget)
	lowerHalves := slices.DeleteFunc(slices.Clone(a.blocks), func(b block) bool { return b.dtype == models.F32 })
	for _, p := range a.roundedCopy.without(pieces(lowerHalves, nil)) {
		err = cmp.Or(err, a.roundedCopy.move(a.weights, p, toBlocks))
	}
	return err
}

// DownloadPart is Download for the elements from (included) to to (excluded), except those that a divided Ring lacks.
func (e *Env) DownloadPart(w *models.Weights, from, to int) error {
	return copying("from", e.arenaOf(w).move(piece{from, to}, toHost, keepFloat32))
}

// UploadPart is Upload for the elements from (included) to to (excluded) of gradients.
func (e *Env) UploadPart(w *models.Weights, from, to int) error {
	return copying("to", e.arenaOf(w).move(piece{from, to}, toBlocks, keepFloat32))
}

// move copies the elements of a range between the host and the blocks.
func (a *arena) move(p piece, way, forget bool) error {
	for _, b := range a.blocks {
		x := b.intersect(p)
		if b.dtype != models.F32 {
			a.moveHalves(b, x, way, forget)
		} else if err := b.move(a.weights, x, way); err != nil {
			return err
		}
	}
	return nil
}

// moveHalves is move for elements of a block of lower halves: to it, it splits float32 into these and the upper ones in
// roundedCopy; from it, it joins both. Several threads do it.
func (a *arena) moveHalves(b block, p piece, way, forget bool) {
	models.AtOnce(a.env.Threads(), (p.size()+roundAtOnce-1)/roundAtOnce, func(i int) {
		x := p.intersect(piece{p.from + i*roundAtOnce, p.from + (i+1)*roundAtOnce})
		data, halves := a.weights.Data[x.from:x.to], tiles.HalvesAt(a.roundedCopy.address(x.from), b.address(x.from), x.size())
		if way == toHost {
			halves.Join(data)
		} else {
			halves.Split(data)
		}
		if forget {
			a.weights.ForgetPart(x.from, x.to)
		}
	})
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
	for _, p := range (piece{from, to}).without(pieces(withoutHalves(e.arenaOf(w).blocks), host)) {
		w.ForgetPart(p.from, p.to)
	}
}

// zero sets all elements to zero.
func (a *arena) zero() (err error) {
	for _, b := range a.blocks {
		err = cmp.Or(err, b.memory.Zero(b.at, b.bytes()))
	}
	return err
}

// close frees the Values and the memory that is not the host's own. A nil arena is fine.
func (a *arena) close() {
	if a == nil || a.env == nil {
		return
	}
	for _, values := range a.values {
		closeValues(slices.Collect(maps.Values(values))...)
	}
	a.env.arenas.CompareAndDelete(a.weights, a)
	if a.free != nil {
		a.free()
	}
	*a = arena{weights: a.weights}
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
	// Device counts memory of the device (for the CPU the host's), and Host counts the host's memory beside a GPU.
	Device, Host int64
	// Setting is the setting that lowers the need; empty if none does.
	Setting string
}

// RingNeeds returns the needs of a Ring's weights: of the float32 elements, by where offload and a division among parts
// leave them (the largest part counts), and of those in fewer bits, the rounded copy or a frozen base.
func RingNeeds(arch models.Architecture, compute models.Compute, offload Offload, parts int) []Need {
	from, to := arch.Copied() // the elements with a rounded copy; none in float32
	elements, narrowBytes := int64(arch.Layout().Size), int64(arch.Geometry().Compute.Size()*(to-from))
	if l := arch.AdapterLayout(); l != nil {
		elements += int64(l.Size)
	}
	if compute.Narrow() { // a frozen base in fewer bits has no float32
		baseFrom, baseTo := arch.Held()
		elements, narrowBytes = elements-int64(baseTo-baseFrom), narrowBytes+int64(models.NarrowBytes(compute.Base, baseTo-baseFrom))
	}
	need := Need{What: "weights", Device: 4 * elements}
	trainsWeights := arch.AdapterLayout() == nil
	divided := trainsWeights && parts > 1
	halves := trainsWeights && compute.Provider == models.CPU && arch.Geometry().Compute == models.BF16 // of masters
	if !compute.Narrow() && (halves || divided || offload == OffloadAll) {                              // the device has not all matrices in float32
		var masters int64 // bytes of the matrices of which Programs read a copy
		for _, p := range matrices(arch.Layout(), from, to) {
			masters += int64(4 * p.size())
		}
		need.Device -= masters // what remains of them is counted below, where it lies
		if halves {
			masters /= 2 // the rounded copy has the upper halves
		}
		if divided {
			masters = (masters + int64(parts) - 1) / int64(parts)
		}
		if offload == OffloadAll && !halves {
			need.Host = masters
		} else {
			need.Device += masters
		}
	}
	return []Need{need, {What: "weights in fewer bits", Device: narrowBytes}}
}

// OptimizerNeeds returns the needs of an Optimizer's state, of which the largest of so many
// parts counts, and of moving what the host holds to the device in updates.
func OptimizerNeeds(arch models.Architecture, rule models.Optimizer, offload Offload, parts int) []Need {
	elements := cmp.Or(arch.AdapterLayout(), arch.Layout()).Size
	n := Need{What: "moments", Device: int64((4*len(rule.State())*elements + parts - 1) / parts)}
	stagedTensors := 0 // of each part of an update
	if offload.hasMoments() {
		n.Device, n.Host = 0, n.Device
		stagedTensors += len(rule.State())
	}
	if offload == OffloadAll && arch.AdapterLayout() == nil {
		stagedTensors++
	}
	return []Need{n, {What: "other", Device: int64(4 * stagedTensors * stagingSlots * min(stagedAtOnce, elements))}}
}

// DecoderNeeds returns the needs of a Decoder with so many rows: its cache, for cached tokens of all rows and prompts
// together, and the activations of a step of the rows or of a prefill of so many tokens.
func DecoderNeeds(g models.Geometry, provider models.Provider, rows, cached, prefill int64) []Need {
	size := int64(g.Compute.Size())
	activations := 4 * rows * int64(g.Vocab) // logits
	if provider != models.CPU {
		// the values for drawing from logits; the widest values of a prefill
		activations = 4*activations + prefill*(4*4*int64(g.Hidden)+3*size*int64(g.FFN))
	}
	fixed := g.RowBytes(0) // states whose size does not grow with the tokens
	return []Need{
		{What: "KV cache", Device: rows*fixed + g.RowBytes(int(cached)) - fixed, Setting: "rollout.slots"},
		{What: "activations", Device: activations, Setting: "rollout.slots"},
	}
}
