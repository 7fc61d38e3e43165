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

// A GSPO is the objective "gspo".
type GSPO struct {
	objectives.Shared
	// ClipLow and ClipHigh bound the ratio of a response; clip_low = 1 never binds.
	ClipLow  float64 `toml:"clip_low"`
	ClipHigh float64 `toml:"clip_high"`
	// TokenLevel is GSPO-token. Default false.
	TokenLevel bool `toml:"token_level"`
}

func init() {
	objectives.Register("gspo", func() objectives.Objective {
		return &GSPO{Shared: objectives.Defaults("standardized"), ClipLow: 3e-4, ClipHigh: 4e-4}
	})
}

// Validate implements objectives.Validator.
func (o *GSPO) Validate() error {
	return errors.Join(
		o.Shared.Validate(),
		objectives.Within("clip_low", o.ClipLow, 0, 1),
		objectives.Within("clip_high", o.ClipHigh, 0, math.MaxFloat64),
	)
}

// logRatio returns log s, 0 for an empty response.
func logRatio(t objectives.Trajectory) float64 {
	if len(t.LogProb) == 0 {
		return 0
	}
	sum := 0.0
	for j, logp := range t.LogProb {
		sum += logp - t.OldLogProb[j]
	}
	return sum / float64(len(t.LogProb))
}

// bound returns the clipped ratio and whether the clip cut it.
func (o *GSPO) bound(s, advantage float64) (float64, bool) {
	switch {
	case advantage > 0 && s > 1+o.ClipHigh:
		return 1 + o.ClipHigh, true
	case advantage < 0 && s < 1-o.ClipLow:
		return 1 - o.ClipLow, true
	}
	return s, false
}

// advantage returns that of token j.
func (o *GSPO) advantage(t objectives.Trajectory, j int) float64 {
	if o.TokenLevel && t.TokenAdvantage != nil {
		return t.TokenAdvantage[j]
	}
	return t.Advantage
}

// Loss implements objectives.Objective. In GSPO-token s_i and one LogProb are
// detached.
func (o *GSPO) Loss(b, at objectives.Batch) float64 {
	loss := 0.0
	for i, t := range b.Trajectories {
		c := 1 / float64(len(b.Trajectories)*len(t.LogProb))
		s := math.Exp(logRatio(t))
		detached := at.Trajectories[i].LogProb
		if o.TokenLevel {
			s = math.Exp(logRatio(at.Trajectories[i]))
		}
		for j, logp := range t.LogProb {
			a := o.advantage(t, j)
			if a == 0 {
				continue
			}
			ratio := s
			if o.TokenLevel {
				ratio *= math.Exp(logp - detached[j])
			}
			bounded, _ := o.bound(ratio, a)
			loss -= bounded * (a * c)
		}
		loss += o.Penalty(t, c)
	}
	return loss
}

// Weights implements objectives.Objective.
func (o *GSPO) Weights(b objectives.Batch, w [][]float64) {
	for i, t := range b.Trajectories {
		c := 1 / float64(len(b.Trajectories)*len(t.LogProb))
		s := math.Exp(logRatio(t))
		clear(w[i])
		for j := range w[i] {
			a := o.advantage(t, j)
			if _, cut := o.bound(s, a); !cut && a != 0 {
				w[i][j] = -s * (a * c)
			}
		}
		o.AddPenalty(t, c, w[i])
	}
}

// Diagnose implements objectives.Diagnoser.
func (o *GSPO) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	all := make([]objectives.Diagnostics, len(b.Trajectories))
	for i, t := range b.Trajectories {
		l, cut := logRatio(t), 0
		for j := range t.LogProb {
			if _, c := o.bound(math.Exp(l), o.advantage(t, j)); c {
				cut++
			}
		}
		all[i] = objectives.Diagnostics{Advantage: t.Advantage, Clipped: objectives.Fraction(cut, len(t.LogProb))}
		all[i].SetLogRatio(l)
	}
	return all
}

var _ objectives.Diagnoser = (*GSPO)(nil)
