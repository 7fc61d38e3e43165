package runtime

import (
	"slices"

	"onering/models"
)

// packed holds a few numbers about each token of a pass. Without padding, the sequences
// are N tokens: first the shared ones, then the others, sequence by sequence. Attention
// reads them as B rows of T places. A Learner uses these buffers again for later passes.
type packed struct {
	ids          buffer // int64 [N], the tokens
	positions    buffer // int64 [N,1], their positions in their sequences
	tokenAt      buffer // int64 [B,T], the packed token at each place; 0 if there is none
	placeOf      buffer // int64 [N], the place in [B,T] of each token; the first of several places
	valid        buffer // [B,T,1], 1 at the places of tokens, else 0
	sharedPlaces buffer // int64 [M,J], all places of each of the first M tokens
	sharedMask   buffer // [M,1,J], 1 for these places, 0 where a token has fewer than J
	blockBounds  buffer // int64, the first place of each block of queries, and T
	predictors   buffer // int64 [n], the packed tokens that predict scored tokens
	targets      buffer // int64 [n], the scored tokens that they predict

	// The head's running sums, of which one is read and the other written in turn, and the logits of the targets, all
	// [n,1]; logSquares are the log-sum-exps of twice the logits.
	logSumExp, meanLogit, logSquares [2]buffer
	targetLogit                      buffer
}

// takePacked returns buffers that no pass uses: those of an earlier pass, or new ones.
func (l *Learner) takePacked() *packed {
	if s := &l.spare; len(s.packed) > 0 {
		last := len(s.packed) - 1
		p := s.packed[last]
		s.packed = s.packed[:last]
		return p
	}
	p := &packed{blockBounds: hostBuffer(models.I64)} // graphs compute sizes from these, on the host
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
	return []*buffer{&b.ids, &b.positions, &b.tokenAt, &b.placeOf, &b.sharedPlaces, &b.predictors, &b.targets}
}

// floats returns the buffers of floating-point numbers.
func (b *packed) floats() []*buffer {
	return []*buffer{&b.valid, &b.sharedMask, &b.logSumExp[0], &b.logSumExp[1], &b.meanLogit[0],
		&b.meanLogit[1], &b.logSquares[0], &b.logSquares[1], &b.targetLogit}
}

func (b *packed) close() {
	closeBuffers(b.ints()...)
	closeBuffers(b.floats()...)
	b.blockBounds.close()
}

// mostBlocks is the largest number of query blocks in attention.
const mostBlocks = 8

// A placement says where the tokens of a sequence are packed: the first sharedCount ones
// from sharedFrom on, the others from ownFrom on.
type placement struct{ sharedFrom, sharedCount, ownFrom int }

// packedIndex returns where token t is packed.
func (s placement) packedIndex(t int) int {
	if t < s.sharedCount {
		return s.sharedFrom + t
	}
	return s.ownFrom + t - s.sharedCount
}

// placeTokens returns where the tokens of each sequence are packed, how many tokens there are (n), how many of them
// several sequences share (they come first), and the most sequences that share one (copies). Neighbouring sequences
// with the same prefix share it except for its last token, so that each row that predicts a scored token belongs to
// one sequence. With unshared they share nothing.
func placeTokens(sequences []Sequence, unshared bool) (list []placement, n, shared, copies int) {
	list = make([]placement, len(sequences))
	for i := 0; i < len(sequences); {
		prefix, j, scored := sequences[i].Prefix(), i, 0 // sequences i to j-1 share it, of which so many score tokens
		for ; j < len(sequences) && (j == i || !unshared && slices.Equal(sequences[j].Prefix(), prefix)); j++ {
			if sequences[j].tokensFed() > 0 {
				scored++
			}
		}
		if scored > 1 && len(prefix) > 1 {
			for k := i; k < j; k++ {
				list[k] = placement{sharedFrom: shared, sharedCount: min(len(prefix)-1, sequences[k].tokensFed())}
			}
			shared, copies = shared+len(prefix)-1, max(copies, scored)
		}
		i = j
	}
	n = shared
	for i := range list {
		list[i].ownFrom = n
		n += sequences[i].tokensFed() - list[i].sharedCount
	}
	return list, n, shared, copies
}

