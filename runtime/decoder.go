package runtime

import (
	"fmt"
	"math"
	"slices"

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
	sampler
}

// A cacheLayer is the keys and values of one layer.
type cacheLayer struct{ k, v []float32 }

// A prefix is one prompt's keys and values, [G,length,K] in each layer, and
// the normed state of its last token.
type prefix struct {
	length int
	layers []cacheLayer
	hidden []float32
}

// A step is a decode or prefill session with its buffers.
type step struct {
	binding         *Binding
	ids             scratch[int64]
	seqlens         scratch[int32]
	total           scratch[int32]
	last, pos, at   scratch[int64]
	mask            scratch[float32]
	hidden          scratch[float32]
	rows            int      // for which the cache is bound
	bound           []*Value // of the cache, to be closed
	prefix          []cacheLayer
	prefixTo, batch int
}

// form is the fastest for n rows of a model, as measured on x86-64 with
// AVX-512. Small weights stay in the processor's cache: there Wide pays later.
func (d *Decoder) form(n int) models.Form {
	g := d.geometry
	switch {
	case d.invariant:
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
	}
	return d, nil
}

// rowSize is the elements of one row of a layer's keys.
func (d *Decoder) rowSize() int { return d.geometry.KVHeads * d.capacity * d.geometry.CacheWidth }

// reserve makes room for n tokens in each row. A step reads whole rows, so the
// cache grows with the longest sequence, by a quarter and at least 64 tokens.
func (d *Decoder) reserve(n int) {
	if n <= d.capacity {
		return
	}
	was, wasRow := d.capacity, d.rowSize()
	d.capacity = min(d.maxTokens, max(n+n/4, n+64))
	for i := range d.cache {
		for _, t := range []*[]float32{&d.cache[i].k, &d.cache[i].v} {
			old := *t
			*t = make([]float32, d.slots*d.rowSize())
			for row, length := range d.lengths {
				d.place(*t, old[row*wasRow:], row, length, was)
			}
		}
	}
	for _, s := range d.steps {
		s.rows = 0 // bound to the old cache
	}
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
	st := &step{binding: b}
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
	n := rows * g.KVHeads * tokens * g.CacheWidth
	for i, l := range layers {
		for name, data := range map[string][]float32{"key": l.k, "value": l.v} {
			v, err := NewValue(data[:n], int64(rows), int64(g.KVHeads), int64(tokens), int64(g.CacheWidth))
			if err == nil {
				s.bound = append(s.bound, v)
			}
			b.in(fmt.Sprintf("past_%s.%d", name, i), v, err)
			b.out(fmt.Sprintf("present_%s.%d", name, i), v, err)
		}
	}
	return b.err
}

// positions binds the input pos [n,1], which only graphs that turn queries and
// keys themselves have; nil for the others.
func (s *step) positions(b *binder, n int) ([]int64, error) {
	if _, ok := s.binding.s.index[input]["pos"]; !ok {
		return nil, nil
	}
	pos, v, err := s.pos.of(int64(n), 1)
	b.in("pos", v, err)
	return pos, b.err
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
	s.mask.close()
	s.hidden.close()
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
	if n := batch * g.KVHeads * tokens * g.CacheWidth; s.prefix == nil || len(s.prefix[0].k) < n {
		s.prefix = nil
		for range g.Layers {
			s.prefix = append(s.prefix, cacheLayer{make([]float32, n), make([]float32, n)})
		}
		s.batch = 0
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
	lens, v, err := s.seqlens.of(int64(batch))
	b.in("seqlens", v, err)
	total, v, err := s.total.of()
	b.in("total", v, err)
	last, v, err := s.last.of(int64(batch))
	b.in("last", v, err)
	pos, err := s.positions(&b, batch*tokens)
	if err != nil {
		return nil, err
	}
	for i := range pos {
		pos[i] = int64(i % tokens)
	}
	hidden, v, err := s.hidden.of(int64(batch), int64(g.Hidden))
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
		lens[i], last[i] = int32(len(p)-1), int64(i*tokens+len(p)-1)
	}
	total[0] = int32(tokens)
	if err := s.binding.Run(); err != nil {
		return nil, err
	}
	out := make([]int, batch)
	for i, p := range prompts {
		x := &prefix{length: len(p), hidden: slices.Clone(hidden[i*g.Hidden : (i+1)*g.Hidden])}
		size, from := len(p)*g.CacheWidth, tokens*g.CacheWidth
		for _, l := range s.prefix {
			k, v := make([]float32, 0, g.KVHeads*size), make([]float32, 0, g.KVHeads*size)
			for h := range g.KVHeads {
				at := (i*g.KVHeads + h) * from
				k, v = append(k, l.k[at:at+size]...), append(v, l.v[at:at+size]...)
			}
			x.layers = append(x.layers, cacheLayer{k, v})
		}
		out[i] = d.nextID
		d.prefixes[d.nextID] = x
		d.nextID++
	}
	return out, nil
}

