// Package maxrl is Maximum Likelihood Reinforcement Learning (arXiv:2602.02710):
// rewards are divided by the mean of their group, so that a problem that is rarely
// solved counts about 1/p times as much, as in maximum likelihood,
//
//	A_i = (R_i - mean) / mean
//	L   = -1/T sum_i sum_t min(r_t A_i, clip(r_t, 1 - clip_low, 1 + clip_high) A_i)
//
// The advantage is that of prime-rl's max_rl (D27), which combines it with a loss of
// its own; the clipped surrogate and its bounds of 0.2 are our choice. The weight of a
// token is -r_t A_i / T, or 0 where the clip cut it.
//
// Degenerate cases: it is for rewards that are not negative; a group whose mean is not
// positive has zero advantages, as have a group with equal rewards and one of one
// response. An empty response adds nothing.
package maxrl

import "onering/objectives"

// A maxRL is the objective "maxrl".
type maxRL struct{ objectives.RatioClip }

func init() {
	objectives.Register("maxrl", func() objectives.Objective {
		return &maxRL{objectives.NewRatioClip("maxrl", "token-mean", 0.2, 0.2)}
	})
}
