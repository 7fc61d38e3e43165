// Package rloo is REINFORCE with a leave-one-out baseline (Back to Basics,
// arXiv:2402.14740): a response is one action, whose reward is compared with the mean
// of the others to the same prompt,
//
//	A_i = R_i - mean of R_j, j != i
//	L   = -1/N sum_i min(s_i A_i, clip(s_i, 1 - clip_low, 1 + clip_high) A_i),  s_i = exp(sum_t d_t)
//
// The paper is on policy, where s = 1 and the weight of a token is -A_i / N, that of
// REINFORCE. The ratio of the whole response and its clip of 0.2 are those of TRL's
// RLOOTrainer (1.16). Off policy the weight is -s_i A_i / N, or 0 throughout a
// response that the clip cut. The log of s is limited to 20, beyond which there is no
// gradient; TRL has no limit and overflows.
//
// TRL subtracts a KL term from the reward; here kl_beta is the k3 penalty of every
// objective (D20).
//
// Degenerate cases: an empty response adds nothing and counts in N; a group with
// equal rewards, or of one response, has zero advantages.
package rloo

import (
	"math"

	"onering/objectives"
)

// A rloo is the objective "rloo".
type rloo struct {
	objectives.SequenceRatio
	objectives.RatioBound
}

func init() {
	objectives.Register("rloo", func() objectives.Objective {
		return &rloo{
			SequenceRatio: objectives.SequenceRatio{Shared: objectives.Defaults("rloo")},
			RatioBound:    objectives.RatioBound{ClipLow: 0.2, ClipHigh: 0.2},
		}
	})
}

// ratio returns the bounded s and whether it passes no gradient.
func (o *rloo) ratio(t *objectives.Trajectory) (s float64, cut bool) {
	const limit = 20
	l := t.LogRatio()
	s, cut = o.Bound(math.Exp(min(l, limit)), t.Advantage)
	return s, cut || l > limit
}

// Loss implements objectives.Objective; nothing is detached.
func (o *rloo) Loss(b, _ objectives.Batch) float64 {
	return o.SequenceLoss(b, func(i int) float64 {
		s, _ := o.ratio(&b.Trajectories[i])
		return s
	})
}

// Weights implements objectives.Objective.
func (o *rloo) Weights(b objectives.Batch, w [][]float64) {
	o.CutWeights(b, w, o.ratio)
}

// Diagnose implements objectives.Diagnoser.
func (o *rloo) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	return b.DiagnoseSequences((*objectives.Trajectory).LogRatio, o.ratio)
}

var _ objectives.Diagnoser = (*rloo)(nil)
