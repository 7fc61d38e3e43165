package learn

import (
	"context"

	"onering/runtime"
)

// Score returns the log-probs of sequences under the ring's weights, without gradients.
func (s *Stepper) Score(ctx context.Context, sequences []runtime.Sequence) (Scores, error) {
	return s.ScoreWith(ctx, s.learner, sequences)
}

// ScoreWith is Score with another learner, such as that of a reference policy, in
// the Stepper's micro-batches. Each rank computes its own sequences and gets the others' scores. If
// memory runs out, all begin again with smaller micro-batches.
func (s *Stepper) ScoreWith(ctx context.Context, l *runtime.Learner, sequences []runtime.Sequence) (Scores, error) {
	owner := s.owners(Batch{Sequences: sequences})
	for {
		out := newScores(len(sequences))
		if s.options.Squares && l == s.learner {
			out.SumSquares = make([][]float64, len(sequences))
		}
		var err error
		for _, group := range microBatches(sequences, nil, s.own(owner), s.limit.tokens, s.options.ApartTokens) {
			var p *runtime.Pass
			if p, err = s.forward(ctx, l, sequences, group, false, out); err != nil {
				break
			}
			p.Release()
		}
		if err = s.agree(err); err == nil {
			err = s.share(owner, Batch{Sequences: sequences}, out)
		}
		if s.outcome(err) != outOfMemory {
			return out, err
		}
		s.limit.halve(err)
	}
}

// forward computes one micro-batch, group, puts its scores into out, and returns the pass, which the caller releases.
// keep says that the pass keeps what its backward pass reads.
func (s *Stepper) forward(ctx context.Context, l *runtime.Learner, sequences []runtime.Sequence, group []int, keep bool, out Scores) (*runtime.Pass, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	part, tokens := picked(sequences, group), 0
	for _, x := range part {
		tokens += len(x.Tokens)
	}
	if s.options.BeforePass != nil {
		if err := s.options.BeforePass(tokens); err != nil {
			return nil, err
		}
	}
	p, err := l.Forward(part, s.options.Temperature, keep)
	if err != nil {
		return nil, err
	}
	for k, i := range group {
		out.LogProb[i], out.Entropy[i] = Float64s(p.LogProb[k]), Float64s(p.Entropy[k])
		if out.SumSquares != nil {
			out.SumSquares[i] = Float64s(p.SumSquares[k])
		}
	}
	return p, nil
}

func newScores(n int) Scores {
	return Scores{LogProb: make([][]float64, n), Entropy: make([][]float64, n)}
}

// Float64s converts log-probs or entropies.
func Float64s(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
