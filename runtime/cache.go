package runtime

import (
	"fmt"
	"slices"

	"onering/models"
	"onering/sampler"
)

// A cache holds the states of the sequences that are being decoded, such as their keys and
// values, one row for each. n sequences always have rows 0 to n-1: when one ends, the last one
// moves into its row. So a step computes no idle rows.
type cache struct {
	memory    *memory
	geometry  models.Geometry
	maxTokens int

	states   []*buffer   // as the Geometry lists them, with a row for each slot; nil before the first sequence
	capacity int         // number of tokens that fit into a row
	made     int         // how often the states got new memory
	slotOf   []int       // slot of each row in use
	lengths  []int       // number of cached tokens of each row in use
	moved    map[int]int // rows that have yet to be copied here, and their sources; see settle
	rowOf    []int       // row of each slot's sequence; -1 if the slot is free
	failed   error       // the error that left the cache broken; calls return it until the cache is empty
	unbind   func()      // closes the Values over the cache; see decodeSession.unbind
}

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
func newCache(e *Env, g models.Geometry, slots, maxTokens int, unbind func()) *cache {
	c := &cache{memory: e.memory, geometry: g, maxTokens: maxTokens, moved: make(map[int]int), rowOf: make([]int, slots), unbind: unbind}
	for i := range c.rowOf {
		c.rowOf[i] = -1
	}
	return c
}

func (c *cache) close() { closeBuffers(c.states...) }

// release frees the memory of a cache without rows, and clears an earlier failure.
func (c *cache) release() {
	c.unbind()
	c.close()
	c.states, c.capacity, c.failed = nil, 0, nil
	clear(c.moved)
}

// rows returns how many sequences are being decoded.
func (c *cache) rows() int { return len(c.slotOf) }

// length returns how many tokens of a slot in use are in the cache.
func (c *cache) length(slot int) int { return c.lengths[c.rowOf[slot]] }

// stepped counts the token that a step added to each row in use. Writes to idle rows lie
// beyond their ends.
func (c *cache) stepped(rows []sampler.Row) {
	for i := range rows {
		if !rows[i].Idle {
			c.lengths[c.rowOf[rows[i].Slot]]++
		}
	}
}

// reserve makes room for n tokens in each row. Rows grow with the longest sequence, each time by a
// quarter and at least 64 tokens, so that memory is taken only as it is needed. Where products go over the places
// of a row, on a GPU, a multiple of 16 keeps them aligned.
func (c *cache) reserve(n int) error {
	c.settle()
	if c.failed != nil || n <= c.capacity {
		return c.failed
	}
	capacity := min(c.maxTokens, (max(n+n/4, n+64)+15)/16*16)
	var states []*buffer
	for _, s := range c.geometry.States {
		states = append(states, &buffer{memory: c.memory, dtype: s.Type})
	}
	c.unbind()
	if c.failed = c.move(states, capacity); c.failed != nil { // some layers have moved, others have not
		closeBuffers(states...)
		return c.failed
	}
	c.states, c.capacity, c.made = states, capacity, c.made+1
	return nil
}

// move copies the rows to new states with room for so many tokens, state by state, and frees the
// old.
func (c *cache) move(states []*buffer, capacity int) error {
	for i, s := range c.geometry.States {
		if err := states[i].zeros(len(c.rowOf) * s.Elements(capacity)); err != nil {
			return err
		}
		if c.states == nil {
			continue
		}
		var runs []Runs
		for row, tokens := range c.lengths {
			runs = append(runs, copiedRow{to: row, from: row, tokens: tokens, room: c.capacity}.runs(s, capacity))
		}
		if len(runs) > 0 {
			if err := states[i].copyRuns(c.states[i], runs...); err != nil {
				return err
			}
		}
		c.states[i].close()
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
		if c.rowOf[slot] >= 0 {
			return fmt.Errorf("runtime: slot %d is in use", slot)
		}
		longest = max(longest, prefixes[i].length)
	}
	if err := c.reserve(longest + 1); err != nil {
		return err
	}
	for i := 0; i < len(slots); {
		batch := prefixes[i].batch
		var rows []copiedRow
		for ; i < len(slots) && prefixes[i].batch == batch; i++ {
			x, row := prefixes[i], len(c.slotOf)
			if c.rowOf[slots[i]] >= 0 {
				return fmt.Errorf("runtime: slot %d is named twice", slots[i])
			}
			c.rowOf[slots[i]], c.slotOf, c.lengths = row, append(c.slotOf, slots[i]), append(c.lengths, x.length)
			rows = append(rows, copiedRow{to: row, from: x.row, tokens: x.length, room: batch.tokens})
		}
		if err := c.copyRows(c.states, c.capacity, batch.states, rows); err != nil {
			return err
		}
	}
	return nil
}

