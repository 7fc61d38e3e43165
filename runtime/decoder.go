package runtime

import (
	"fmt"
	"math/bits"
	goruntime "runtime"
	"sync"

	"onering/models"
	"onering/models/ports"
	"onering/sampler"
)

// A Decoder samples from the weights of a Ring. It implements sampler.Decoder.
type Decoder struct {
	env        *Env
	ring       *Ring
	geometry   models.Geometry
	maxTokens  int
	invariant  bool // see SetInvariant
	wideSteps  bool // whether invariant steps use the form Wide
	ownRows    int  // up to how many rows operators of our own are faster in float32; 0 without any
	onlyDirect bool // whether graphs have no form but Direct, or none that is faster

	stepRowsApart func() bool // whether a row of a step in Direct has the same bits alone as beside any others; fuses a graph once

	tables   tables
	cache    *cache
	prefixes map[int]*prefix // prefixes by their handles
	nextID   int             // the next prefix's handle
	steps    map[models.Form]*decodeSession
	prefill  *prefillSession
	tokenChooser
}

// NewDecoder moves the ring to e and makes a Decoder for slots sequences of up to maxTokens tokens each. Sessions of
// steps and prompts are loaded, and the cache is allocated, as they are needed.
func (e *Env) NewDecoder(r *Ring, slots, maxTokens int) (*Decoder, error) {
	if err := r.moveTo(e); err != nil {
		return nil, err
	}
	g := r.Arch.Geometry()
	if slots < 1 || maxTokens < 2 {
		return nil, fmt.Errorf("runtime: a decoder of %d slots of %d tokens: it takes at least 1 slot and 2 tokens", slots, maxTokens)
	}
	if g.MaxPositions > 0 && maxTokens > g.MaxPositions {
		return nil, fmt.Errorf("runtime: %d tokens a sequence (prompt and response) are too many: the model's %s", maxTokens, g.Context())
	}
	if len(r.Weights.Data)*4 <= toyBytes && e.memory.IsHost() {
		e = e.withoutPool() // for so small a model a second thread saves no time
	}
	d := &Decoder{
		env: e, ring: r, geometry: g, maxTokens: maxTokens,
		tables: newTables(e, g), prefixes: make(map[int]*prefix),
		steps: make(map[models.Form]*decodeSession), tokenChooser: newTokenChooser(e),
		onlyDirect: e.memory.gpu() || g.Compute != models.F32 || r.Weights.Narrow != nil, // no form Wide, or none that is faster
	}
	if g.Compute == models.F32 {
		d.ownRows = e.memory.Kernels.FloatRows() // up to so many rows our own operators are the fastest
	}
	// whether a row's bits do not depend on the rows beside it; late and once, since it has to fuse a graph
	d.stepRowsApart = sync.OnceValue(func() bool { return d.rowsApart(r.Arch.Decode(models.Direct)) })
	unbind := func() { // before the cache's memory changes
		for _, s := range d.steps {
			s.unbind()
		}
	}
	d.cache = newCache(e, g, slots, maxTokens, unbind)
	if err := d.tables.makeRotary(maxTokens, g); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Kernels of a small model are so short that two threads are hardly faster than one: they wait for each other and for
// each other's caches. It is faster to decode such a model with several Decoders in parallel, each on its own thread.

const (
	// laneRows is how many rows each of several parallel Decoders should have.
	laneRows = 32
	// laneBytes is the largest size of the weights: every Decoder reads all of them at
	// every step, so they must fit in the processor's cache.
	laneBytes = 16 << 20
	// toyBytes is the largest size of weights for which a second thread saves no time at all.
	// Other threads, such as clients of a server on the same machine, use the core better.
	toyBytes = 1 << 20
)

// Lanes returns how many parallel Decoders sample fastest in this number of slots. It
// does not depend on the number of threads, so the bits of the samples do not either.
func (e *Env) Lanes(r *Ring, slots int) int {
	if len(r.Weights.Data)*4 > laneBytes || !e.memory.IsHost() {
		return 1
	}
	return max(1, slots/laneRows)
}

// NewDecoders makes a Decoder for each number of slots. The sessions of several Decoders run on the threads that call
// them, without the pool, so they can be used in parallel. A single one uses the pool.
func (e *Env) NewDecoders(r *Ring, slots []int, maxTokens int) (all []*Decoder, err error) {
	env := e
	if len(slots) > 1 {
		env = e.withoutPool()
		// If all of Go's processors were inside ONNX Runtime, Go would wake a thread
		// again and again to look for work. It does not if some are idle.
		goruntime.GOMAXPROCS(max(goruntime.GOMAXPROCS(0), e.Threads()+2))
	}
	for _, n := range slots {
		d, err := env.NewDecoder(r, n, maxTokens)
		if err != nil {
			for _, d := range all {
				d.Close()
			}
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// rowsApart is kernels.Device.Apart for a Program of the Decoder.
func (d *Decoder) rowsApart(p models.Program, err error) bool {
	return err == nil && d.env.memory.Kernels.Apart(p)
}

// Slots returns how many sequences can be decoded at once.
func (d *Decoder) Slots() int { return len(d.cache.rowOf) }

// MaxTokens returns the largest number of tokens, prompt and response, in a slot.
func (d *Decoder) MaxTokens() int { return d.maxTokens }

// SetInvariant makes the bits of a row independent of the other rows, and says whether a row alone has them, too.
//
// On a CPU the form Direct does so from two rows on: our own operators also for a single row, while
// ONNX Runtime has another kernel for that. In Wide the order of sums depends on the number of
// rows, but is the same from 2 to 16. So where only ONNX Runtime multiplies and bits may depend on
// the number of slots, up to 16 slots and one for the companion use Wide, unless the model is
// small: there Direct takes up to 40 % more time for few rows of a large model.
//
// A GPU's libraries choose another kernel for almost every number of rows and of cached tokens. So there each step
// computes all slots, at the full length of the cache, and each prompt is computed alone. The bits depend on the
// number of slots and on maxTokens, but not on what the slots hold.
func (d *Decoder) SetInvariant(of sampler.Invariance) (alone bool) {
	d.invariant = of != sampler.NoInvariance
	d.wideSteps = of == sampler.InvariantToNeighbours && d.Slots() <= 16+1 && d.geometry.Hidden >= 512 && !d.onlyDirect && d.ownRows == 0 && d.env.memory.IsHost()
	return d.stepRowsApart()
}

// computesAllSlots reports whether each step computes all slots; see SetInvariant.
func (d *Decoder) computesAllSlots() bool { return d.invariant && !d.env.memory.IsHost() }

// computedRows returns how many rows a step over n sequences computes. A GPU's attention
// kernel may be compiled for each number of rows (cuDNN's is, in about 35 ms), so
// there the numbers are few: 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on.
func (d *Decoder) computedRows(n int) int {
	switch {
	case d.computesAllSlots():
		return d.Slots()
	case d.env.memory.gpu():
		half := max(1, 1<<bits.Len(uint(n))/4) // a multiple of half of the largest power of 2 that is at most n
		return min(d.Slots(), (n+half-1)/half*half)
	}
	return n
}

// formFor returns the fastest form for n rows, as measured on x86-64. Direct has our own operators, which are the
// fastest up to ownRows. Without them ONNX Runtime is faster in Wide, but for a single row, for very many, and for
// few rows of small weights, which stay in the processor's cache. A GPU always uses Direct, as do graphs of 16 bits,
// which have no other form, and products by matrices that are held in fewer bits.
func (d *Decoder) formFor(n int) models.Form {
	stock := d.ownRows == 0 && (n == 1 || n > 64 || n < 4 && d.geometry.Hidden < 512)
	if d.wideSteps || !(d.invariant || d.onlyDirect || n <= d.ownRows || stock) {
		return models.Wide
	}
	return models.Direct
}

// A decodeSession decodes one more token of each row. A prefillSession computes prompts with it.
type decodeSession struct {
	binding        *Binding
	values         []*Value // by state, over the states that are bound
	bound          [3]int   // see bind
	ids, pos       buffer   // int64, the tokens fed and their positions
	seqlens, total buffer   // int32, the last place of each row in the cache; the tokens of the longest row
	mask, band     buffer   // [T,T], added to the scores of attention within prompts
	hidden         buffer   // [B,D], the normed state of each row's last token
	cachePlaces    buffer   // int64 [B,G,3], where in the cache each row's new keys and values go
	cacheIndices   buffer   // int64 [S], the numbers 0 to S-1
	active         buffer   // [B,1], 1 for rows that get a token, 0 for others
}

// load loads a Program and binds the weights; err is that of making the Program.
func (d *Decoder) load(p models.Program, err error) (*Binding, error) {
	if err != nil {
		return nil, err
	}
	b, err := loadBinding(d.env, p)
	if err != nil {
		return nil, err
	}
	if err := d.ring.bind(b, ""); err != nil {
		closeSessions(b)
		return nil, err
	}
	return b, nil
}

// openSession loads a Program for steps or prompts and binds the weights and the rotary tables; err is that of making the Program.
func (d *Decoder) openSession(p models.Program, err error) (*decodeSession, error) {
	b, err := d.load(p, err)
	if err != nil {
		return nil, err
	}
	b.begin() // b.in keeps the first error, in b.failed
	for kind := range d.tables.cos {
		if b.has(models.OfKind(ports.Cos, kind)) {
			b.in(models.OfKind(ports.Cos, kind), d.tables.cos[kind].value, nil)
			b.in(models.OfKind(ports.Sin, kind), d.tables.sin[kind].value, nil)
		}
	}
	if b.failed != nil {
		closeSessions(b)
		return nil, b.failed
	}
	return &decodeSession{
		binding: b, ids: hostBuffer(models.I64), pos: hostBuffer(models.I64),
		seqlens: hostBuffer(models.I32), total: hostBuffer(models.I32), mask: hostBuffer(models.F32), band: hostBuffer(models.F32), hidden: d.env.buffer(models.F32),
		cachePlaces: hostBuffer(models.I64), cacheIndices: d.env.buffer(models.I64), active: hostBuffer(models.F32),
	}, nil
}

func (s *decodeSession) close() {
	closeSessions(s.binding)
	s.unbind()
	closeBuffers(&s.ids, &s.pos, &s.seqlens, &s.total, &s.mask, &s.band, &s.hidden, &s.cachePlaces, &s.cacheIndices, &s.active)
}

// Begin copies each row's prefix into its slot and samples the first token, from the state of the prefix's last one,
// into the row's Out. After an error all slots are unchanged.
func (d *Decoder) Begin(rows []sampler.Row) (err error) {
	began := d.cache.rows()
	defer func() {
		if err != nil {
			d.cache.truncate(began)
		}
	}()
	width := d.geometry.Hidden
	if _, err := d.tokenChooser.hidden.resize(int64(d.computedRows(len(rows))), int64(width)); err != nil {
		return err
	}
	slots, prefixes, pointers := make([]int, len(rows)), make([]*prefix, len(rows)), make([]*sampler.Row, len(rows))
	for i := range rows {
		r := &rows[i]
		if slots[i], prefixes[i], pointers[i] = r.Slot, d.prefixes[r.Prefix], r; prefixes[i] == nil {
			return fmt.Errorf("runtime: there is no prefix %d", r.Prefix)
		}
	}
	if err := d.cache.start(slots, prefixes); err != nil {
		return err
	}
	for i := 0; i < len(prefixes); { // rows whose prompts were computed together in one copy
		batch := prefixes[i].batch
		var runs []Runs
		for ; i < len(prefixes) && prefixes[i].batch == batch; i++ {
			runs = append(runs, Runs{To: i * width, From: prefixes[i].row * width, Width: width, Count: 1})
		}
		if err := d.tokenChooser.hidden.copyRuns(&batch.hidden, runs...); err != nil {
			return err
		}
	}
	return d.tokenChooser.sample(d, &d.tokenChooser.hidden, pointers)
}

// stepSession returns the session for steps in a form. It loads it at the first call.
func (d *Decoder) stepSession(form models.Form) (*decodeSession, error) {
	if s := d.steps[form]; s != nil {
		return s, nil
	}
	s, err := d.openSession(d.ring.Arch.Decode(form))
	if err == nil {
		d.steps[form] = s
	}
	return s, err
}

// Step appends each row's token to the sequence of its slot and samples the next token into its Out. The
// rows must be all slots in use. Idle rows are computed too, but their sequences stay as they are.
func (d *Decoder) Step(rows []sampler.Row) error {
	longest, err := d.checkStep(rows)
	if err != nil {
		return err
	}
	n, tokens := len(rows), longest+1
	if d.computesAllSlots() { // at the full length, so that neither changes the bits
		tokens = d.maxTokens
	}
	if err := d.cache.reserve(tokens); err != nil {
		return err
	}
	s, err := d.stepSession(d.formFor(n))
	if err != nil {
		return err
	}
	if err := s.bind(d.geometry, d.cache.states, d.computedRows(n), d.cache.capacity, d.cache.generation); err != nil {
		return err
	}
	byRow := make([]*sampler.Row, n) // in the order of the cache's rows
	for i := range rows {
		byRow[d.cache.rowOf[rows[i].Slot]] = &rows[i]
	}
	if err := s.fillStep(d, byRow, tokens); err != nil {
		return err
	}
	if err := s.binding.Run(); err != nil {
		return err
	}
	d.cache.stepped(rows)
	return d.tokenChooser.sample(d, &s.hidden, byRow)
}

// checkStep returns an error if the step is impossible, else the length of the longest sequence.
func (d *Decoder) checkStep(rows []sampler.Row) (longest int, err error) {
	if n := d.cache.rows(); len(rows) != n || n == 0 {
		return 0, fmt.Errorf("runtime: a step over %d of the %d sequences that are being decoded", len(rows), n)
	}
	for _, r := range rows {
		slot := r.Slot
		if d.cache.rowOf[slot] < 0 {
			return 0, fmt.Errorf("runtime: slot %d is not in use", slot)
		}
		length := d.cache.length(slot)
		if length >= d.maxTokens {
			return 0, fmt.Errorf("runtime: slot %d is full with %d tokens", slot, d.maxTokens)
		}
		if r.ID < 0 || int(r.ID) >= d.geometry.Vocab {
			return 0, fmt.Errorf("runtime: slot %d is fed id %d; the model has ids 0 to %d", slot, r.ID, d.geometry.Vocab-1)
		}
		longest = max(longest, length)
	}
	return longest, nil
}

// fillStep fills the session's inputs with the ids of a step and their positions, in the order of the cache's rows;
// tokens is how many the longest row has after the step. A row that only fills the batch has id 0 at position 0.
func (s *decodeSession) fillStep(d *Decoder, byRow []*sampler.Row, tokens int) error {
	n, heads := int64(d.computedRows(len(byRow))), d.geometry.KVHeads
	b := s.binding.begin()
	ids := fillIf[int64](b, ports.TokenIDs, &s.ids, n, 1)
	pos := fillIf[int64](b, ports.Positions, &s.pos, n, 1)
	lens := fillIf[int32](b, ports.CacheLengths, &s.seqlens, n)
	total := fillIf[int32](b, ports.CacheTotal, &s.total)
	places := fillIf[int64](b, ports.CachePlaces, &s.cachePlaces, n, int64(heads), 3)
	active := fillIf[float32](b, ports.Active, &s.active, n, 1)
	hidden, err := s.hidden.resize(n, int64(d.geometry.Hidden))
	b.out(ports.Hidden, hidden, err)
	if b.failed != nil {
		return b.failed
	}
	if pos == nil {
		pos = make([]int64, n) // for lens and places
	}
	clear(ids)
	clear(pos)
	clear(active)
	for row, r := range byRow {
		ids[row], pos[row] = int64(r.ID), int64(d.cache.length(r.Slot))
		if active != nil && !r.Idle {
			active[row] = 1
		}
	}
	for i := range lens {
		lens[i] = int32(pos[i])
	}
	for i := range total {
		total[i] = int32(tokens)
	}
	for i := range len(places) / 3 {
		row, head := i/heads, i%heads
		places[3*i], places[3*i+1], places[3*i+2] = int64(row), int64(head), pos[row]
	}
	return s.fillPlaces(b, d.cache.capacity)
}

// fillPlaces binds the numbers of the places in a row of the cache, if the Program has that
// input. They are filled again only when the cache has grown.
func (s *decodeSession) fillPlaces(b *Binding, capacity int) error {
	if !b.has(ports.CacheIndices) {
		return nil
	}
	if v := s.cacheIndices.value; v != nil && v.shape[0] == int64(capacity) {
		b.in(ports.CacheIndices, v, nil)
		return b.failed
	}
	places := fill[int64](b, ports.CacheIndices, &s.cacheIndices, int64(capacity))
	if b.failed != nil {
		return b.failed
	}
	for i := range places {
		places[i] = int64(i)
	}
	return s.cacheIndices.push()
}

// Free gives a slot back.
func (d *Decoder) Free(slot int) { d.cache.free(slot) }

// Release frees the cache and the room for prompts, which later prompts allocate again.
// It does nothing while there is a sequence or a prefix.
func (d *Decoder) Release() {
	if d.cache.rows() > 0 || len(d.prefixes) > 0 || !d.env.memory.IsHost() {
		return
	}
	d.cache.release()
	if s := d.prefill; s != nil {
		s.free(s.spare)
		s.spare = nil
	}
}

// Close frees the sessions and the cache.
func (d *Decoder) Close() {
	for _, s := range d.steps {
		s.close()
	}
	d.steps = nil
	for x := range d.prefixes {
		d.Drop(x)
	}
	if d.prefill != nil {
		d.prefill.close()
		d.prefill = nil
	}
	d.tokenChooser.close()
	d.tables.close()
	d.cache.close()
}
