// Package dapo is DAPO (Decoupled Clip and Dynamic Sampling Policy Optimization,
// arXiv:2503.14476). It is GRPO with four changes:
//
//   - the clip is wider above, [1 - 0.2, 1 + 0.28], so that rare tokens can
//     become more likely (D22);
//   - each token of the batch counts the same: aggregate = "token-mean" divides by T,
//     the tokens of the whole batch (D21; the paper divides per group);
//   - dynamic_sampling: groups whose rewards are all equal teach nothing; a host that
//     supports it samples other groups instead of them (Keep);
//   - overlong punishment: responses longer than overlong_length - overlong_cache lose
//     up to 1 of their reward, linearly, and 1 beyond overlong_length (Shape, D22).
//     It is off by default, overlong_length = 0, because the right length is the
//     run's own rollout.max_new_tokens. The paper's cache is a fifth of the length.
//
// So
//
//	L = -1/T sum_i sum_t min(r_t A_i, clip(r_t, 1 - clip_low, 1 + clip_high) A_i)
//
// and the weight of a token is -r_t A_i / T, or 0 where the clip cut it. Advantages
// are standardized within the group, of the shaped rewards.
//
// Degenerate cases: an empty response adds nothing; a batch without tokens has loss
// 0; a group with equal shaped rewards, or of one response, has zero advantages.
package dapo

import (
	"errors"
	"fmt"

	"onering/objectives"
	"onering/objectives/policy"
)

// A DAPO is the objective "dapo".
type DAPO struct {
	policy.Policy
	// DynamicSampling refuses groups whose rewards are all equal. Default true.
	DynamicSampling bool `toml:"dynamic_sampling"`
	// OverlongLength is the length in tokens from which a response loses a whole
	// unit of reward; 0 (default) turns the punishment off.
	OverlongLength int `toml:"overlong_length" range:"[0,)" note:"0 is off"`
	// OverlongCache is how many tokens before OverlongLength the punishment begins.
	// Default 512.
	OverlongCache int `toml:"overlong_cache" needs:"overlong_length!=0"`
}

func init() {
	objectives.Register("dapo", func() objectives.Objective {
		return &DAPO{
			Policy:          policy.New("aggregate=token-mean bound=clip clip_high=0.28"),
			DynamicSampling: true, OverlongCache: 512,
		}
	})
}

// Validate refuses impossible settings.
func (o *DAPO) Validate() error {
	err := o.Policy.Validate()
	if o.OverlongLength > 0 && o.Advantage == "gdpo" {
		err = errors.Join(err, &objectives.SettingError{
			Key: "overlong_length", Value: o.OverlongLength, Remedy: `must be 0 with advantage = "gdpo", which compares the parts of the reward and not their punished sum: make the reward "length" one of the parts`,
		})
	}
	if o.OverlongLength > 0 && (o.OverlongCache < 1 || o.OverlongCache > o.OverlongLength) {
		err = errors.Join(err, &objectives.SettingError{
			Key: "overlong_cache", Value: o.OverlongCache, Remedy: fmt.Sprintf("must be in [1, overlong_length = %d]", o.OverlongLength),
		})
	}
	return err
}

// Keep implements objectives.Keeper: it keeps groups whose rewards, before shaping, differ.
func (o *DAPO) Keep(group []objectives.Trajectory) bool {
	for _, t := range group {
		if t.Reward != group[0].Reward || t.Greedy != nil && t.Reward != t.Greedy.Reward {
			return true
		}
	}
	return !o.DynamicSampling
}

// NeedsGroup says, for objectives.Needs, that a group of a single response teaches
// nothing.
func (o *DAPO) NeedsGroup() bool { return o.DynamicSampling || o.Policy.NeedsGroup() }

// Shape implements objectives.Shaper.
func (o *DAPO) Shape(t objectives.Trajectory) float64 {
	if o.OverlongLength == 0 {
		return t.Reward
	}
	return t.Reward + punishment(len(t.LogProb), o.OverlongLength, o.OverlongCache)
}

// punishment is 0 for n <= limit - cache, falls to -1 at limit and stays there.
func punishment(n, limit, cache int) float64 {
	return -max(0, min(float64(n-(limit-cache))/float64(cache), 1))
}

var (
	_ objectives.Keeper = (*DAPO)(nil)
	_ objectives.Shaper = (*DAPO)(nil)
)
