// Package grpo is Group Relative Policy Optimization (DeepSeekMath,
// arXiv:2402.03300), without a critic:
//
//	L = -1/N sum_i 1/n_i sum_t min(r_t A_i, clip(r_t, 1 - clip_low, 1 + clip_high) A_i) + kl_beta KL
//
// with r_t = exp(LogProb_t - OldLogProb_t), A standardized within the group (D2),
// clips of 0.2, and the k3 estimate of the KL divergence (D20), which is off by
// default. The weight of a token is -r_t A_i / (N n_i), or 0 where the clip cut it.
// aggregate = "token-mean" and others replace 1/(N n_i); package policy, of which this is a
// point, has the loss and its derivative. Its other parts are settings too.
//
// Degenerate cases: an empty response adds nothing and counts in N; a group with
// equal rewards, or of one response, has zero advantages.
package grpo

import (
	"onering/objectives"
	"onering/objectives/policy"
)

// A grpo is the objective "grpo".
type grpo struct{ policy.Policy }

func init() {
	objectives.Register("grpo", func() objectives.Objective {
		return &grpo{policy.New("bound=clip")}
	})
}
