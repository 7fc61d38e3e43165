package runtime

import (
	"errors"
	"fmt"
	"math"

	"onering/models"
)

// A Decoder samples from the weights of a Ring: it satisfies sampler.Decoder.
//
// The rows of its cache are dense: the sequences under way are always rows 0
// to n-1, the last one moving into the place of one that ends, so a step
// computes no idle rows.
type Decoder struct {
	env       *Env
	ring      *Ring
	geometry  models.Geometry
	slots     int
	maxTokens int
	invariant bool // see SetInvariant

	cache     []cacheLayer // per layer, [slots,G,S,K] with S = capacity
	capacity  int          // tokens that a row of the cache has room for; grows up to maxTokens
	cos, sin  scratch[float32]
	rowOf     []int // by slot; -1 where free
	slotOf    []int // by row
	lengths   []int // tokens cached, by row
	prefixes  map[int]*prefix
	nextID    int
	steps     map[models.Form]*step
	prefiller *step
	failed    error // of the cache; all later calls return it
	sampler
}

// A cacheLayer is the keys and values of one layer.
type cacheLayer struct{ k, v block }

// A prefix is one prompt's keys and values, [G,length,K] in each layer, and
// the normed state of its last token.
type prefix struct {
	length int
	cache  block // layer after layer its keys and its values
	hidden block
}

// newPrefix makes room for a prompt of length tokens.
func (d *Decoder) newPrefix(length int) (x *prefix, err error) {
	g := d.geometry
	x = &prefix{length: length}
	if x.cache, err = d.env.newBlock(g.Compute, 2*g.Layers*g.KVHeads*length*g.CacheWidth); err != nil {
		return nil, err
	}
	if x.hidden, err = d.env.newBlock(models.F32, g.Hidden); err != nil {
		x.free()
		return nil, err
	}
	return x, nil
}

// parts are where in the cache of a prefix the keys and the values of a layer
// begin.
func (x *prefix) parts(g models.Geometry, layer int) (key, value int) {
	size := g.KVHeads * x.length * g.CacheWidth
	return 2 * layer * size, (2*layer + 1) * size
}

func (x *prefix) free() {
	x.cache.free()
	x.hidden.free()
}

// A step is a decode or prefill session with its buffers.
type step struct {
	binding         *Binding
	ids             scratch[int64]
	seqlens         scratch[int32]
	total           scratch[int32]
	last, pos, at   scratch[int64]
	places          scratch[int64]
	mask            scratch[float32]
	hidden          scratch[float32]
	rows            int      // for which the cache is bound
	bound           []*Value // of the cache, to be closed
	prefix          []cacheLayer
	prefixTo, batch int
}

// form is the fastest for n rows of a model, as measured on x86-64 with
// AVX-512. Small weights stay in the processor's cache: there Wide pays later.
// A GPU has no need of the other forms, and graphs of 16 bits do not have them.
func (d *Decoder) form(n int) models.Form {
	g := d.geometry
	switch {
	case d.invariant || d.env.device.cuda || g.Compute != models.F32:
		return models.Direct
	case n == 1 || n > 64 || n < 4 && g.Hidden < 512:
		return models.Direct
	case n <= 8 && g.Hidden >= 512 && g.Hidden < 2048:
		return models.Paired
	}
	return models.Wide
}

// SetInvariant makes the bits of a row the same whatever the number of rows,
// but for a row alone: the product of one row is another kernel's, and Wide and
// Paired sum in an order that depends on their number. Where rows are few and
// weights large it takes up to 40 % more time.
func (d *Decoder) SetInvariant(on bool) { d.invariant = on }

