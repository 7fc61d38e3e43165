package runtime

import (
	"slices"

	"onering/models"
)

// packed holds a few numbers about each token of a pass. Without padding, the sequences
// are N tokens: first the shared ones, then the others, sequence by sequence. Attention
// reads them as B rows of T places. A Learner uses these buffers again for later passes.
type packed struct {
	ids     buffer // int64 [N], the tokens
	pos     buffer // int64 [N,1], their positions in their sequences
	rows    buffer // int64 [B,T], the packed token at each place; 0 if there is none
	tokens  buffer // int64 [N], the place in [B,T] of each token; the first of several places
	valid   buffer // [B,T,1], 1 at the places of tokens, else 0
	copies  buffer // int64 [M,J], all places of each of the first M tokens
	copied  buffer // [M,1,J], 1 for these places, 0 where a token has fewer than J
	bounds  buffer // int64, the first place of each block of queries, and T
	places  buffer // int64 [n], the packed tokens that predict scored tokens
	targets buffer // int64 [n], the scored tokens that they predict

	// The head's running sums z, u and q, of which one is read and the other written in
	// turn, and the logits of the targets, all [n,1].
	z, u, q [2]buffer
	logit   buffer
}

// takePacked returns buffers that no pass uses.
func (l *Learner) takePacked() *packed {
	if s := &l.spare; len(s.packed) > 0 {
		last := len(s.packed) - 1
		p := s.packed[last]
		s.packed = s.packed[:last]
		return p
	}
	// the graph computes sizes from the bounds, on the host
	p := &packed{bounds: hostBuffer(models.I64)}
	for _, b := range p.ints() {
		*b = l.env.buffer(models.I64)
	}
	for _, b := range p.floats() {
		*b = l.env.buffer(models.F32)
	}
	return p
}

// ints returns the integer buffers, in the memory of the sessions.
func (b *packed) ints() []*buffer {
	return []*buffer{&b.ids, &b.pos, &b.rows, &b.tokens, &b.copies, &b.places, &b.targets}
}

// floats returns the buffers of floating-point numbers.
func (b *packed) floats() []*buffer {
	return []*buffer{&b.valid, &b.copied, &b.z[0], &b.z[1], &b.u[0], &b.u[1], &b.q[0], &b.q[1], &b.logit}
}

func (b *packed) close() {
	closeBuffers(b.ints()...)
	closeBuffers(b.floats()...)
	b.bounds.close()
}

// mostBlocks is the largest number of query blocks in attention.
const mostBlocks = 8

// A placement says where the tokens of a sequence are packed: the first shared tokens
// from head on, the others from own on.
type placement struct{ head, shared, own int }

// at returns where token t is packed.
func (s placement) at(t int) int {
	if t < s.shared {
		return s.head + t
	}
	return s.own + t - s.shared
}

// place returns where the tokens of each sequence are packed, how many tokens there are,
// how many of them several sequences share, and the most sequences that share one.
// Neighbouring sequences with the same prefix share it except for its last token, so that
// each row that predicts a scored token belongs to one sequence. With unshared they share
// nothing.
func place(sequences []Sequence, unshared bool) (list []placement, n, shared, copies int) {
	list = make([]placement, len(sequences))
	for i := 0; i < len(sequences); {
		prefix, j, with := sequences[i].Prefix(), i, 0
		for ; j < len(sequences) && (j == i || !unshared && slices.Equal(sequences[j].Prefix(), prefix)); j++ {
			if sequences[j].fed() > 0 {
				with++
			}
		}
		if with > 1 && len(prefix) > 1 {
			for k := i; k < j; k++ {
				list[k] = placement{head: shared, shared: min(len(prefix)-1, sequences[k].fed())}
			}
			shared, copies = shared+len(prefix)-1, max(copies, with)
		}
		i = j
	}
	n = shared
	for i := range list {
		list[i].own = n
		n += sequences[i].fed() - list[i].shared
	}
	return list, n, shared, copies
}

// pack decides the sizes of the pass, fills its buffers and hands them to the
// sessions.
func (p *Pass) pack() error {
	batch, longest := 0, 0
	for _, s := range p.sequences {
		if n := s.fed(); n > 0 {
			batch++
			longest = max(longest, n)
		}
	}
	p.longest = (longest + 7) / 8 * 8 // multiples let the runtime's memory planner see fewer different sizes
	p.blocks = 1
	if size := p.learner.options.BlockTokens; p.longest > size && !p.learner.whole {
		p.blocks = min(mostBlocks, (p.longest+size-1)/size)
	}
	b := p.packed
	N, n, B, T := int64(p.n), int64(p.rows), int64(batch), int64(p.longest)
	// The Programs need at least one token with a list of its places.
	M, J := int64(max(1, p.shared)), int64(max(1, p.copies))
	for _, x := range []struct {
		b     *buffer
		shape []int64
	}{
		{&b.ids, []int64{N}}, {&b.pos, []int64{N, 1}}, {&b.rows, []int64{B, T}}, {&b.tokens, []int64{N}}, {&b.valid, []int64{B, T, 1}},
		{&b.copies, []int64{M, J}}, {&b.copied, []int64{M, 1, J}},
		{&b.bounds, []int64{int64(p.blocks + 1)}}, {&b.places, []int64{n}}, {&b.targets, []int64{n}},
	} {
		if _, err := x.b.of(x.shape...); err != nil {
			return err
		}
	}
	b.layOut(p)
	for _, buf := range append(b.ints(), &b.valid, &b.copied) {
		if err := buf.push(); err != nil {
			return err
		}
	}
	return p.learner.tables.cover(longest, p.learner.geometry)
}

// layOut fills the buffers for a pass.
func (b *packed) layOut(p *Pass) {
	ids, pos, tokens := elements[int64](&b.ids), elements[int64](&b.pos), elements[int64](&b.tokens)
	rows, valid := elements[int64](&b.rows), elements[float32](&b.valid)
	copies, copied := elements[int64](&b.copies), elements[float32](&b.copied)
	places, targets := elements[int64](&b.places), elements[int64](&b.targets)
	clear(valid)
	clear(rows)
	clear(copies)
	clear(copied)
	seen := make([]int, len(copied)/max(1, p.copies)) // how many places each of the first tokens has so far
	row, scored := 0, 0
	for i, s := range p.sequences {
		n := s.fed()
		for t := range n {
			place, at := row*p.longest+t, p.placed[i].at(t)
			rows[place] = int64(at)
			first := at >= len(seen) || seen[at] == 0
			if at < len(seen) {
				j := at*max(1, p.copies) + seen[at]
				copies[j], copied[j] = int64(place), 1
				seen[at]++
			}
			if first {
				ids[at], pos[at], tokens[at], valid[place] = int64(s.Tokens[t]), int64(t), int64(place), 1
			}
		}
		for _, x := range s.Scored {
			for t := x.From; t < x.To; t++ {
				places[scored], targets[scored] = int64(p.placed[i].at(t-1)), int64(s.Tokens[t])
				scored++
			}
		}
		if n > 0 {
			row++
		}
	}
	bounds := elements[int64](&b.bounds)
	for i := range bounds {
		bounds[i] = int64(i * p.longest / p.blocks)
	}
}
