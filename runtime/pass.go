package runtime

import (
	"fmt"
	"slices"
	"unsafe"
)

// A Sequence is token ids of which some are scored: their log-probs are computed, given
// all tokens before them. A conversation has a span for each turn of the assistant.
type Sequence struct {
	Tokens []int32
	Scored []Span // in order, without overlap; the first token of all cannot be scored
	// Kept has for each scored token the ids, in ascending order, of a set that it was drawn from: its distribution
	// is the one over this set. An empty set is the whole vocabulary, and so are all if Kept is nil.
	Kept [][]int32
}

// A Span is the tokens of a sequence from number From up to, not including, number To.
type Span struct{ From, To int }

// NewSequence returns a prompt and a response to it, of which the response is scored.
func NewSequence(prompt, response []int32) Sequence {
	s := Sequence{Tokens: slices.Concat(prompt, response)}
	if len(response) > 0 {
		s.Scored = []Span{{len(prompt), len(s.Tokens)}}
	}
	return s
}

// Count returns how many tokens are scored.
func (s Sequence) Count() (n int) {
	for _, x := range s.Scored {
		n += x.To - x.From
	}
	return n
}

// Prefix returns the tokens before the first one that is scored. Sequences with the same prefix can share it.
func (s Sequence) Prefix() []int32 {
	if len(s.Scored) == 0 {
		return s.Tokens
	}
	return s.Tokens[:s.Scored[0].From]
}

// tokensFed returns how many tokens pass through the layers: all before the last one that is scored.
func (s Sequence) tokensFed() int {
	if len(s.Scored) == 0 {
		return 0
	}
	return s.Scored[len(s.Scored)-1].To - 1
}

// Check returns an error if the spans are out of order or beyond the tokens, or if Kept is not nil and has not one
// sorted set for each scored token, empty or with that token.
func (s Sequence) Check() error {
	from := 1
	for _, x := range s.Scored {
		if x.From < from || x.To <= x.From || x.To > len(s.Tokens) {
			return fmt.Errorf("scores tokens %d up to %d of %d; a span begins at %d or later and holds at least one token", x.From, x.To, len(s.Tokens), from)
		}
		from = x.To
	}
	if s.Kept == nil {
		return nil
	}
	if n := s.Count(); len(s.Kept) != n {
		return fmt.Errorf("has sets of kept tokens for %d of its %d scored ones", len(s.Kept), n)
	}
	i := 0
	for _, x := range s.Scored {
		for t := x.From; t < x.To; t, i = t+1, i+1 {
			set := s.Kept[i]
			if _, ok := slices.BinarySearch(set, s.Tokens[t]); len(set) > 0 && (!ok || !slices.IsSorted(set)) {
				return fmt.Errorf("has the token %d at %d, which is not in its set of kept tokens, or the set is not in ascending order", s.Tokens[t], t)
			}
		}
	}
	return nil
}

// A Pass is a micro-batch of sequences, their log-probs, and the values that the backward pass needs.
type Pass struct {
	// LogProb and Entropy hold, for each scored token of each sequence, its log-prob and the entropy in nats of the
	// distribution that it was drawn from, at the temperature of the pass.
	LogProb, Entropy [][]float32
	// SumSquares are the sums of the squared probabilities of these distributions; nil
	// without the option Squares, and for a pass that is kept.
	SumSquares [][]float32

	sequences      []Sequence
	restricted     bool // whether a token was drawn from a set of ids; see Sequence.Kept
	temperature    float64
	learner        *Learner
	packed         *packed
	activations    *activations // nil if the pass is not kept
	placements     []placement  // the packed places of each sequence's tokens
	tokens, scored int          // number of packed tokens; of scored tokens
	sharedTokens   int          // number of packed tokens that several sequences share; they come first
	mostCopies     int          // the largest number of sequences that share a token
	rowLength      int          // T, the number of places in a row of attention
	queryBlocks    int          // how many blocks of queries attention is computed in
}