// NewDecoder makes room for slots sequences of up to maxTokens tokens each.
func (e *Env) NewDecoder(r *Ring, slots, maxTokens int) (*Decoder, error) {
	if err := r.on(e); err != nil {
		return nil, err
	}
	g := r.Arch.Geometry()
	if slots < 1 || maxTokens < 2 {
		return nil, fmt.Errorf("runtime: a decoder of %d slots of %d tokens: it takes at least 1 slot and 2 tokens", slots, maxTokens)
	}
	if g.MaxPositions > 0 && maxTokens > g.MaxPositions {
		return nil, fmt.Errorf("runtime: %d tokens a sequence (prompt and response) exceed the model's max_position_embeddings of %d", maxTokens, g.MaxPositions)
	}
	d := &Decoder{
		env: e, ring: r, geometry: g, slots: slots, maxTokens: maxTokens,
		rowOf: make([]int, slots), prefixes: make(map[int]*prefix), steps: make(map[models.Form]*step),
	}
	for i := range d.rowOf {
		d.rowOf[i] = -1
	}
	d.cache = make([]cacheLayer, g.Layers)
	d.cos, d.sin, d.sampler.hidden = aside[float32](e), aside[float32](e), onDevice[float32](e)
	cos, sin := rotary(maxTokens, g)
	for _, t := range []struct {
		s    *scratch[float32]
		from []float32
	}{{&d.cos, cos}, {&d.sin, sin}} {
		to, _, err := t.s.of(int64(maxTokens), int64(g.HeadDim/2))
		if err != nil {
			d.Close()
			return nil, err
		}
		copy(to, t.from)
		if err := t.s.push(); err != nil {
			d.Close()
			return nil, err
		}
	}
	return d, nil
}

// rowSize is the elements of one row of a layer's keys.
func (d *Decoder) rowSize() int { return d.geometry.KVHeads * d.capacity * d.geometry.CacheWidth }

// reserve makes room for n tokens in each row. A step reads whole rows, so the
// cache grows with the longest sequence, by a quarter and at least 64 tokens.
func (d *Decoder) reserve(n int) error {
	if d.failed != nil || n <= d.capacity {
		return d.failed
	}
	was, wasRow := d.capacity, d.rowSize()
	d.capacity = min(d.maxTokens, max(n+n/4, n+64))
	for i := range d.cache {
		for _, t := range []*block{&d.cache[i].k, &d.cache[i].v} {
			fresh, err := d.env.newBlock(d.geometry.Compute, d.slots*d.rowSize())
			for row, length := range d.lengths {
				if err == nil {
					err = d.place(fresh, *t, row*wasRow, row, length, was)
				}
			}
			if err != nil {
				fresh.free()
				d.failed = err // the layers have caches of two sizes
				return err
			}
			t.free()
			*t = fresh
		}
	}
	for _, s := range d.steps {
		s.rows = 0 // bound to the old cache
	}
	return nil
}

// Slots returns how many sequences can be decoded at once.
func (d *Decoder) Slots() int { return d.slots }

// MaxTokens returns the most tokens, prompt and response, that a slot holds.
func (d *Decoder) MaxTokens() int { return d.maxTokens }

