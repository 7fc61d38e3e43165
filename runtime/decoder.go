package runtime

import (
	"fmt"
	"math/bits"
	goruntime "runtime"

	"onering/models"
	"onering/models/ports"
	"onering/sampler"
)

// A Decoder samples from the weights of a Ring. It implements sampler.Decoder.
type Decoder struct {
	env       *Env
	ring      *Ring
	geometry  models.Geometry
	maxTokens int
	invariant bool // see SetInvariant
	wide      bool // uses the form Wide in such steps
	ownRows   int  // up to how many rows operators of our own are faster in float32; 0 without any
	direct    bool // graphs have no form but Direct, or none that is faster

	tables   tables
	cache    *cache
	prefixes map[int]*prefix // prefixes by their handles
	nextID   int             // the next prefix's handle
	steps    map[stepKind]*stepSession
	prefill  *prefillSession
	tokenChooser
}

// NewDecoder makes room for slots sequences of up to maxTokens tokens each.
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
	if len(r.Weights.Data)*4 <= toyBytes && e.memory.Aliases() {
		e = e.lane()
	}
	d := &Decoder{
		env: e, ring: r, geometry: g, maxTokens: maxTokens,
		tables: newTables(e, g), prefixes: make(map[int]*prefix),
		steps: make(map[stepKind]*stepSession), tokenChooser: newTokenChooser(e),
		direct: e.memory.gpu() || g.Compute != models.F32 || r.Weights.Narrow != nil,
	}
	if g.Compute == models.F32 {
		d.ownRows = e.memory.Kernels.FloatRows()
	}
	d.cache = newCache(e, g, slots, maxTokens, d.ownRows > 0, func() {
		for _, s := range d.steps {
			s.bound.close()
		}
	})
	if err := d.tables.turn(maxTokens, g); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Kernels of a small model are so short that two threads are hardly faster than one: they
// wait for each other and for each other's caches. It is faster to decode such a model
// with several Decoders in parallel, each on its own thread.

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
	if len(r.Weights.Data)*4 > laneBytes || !e.memory.Aliases() {
		return 1
	}
	return max(1, slots/laneRows)
}

