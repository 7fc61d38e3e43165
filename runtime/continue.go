package runtime

import (
	"fmt"
	"slices"

	"onering/models"
	"onering/sampler"
)

// partTokens is how many tokens of a prompt are computed at a time where others are decoded
// meanwhile. Fewer would read the weights more often for the same work.
const partTokens = 128

// prompts computes the prompts of a Decoder in parts. It implements sampler.Parts.
type prompts struct{ *Decoder }

// PromptParts returns what computes prompts in parts: ONNX Runtime's operator GroupQueryAttention or our
// own on a CPU. nil stands for a device without, and for layers without attention, whose states
// are known only at a prompt's end.
func (d *Decoder) PromptParts() sampler.Parts {
	if !d.env.memory.IsHost() || slices.ContainsFunc(d.geometry.States, func(s models.State) bool { return !s.Grows() }) {
		return nil
	}
	return prompts{d}
}

// Part returns how many tokens a part has.
func (d prompts) Part() (tokens int, anywhere bool) {
	return partTokens, d.stepRowsApart() && d.rowsApart(d.ring.Arch.Prefill())
}

// session returns the session that computes prompts.
func (d prompts) session() (*prefillSession, error) {
	if d.prefill == nil {
		s, err := d.openSession(d.ring.Arch.Prefill())
		if err != nil {
			return nil, err
		}
		d.prefill = &prefillSession{decodeSession: s, last: hostBuffer(models.I64), valid: hostBuffer(models.F32), ends: hostBuffer(models.I64)}
	}
	return d.prefill, nil
}

// newPrefix makes a prefix of one row with room for so many tokens, and copies those of a row of states into it, none
// if from is nil.
func (d prompts) newPrefix(s *prefillSession, capacity int, from []*buffer, row copiedRow) (handle int, err error) {
	b, err := s.newBatch(d.Decoder, 1, capacity)
	if err == nil && from != nil {
		err = d.cache.copyRows(b.states, capacity, from, []copiedRow{row})
	}
	if err != nil {
		s.free(b)
		return 0, err
	}
	b.users = 1
	handle, d.nextID = d.nextID, d.nextID+1
	d.prefixes[handle] = &prefix{length: row.tokens, batch: b}
	return handle, nil
}

// Open makes a prefix with room for a prompt of so many tokens, which begins with the first n
// tokens of another, if n is not 0.
func (d prompts) Open(from, n, room int) (int, error) {
	old := d.prefixes[from]
	if n > 0 && (old == nil || n > old.length) || n >= room || room >= d.maxTokens {
		return 0, fmt.Errorf("runtime: a prefix of %d tokens cannot begin with %d of prefix %d", room, n, from)
	}
	s, err := d.session()
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return d.newPrefix(s, room, nil, copiedRow{})
	}
	return d.newPrefix(s, room, old.batch.states, copiedRow{from: old.row, tokens: n, fromCapacity: old.batch.tokens})
}

// Append computes the next tokens of a prefix that Open has made, after those that it has. The prefix then has the
// state of the last one, from which rows begin.
func (d prompts) Append(handle int, ids []int32) error {
	x := d.prefixes[handle]
	if x == nil || x.length+len(ids) > x.batch.tokens {
		return fmt.Errorf("runtime: prefix %d has no room for %d tokens", handle, len(ids))
	}
	if _, err := checkPrompts([][]int32{ids}, d.maxTokens, d.geometry.Vocab); err != nil {
		return err
	}
	s, err := d.session()
	if err == nil {
		err = s.bind(d.geometry, x.batch.states, 1, x.batch.tokens, x.batch.generation)
	}
	if err == nil {
		err = s.fillPrompts(d.geometry, [][]int32{ids}, x.length, len(ids), &x.batch.hidden)
	}
	if err == nil {
		err = s.binding.Run()
	}
	if err == nil {
		x.length += len(ids)
	}
	return err
}

// Save copies what the cache has of the tokens of a slot to a prefix, with which Open can begin another one: it has
// no room for more tokens, and no state from which rows begin.
func (d prompts) Save(slot int) (handle, tokens int, err error) {
	d.cache.copyPending()
	if d.cache.failed != nil || d.cache.rowOf[slot] < 0 {
		return 0, 0, fmt.Errorf("runtime: slot %d holds no tokens", slot)
	}
	s, err := d.session()
	if err != nil {
		return 0, 0, err
	}
	tokens = d.cache.length(slot)
	handle, err = d.newPrefix(s, tokens, d.cache.states, copiedRow{from: d.cache.rowOf[slot], tokens: tokens, fromCapacity: d.cache.capacity})
	return handle, tokens, err
}