// Forward computes the log-probs of the sequences' scored tokens at a temperature. Neighbouring sequences with the
// same prefix share one copy of it. With forBackward the pass is kept: it stores the values that Backward needs;
// otherwise Backward computes the layers again. The caller must Release the pass.
func (l *Learner) Forward(sequences []Sequence, temperature float64, forBackward bool) (*Pass, error) {
	if !(temperature > 0) {
		return nil, fmt.Errorf("runtime: temperature %g is not above 0", temperature)
	}
	p := &Pass{learner: l, sequences: sequences, temperature: temperature}
	if l.options.Squares && !forBackward {
		p.SumSquares = make([][]float32, len(sequences))
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	p.packed = l.takePacked()
	if err := p.forward(forBackward); err != nil {
		p.Release()
		return nil, err
	}
	return p, nil
}

// check returns an error if the model cannot compute a sequence. It makes the slices of the results, and decides where
// each token is packed.
func (p *Pass) check() error {
	g := p.learner.geometry
	for i, s := range p.sequences {
		if err := s.Check(); err != nil {
			return fmt.Errorf("runtime: sequence %d %w", i, err)
		}
		if m := g.MaxPositions; m > 0 && len(s.Tokens) > m {
			return fmt.Errorf("runtime: sequence %d has %d tokens; the model's %s", i, len(s.Tokens), g.Context())
		}
		for t, id := range s.Tokens {
			if id < 0 || int(id) >= g.Vocab {
				return fmt.Errorf("runtime: sequence %d holds id %d at %d; the model has ids 0 to %d", i, id, t, g.Vocab-1)
			}
		}
		for t, set := range s.Kept {
			if n := len(set); n > 0 && (set[0] < 0 || int(set[n-1]) >= g.Vocab) {
				return fmt.Errorf("runtime: sequence %d: the ids of kept set %d are from %d to %d; the model has ids 0 to %d", i, t, set[0], set[n-1], g.Vocab-1)
			}
		}
		n := s.Count()
		p.LogProb, p.Entropy = append(p.LogProb, make([]float32, n)), append(p.Entropy, make([]float32, n))
		if p.SumSquares != nil {
			p.SumSquares[i] = make([]float32, n)
		}
		p.restricted = p.restricted || slices.ContainsFunc(s.Kept, func(set []int32) bool { return len(set) > 0 })
		p.scored += n
	}
	p.placements, p.tokens, p.sharedTokens, p.mostCopies = placeTokens(p.sequences, p.learner.options.Unshared)
	return nil
}

// Tokens returns how many tokens pass through the layers. A shared prefix counts once.
func (p *Pass) Tokens() int { return p.tokens }

// forward computes log-probs and entropies of all sequences. With forBackward the pass has the activations until its
// Release, else the next pass writes over them.
func (p *Pass) forward(forBackward bool) error {
	if p.scored == 0 {
		return nil
	}
	if err := p.pack(); err != nil {
		return err
	}
	a, err := p.layersForward(forBackward)
	if err != nil {
		return err
	}
	if forBackward {
		p.activations = a
	} else {
		defer p.learner.spare.putBack(a) // after the head has read them
	}
	return p.headForward(a, forBackward)
}

// Release gives the pass's memory back to the Learner for the next pass.
func (p *Pass) Release() {
	p.learner.spare.putBack(p.activations)
	p.activations = nil
	if p.packed != nil {
		p.learner.spare.packed = append(p.learner.spare.packed, p.packed)
		p.packed = nil
	}
}

// Bytes estimates the memory in bytes that a kept pass over the sequences takes at least.
func (l *Learner) Bytes(sequences []Sequence) int {
	_, n, _, _ := placeTokens(sequences, l.options.Unshared)
	return l.geometry.InputBytes(n)
}

// FirstNonFinite returns the first layer of which the output has a NaN or an infinity. The embedding is layer -1. ok
// is false if all outputs are finite, if one cannot be read, or if the pass was not kept and so no longer has them.
func (p *Pass) FirstNonFinite() (layer int, ok bool) {
	if p.activations == nil {
		return 0, false
	}
	d := p.learner.geometry.Hidden
	var spare []byte
	for i := range p.activations.stream[:p.learner.geometry.Layers+1] {
		v := p.activations.stream[i].value
		spare = hostBytes(v.memory, v.data, v.bytes, spare) // v's own bytes if they are on the host, else room for a copy
		if err := v.memory.Download(unsafe.Pointer(&spare[0]), v.data, v.bytes); err != nil {
			return 0, false
		}
		x := unsafe.Slice((*float32)(unsafe.Pointer(&spare[0])), v.bytes/4)
		if slices.ContainsFunc(x[:p.tokens*d], func(e float32) bool { return e-e != 0 }) { // NaN or infinite
			return i - 1, true
		}
	}
	return 0, false
}

// Backward adds the gradients of sum_t dLogProb[t] logp[t] + dEntropy[t] entropy[t] to the Learner's Gradients.
// dLogProb[i][t] is dL/dlogp of scored token t of sequence i, and dEntropy is dL/dentropy in the same way; nil means
// none, anything else requires the option EntropyGradient. The gradients are multiplied by the Ring's LossScale. A
// pass of which all these numbers are zero computes nothing.
func (p *Pass) Backward(dLogProb, dEntropy [][]float64) error {
	l := p.learner
	switch {
	case l.options.ScoreOnly:
		return fmt.Errorf("runtime: this learner only scores")
	case dEntropy != nil && !l.options.EntropyGradient:
		return fmt.Errorf("runtime: an entropy gradient takes the option EntropyGradient")
	case l.back.failed != nil: // by ZeroGradients
		return fmt.Errorf("runtime: clearing the gradients: %w", l.back.failed)
	case p.scored == 0:
		return nil
	}
	if any, err := p.setLossGradients(dLogProb, dEntropy); err != nil || !any {
		return err
	}
	if p.activations == nil {
		var err error
		if p.activations, err = p.layersForward(true); err != nil {
			return err
		}
		p.activations.keepsLogits = false // headForward, which would store them, has not run on these
	}
	dxr, err := p.headBackward()
	if err != nil {
		return err
	}
	l.reportFinal(l.geometry.Layers) // those of the head
	return p.layersBackward(dxr)
}

// setLossGradients passes dL/dlogp and dL/dentropy to the head's sessions, and reports whether any is not zero: if
// none is, no backward pass is needed. If dEntropy is nil, Programs that take it get zeros.
func (p *Pass) setLossGradients(dLogProb, dEntropy [][]float64) (any bool, err error) {
	head := p.learner.head
	any, err = p.flatten(&head.dLogProb, dLogProb, "w") // errors call dLogProb w, and dEntropy v
	if err == nil && dEntropy != nil {
		var some bool
		some, err = p.flatten(&head.dEntropy, dEntropy, "v")
		any = any || some
	}
	if err != nil || !any {
		return false, err
	}
	if err = head.dLogProb.push(); err == nil && dEntropy != nil {
		err = head.dEntropy.push()
	} else if err == nil && p.learner.options.EntropyGradient {
		err = head.dEntropy.filled(0, int64(p.scored), 1)
	}
	return true, err
}

// flatten joins numbers for the scored tokens of all sequences in one buffer, times the LossScale, and reports whether
// any is not zero. Errors call them by name.
func (p *Pass) flatten(into *buffer, perSequence [][]float64, name string) (any bool, err error) {
	to, _, err := sized[float32](into, int64(p.scored), 1)
	if err != nil {
		return false, err
	}
	if len(perSequence) != len(p.sequences) {
		return false, fmt.Errorf("runtime: %s has %d sequences, the pass %d", name, len(perSequence), len(p.sequences))
	}
	i, scale := 0, p.learner.ring.lossScale()
	for s := range perSequence {
		if len(perSequence[s]) != len(p.LogProb[s]) {
			return false, fmt.Errorf("runtime: %s of sequence %d has %d tokens, scored are %d", name, s, len(perSequence[s]), len(p.LogProb[s]))
		}
		for _, x := range perSequence[s] {
			to[i] = float32(x * scale)
			any = any || to[i] != 0
			i++
		}
	}
	return any, nil
}
