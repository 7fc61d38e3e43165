// Package luspo is Length-Unbiased Sequence Policy Optimization (arXiv:2602.05261): GSPO
// in which each response is weighted by its length, which removes GSPO's preference for
// short right answers and long wrong ones,
//
//	s_i = exp(1/n_i sum_t d_t),  d_t = LogProb_t - OldLogProb_t
//	L   = -1/N sum_i n_i min(s_i A_i, clip(s_i, 1 - clip_low, 1 + clip_high) A_i)
//
// with standardized advantages. The weight of a token is -s_i A_i / N, n_i times
// GSPO's, or 0 throughout a response that the clip cut. The formula is checked against
// TRL 1.16 (loss_type = "luspo" with importance_sampling_level = "sequence"). The
// clips of 2e-3 and 2.5e-3 are quoted at second hand; the paper itself was not read.
//
// Degenerate cases: an empty response adds nothing and counts in N; a group with
// equal rewards, or of one response, has zero advantages.
package luspo

import (
	"math"

	"onering/objectives"
)

// A luspo is the objective "luspo".
type luspo struct {
	objectives.SequenceRatio
	objectives.RatioBound
}

func init() {
	objectives.Register("luspo", func() objectives.Objective {
		return &luspo{
			SequenceRatio: objectives.SequenceRatio{Shared: objectives.Defaults("standardized")},
			RatioBound:    objectives.RatioBound{ClipLow: 2e-3, ClipHigh: 2.5e-3},
		}
	})
}

// ratio returns the bounded s of a response that is not empty and whether the clip cut it.
func (o *luspo) ratio(t *objectives.Trajectory) (s float64, cut bool) {
	return o.Bound(math.Exp(t.MeanLogRatio()), t.Advantage)
}

// Loss implements objectives.Objective; nothing is detached.
func (o *luspo) Loss(b, _ objectives.Batch) float64 {
	return o.SequenceLoss(b, func(i int) float64 {
		t := &b.Trajectories[i]
		s, _ := o.ratio(t)
		return s * float64(len(t.LogProb))
	})
}

// Weights implements objectives.Objective.
func (o *luspo) Weights(b objectives.Batch, w [][]float64) {
	o.CutWeights(b, w, o.ratio)
}

// Diagnose implements objectives.Diagnoser.
func (o *luspo) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	return b.DiagnoseSequences((*objectives.Trajectory).MeanLogRatio, o.ratio)
}

var _ objectives.Diagnoser = (*luspo)(nil)
