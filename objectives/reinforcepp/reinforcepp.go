// Package reinforcepp is REINFORCE++ (arXiv:2501.03262): PPO's clipped surrogate
// without a critic and without a baseline per prompt. Rewards are compared with those
// of the whole round,
//
//	A_i = (R_i - mean) / std
//	L   = -1/T sum_i sum_t min(r_t A_i, clip(r_t, 1 - clip_low, 1 + clip_high) A_i)
//
// with clips of 0.2. In the mean and the standard deviation a response counts as often
// as it has tokens, as in verl and OpenRLHF, which whiten token by token (D30). The
// weight of a token is -r_t A_i / T, or 0 where the clip cut it.
//
// advantage = "reinforce++-baseline" is the paper's second variant: the mean of the
// group is subtracted first.
//
// The paper subtracts a KL term from the reward of every token, and verl discounts by
// gamma; here kl_beta is the k3 penalty of every objective (D20) and gamma is 1. verl
// divides by sqrt(variance + 1e-8), here 1e-8 is added to the standard deviation.
//
// Degenerate cases: an empty response adds nothing; a round whose rewards are all
// equal has zero advantages. A group with equal rewards does have advantages, so
// one response to a problem is enough (rollout.samples_per_prompt = 1).
package reinforcepp

import "onering/objectives"

// A reinforcepp is the objective "reinforcepp".
type reinforcepp struct{ objectives.RatioClip }

func init() {
	objectives.Register("reinforcepp", func() objectives.Objective {
		return &reinforcepp{objectives.NewRatioClip("reinforce++", "token-mean", 0.2, 0.2)}
	})
}