// A copiedRow is a copy of a sequence from a row of states with room for so many tokens.
type copiedRow struct{ to, from, tokens, room int }

// runs returns the copy of one state into rows with room for room tokens.
func (x copiedRow) runs(s models.State, room int) Runs {
	r := Runs{To: x.to * s.Elements(room), From: x.from * s.Elements(x.room), Width: s.Elements(0), Count: 1}
	if s.Grows() {
		k := s.Shape[1]
		r.Stride, r.FromStride, r.Width, r.Count = room*k, x.room*k, x.tokens*k, s.Shape[0]
	}
	return r
}

// copyRows copies rows of the cache from the buffers from to the buffers to, both one per state; a row of to has room for
// room tokens. States of the same type and shape share a copy.
func (c *cache) copyRows(to []*buffer, room int, from []*buffer, rows []copiedRow) error {
	done := make([]bool, len(from))
	for i, s := range c.geometry.States {
		var targets, sources []*buffer
		for j, x := range c.geometry.States[i:] {
			if j += i; !done[j] && x.Type == s.Type && x.Grows() == s.Grows() && slices.Equal(x.Shape, s.Shape) {
				targets, sources, done[j] = append(targets, to[j]), append(sources, from[j]), true
			}
		}
		runs := make([]Runs, len(rows))
		for j, x := range rows {
			runs[j] = x.runs(s, room)
		}
		if err := copyRuns(targets, sources, runs...); err != nil {
			return err
		}
	}
	return nil
}

// truncate frees the rows from n on, which began last.
func (c *cache) truncate(n int) {
	for _, slot := range c.slotOf[n:] {
		c.rowOf[slot] = -1
	}
	c.slotOf, c.lengths = c.slotOf[:n], c.lengths[:n]
}

// free gives a slot back. The last row moves into the row of that slot, before the next step.
func (c *cache) free(slot int) {
	row := c.rowOf[slot]
	if row < 0 {
		return
	}
	last := len(c.slotOf) - 1
	if row != last {
		from, ok := c.moved[last]
		if !ok {
			from = last
		}
		moved := c.slotOf[last]
		c.moved[row], c.rowOf[moved], c.slotOf[row], c.lengths[row] = from, row, moved, c.lengths[last]
	}
	delete(c.moved, last)
	c.rowOf[slot] = -1
	c.slotOf, c.lengths = c.slotOf[:last], c.lengths[:last]
}

// settle copies the rows that free has moved, of all layers at once. Their sources lie
// beyond the remaining rows, so no row is overwritten before it is read.
func (c *cache) settle() {
	if c.failed != nil {
		return // some rows have no memory
	}
	var rows []copiedRow
	for row := range c.slotOf {
		if from, ok := c.moved[row]; ok {
			rows = append(rows, copiedRow{to: row, from: from, tokens: c.lengths[row], room: c.capacity})
		}
	}
	if len(rows) > 0 {
		c.failed = c.copyRows(c.states, c.capacity, c.states, rows)
	}
	clear(c.moved)
}

// bind binds so many rows of states with room for so many tokens, which have got memory made times, unless they are bound already.
func (s *decodeSession) bind(g models.Geometry, states []*buffer, rows, tokens, made int) error {
	now := [...]int{rows, tokens, made}
	if s.bound == now {
		return nil
	}
	s.unbind()
	for i, state := range states {
		value, err := state.view(0, g.States[i].Dims(rows, tokens)...)
		if err != nil {
			return err
		}
		s.values = append(s.values, value)
	}
	for _, role := range []models.Role{models.Keys, models.Values, models.Window, models.Memory} {
		err := s.binding.bindAll(role, func(p models.Port) (*Value, error) {
			return s.values[slices.IndexFunc(g.States, func(s models.State) bool { return s.Role == p.Role && s.Layer == p.Layer })], nil
		})
		if err != nil {
			return err
		}
	}
	s.bound = now
	return nil
}

// unbind closes the Values over states, which keep their memory alive.
func (s *decodeSession) unbind() {
	closeValues(s.values...)
	s.values, s.bound = nil, [3]int{}
}