// newStep loads a Program and binds the weights and angles.
func (d *Decoder) newStep(p models.Program, err error) (*step, error) {
	if err != nil {
		return nil, err
	}
	s, err := d.env.Load(p)
	if err != nil {
		return nil, err
	}
	b, err := s.NewBinding()
	if err == nil {
		err = d.ring.bind(b, "")
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	st := &step{binding: b, hidden: onDevice[float32](d.env), places: aside[int64](d.env)}
	bind := binder{b: b}
	bind.in("cos", d.cos.value, nil)
	bind.in("sin", d.sin.value, nil)
	if bind.err != nil {
		st.close()
		return nil, bind.err
	}
	return st, nil
}

// bindCache binds rows rows of a cache of S tokens.
func (s *step) bindCache(layers []cacheLayer, g models.Geometry, rows, tokens int) error {
	for _, v := range s.bound {
		v.Close()
	}
	s.bound = s.bound[:0]
	b := binder{b: s.binding}
	for i, l := range layers {
		for name, data := range map[string]block{"key": l.k, "value": l.v} {
			v, err := data.value(0, int64(rows), int64(g.KVHeads), int64(tokens), int64(g.CacheWidth))
			if err == nil {
				s.bound = append(s.bound, v)
			}
			if past := fmt.Sprintf("past_%s.%d", name, i); s.takes(past) {
				b.in(past, v, err)
			}
			b.out(fmt.Sprintf("present_%s.%d", name, i), v, err)
		}
	}
	return b.err
}

// freePrefix frees the buffers of prefill.
func (s *step) freePrefix() {
	for i := range s.prefix {
		s.prefix[i].k.free()
		s.prefix[i].v.free()
	}
	s.prefix = nil
}

// takes says whether the Program has an input: attention by an operator of its
// own takes others than attention by products.
func (s *step) takes(name string) bool {
	_, ok := s.binding.s.index[input][name]
	return ok
}

// optional binds an input of the given shape where the Program has one, and
// returns its elements, else none.
func optional[T Element](s *step, b *binder, name string, x *scratch[T], shape ...int64) []T {
	if !s.takes(name) || b.err != nil {
		return nil
	}
	data, v, err := x.of(shape...)
	b.in(name, v, err)
	return data
}

func (s *step) close() {
	session := s.binding.s
	s.binding.Close()
	session.Close()
	for _, v := range s.bound {
		v.Close()
	}
	s.ids.close()
	s.seqlens.close()
	s.total.close()
	s.last.close()
	s.pos.close()
	s.at.close()
	s.places.close()
	s.mask.close()
	s.hidden.close()
	s.freePrefix()
}

// Prefill computes the prompts in one batch, padded on the right.
func (d *Decoder) Prefill(prompts [][]int32) ([]int, error) {
	g := d.geometry
	tokens := 0
	for i, p := range prompts {
		if len(p) == 0 || len(p) >= d.maxTokens {
			return nil, fmt.Errorf("runtime: prompt %d has %d tokens; a slot holds 1 to %d and one to sample", i, len(p), d.maxTokens-1)
		}
		tokens = max(tokens, len(p))
	}
	if len(prompts) == 0 {
		return nil, nil
	}
	if d.prefiller == nil {
		s, err := d.newStep(d.ring.Arch.Prefill())
		if err != nil {
			return nil, err
		}
		d.prefiller = s
	}
	s, batch := d.prefiller, len(prompts)
	if n := batch * g.KVHeads * tokens * g.CacheWidth; s.prefix == nil || s.prefix[0].k.n < n {
		s.batch = 0
		s.freePrefix()
		for range g.Layers {
			s.prefix = append(s.prefix, cacheLayer{})
			l := &s.prefix[len(s.prefix)-1]
			for _, t := range []*block{&l.k, &l.v} {
				var err error
				if *t, err = d.env.newBlock(g.Compute, n); err != nil {
					s.freePrefix()
					return nil, err
				}
			}
		}
	}
	if s.batch != batch || s.prefixTo != tokens {
		if err := s.bindCache(s.prefix, g, batch, tokens); err != nil {
			return nil, err
		}
		s.batch, s.prefixTo = batch, tokens
	}
	b := binder{b: s.binding}
	ids, v, err := s.ids.of(int64(batch), int64(tokens))
	b.in("ids", v, err)
	last, v, err := s.last.of(int64(batch))
	b.in("last", v, err)
	lens := optional(s, &b, "seqlens", &s.seqlens, int64(batch))
	total := optional(s, &b, "total", &s.total)
	pos := optional(s, &b, "pos", &s.pos, int64(batch*tokens), 1)
	mask := optional(s, &b, "mask", &s.mask, int64(tokens), int64(tokens))
	_, v, err = s.hidden.of(int64(batch), int64(g.Hidden))
	b.out("hidden", v, err)
	if b.err != nil {
		return nil, b.err
	}
	for i, p := range prompts {
		row := ids[i*tokens : (i+1)*tokens]
		for t := range row {
			row[t] = 0
			if t < len(p) {
				if row[t] = int64(p[t]); int(p[t]) >= g.Vocab || p[t] < 0 {
					return nil, fmt.Errorf("runtime: prompt %d holds id %d at %d; the model has ids 0 to %d", i, p[t], t, g.Vocab-1)
				}
			}
		}
		last[i] = int64(i*tokens + len(p) - 1)
	}
	for i := range lens {
		lens[i] = int32(len(prompts[i]) - 1)
	}
	for i := range total {
		total[i] = int32(tokens)
	}
	for i := range pos {
		pos[i] = int64(i % tokens)
	}
	if mask != nil {
		causal(mask, tokens)
	}
	if err := s.binding.Run(); err != nil {
		return nil, err
	}
	out := make([]int, batch)
	for i, p := range prompts {
		x, err := d.newPrefix(len(p))
		if err != nil {
			return nil, err
		}
		size, from := len(p)*g.CacheWidth, tokens*g.CacheWidth
		err = x.hidden.copyRuns(0, 0, blockOf(d.env, &s.hidden), i*g.Hidden, 0, g.Hidden, 1)
		for j, l := range s.prefix {
			key, value := x.parts(g, j)
			if err == nil {
				err = x.cache.copyRuns(key, size, l.k, i*g.KVHeads*from, from, size, g.KVHeads)
			}
			if err == nil {
				err = x.cache.copyRuns(value, size, l.v, i*g.KVHeads*from, from, size, g.KVHeads)
			}
		}
		if err != nil {
			x.free()
			return nil, err
		}
		out[i] = d.nextID
		d.prefixes[d.nextID] = x
		d.nextID++
	}
	return out, nil
}

// Drop forgets a prefix.
func (d *Decoder) Drop(prefix int) {
	if x := d.prefixes[prefix]; x != nil {
		x.free()
		delete(d.prefixes, prefix)
	}
}

// Start copies each prefix into a row and samples its first token. When it
// fails it takes no slot.
func (d *Decoder) Start(prefixes, slots []int, uniforms []float32, next []int32, logp, entropy []float32) (err error) {
	began := len(d.slotOf)
	defer func() {
		if err != nil {
			for _, slot := range d.slotOf[began:] {
				d.rowOf[slot] = -1
			}
			d.slotOf, d.lengths = d.slotOf[:began], d.lengths[:began]
		}
	}()
	g := d.geometry
	if _, _, err := d.sampler.hidden.of(int64(len(slots)), int64(g.Hidden)); err != nil {
		return err
	}
	hidden := blockOf(d.env, &d.sampler.hidden)
	for i, slot := range slots {
		x := d.prefixes[prefixes[i]]
		if x == nil {
			return fmt.Errorf("runtime: there is no prefix %d", prefixes[i])
		}
		if d.rowOf[slot] >= 0 {
			return fmt.Errorf("runtime: slot %d is in use", slot)
		}
		if err := d.reserve(x.length + 1); err != nil {
			return err
		}
		row := len(d.slotOf)
		d.rowOf[slot], d.slotOf, d.lengths = row, append(d.slotOf, slot), append(d.lengths, x.length)
		for l := range d.cache {
			key, value := x.parts(g, l)
			if err := d.place(d.cache[l].k, x.cache, key, row, x.length, x.length); err != nil {
				return err
			}
			if err := d.place(d.cache[l].v, x.cache, value, row, x.length, x.length); err != nil {
				return err
			}
		}
		if err := hidden.copyRuns(i*g.Hidden, 0, x.hidden, 0, 0, g.Hidden, 1); err != nil {
			return err
		}
	}
	return d.sample(d, len(slots), uniforms, next, logp, entropy)
}

// place copies the first n tokens of one row, which begins at element at and
// whose heads are stride tokens apart, into a row of the cache.
func (d *Decoder) place(to, from block, at, row, n, stride int) error {
	k := d.geometry.CacheWidth
	return to.copyRuns(row*d.rowSize(), d.capacity*k, from, at, stride*k, n*k, d.geometry.KVHeads)
}

// Step appends ids[i] to the sequence of slots[i] and samples the next token.
// slots must be all the slots in use.
func (d *Decoder) Step(slots []int, ids []int32, uniforms []float32, next []int32, logp, entropy []float32) error {
	n := len(d.slotOf)
	if len(slots) != n {
		return fmt.Errorf("runtime: a step over %d of the %d sequences under way", len(slots), n)
	}
	form := d.form(n)
	s := d.steps[form]
	if s == nil {
		var err error
		if s, err = d.newStep(d.ring.Arch.Decode(form)); err != nil {
			return err
		}
		d.steps[form] = s
	}
	longest := 0
	for i, slot := range slots {
		row := d.rowOf[slot]
		if row < 0 {
			return fmt.Errorf("runtime: slot %d is not in use", slot)
		}
		if d.lengths[row] >= d.maxTokens {
			return fmt.Errorf("runtime: slot %d is full with %d tokens", slot, d.maxTokens)
		}
		if ids[i] < 0 || int(ids[i]) >= d.geometry.Vocab {
			return fmt.Errorf("runtime: slot %d is fed id %d; the model has ids 0 to %d", slot, ids[i], d.geometry.Vocab-1)
		}
		longest = max(longest, d.lengths[row])
	}
	if err := d.reserve(longest + 1); err != nil {
		return err
	}
	if s.rows != n {
		s.rows = 0
		if err := s.bindCache(d.cache, d.geometry, n, d.capacity); err != nil {
			return err
		}
		s.rows = n
	}
	b := binder{b: s.binding}
	rows, v, err := s.ids.of(int64(n), 1)
	b.in("ids", v, err)
	pos, v, err := s.pos.of(int64(n), 1)
	b.in("pos", v, err)
	at := optional(s, &b, "at", &s.at, int64(n), int64(d.geometry.KVHeads), 3)
	mask := optional(s, &b, "mask", &s.mask, int64(n), 1, 1, int64(d.capacity))
	grown := len(s.places.shape) == 0 || s.places.shape[0] != int64(d.capacity)
	places := optional(s, &b, "places", &s.places, int64(d.capacity))
	lens := optional(s, &b, "seqlens", &s.seqlens, int64(n))
	total := optional(s, &b, "total", &s.total)
	_, v, err = s.hidden.of(int64(n), int64(d.geometry.Hidden))
	b.out("hidden", v, err)
	if b.err != nil {
		return b.err
	}
	for i, slot := range slots {
		row := d.rowOf[slot]
		length := d.lengths[row]
		rows[row], pos[row] = int64(ids[i]), int64(length)
	}
	for i := range len(at) / 3 {
		row, head := i/d.geometry.KVHeads, i%d.geometry.KVHeads
		at[3*i], at[3*i+1], at[3*i+2] = int64(row), int64(head), pos[row]
	}
	for row := range len(mask) / d.capacity {
		for t := range d.capacity {
			m := &mask[row*d.capacity+t]
			if *m = 0; int64(t) > pos[row] {
				*m = -math.MaxFloat32
			}
		}
	}
	for i := range lens {
		lens[i] = int32(pos[i])
	}
	for i := range total {
		total[i] = int32(longest + 1)
	}
	if grown && places != nil {
		for i := range places {
			places[i] = int64(i)
		}
		if err := s.places.push(); err != nil {
			return err
		}
	}
	if err := s.binding.Run(); err != nil {
		return err
	}
	for row := range d.lengths {
		d.lengths[row]++
	}
	// The sampler's row i is slots[i]; rows in turn are copied at once.
	width := d.geometry.Hidden
	if _, _, err := d.sampler.hidden.of(int64(n), int64(width)); err != nil {
		return err
	}
	from, to := blockOf(d.env, &s.hidden), blockOf(d.env, &d.sampler.hidden)
	for i := 0; i < n; {
		row, run := d.rowOf[slots[i]], 1
		for i+run < n && d.rowOf[slots[i+run]] == row+run {
			run++
		}
		if err := to.copyRuns(i*width, 0, from, row*width, 0, run*width, 1); err != nil {
			return err
		}
		i += run
	}
	return d.sample(d, n, uniforms, next, logp, entropy)
}

// Free gives a slot back; the last row takes its row's place.
func (d *Decoder) Free(slot int) {
	row := d.rowOf[slot]
	if row < 0 {
		return
	}
	last := len(d.slotOf) - 1
	if row != last {
		size := d.rowSize()
		for _, l := range d.cache {
			for _, t := range []block{l.k, l.v} {
				if err := d.place(t, t, last*size, row, d.lengths[last], d.capacity); err != nil {
					d.failed = errors.Join(d.failed, err)
				}
			}
		}
		moved := d.slotOf[last]
		d.rowOf[moved], d.slotOf[row], d.lengths[row] = row, moved, d.lengths[last]
	}
	d.rowOf[slot] = -1
	d.slotOf, d.lengths = d.slotOf[:last], d.lengths[:last]
}

// Close frees the sessions and the cache.
func (d *Decoder) Close() {
	for _, s := range d.steps {
		s.close()
	}
	d.steps = nil
	if d.prefiller != nil {
		d.prefiller.close()
		d.prefiller = nil
	}
	d.sampler.close()
	d.cos.close()
	d.sin.close()
	for i := range d.cache {
		d.cache[i].k.free()
		d.cache[i].v.free()
	}
	for _, x := range d.prefixes {
		x.free()
	}
	d.cache, d.prefixes = nil, nil
}
