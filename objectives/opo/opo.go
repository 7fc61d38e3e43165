// Package opo is On-Policy RL with Optimal reward baseline (arXiv:2505.23585): the
// baseline that minimizes the variance of the gradient where the squared norm of a
// response's gradient grows with its length,
//
//	A_i = R_i - sum_j n_j R_j / sum_j n_j
//	L   = -1/T sum_i sum_t min(r_t A_i, clip(r_t, 1 - clip_low, 1 + clip_high) A_i)
//
// The advantage is that of verl's estimator "opo" (D26). OPO is meant for exactly one
// optimizer step on each round (train.batch_size = all of its responses), with neither
// KL nor entropy bonus; the ratio is then 1 and the loss is the plain policy gradient.
// The clip of 0.2 only matters with more steps. The weight of a token is -r_t A_i / T,
// or 0 where the clip cut it.
//
// Degenerate cases: an empty response adds nothing and has no part in the baseline; a
// group with equal rewards, or of one response, has zero advantages (verl has baseline
// 0 for a group of one).
package opo

import "onering/objectives"

// An opo is the objective "opo".
type opo struct{ objectives.RatioClip }

func init() {
	objectives.Register("opo", func() objectives.Objective {
		return &opo{objectives.NewRatioClip("opo", "token-mean", 0.2, 0.2)}
	})
}
