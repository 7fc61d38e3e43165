// Package gspo is Group Sequence Policy Optimization (arXiv:2507.18071). The ratio
// is that of the whole response, length-normalized, and the clip acts on it (D24):
//
//	s_i = exp(1/n_i sum_t d_t),  d_t = LogProb_t - OldLogProb_t
//	L   = -1/N sum_i min(s_i A_i, clip(s_i, 1 - clip_low, 1 + clip_high) A_i)
//
// with standardized advantages and clips of 3e-4 and 4e-4. The weight of a token is
// -s_i A_i / (N n_i), or 0 throughout a response that the clip cut.
//
// token_level = true is GSPO-token: each token has a ratio of its own that equals
// s_i in value and has the gradient of its own log-prob,
//
//	s_it = sg[s_i] exp(LogProb_t - sg[LogProb_t])
//	L    = -1/N sum_i 1/n_i sum_t min(s_it A_it, clip(s_it, ...) A_it)
//
// so that advantages may differ by token (Trajectory.TokenAdvantage). Where they do
// not, its gradient is GSPO's.
//
// Degenerate cases: an empty response adds nothing, counts in N and has ratio 1; a
// group with equal rewards, or of one response, has zero advantages.
package gspo

import (
	"errors"
	"math"

	"onering/objectives"
)

// A gspo is the objective "gspo".
type gspo struct {
	objectives.SequenceRatio
	objectives.RatioBound
	// TokenLevel selects GSPO-token. Default false.
	TokenLevel bool `toml:"token_level"`
}

func init() {
	objectives.Register("gspo", func() objectives.Objective {
		return &gspo{
			SequenceRatio: objectives.SequenceRatio{Shared: objectives.Defaults("standardized")},
			RatioBound:    objectives.RatioBound{ClipLow: 3e-4, ClipHigh: 4e-4},
		}
	})
}

// advantage returns the advantage of token j.
func (o *gspo) advantage(t *objectives.Trajectory, j int) float64 {
	if o.TokenLevel && t.TokenAdvantage != nil {
		return t.TokenAdvantage[j]
	}
	return t.Advantage
}

// WeighsWhole says that GSPO-token alone reads advantages of tokens; see objectives.Needs.
func (o *gspo) WeighsWhole() bool { return !o.TokenLevel }

// Validate refuses impossible combinations.
func (o *gspo) Validate() error { return errors.Join(o.SequenceRatio.Validate(), o.CheckDual()) }

// Loss implements objectives.Objective. In GSPO-token s_i and one LogProb are
// detached.
func (o *gspo) Loss(b, at objectives.Batch) float64 {
	if o.TokenLevel {
		return o.tokenLoss(b, at)
	}
	return o.SequenceLoss(b, func(i int) float64 {
		t := b.Trajectories[i]
		s, _ := o.Bounded(math.Exp(t.MeanLogRatio()), t.Advantage)
		return s
	})
}

// tokenLoss is the loss of GSPO-token.
func (o *gspo) tokenLoss(b, at objectives.Batch) float64 {
	loss := 0.0
	for i, t := range b.Trajectories {
		c := 1 / float64(len(b.Trajectories)*len(t.LogProb))
		s, detached := math.Exp(at.Trajectories[i].MeanLogRatio()), at.Trajectories[i].LogProb
		for j, logp := range t.LogProb {
			if a := o.advantage(&t, j); a != 0 {
				bounded, _ := o.Bounded(s*math.Exp(logp-detached[j]), a)
				loss -= bounded * (a * c)
			}
		}
		loss += o.Penalty(t, c)
	}
	return loss
}

// Weights implements objectives.Objective. Both forms have the same
// weights, except that the advantage differs by token in GSPO-token.
func (o *gspo) Weights(b objectives.Batch, w [][]float64) {
	for i, t := range b.Trajectories {
		c := 1 / float64(len(b.Trajectories)*len(t.LogProb)) // infinite, and unused, without tokens
		s := math.Exp(t.MeanLogRatio())
		last, weight := math.NaN(), 0.0 // of the token before: tokens with one advantage have one weight
		for j := range w[i] {
			if a := o.advantage(&t, j); a != last {
				last, weight = a, 0
				if _, cut := o.Bounded(s, a); !cut && a != 0 {
					weight = -s * (a * c)
				}
			}
			w[i][j] = weight
		}
		o.AddPenalty(t, c, w[i])
	}
}

// Diagnose implements objectives.Diagnoser.
func (o *gspo) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	all := make([]objectives.Diagnostics, len(b.Trajectories))
	for i, t := range b.Trajectories {
		l, cut := t.MeanLogRatio(), 0
		s := math.Exp(l)
		for j := range t.LogProb {
			if _, c := o.Bounded(s, o.advantage(&t, j)); c {
				cut++
			}
		}
		all[i] = objectives.Diagnostics{Advantage: t.Advantage, Clipped: objectives.Fraction(cut, len(t.LogProb))}
		all[i].SetLogRatio(l)
	}
	return all
}

var _ objectives.Diagnoser = (*gspo)(nil)
