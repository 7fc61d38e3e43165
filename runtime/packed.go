package runtime

import "onering/models"

// packed holds what a pass knows of its tokens, a few numbers for each. Without
// padding, the sequences are N tokens one after the other. Attention gets them as B
// rows of T places. A Learner uses these buffers again for later passes.
type packed struct {
	ids     buffer // int64 [N], the tokens
	pos     buffer // int64 [N,1], their positions in their sequences
	rows    buffer // int64 [B,T], the packed token at each place; 0 if there is none
	tokens  buffer // int64 [N], the place in [B,T] of each token
	valid   buffer // [B,T,1], 1 for places with a token, else 0
	bounds  buffer // int64, the first place of each block of queries, and T
	places  buffer // int64 [n], the packed tokens that predict response tokens
	targets buffer // int64 [n], the response tokens that they predict

	// The head's running sums z and u, of which one of each is read and the other
	// written in turns, and the logits of the targets, all [n,1].
	z, u  [2]buffer
	logit buffer
}

// takePacked returns buffers that no pass uses.
func (l *Learner) takePacked() *packed {
	if s := &l.spare; len(s.packed) > 0 {
		last := len(s.packed) - 1
		p := s.packed[last]
		s.packed = s.packed[:last]
		return p
	}
	// The graph computes sizes from the bounds, which happens on the host.
	p := &packed{bounds: hostBuffer(models.I64)}
	for _, b := range p.ints() {
		*b = l.env.buffer(models.I64)
	}
	for _, b := range p.floats() {
		*b = l.env.buffer(models.F32)
	}
	return p
}

// ints are the buffers of integers in the memory of the sessions.
func (b *packed) ints() [6]*buffer {
	return [...]*buffer{&b.ids, &b.pos, &b.rows, &b.tokens, &b.places, &b.targets}
}

// floats are the buffers of floats.
func (b *packed) floats() [6]*buffer {
	return [...]*buffer{&b.valid, &b.z[0], &b.z[1], &b.u[0], &b.u[1], &b.logit}
}

func (b *packed) close() {
	for _, x := range b.ints() {
		x.close()
	}
	for _, x := range b.floats() {
		x.close()
	}
	b.bounds.close()
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
	p.longest = (longest + 7) / 8 * 8 // fewer different sizes for the runtime's memory planner
	p.blocks = 1
	if size := p.learner.options.BlockTokens; p.longest > size {
		p.blocks = min(8, (p.longest+size-1)/size)
	}
	b := p.packed
	N, n, B, T := int64(p.n), int64(p.rows), int64(batch), int64(p.longest)
	for _, x := range []struct {
		b     *buffer
		shape []int64
	}{
		{&b.ids, []int64{N}}, {&b.pos, []int64{N, 1}}, {&b.rows, []int64{B, T}}, {&b.tokens, []int64{N}}, {&b.valid, []int64{B, T, 1}},
		{&b.bounds, []int64{int64(p.blocks + 1)}}, {&b.places, []int64{n}}, {&b.targets, []int64{n}},
	} {
		if _, err := x.b.of(x.shape...); err != nil {
			return err
		}
	}
	b.layOut(p.sequences, p.longest, p.blocks)
	for _, buf := range b.ints() {
		if err := buf.push(); err != nil {
			return err
		}
	}
	if err := b.valid.push(); err != nil {
		return err
	}
	return p.learner.tables.cover(longest, p.learner.geometry)
}

// layOut fills the buffers for rows of T places and a number of query blocks.
func (b *packed) layOut(sequences []Sequence, T, blocks int) {
	ids, pos, tokens := elements[int64](&b.ids), elements[int64](&b.pos), elements[int64](&b.tokens)
	rows, valid := elements[int64](&b.rows), elements[float32](&b.valid)
	places, targets := elements[int64](&b.places), elements[int64](&b.targets)
	clear(valid)
	clear(rows)
	row, at, response := 0, 0, 0
	for _, s := range sequences {
		n := s.fed()
		if n == 0 {
			continue
		}
		for t := range n {
			place := row*T + t
			ids[at+t], pos[at+t], tokens[at+t] = int64(s.Tokens[t]), int64(t), int64(place)
			rows[place], valid[place] = int64(at+t), 1
			if t+1 >= s.Prompt {
				places[response], targets[response] = int64(at+t), int64(s.Tokens[t+1])
				response++
			}
		}
		row, at = row+1, at+n
	}
	bounds := elements[int64](&b.bounds)
	for i := range bounds {
		bounds[i] = int64(i * T / blocks)
	}
}