// pack decides the length of rows and the number of blocks of queries, fills the buffers of packed and hands them to
// the sessions, and makes the rotary tables long enough.
func (p *Pass) pack() error {
	batch, longest := 0, 0
	for _, s := range p.sequences {
		if n := s.tokensFed(); n > 0 {
			batch++
			longest = max(longest, n)
		}
	}
	p.rowLength = (longest + 7) / 8 * 8 // multiples let the runtime's memory planner see fewer different sizes
	p.queryBlocks = 1
	if size := p.learner.options.BlockTokens; p.rowLength > size && !p.learner.oneBlock {
		p.queryBlocks = min(mostBlocks, (p.rowLength+size-1)/size)
	}
	b := p.packed
	N, n, B, T := int64(p.tokens), int64(p.scored), int64(batch), int64(p.rowLength)
	// The Programs need at least one token with a list of its places, so without shared ones the first has it.
	M, J := int64(max(1, p.sharedTokens)), int64(max(1, p.mostCopies))
	for _, x := range []struct {
		b     *buffer
		shape []int64
	}{
		{&b.ids, []int64{N}}, {&b.positions, []int64{N, 1}}, {&b.tokenAt, []int64{B, T}}, {&b.placeOf, []int64{N}}, {&b.valid, []int64{B, T, 1}},
		{&b.sharedPlaces, []int64{M, J}}, {&b.sharedMask, []int64{M, 1, J}},
		{&b.blockBounds, []int64{int64(p.queryBlocks + 1)}}, {&b.predictors, []int64{n}}, {&b.targets, []int64{n}},
	} {
		if _, err := x.b.resize(x.shape...); err != nil {
			return err
		}
	}
	b.layOut(p)
	for _, buf := range append(b.ints(), &b.valid, &b.sharedMask) {
		if err := buf.push(); err != nil {
			return err
		}
	}
	return p.learner.tables.cover(longest, p.learner.geometry)
}

// layOut fills the buffers for a pass, in each sequence's own row of attention. A token that several sequences share is
// packed once, at its place in the first of their rows; the list of its places has the others, too.
func (b *packed) layOut(p *Pass) {
	ids, positions, placeOf := elements[int64](&b.ids), elements[int64](&b.positions), elements[int64](&b.placeOf)
	tokenAt, valid := elements[int64](&b.tokenAt), elements[float32](&b.valid)
	sharedPlaces, sharedMask := elements[int64](&b.sharedPlaces), elements[float32](&b.sharedMask)
	predictors, targets := elements[int64](&b.predictors), elements[int64](&b.targets)
	clear(valid)
	clear(tokenAt)
	clear(sharedPlaces)
	clear(sharedMask)
	placesSeen := make([]int, len(sharedMask)/max(1, p.mostCopies)) // how many places each of the first tokens has so far
	row, scored := 0, 0
	for i, s := range p.sequences {
		n := s.tokensFed()
		for t := range n {
			place, index := row*p.rowLength+t, p.placements[i].packedIndex(t)
			tokenAt[place] = int64(index)
			first := index >= len(placesSeen) || placesSeen[index] == 0
			if index < len(placesSeen) { // a shared token, which has a list of its places; see pack
				j := index*max(1, p.mostCopies) + placesSeen[index]
				sharedPlaces[j], sharedMask[j] = int64(place), 1
				placesSeen[index]++
			}
			if first {
				ids[index], positions[index], placeOf[index], valid[place] = int64(s.Tokens[t]), int64(t), int64(place), 1
			}
		}
		for _, x := range s.Scored {
			for t := x.From; t < x.To; t++ {
				predictors[scored], targets[scored] = int64(p.placements[i].packedIndex(t-1)), int64(s.Tokens[t])
				scored++
			}
		}
		if n > 0 {
			row++
		}
	}
	bounds := elements[int64](&b.blockBounds)
	for i := range bounds {
		bounds[i] = int64(i * p.rowLength / p.queryBlocks)
	}
}
