package runtime

import (
	"fmt"
	"slices"

	"onering/models"
	"onering/models/ports"
)

// A prefix is one prompt's keys and values, and the normed state of its last token. They
// stay in the memory of the batch.
type prefix struct {
	length int
	batch  *prefillBatch
	row    int
}

// A prefillBatch is the result of a session for some prompts, which their prefixes use.
type prefillBatch struct {
	states     []*buffer // as in a cache, with room for T = tokens
	hidden     buffer    // [B,D]
	tokens     int
	rows       int // number of prompts for which there is room
	size       int // number of tokens of all rows for which there is room; 0 if later prompts do not use it
	users      int // number of prefixes that use it
	generation int // counts the session's batches that got new memory, up to this one
}

// A prefillSession computes prompts in one batch [B,T], padded on the right.
type prefillSession struct {
	*decodeSession
	last        buffer        // int64 [B], the packed index of each prompt's last token
	valid       buffer        // [B,T,1], 1 where a prompt has a token, else 0
	ends        buffer        // int64 [B,L-1], the places of the last tokens behind L-1 zeros
	spare       *prefillBatch // a batch that no prefix uses, for the next prompts; may be nil
	generations int           // how many batches got new memory
}

// free frees a batch, which may be nil, and the session's bindings, which would keep its memory alive.
func (s *prefillSession) free(b *prefillBatch) {
	if b != nil {
		s.unbind()
		closeBuffers(b.states...)
		b.hidden.close()
	}
}

// Prefill computes the prompts, in one batch or where all slots are computed at once one by one, and returns a handle
// for the prefix of each. Drop frees it.
func (d *Decoder) Prefill(of [][]int32) ([]int, error) {
	tokens, err := checkPrompts(of, d.maxTokens, d.geometry.Vocab)
	if err != nil || len(of) == 0 {
		return nil, err
	}
	if d.computesAllSlots() && len(of) > 1 {
		return prompts{d}.inTurn(of)
	}
	s, err := prompts{d}.session()
	if err != nil {
		return nil, err
	}
	batch, err := s.takeBatch(d, len(of), tokens)
	if err == nil {
		const before = 0 // number of tokens that the cache has
		err = s.fillPrompts(d.geometry, of, before, tokens, &batch.hidden)
	}
	if err == nil {
		err = s.binding.Run()
	}
	if err != nil {
		s.free(batch)
		return nil, err
	}
	out := make([]int, len(of))
	for i, p := range of {
		out[i] = d.nextID
		d.prefixes[d.nextID] = &prefix{length: len(p), batch: batch, row: i}
		d.nextID++
	}
	batch.users = len(of)
	return out, nil
}

// inTurn computes prompts one by one.
func (d prompts) inTurn(all [][]int32) (handles []int, err error) {
	for one := range slices.Chunk(all, 1) {
		some, err := d.Prefill(one)
		if err != nil {
			for _, x := range handles {
				d.Drop(x)
			}
			return nil, err
		}
		handles = append(handles, some...)
	}
	return handles, nil
}

// checkPrompts returns an error if a model with so many ids cannot compute one of the
// prompts in a slot of so many tokens, else the length of the longest.
func checkPrompts(prompts [][]int32, maxTokens, vocab int) (longest int, err error) {
	for i, p := range prompts {
		if len(p) == 0 || len(p) >= maxTokens {
			return 0, fmt.Errorf("runtime: prompt %d has %d tokens; a slot holds 1 to %d and one to sample", i, len(p), maxTokens-1)
		}
		for t, id := range p {
			if id < 0 || int(id) >= vocab {
				return 0, fmt.Errorf("runtime: prompt %d holds id %d at %d; the model has ids 0 to %d", i, id, t, vocab-1)
			}
		}
		longest = max(longest, len(p))
	}
	return longest, nil
}

