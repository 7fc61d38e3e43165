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

	states      []*buffer   // as the Geometry lists them, with a row for each slot; nil before the first sequence
	capacity    int         // number of tokens that fit into a row
	generation  int         // how often the states got new memory
	slotOf      []int       // slot of each row in use
	lengths     []int       // number of cached tokens of each row in use
	pendingFrom map[int]int // by row, the row from which its content has yet to be copied; see copyPending
	rowOf       []int       // row of each slot's sequence; -1 if the slot is free
	failed      error       // the error that left the cache broken; calls return it until the cache is empty
	unbind      func()      // closes the Values over the cache; see decodeSession.unbind
}

// newStates makes states of so many rows with room for so many tokens, all zero.
func newStates(m *memory, g models.Geometry, rows, tokens int) (states []*buffer, err error) {
	for _, s := range g.States {
		b := &buffer{memory: m, dtype: s.Type}
		if err := b.allocateZeros(rows * s.Elements(tokens)); err != nil {
			closeBuffers(states...)
			return nil, err
		}
		states = append(states, b)
	}
	return states, nil
}

// newCache makes an empty cache for slots sequences.
func newCache(e *Env, g models.Geometry, slots, maxTokens int, unbind func()) *cache {
	c := &cache{memory: e.memory, geometry: g, maxTokens: maxTokens, pendingFrom: make(map[int]int), rowOf: make([]int, slots), unbind: unbind}
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
	clear(c.pendingFrom)
}

// rows returns how many sequences are being decoded.
func (c *cache) rows() int { return len(c.slotOf) }

// length returns how many tokens of a slot in use are in the cache.
func (c *cache) length(slot int) int { return c.lengths[c.rowOf[slot]] }

// stepped counts the token that a step added to each row in use. Writes to idle rows lie beyond their ends.
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
	c.copyPending()
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
	c.states, c.capacity, c.generation = states, capacity, c.generation+1
	return nil
}

// move copies the rows to states with room for so many tokens, for which it allocates memory, and frees the old ones:
// state by state, so that only one is in memory twice. The caller then sets c.states and c.capacity to the new ones.
func (c *cache) move(states []*buffer, capacity int) error {
	for i, s := range c.geometry.States {
		if err := states[i].allocateZeros(len(c.rowOf) * s.Elements(capacity)); err != nil { // a row for each slot, free or not
			return err
		}
		if c.states == nil { // before the first sequence
			continue
		}
		var runs []Runs
		for row, tokens := range c.lengths {
			runs = append(runs, copiedRow{to: row, from: row, tokens: tokens, fromCapacity: c.capacity}.runs(s, capacity))
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

// start gives each slot the next row and copies its prefix there. Neighbouring slots whose prefixes are of one batch
// are copied together. After an error the caller truncates the rows.
func (c *cache) start(slots []int, prefixes []*prefix) error {
	if c.failed != nil && c.rows() == 0 {
		c.release() // no row has what the failure broke, so the cache begins anew
	}
	longest := 0
	for i, slot := range slots {
		if c.rowOf[slot] >= 0 {
			return fmt.Errorf("runtime: slot %d is in use", slot)
		}
		longest = max(longest, prefixes[i].length)
	}
	if err := c.reserve(longest + 1); err != nil { // for one sampled token
		return err
	}
	for i := 0; i < len(slots); {
		batch := prefixes[i].batch
		var rows []copiedRow
		for ; i < len(slots) && prefixes[i].batch == batch; i++ {
			x, row := prefixes[i], len(c.slotOf)
			if c.rowOf[slots[i]] >= 0 { // it was free above
				return fmt.Errorf("runtime: slot %d is named twice", slots[i])
			}
			c.rowOf[slots[i]], c.slotOf, c.lengths = row, append(c.slotOf, slots[i]), append(c.lengths, x.length)
			rows = append(rows, copiedRow{to: row, from: x.row, tokens: x.length, fromCapacity: batch.tokens})
		}
		if err := c.copyRows(c.states, c.capacity, batch.states, rows); err != nil {
			return err
		}
	}
	return nil
}

// A copiedRow is a copy of a sequence of so many tokens to a row, from a row of states with room for fromCapacity tokens.
type copiedRow struct{ to, from, tokens, fromCapacity int }

// runs returns the copy of one state into rows with room for capacity tokens: of the tokens in each head where the
// state grows with them, else of all.
func (x copiedRow) runs(s models.State, capacity int) Runs {
	r := Runs{To: x.to * s.Elements(capacity), From: x.from * s.Elements(x.fromCapacity), Width: s.Elements(0), Count: 1}
	if s.Grows() {
		k := s.Shape[1]
		r.Stride, r.FromStride, r.Width, r.Count = capacity*k, x.fromCapacity*k, x.tokens*k, s.Shape[0]
	}
	return r
}

// copyRows copies rows of the cache from the buffers from to the buffers to, both one per state; a row of to has room
// for capacity tokens. States of the same type and shape, such as those of all layers, are copied by one call.
func (c *cache) copyRows(to []*buffer, capacity int, from []*buffer, rows []copiedRow) error {
	done := make([]bool, len(from))
	for i, s := range c.geometry.States {
		var targets, sources []*buffer // of the states like s that were not copied yet; none if s was
		for j, x := range c.geometry.States[i:] {
			if j += i; !done[j] && x.Type == s.Type && x.Grows() == s.Grows() && slices.Equal(x.Shape, s.Shape) {
				targets, sources, done[j] = append(targets, to[j]), append(sources, from[j]), true
			}
		}
		runs := make([]Runs, len(rows))
		for j, x := range rows {
			runs[j] = x.runs(s, capacity)
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

// free gives a slot back. The last row takes the place of that slot's row: the lists change here, the content is copied
// by copyPending before the next step.
func (c *cache) free(slot int) {
	row := c.rowOf[slot]
	if row < 0 {
		return
	}
	last := len(c.slotOf) - 1
	if row != last {
		from, pending := c.pendingFrom[last] // where the last row's content still is
		if !pending {
			from = last
		}
		movedSlot := c.slotOf[last]
		c.pendingFrom[row], c.rowOf[movedSlot], c.slotOf[row], c.lengths[row] = from, row, movedSlot, c.lengths[last]
	}
	delete(c.pendingFrom, last)
	c.rowOf[slot] = -1
	c.slotOf, c.lengths = c.slotOf[:last], c.lengths[:last]
}

// copyPending copies the rows that free has moved, of all layers at once. Their sources lie
// beyond the remaining rows, so no row is overwritten before it is read.
func (c *cache) copyPending() {
	if c.failed != nil {
		return // some rows have no memory
	}
	var rows []copiedRow
	for row := range c.slotOf {
		if from, ok := c.pendingFrom[row]; ok {
			rows = append(rows, copiedRow{to: row, from: from, tokens: c.lengths[row], fromCapacity: c.capacity})
		}
	}
	if len(rows) > 0 {
		c.failed = c.copyRows(c.states, c.capacity, c.states, rows)
	}
	clear(c.pendingFrom)
}

// bind binds so many rows of states with room for so many tokens to the session's inputs and outputs, unless they are
// bound already: with the same sizes, and of the same generation of memory.
func (s *decodeSession) bind(g models.Geometry, states []*buffer, rows, tokens, generation int) error {
	now := [...]int{rows, tokens, generation}
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
