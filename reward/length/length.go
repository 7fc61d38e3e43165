// Package length is the reward for the length of a response: 0 for a length as wanted,
// down to -penalty for others. It is meant to be combined with a reward that judges
// answers.
package length

import (
	"context"
	"slices"
	"unicode/utf8"

	"onering/internal/settings"
	"onering/reward"
)

func init() { reward.Register("length", func() reward.Reward { return newRule() }) }

// A rule is the reward "length". With n the length of a response, or of all turns of the policy
// in an episode,
//
//	overlong  0 up to max_length - buffer, then falling to -penalty at max_length
//	linear    0 up to target, then falling to -penalty at max_length
//	target    0 at target, falling on both sides, -penalty at a distance of max_length - target
//
// and -penalty beyond. Overlong is DAPO's soft overlong punishment
// (arXiv:2503.14476, equation 13), where max_length is L_max and buffer L_cache.
// Target is the term |n_gold - n| of L1-Exact (arXiv:2503.04697), with a bound.
type rule struct {
	Kind      string  `toml:"kind" choice:"overlong linear target" note:"overlong falls over the last buffer before max_length, linear from target to max_length, target on both sides of target" help:"which lengths are punished"`
	Unit      string  `toml:"unit" choice:"tokens characters" help:"what lengths count"`
	MaxLength int     `toml:"max_length" range:"[1,)" help:"length from which on the punishment is full; for overlong usually rollout.max_new_tokens"`
	Buffer    int     `toml:"buffer" needs:"kind=overlong" range:"[0,)" help:"for overlong: over how many units before max_length the reward falls"`
	Target    int     `toml:"target" needs:"kind!=overlong" range:"[0,)" help:"for linear, the longest response without punishment; for target, the wanted length"`
	Penalty   float64 `toml:"penalty" range:"(0,)" help:"the full punishment, which a truncated response gets whatever its length"`
}

// newRule returns the reward with its defaults.
func newRule() *rule {
	return &rule{Kind: "overlong", Unit: "tokens", MaxLength: 3000, Buffer: 512, Target: 1000, Penalty: 1}
}

// About is the reward's line in lists.
func (*rule) About() string {
	return "0 to -1 for a response that is too long, or not of the wanted length"
}

// Validate refuses a punishment that begins at a negative length, or not below the length
// of full punishment.
func (r *rule) Validate() error {
	switch {
	case r.Kind == "overlong" && r.Buffer > r.MaxLength:
		return &settings.Error{Key: "buffer", Value: r.Buffer, Remedy: "must be at most max_length"}
	case r.Kind != "overlong" && r.Target >= r.MaxLength:
		return &settings.Error{Key: "target", Value: r.Target, Remedy: "must be less than max_length"}
	}
	return nil
}

// Score gives each response its punishment, 0 to -penalty.
func (r *rule) Score(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	scores := make([]reward.Score, len(group))
	for i, sample := range group {
		n := 0
		for _, turn := range slices.Concat(sample.Earlier, []reward.Written{{Text: sample.Response, IDs: sample.IDs}}) {
			if r.Unit == "characters" {
				n += utf8.RuneCountInString(turn.Text)
			} else {
				n += len(turn.IDs)
			}
		}
		share := r.share(n)
		switch {
		case sample.Truncated:
			share, scores[i].Reason = 1, "truncated"
		case share == 0:
			scores[i].Reason = "a wanted length"
		case r.Kind == "target" && n < r.Target:
			scores[i].Reason = "too short"
		default:
			scores[i].Reason = "too long"
		}
		if share > 0 { // no -0
			scores[i].Value = -r.Penalty * share
		}
	}
	return scores, nil
}

// share returns which share of the full punishment a response of length n gets.
func (r *rule) share(n int) float64 {
	begin, over := r.Target, n-r.Target // where the punishment begins, and by how much n exceeds it
	switch r.Kind {
	case "overlong":
		begin = r.MaxLength - r.Buffer
		over = n - begin
	case "target":
		over = max(over, -over)
	}
	switch full := r.MaxLength - begin; {
	case over <= 0:
		return 0
	case over >= full:
		return 1
	default:
		return float64(over) / float64(full)
	}
}
