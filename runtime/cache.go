package runtime

import (
	"errors"
	"fmt"
	"slices"

	"onering/models"
	"onering/sampler"
)

// A cache holds the states of the sequences that are being decoded, such as their keys and
// values, one row for each. n sequences always have rows 0 to n-1: when one ends, the last one
// moves into its row. So a step computes no idle rows.
//
// If inParts is set, much longer rows lie in a second part with room for more tokens,
// since a step reads whole rows, up to the capacity of their part. Rows are numbered
// through both parts.
type cache struct {
	memory    *memory
	geometry  models.Geometry
	maxTokens int

	parts   [2]cachePart
	placeOf []cachePlace // place of each slot's sequence
	failed  error        // the error that left the cache broken; calls return it until the cache is empty
	unbind  func()       // closes the Values over the cache, which keep its memory alive

	inParts bool  // whether arrange is used: capacities also shrink, and there may be two parts
	least   int64 // bytes of a layer that a second part must save in a step
	steps   int   // steps since rows were arranged
}

// A cachePart is a set of rows of a cache.
type cachePart struct {
	states   []*buffer   // as the Geometry lists them, for so many rows of so many tokens
	room     int         // number of rows
	capacity int         // number of tokens that fit into a row
	slotOf   []int       // slot of each row
	lengths  []int       // number of cached tokens of each row
	moved    map[int]int // rows that have yet to be copied here, and their sources; see settle
	made     int         // how often it got new memory
}

// A cachePlace is where the sequence of a slot lies; its row is -1 if the slot is free.
type cachePlace struct{ part, row int }

// newStates makes states of so many rows with room for so many tokens, all zero.
func newStates(m *memory, g models.Geometry, rows, tokens int) (states []*buffer, err error) {
	for _, s := range g.States {
		b := &buffer{memory: m, dtype: s.Type}
		if err := b.zeros(rows * s.Elements(tokens)); err != nil {
			closeBuffers(states...)
			return nil, err
		}
		states = append(states, b)
	}
	return states, nil
}

// newCache makes an empty cache for slots sequences.
func newCache(e *Env, g models.Geometry, slots, maxTokens int, own bool, unbind func()) *cache {
	// kernels other than products on a CPU receive the length of each row
	c := &cache{memory: e.memory, geometry: g, maxTokens: maxTokens, placeOf: make([]cachePlace, slots), unbind: unbind,
		inParts: g.CacheParts > 1 && e.memory.Aliases() && !own, least: 2 << 20}
	if e.memory.Aliases() {
		// Products over a row take four places at a time, and the rest singly, in another
		// order. Capacities are multiples of 16, so a place has the same bits at any
		// capacity.
		c.maxTokens = (maxTokens + 15) / 16 * 16
	}
	for i := range c.placeOf {
		c.placeOf[i].row = -1
	}
	return c
}

func (c *cache) close() {
	for i := range c.parts {
		closeBuffers(c.parts[i].states...)
	}
}

// release frees the memory of a cache without rows, and clears an earlier failure.
func (c *cache) release() {
	c.unbind()
	c.close()
	for i := range c.parts {
		c.parts[i] = cachePart{made: c.parts[i].made}
	}
	c.failed = nil
}

// rows returns how many sequences are being decoded.
func (c *cache) rows() int { return len(c.parts[0].slotOf) + len(c.parts[1].slotOf) }

// rowOf returns the row of a slot, counted through both parts; -1 if it is free.
func (c *cache) rowOf(slot int) int {
	x := c.placeOf[slot]
	if x.part == 1 {
		return len(c.parts[0].slotOf) + x.row
	}
	return x.row
}

// length returns how many tokens of a slot in use are in the cache.
func (c *cache) length(slot int) int {
	return c.parts[c.placeOf[slot].part].lengths[c.placeOf[slot].row]
}

// stepped counts the token that a step added to each row in use. Writes to idle rows lie
// beyond their ends.
func (c *cache) stepped(rows []sampler.Row) {
	for i := range rows {
		at := c.placeOf[rows[i].Slot]
		if !rows[i].Idle {
			c.parts[at.part].lengths[at.row]++
		}
	}
}

