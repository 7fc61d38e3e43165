// Package drgrpo is Dr. GRPO (Understanding R1-Zero-like training,
// arXiv:2503.20783): GRPO without its two biases. Advantages are centered only, so
// that easy and hard questions have equal weight, and tokens are summed and divided by a
// constant L instead of the response's own length, so that the tokens of long
// wrong answers are punished as much as those of short ones:
//
//	L = -1/(N L) sum_i sum_t min(r_t A_i, clip(r_t, 1 - clip_low, 1 + clip_high) A_i)
//
// The weight of a token is -r_t A_i / (N L), or 0 where the clip cut it. L is
// constant_length, in a run rollout.max_new_tokens unless it is given, and elsewhere
// 3000, the response limit of the PMPO paper's recipe. It only scales the gradient.
//
// Degenerate cases: an empty response adds nothing and counts in N; a group with
// equal rewards, or of one response, has zero advantages.
package drgrpo

import (
	"onering/objectives"
	"onering/objectives/policy"
)

// A drGRPO is the objective "drgrpo".
type drGRPO struct{ policy.Policy }

func init() {
	objectives.Register("drgrpo", func() objectives.Objective {
		return &drGRPO{policy.New("advantage=centered aggregate=constant bound=clip")}
	})
}
