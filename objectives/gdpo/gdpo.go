// Package gdpo is Group reward-Decoupled Normalization Policy Optimization
// (arXiv:2601.05242): GRPO for several rewards, each of which is standardized within the
// group by itself, so that the scale of one does not hide another, and responses that
// differ in one reward get different advantages,
//
//	S_i = sum_k weight_k (R_ik - mean_k) / (std_k + eps)
//	A_i = S_i / (std of S over the round + eps)
//	L   = -1/N sum_i 1/n_i sum_t min(r_t A_i, clip(r_t, 1 - clip_low, 1 + clip_high) A_i)
//
// R_ik are the parts of a combined reward ([[reward.use]]) with their weights; a single
// reward is its only part. The advantage is that of TRL 1.16 (multi_objective_aggregation
// = "normalize_then_sum", D29), which adds 1e-4 where advantage_eps is 1e-8; verl weighs
// the responses of the second step by their tokens. The weight of a token is
// -r_t A_i / (N n_i), or 0 where the clip cut it.
//
// Degenerate cases: an empty response adds nothing and counts in N; a group in which
// no reward differs, or of one response, has zero advantages. Responses whose rewards
// add up to the same do have advantages where their parts differ.
package gdpo

import "onering/objectives"

// A gdpo is the objective "gdpo".
type gdpo struct{ objectives.RatioClip }

func init() {
	objectives.Register("gdpo", func() objectives.Objective {
		return &gdpo{objectives.NewRatioClip("gdpo", "sequence-mean", 0.2, 0.2)}
	})
}