// reserve makes room for n tokens in each row of the first part. A step reads whole
// rows, so they are not longer than needed: they grow with the longest sequence, each
// time by a quarter and at least 64 tokens.
func (c *cache) reserve(n int) error {
	p := &c.parts[0]
	c.settle()
	if c.failed != nil || n <= p.capacity && p.room == len(c.placeOf) {
		return c.failed
	}
	capacity := p.capacity
	if n > capacity {
		capacity = min(c.maxTokens, (max(n+n/4, n+64)+15)/16*16)
	}
	second := &c.parts[1]
	return c.rebuild(cachePart{slotOf: p.slotOf, room: len(c.placeOf), capacity: capacity}, *second)
}

// arrangeEvery is the number of steps between attempts to arrange rows better.
const arrangeEvery = 64

// arrange gives each row room for one more token. It moves rows between the parts and
// changes capacities if a row has no room, and now and then if that saves a fifth of the
// bytes that a step reads. Results do not change: places beyond a row's end are masked.
func (c *cache) arrange() error {
	c.settle()
	if c.failed != nil {
		return c.failed
	}
	c.steps++
	fits := len(c.parts[0].slotOf) > 0
	now := 0
	for i := range c.parts {
		p := &c.parts[i]
		fits = fits && (len(p.lengths) == 0 || slices.Max(p.lengths) < p.capacity)
		now += len(p.slotOf) * p.capacity
	}
	if fits && c.steps < arrangeEvery {
		return nil
	}
	c.steps = 0
	first, second := c.plan()
	if fits && 5*(len(first.slotOf)*first.capacity+len(second.slotOf)*second.capacity) > 4*now {
		return nil
	}
	return c.rebuild(first, second)
}

// plan returns the parts, without their memory, of which a step reads least.
func (c *cache) plan() (first, second cachePart) {
	slots := slices.Concat(c.parts[0].slotOf, c.parts[1].slotOf)
	lengths := make([]int, len(slots))
	for i, slot := range slots {
		lengths[i] = c.length(slot)
	}
	slices.Sort(lengths)
	n := len(slots)
	capacity := func(length int) int {
		return min(c.maxTokens, (length+max(64, length/8)+63)/64*64)
	}
	longest := capacity(lengths[n-1])
	whole := n * longest
	least, bound := whole, lengths[n-1] // rows of the first part
	for k := 1; k < n; k++ {
		if cost := k*capacity(lengths[k-1]) + (n-k)*longest; lengths[k] > lengths[k-1] && cost < least {
			least, bound = cost, lengths[k-1]
		}
	}
	// a second part needs its own operators in each layer
	if spared := c.geometry.RowBytes(whole) - c.geometry.RowBytes(least); spared < c.least*int64(c.geometry.Layers) {
		bound = lengths[n-1]
	}
	for _, slot := range slots {
		if c.length(slot) <= bound {
			first.slotOf = append(first.slotOf, slot)
		} else {
			second.slotOf = append(second.slotOf, slot)
		}
	}
	first.room, first.capacity = len(c.placeOf), capacity(bound)
	if second.room = len(second.slotOf); second.room > 0 {
		second.capacity = longest
	}
	return first, second
}

// rebuild moves all rows to the places that new parts have for their slots. A part of the same
// slots and sizes as before keeps its memory.
func (c *cache) rebuild(parts ...cachePart) error {
	var made [2]cachePart
	for i, a := range parts {
		old := &c.parts[i]
		if a.room == old.room && a.capacity == old.capacity && slices.Equal(a.slotOf, old.slotOf) {
			made[i] = *old
			continue
		}
		made[i] = cachePart{room: a.room, capacity: a.capacity, slotOf: slices.Clone(a.slotOf), made: old.made + 1}
		for _, slot := range a.slotOf {
			made[i].lengths = append(made[i].lengths, c.length(slot))
		}
		if a.room > 0 {
			for _, s := range c.geometry.States {
				made[i].states = append(made[i].states, &buffer{memory: c.memory, dtype: s.Type})
			}
		}
	}
	c.unbind()
	if c.failed = c.move(&made); c.failed != nil { // some layers have moved, others have not
		for i := range made {
			if made[i].made != c.parts[i].made {
				closeBuffers(made[i].states...)
			}
		}
		return c.failed
	}
	c.parts = made
	for i := range made {
		for row, slot := range made[i].slotOf {
			c.placeOf[slot] = cachePlace{i, row}
		}
	}
	return nil
}

