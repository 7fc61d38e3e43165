// Package remax is ReMax (arXiv:2310.10505): the policy gradient with the reward of the
// greedy response to the same prompt as the baseline,
//
//	A_i = R_i - R_greedy
//	L   = -1/T sum_i sum_t min(r_t A_i, clip(r_t, 1 - clip_low, 1 + clip_high) A_i)
//
// The run samples the greedy response beside the group, with its prompt computed once for
// both, and has it graded with the group; it is not trained on. The advantage is that of
// verl's estimator "remax" (D31). The paper samples one response to each prompt beside
// the greedy one (rollout.samples_per_prompt = 1) and takes one step for each round; the
// ratio is then 1 and the gradient is that of the authors' code (liziniu/ReMax,
// actor_loss_fn of remax_trainer.py). They also put a KL penalty into the reward of each
// token and bound R_i - R_greedy by 5; here the penalty is kl_beta's and nothing is
// bounded. The weight of a token is -r_t A_i / T, or 0 where the clip cut it.
//
// Degenerate cases: an empty response adds nothing; responses that are worth as much as
// the greedy one have advantage 0, and a group with equal rewards has others where the
// greedy response is worth more or less.
package remax

import "onering/objectives"

// A reMax is the objective "remax".
type reMax struct{ objectives.RatioClip }

func init() {
	objectives.Register("remax", func() objectives.Objective {
		return &reMax{objectives.NewRatioClip("remax", "token-mean", 0.2, 0.2)}
	})
}