// takeBatch takes the spare batch for the results if there is room in it, else a new one, and binds it to the session.
func (s *prefillSession) takeBatch(d *Decoder, prompts, tokens int) (b *prefillBatch, err error) {
	g, n := d.geometry, prompts*tokens
	if b, s.spare = s.spare, nil; b == nil || b.size < n || b.rows < prompts {
		s.free(b) // before the new one takes memory
		if b, err = s.newBatch(d, prompts, tokens); err != nil {
			return nil, err
		}
		b.size = n
	}
	b.tokens = tokens
	return b, s.bind(g, b.states, prompts, tokens, b.generation)
}

// newBatch makes a batch with room for prompts of so many tokens.
func (s *prefillSession) newBatch(d *Decoder, prompts, tokens int) (b *prefillBatch, err error) {
	s.generations++
	b = &prefillBatch{rows: prompts, tokens: tokens, hidden: d.env.buffer(models.F32), generation: s.generations}
	b.states, err = newStates(d.env.memory, d.geometry, prompts, tokens)
	return b, err
}

// fillPrompts fills the session's inputs with prompts, or with parts of prompts behind so many tokens that were computed
// before, each in a row of the width tokens, padded on the right. It binds states as the output of the normed states of
// the last tokens. It fills only inputs that the Program has.
func (s *prefillSession) fillPrompts(g models.Geometry, prompts [][]int32, before, tokens int, states *buffer) error {
	batch := int64(len(prompts))
	b := s.binding.begin()
	ids := fill[int64](b, ports.TokenIDs, &s.ids, batch, int64(tokens))
	last := fill[int64](b, ports.LastTokens, &s.last, batch)
	lens := fillIf[int32](b, ports.CacheLengths, &s.seqlens, batch)
	total := fillIf[int32](b, ports.CacheTotal, &s.total)
	pos := fillIf[int64](b, ports.Positions, &s.pos, batch*int64(tokens), 1)
	mask := fillIf[float32](b, ports.Mask, &s.mask, int64(tokens), int64(tokens))
	band := fillIf[float32](b, ports.Band, &s.band, int64(tokens), int64(tokens))
	valid := fillIf[float32](b, ports.Valid, &s.valid, batch, int64(tokens), 1)
	ends := fillIf[int64](b, ports.PromptWindow, &s.ends, batch, int64(g.WindowTokens()))
	hidden, err := states.resize(batch, int64(g.Hidden))
	b.out(ports.Hidden, hidden, err)
	if b.failed != nil {
		return b.failed
	}
	clear(ids)
	for i, p := range prompts {
		for t, id := range p {
			ids[i*tokens+t] = int64(id)
		}
		last[i] = int64(i*tokens + len(p) - 1)
	}
	for i := range valid {
		valid[i] = 0
		if i%tokens < len(prompts[i/tokens]) {
			valid[i] = 1
		}
	}
	for i := range ends { // the places of a prompt's last tokens in its row, once a convolution puts zeros in front
		ends[i] = int64(len(prompts[i/g.WindowTokens()]) + i%g.WindowTokens())
	}
	for i := range lens {
		lens[i] = int32(before + len(prompts[i]) - 1)
	}
	for i := range total {
		total[i] = int32(before + tokens)
	}
	for i := range pos {
		pos[i] = int64(before + i%tokens)
	}
	if mask != nil {
		fillCausal(mask, tokens, 0)
	}
	if band != nil {
		fillCausal(band, tokens, g.Kinds.Window())
	}
	return nil
}

func (s *prefillSession) close() {
	s.decodeSession.close()
	closeBuffers(&s.last, &s.valid, &s.ends)
	s.free(s.spare)
}

// Drop frees a prefix. When none uses its batch any more, the larger of that and the spare one is kept for later
// prompts; a batch of newPrefix (size 0) is not.
func (d *Decoder) Drop(prefix int) {
	x := d.prefixes[prefix]
	if x == nil {
		return
	}
	delete(d.prefixes, prefix)
	if x.batch.users--; x.batch.users > 0 {
		return
	}
	s, unneeded := d.prefill, x.batch
	if unneeded.size > 0 && (s.spare == nil || s.spare.size < unneeded.size) {
		unneeded, s.spare = s.spare, unneeded
	}
	s.free(unneeded)
}