// move copies the rows to new parts, state by state, and frees the old.
func (c *cache) move(made *[2]cachePart) error {
	for state, s := range c.geometry.States {
		for i := range made {
			p := &made[i]
			if p.room == 0 || p.made == c.parts[i].made {
				continue
			}
			to := p.states[state]
			if err := to.zeros(p.room * s.Elements(p.capacity)); err != nil {
				return err
			}
			var runs [2][]Runs // rows by the part from which they come
			for row, slot := range p.slotOf {
				at := c.placeOf[slot]
				x := copiedRow{to: row, from: at.row, tokens: p.lengths[row], room: c.parts[at.part].capacity}
				runs[at.part] = append(runs[at.part], x.runs(s, p.capacity))
			}
			for part, runs := range runs {
				if len(runs) == 0 {
					continue
				}
				if err := to.copyRuns(c.parts[part].states[state], runs...); err != nil {
					return err
				}
			}
		}
		for i := range c.parts {
			if old := &c.parts[i]; old.states != nil && old.made != made[i].made {
				old.states[state].close()
			}
		}
	}
	return nil
}

// start gives each slot a row and copies its prefix there. Slots whose prefixes were
// computed together are copied together.
func (c *cache) start(slots []int, prefixes []*prefix) error {
	if c.failed != nil && c.rows() == 0 {
		c.release()
	}
	longest := 0
	for i, slot := range slots {
		if c.placeOf[slot].row >= 0 {
			return fmt.Errorf("runtime: slot %d is in use", slot)
		}
		longest = max(longest, prefixes[i].length)
	}
	if err := c.reserve(longest + 1); err != nil {
		return err
	}
	c.steps = arrangeEvery // the next step checks the places of the new rows
	p := &c.parts[0]
	for i := 0; i < len(slots); {
		batch := prefixes[i].batch
		var rows []copiedRow
		for ; i < len(slots) && prefixes[i].batch == batch; i++ {
			x, row := prefixes[i], len(p.slotOf)
			if c.placeOf[slots[i]].row >= 0 {
				return fmt.Errorf("runtime: slot %d is named twice", slots[i])
			}
			c.placeOf[slots[i]] = cachePlace{0, row}
			p.slotOf, p.lengths = append(p.slotOf, slots[i]), append(p.lengths, x.length)
			rows = append(rows, copiedRow{to: row, from: x.row, tokens: x.length, room: batch.tokens})
		}
		if err := c.copyRows(p, batch.states, rows); err != nil {
			return err
		}
	}
	return nil
}

// A copiedRow is a copy of a sequence from a row of states with room for so many tokens.
type copiedRow struct{ to, from, tokens, room int }

// runs returns the copy of one state into rows with room for so many tokens.
func (x copiedRow) runs(s models.State, room int) Runs {
	r := Runs{To: x.to * s.Elements(room), From: x.from * s.Elements(x.room), Width: s.Elements(0), Count: 1}
	if s.Grows() {
		k := s.Shape[1]
		r.Stride, r.FromStride, r.Width, r.Count = room*k, x.room*k, x.tokens*k, s.Shape[0]
	}
	return r
}

