package runtime

import "fmt"

// A Pass is a micro-batch of sequences, their log-probs, and what the backward pass
// needs of them.
type Pass struct {
	// LogProb and Entropy hold, for each response token of each sequence, its
	// log-prob and the entropy in nats of the distribution that it was drawn from,
	// at the temperature of the pass.
	LogProb, Entropy [][]float32

	sequences   []Sequence
	temperature float64
	learner     *Learner
	packed      *packed
	activations *activations // nil if the pass is not kept
	n, rows     int          // packed tokens; response tokens
	longest     int          // T, the places of a row that attention gets
	blocks      int          // how many blocks of queries attention is computed in
}

// Forward computes the log-probs of the sequences' responses at a temperature.
// With keep the pass keeps what Backward needs. Without it, Backward computes the
// layers again. The caller must Release the pass.
func (l *Learner) Forward(sequences []Sequence, temperature float64, keep bool) (*Pass, error) {
	if !(temperature > 0) {
		return nil, fmt.Errorf("runtime: temperature %g is not above 0", temperature)
	}
	p := &Pass{learner: l, sequences: sequences, temperature: temperature}
	if err := p.check(); err != nil {
		return nil, err
	}
	p.packed = l.takePacked()
	if err := p.forward(keep); err != nil {
		p.Release()
		return nil, err
	}
	return p, nil
}

// check returns an error if the model cannot compute a sequence, and counts tokens.
func (p *Pass) check() error {
	g := p.learner.geometry
	for i, s := range p.sequences {
		if s.Prompt < 1 || s.Prompt > len(s.Tokens) {
			return fmt.Errorf("runtime: sequence %d has a prompt of %d of its %d tokens; it takes at least one", i, s.Prompt, len(s.Tokens))
		}
		if m := g.MaxPositions; m > 0 && len(s.Tokens) > m {
			return fmt.Errorf("runtime: sequence %d has %d tokens; the model's max_position_embeddings is %d", i, len(s.Tokens), m)
		}
		for t, id := range s.Tokens {
			if id < 0 || int(id) >= g.Vocab {
				return fmt.Errorf("runtime: sequence %d holds id %d at %d; the model has ids 0 to %d", i, id, t, g.Vocab-1)
			}
		}
		p.LogProb = append(p.LogProb, make([]float32, len(s.Tokens)-s.Prompt))
		p.Entropy = append(p.Entropy, make([]float32, len(s.Tokens)-s.Prompt))
		p.n += s.fed()
		p.rows += len(s.Tokens) - s.Prompt
	}
	return nil
}

// Tokens returns how many tokens pass through the layers.
func (p *Pass) Tokens() int { return p.n }

func (p *Pass) forward(keep bool) error {
	if p.rows == 0 {
		return nil
	}
	if err := p.pack(); err != nil {
		return err
	}
	a, err := p.layersForward(keep)
	if err != nil {
		return err
	}
	if keep {
		p.activations = a
	} else {
		defer p.learner.giveActivations(a)
	}
	return p.headForward(a)
}

// Release gives the pass's memory back to the Learner for the next pass.
func (p *Pass) Release() {
	p.learner.giveActivations(p.activations)
	p.activations = nil
	if p.packed != nil {
		p.learner.spare.packed = append(p.learner.spare.packed, p.packed)
		p.packed = nil
	}
}

// Bytes estimates the memory in bytes that a kept pass over n tokens takes.
func (l *Learner) Bytes(n int) int { return l.geometry.StashBytes(l.options.Stash, n) }