// Drop forgets a prefix.
func (d *Decoder) Drop(prefix int) { delete(d.prefixes, prefix) }

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
	hidden, _, err := d.sampler.hidden.of(int64(len(slots)), int64(g.Hidden))
	if err != nil {
		return err
	}
	for i, slot := range slots {
		x := d.prefixes[prefixes[i]]
		if x == nil {
			return fmt.Errorf("runtime: there is no prefix %d", prefixes[i])
		}
		if d.rowOf[slot] >= 0 {
			return fmt.Errorf("runtime: slot %d is in use", slot)
		}
		d.reserve(x.length + 1)
		row := len(d.slotOf)
		d.rowOf[slot], d.slotOf, d.lengths = row, append(d.slotOf, slot), append(d.lengths, x.length)
		for l := range d.cache {
			d.place(d.cache[l].k, x.layers[l].k, row, x.length, x.length)
			d.place(d.cache[l].v, x.layers[l].v, row, x.length, x.length)
		}
		copy(hidden[i*g.Hidden:], x.hidden)
	}
	return d.sample(d, len(slots), uniforms, next, logp, entropy)
}

// place copies the first n tokens of one row, whose heads are stride tokens
// apart, into a row of the cache.
func (d *Decoder) place(to, from []float32, row, n, stride int) {
	k := d.geometry.CacheWidth
	for h := range d.geometry.KVHeads {
		copy(to[row*d.rowSize()+h*d.capacity*k:], from[h*stride*k:][:n*k])
	}
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
	d.reserve(longest + 1)
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
	at, v, err := s.at.of(int64(n), int64(d.geometry.KVHeads), 3)
	b.in("at", v, err)
	mask, v, err := s.mask.of(int64(n), 1, 1, int64(d.capacity))
	b.in("mask", v, err)
	hidden, v, err := s.hidden.of(int64(n), int64(d.geometry.Hidden))
	b.out("hidden", v, err)
	if b.err != nil {
		return b.err
	}
	for i, slot := range slots {
		row := d.rowOf[slot]
		length := d.lengths[row]
		rows[row], pos[row] = int64(ids[i]), int64(length)
		for h := range d.geometry.KVHeads {
			to := at[(row*d.geometry.KVHeads+h)*3:]
			to[0], to[1], to[2] = int64(row), int64(h), int64(length)
		}
		for t := range d.capacity {
			m := &mask[row*d.capacity+t]
			if *m = 0; t > length {
				*m = -math.MaxFloat32
			}
		}
	}
	if err := s.binding.Run(); err != nil {
		return err
	}
	for row := range d.lengths {
		d.lengths[row]++
	}
	// The sampler's row i is slots[i].
	out, _, err := d.sampler.hidden.of(int64(n), int64(d.geometry.Hidden))
	if err != nil {
		return err
	}
	for i, slot := range slots {
		copy(out[i*d.geometry.Hidden:(i+1)*d.geometry.Hidden], hidden[d.rowOf[slot]*d.geometry.Hidden:])
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
			d.place(l.k, l.k[last*size:], row, d.lengths[last], d.capacity)
			d.place(l.v, l.v[last*size:], row, d.lengths[last], d.capacity)
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
	d.cache = nil
}