// copyRows copies rows of all states into a part. States of one form are copied together.
func (c *cache) copyRows(to *cachePart, from []*buffer, rows []copiedRow) error {
	done := make([]bool, len(from))
	for i, s := range c.geometry.States {
		var targets, sources []*buffer
		for j, x := range c.geometry.States[i:] {
			if j += i; !done[j] && x.Type == s.Type && x.Grows() == s.Grows() && slices.Equal(x.Shape, s.Shape) {
				targets, sources, done[j] = append(targets, to.states[j]), append(sources, from[j]), true
			}
		}
		runs := make([]Runs, len(rows))
		for j, x := range rows {
			runs[j] = x.runs(s, to.capacity)
		}
		if err := copyRuns(targets, sources, runs...); err != nil {
			return err
		}
	}
	return nil
}

// truncate frees the rows of the first part from n on; these rows began last.
func (c *cache) truncate(n int) {
	p := &c.parts[0]
	for _, slot := range p.slotOf[n:] {
		c.placeOf[slot] = cachePlace{0, -1}
	}
	p.slotOf, p.lengths = p.slotOf[:n], p.lengths[:n]
}

// free gives a slot back. The last row of its part moves into the row of that slot, before
// the next step.
func (c *cache) free(slot int) {
	at := c.placeOf[slot]
	if at.row < 0 {
		return
	}
	p := &c.parts[at.part]
	last := len(p.slotOf) - 1
	if at.row != last {
		if p.moved == nil {
			p.moved = make(map[int]int)
		}
		from, ok := p.moved[last]
		if !ok {
			from = last
		}
		p.moved[at.row] = from
		moved := p.slotOf[last]
		c.placeOf[moved], p.slotOf[at.row], p.lengths[at.row] = at, moved, p.lengths[last]
	}
	delete(p.moved, last)
	c.placeOf[slot] = cachePlace{0, -1}
	p.slotOf, p.lengths = p.slotOf[:last], p.lengths[:last]
	if at.part == 1 && last == 0 {
		c.unbind()
		closeBuffers(p.states...)
		*p = cachePart{made: p.made}
	}
}

// settle copies the rows that free has moved, of all layers at once. Their sources lie
// beyond the remaining rows, so no row is overwritten before it is read.
func (c *cache) settle() {
	if c.failed != nil {
		return // some rows have no memory
	}
	for i := range c.parts {
		p := &c.parts[i]
		var rows []copiedRow
		for row := range p.slotOf {
			if from, ok := p.moved[row]; ok {
				rows = append(rows, copiedRow{to: row, from: from, tokens: p.lengths[row], room: p.capacity})
			}
		}
		if len(rows) > 0 {
			c.failed = errors.Join(c.failed, c.copyRows(p, p.states, rows))
		}
		clear(p.moved)
	}
}

// A cacheView is the part of a cache that a session reads in a step.
type cacheView struct {
	states       []*buffer
	rows, tokens int
	made         int // changes when the states get new memory
}

// A cacheBinding holds the Values over a cache that are bound to a session.
type cacheBinding struct {
	values []*Value // by part and state
	bound  []cacheView
}

// bind binds the parts of a cache, unless they are bound already.
func (c *cacheBinding) bind(b *Binding, g models.Geometry, parts ...cacheView) error {
	same := func(x, y cacheView) bool { return x.rows == y.rows && x.tokens == y.tokens && x.made == y.made }
	if slices.EqualFunc(c.bound, parts, same) {
		return nil
	}
	c.close()
	for _, p := range parts {
		for i, state := range p.states {
			v, err := state.view(0, g.States[i].Dims(p.rows, p.tokens)...)
			if err != nil {
				return err
			}
			c.values = append(c.values, v)
		}
	}
	for _, role := range []models.Role{models.Keys, models.Values, models.Window, models.Memory} {
		err := b.bindAll(role, func(p models.Port) (*Value, error) {
			i := slices.IndexFunc(g.States, func(s models.State) bool { return s.Role == p.Role && s.Layer == p.Layer })
			return c.values[p.Part*len(g.States)+i], nil
		})
		if err != nil {
			return err
		}
	}
	c.bound = parts
	return nil
}

func (c *cacheBinding) close() {
	closeValues(c.values...)
	*c = cacheBinding{values: c.values[:0]}
}