// NewDecoders makes a Decoder for each number of slots. Several Decoders have a thread
// each and can be used in parallel.
func (e *Env) NewDecoders(r *Ring, slots []int, maxTokens int) (all []*Decoder, err error) {
	lane := e
	if len(slots) > 1 {
		lane = e.lane()
		// If all of Go's processors were inside ONNX Runtime, Go would wake a thread
		// again and again to look for work. It does not if some are idle.
		goruntime.GOMAXPROCS(max(goruntime.GOMAXPROCS(0), e.Threads()+2))
	}
	for _, n := range slots {
		d, err := lane.NewDecoder(r, n, maxTokens)
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

// Slots returns how many sequences can be decoded at once.
func (d *Decoder) Slots() int { return len(d.cache.placeOf) }

// MaxTokens returns the largest number of tokens, prompt and response, in a slot.
func (d *Decoder) MaxTokens() int { return d.maxTokens }

// SetInvariant makes the bits of a row independent of the other rows.
//
// On a CPU a single row may still differ, because another kernel multiplies it. The order
// of sums depends on the number of rows in the forms Wide and Paired, but in Wide it is
// the same from 2 to 16 rows. So if bits may depend on the number of slots, up to 16
// slots and one for the companion use Wide, unless the model is small. Other numbers use
// Direct, which takes up to 40 % more time for few rows of a large model.
//
// A GPU's libraries choose another kernel for almost every number of rows and of
// cached tokens. So there each step computes all slots, at the full length of the
// cache, and each prompt is computed alone. The bits depend on the number of slots
// and on maxTokens, but not on what the slots hold.
func (d *Decoder) SetInvariant(of sampler.Invariance) {
	d.invariant = of != sampler.Loose
	d.wide = of == sampler.Neighbours && d.Slots() <= 16+1 && d.geometry.Hidden >= 512 && !d.direct && d.ownRows == 0 && d.env.memory.Aliases()
}

// wholeSteps reports whether each step computes all slots; see SetInvariant.
func (d *Decoder) wholeSteps() bool { return d.invariant && !d.env.memory.Aliases() }

// rows returns how many rows a step over n sequences computes. A GPU's attention
// kernel may be compiled for each number of rows (cuDNN's is, in about 35 ms), so
// there the numbers are few: 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on.
func (d *Decoder) rows(n int) int {
	switch {
	case d.wholeSteps():
		return d.Slots()
	case d.env.memory.gpu():
		half := max(1, 1<<bits.Len(uint(n))/4) // a multiple of half of the largest power of 2 that is at most n
		return min(d.Slots(), (n+half-1)/half*half)
	}
	return n
}

// form returns the fastest form for n rows, as measured on x86-64 with AVX-512. Small
// weights stay in the processor's cache, so Wide needs more rows to be faster. A GPU
// always uses Direct, and graphs of 16 bits have no other form. Operators of our own, which multiply
// by matrices of fewer bits, are as fast in it as in any.
func (d *Decoder) form(n int) models.Form {
	g := d.geometry
	switch {
	case d.wide:
		return models.Wide
	case d.invariant || d.direct || n <= d.ownRows || n > 64 && d.ownRows > 8:
		return models.Direct
	case n == 1 || n > 64 || n < 4 && g.Hidden < 512:
		return models.Direct
	case n <= 8 && g.Hidden >= 512 && g.Hidden < 2048:
		return models.Paired
	}
	return models.Wide
}

// A decodeSession is the common part of prefillSession and stepSession.
type decodeSession struct {
	binding        *Binding
	bound          cacheBinding
	ids, pos       buffer // int64, the tokens fed and their positions
	seqlens, total buffer // int32, the last place of each row in the cache; the tokens of the longest row
	mask, band     buffer // [T,T], added to the scores of attention within prompts
	hidden         buffer // [B,D], the normed state of each row's last token
}

// load loads a Program and binds the weights.
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

// openSession loads a Program and binds the weights and the tables.
func (d *Decoder) openSession(p models.Program, err error) (decodeSession, error) {
	b, err := d.load(p, err)
	if err != nil {
		return decodeSession{}, err
	}
	b.begin()
	for kind := range d.tables.cos {
		if b.has(models.OfKind(ports.Cos, kind)) {
			b.in(models.OfKind(ports.Cos, kind), d.tables.cos[kind].value, nil)
			b.in(models.OfKind(ports.Sin, kind), d.tables.sin[kind].value, nil)
		}
	}
	if b.failed != nil {
		closeSessions(b)
		return decodeSession{}, b.failed
	}
	return decodeSession{
		binding: b, ids: hostBuffer(models.I64), pos: hostBuffer(models.I64),
		seqlens: hostBuffer(models.I32), total: hostBuffer(models.I32), mask: hostBuffer(models.F32), band: hostBuffer(models.F32), hidden: d.env.buffer(models.F32),
	}, nil
}

func (s *decodeSession) close() {
	closeSessions(s.binding)
	s.bound.close()
	closeBuffers(&s.ids, &s.pos, &s.seqlens, &s.total, &s.mask, &s.band, &s.hidden)
}

// Begin copies each row's prefix into its slot and samples the first token. After an
// error all slots are unchanged.
func (d *Decoder) Begin(rows []sampler.Row) (err error) {
	began := len(d.cache.parts[0].slotOf)
	defer func() {
		if err != nil {
			d.cache.truncate(began)
		}
	}()
	width := d.geometry.Hidden
	if _, err := d.tokenChooser.hidden.of(int64(d.rows(len(rows))), int64(width)); err != nil {
		return err
	}
	slots, all, at := make([]int, len(rows)), make([]*prefix, len(rows)), make([]*sampler.Row, len(rows))
	for i := range rows {
		r := &rows[i]
		if slots[i], all[i], at[i] = r.Slot, d.prefixes[r.Prefix], r; all[i] == nil {
			return fmt.Errorf("runtime: there is no prefix %d", r.Prefix)
		}
	}
	if err := d.cache.start(slots, all); err != nil {
		return err
	}
	for i := 0; i < len(all); {
		batch := all[i].batch
		var runs []Runs
		for ; i < len(all) && all[i].batch == batch; i++ {
			runs = append(runs, Runs{To: i * width, From: all[i].row * width, Width: width, Count: 1})
		}
		if err := d.tokenChooser.hidden.copyRuns(&batch.hidden, runs...); err != nil {
			return err
		}
	}
	return d.sample(d, &d.tokenChooser.hidden, at)
}

// A stepKind has what distinguishes Programs for a step.
type stepKind struct {
	form  models.Form
	parts int  // number of parts of the cache
	many  bool // uses DecodeMany
}

// leastMany is the least number of rows for which DecodeMany computes a step.
const leastMany = 24

// A stepSession decodes one more token of each row.
type stepSession struct {
	decodeSession
	at     [2]buffer    // by part, int64 [B,G,3], where in the cache each row's new keys and values go
	masks  [2][2]buffer // by part, [B,1,1,S], added to the scores of attention, without and with a window
	places buffer       // int64 [S], the numbers 0 to S-1
	active [2]buffer    // by part, [B,1], 1 for rows that get a token, 0 for others
}

// stepSession returns the session for a kind of steps. It loads it at the first call.
func (d *Decoder) stepSession(k stepKind) (*stepSession, error) {
	if s := d.steps[k]; s != nil {
		return s, nil
	}
	s, err := d.newStepSession(k)
	if err == nil {
		d.steps[k] = s
	}
	return s, err
}

// newStepSession loads the Program of a kind of steps and makes the buffers of its inputs, whose memory is
// taken later.
func (d *Decoder) newStepSession(k stepKind) (*stepSession, error) {
	program := d.ring.Arch.Decode
	switch {
	case k.many:
		program = d.ring.Arch.DecodeMany
	case k.parts > 1:
		program = d.ring.Arch.DecodeParts
	}
	p, err := program(k.form)
	session, err := d.openSession(p, err)
	if err != nil {
		return nil, err
	}
	s := &stepSession{decodeSession: session, places: d.env.buffer(models.I64)}
	for i := range s.at {
		s.at[i], s.masks[i] = hostBuffer(models.I64), [2]buffer{hostBuffer(models.F32), hostBuffer(models.F32)}
		s.active[i] = hostBuffer(models.F32)
	}
	return s, nil
}

// Step appends each row's token to the sequence of its slot and samples the next token. The
// rows must be all slots in use. Idle slots are computed too, and the results ignored.
func (d *Decoder) Step(rows []sampler.Row) error {
	longest, err := d.checkStep(rows)
	if err != nil {
		return err
	}
	n, tokens := len(rows), longest+1
	if d.wholeSteps() {
		tokens = d.maxTokens
	}
	if d.cache.inParts {
		err = d.cache.arrange()
	} else {
		err = d.cache.reserve(tokens)
	}
	if err != nil {
		return err
	}
	parts := d.views(n)
	// DecodeMany is for a CPU in float32, like a cache in parts. Its operator computes
	// rows one by one up to their own lengths, which is faster for many rows. The last
	// bits of a row differ then.
	kind := stepKind{d.form(n), len(parts), d.ownRows > 0 || len(parts) == 1 && n >= leastMany && d.cache.inParts && !d.invariant}
	s, err := d.stepSession(kind)
	if err != nil {
		return err
	}
	if err := s.bound.bind(s.binding, d.geometry, parts...); err != nil {
		return err
	}
	at := make([]*sampler.Row, n) // in the order of the cache's rows
	for i := range rows {
		at[d.cache.rowOf(rows[i].Slot)] = &rows[i]
	}
	if err := s.fill(d, at, tokens, parts); err != nil {
		return err
	}
	if err := s.binding.Run(); err != nil {
		return err
	}
	d.cache.stepped(rows)
	return d.sample(d, &s.hidden, at)
}

// views returns the rows of the cache that a step over n sequences computes, by part.
func (d *Decoder) views(n int) (parts []cacheView) {
	for i, p := range d.cache.parts {
		if i == 0 || len(p.slotOf) > 0 {
			parts = append(parts, cacheView{p.states, len(p.slotOf), p.capacity, p.made})
		}
	}
	if len(parts) == 1 {
		parts[0].rows = d.rows(n)
	}
	return parts
}

// checkStep returns an error if the step is impossible, else the length of the longest
// sequence.
func (d *Decoder) checkStep(rows []sampler.Row) (longest int, err error) {
	if n := d.cache.rows(); len(rows) != n || n == 0 {
		return 0, fmt.Errorf("runtime: a step over %d of the %d sequences that are being decoded", len(rows), n)
	}
	for _, r := range rows {
		slot := r.Slot
		if d.cache.rowOf(slot) < 0 {
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

// fill fills the session's inputs with the ids of a step, in the order of the cache's
// rows, over rows of up to tokens tokens. An unused row begins a new sequence at every step.
func (s *stepSession) fill(d *Decoder, at []*sampler.Row, tokens int, parts []cacheView) error {
	n := int64(d.rows(len(at)))
	b := s.binding.begin()
	rows := fillIf[int64](b, ports.TokenIDs, &s.ids, n, 1)
	pos := fillIf[int64](b, ports.Positions, &s.pos, n, 1)
	lens := fillIf[int32](b, ports.CacheLengths, &s.seqlens, n)
	total := fillIf[int32](b, ports.CacheTotal, &s.total)
	hidden, err := s.hidden.of(n, int64(d.geometry.Hidden))
	b.out(ports.Hidden, hidden, err)
	if b.failed != nil {
		return b.failed
	}
	if pos == nil {
		pos = make([]int64, n)
	}
	clear(rows)
	clear(pos)
	for row, r := range at {
		rows[row], pos[row] = int64(r.ID), int64(d.cache.length(r.Slot))
	}
	for i := range lens {
		lens[i] = int32(pos[i])
	}
	for i := range total {
		total[i] = int32(tokens)
	}
	first := 0
	for i, p := range parts {
		s.fillPart(b, i, d.geometry, p.tokens, pos[first:first+p.rows])
		active := fillIf[float32](b, models.InPart(ports.Active, i), &s.active[i], int64(p.rows), 1)
		clear(active)
		for row := range active {
			if first+row < len(at) && !at[first+row].Idle {
				active[row] = 1
			}
		}
		first += p.rows
	}
	return s.fillPlaces(b, parts[0].tokens)
}

// fillPart fills the inputs by which a part of the cache knows positions of rows.
func (s *stepSession) fillPart(b *Binding, part int, g models.Geometry, capacity int, pos []int64) {
	n, heads := int64(len(pos)), g.KVHeads
	at := fillIf[int64](b, models.InPart(ports.CachePlaces, part), &s.at[part], n, int64(heads), 3)
	var masks [2][]float32
	for i, name := range []string{ports.Mask, ports.Band} {
		masks[i] = fillIf[float32](b, models.InPart(name, part), &s.masks[part][i], n, 1, 1, int64(capacity))
	}
	if b.failed != nil {
		return
	}
	for i := range len(at) / 3 {
		row, head := i/heads, i%heads
		at[3*i], at[3*i+1], at[3*i+2] = int64(row), int64(head), pos[row]
	}
	for i, window := range []int{0, g.Kinds.Window()} {
		for row := range len(masks[i]) / capacity {
			for t := range capacity {
				masks[i][row*capacity+t] = maskAt(int(pos[row]), t, window)
			}
		}
	}
}

// fillPlaces binds the numbers of the places in a row, if the Program has that
// input. They change only when the cache grows.
func (s *stepSession) fillPlaces(b *Binding, capacity int) error {
	if !b.has(ports.CacheIndices) {
		return nil
	}
	if v := s.places.value; v != nil && v.shape[0] == int64(capacity) {
		b.in(ports.CacheIndices, v, nil)
		return b.failed
	}
	places := fill[int64](b, ports.CacheIndices, &s.places, int64(capacity))
	if b.failed != nil {
		return b.failed
	}
	for i := range places {
		places[i] = int64(i)
	}
	return s.places.push()
}

// Free gives a slot back.
func (d *Decoder) Free(slot int) { d.cache.free(slot) }

// Release frees the cache and the room for prompts, which later prompts allocate again.
// It does nothing while there is a sequence or a prefix.
func (d *Decoder) Release() {
	if d.cache.rows() > 0 || len(d.prefixes) > 0 || !d.env.memory.Aliases() {
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
		closeBuffers(&s.at[0], &s.at[1], &s.masks[0][0], &s.masks[0][1], &s.masks[1][0], &s.masks[1][1], &s.places, &s.active[0], &s.active[1])
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
