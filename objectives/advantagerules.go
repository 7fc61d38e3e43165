package objectives

import (
	"maps"
	"math"
	"slices"

	"onering/objectives/means"
)

// An AdvantageRule is a possible value of the setting advantage. It has one of three functions: for a group, for all
// groups of a round, or for the tokens of a group, of which a response's advantage is the mean.
type AdvantageRule struct {
	Name   string
	Group  func(s Shared, group []Trajectory) []float64
	Round  func(s Shared, groups [][]Trajectory) [][]float64
	Tokens func(s Shared, group []Trajectory) [][]float64
	Exempt string // why groups of equal rewards may have advantages other than 0
}

// RegisterRule makes a rule available to every objective; call it from init.
func RegisterRule(r AdvantageRule) { rules = append(rules, r) }

var rules = []AdvantageRule{
	{Name: "centered", Group: Shared.centered},
	{Name: "standardized", Group: func(s Shared, group []Trajectory) []float64 { return s.Standardize(Rewards(group)) }},
	{Name: "rloo", Group: func(_ Shared, group []Trajectory) []float64 { return leaveOneOut(group) }},
	{Name: "opo", Group: func(_ Shared, group []Trajectory) []float64 { return lengthWeighted(group) }},
	{Name: "maxrl", Group: func(s Shared, group []Trajectory) []float64 {
		s.AdvantagePower, s.AdvantageShift = 1, 0
		return s.centered(group)
	}},
	{Name: "round-std", Round: Shared.roundScaled},
	{Name: "rae", Round: Shared.roleAverages, Exempt: "rewards are compared with those that the role had before"},
	{Name: "gdpo", Round: Shared.decoupled},
	{Name: "remax", Group: func(_ Shared, group []Trajectory) []float64 { return overGreedy(group) }, Exempt: "rewards are compared with that of the greedy response"},
	{Name: "reinforce++", Round: func(s Shared, groups [][]Trajectory) [][]float64 {
		return whitened(groups, byGroup(groups, Rewards), s.AdvantageEps)
	}, Exempt: "rewards are compared with those of the whole round"},
	{Name: "reinforce++-baseline", Round: func(s Shared, groups [][]Trajectory) [][]float64 {
		return whitened(groups, byGroup(groups, centeredRewards), s.AdvantageEps)
	}, Exempt: "the mean over the tokens of the round is subtracted, which is not 0 where lengths go with rewards"},
}

// rule returns the rule that Advantage names, or else centered.
func (s Shared) rule() AdvantageRule {
	return rules[max(0, slices.IndexFunc(rules, func(r AdvantageRule) bool { return r.Name == s.Advantage }))]
}

// advantageRules returns the values of the setting advantage.
func advantageRules() []string {
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = r.Name
	}
	return names
}

// Standardize returns (R - mean)/(std + advantage_eps) of the rewards of a group, with the sample standard deviation
// (divisor K-1) or the population's (D2). Equal rewards and a group of one give exact zeros.
func (s Shared) Standardize(rewards []float64) []float64 {
	a := Centered(rewards)
	if allEqual(rewards) {
		return a
	}
	divisor := float64(len(a))
	if s.AdvantageStd != "population" {
		divisor--
	}
	std := means.Root(a, nil, divisor)
	for i := range a {
		a[i] /= std + s.AdvantageEps
	}
	return a
}

// leaveOneOut returns each reward minus the mean of the others (D3, RLOO), which
// is K/(K-1) times Centered. A group of one gives 0.
func leaveOneOut(group []Trajectory) []float64 {
	a := centeredRewards(group)
	if k := float64(len(a)); k > 1 {
		for i := range a {
			a[i] *= k / (k - 1)
		}
	}
	return a
}

// centered returns (R - mean)/mean^advantage_power - advantage_shift (Tsallis, arXiv:2604.25907, D72; asymre, D71); 0
// for a mean that is not positive where there is a power, and without the shift for a group of one. A power of 1 is
// MaxRL's advantage (arXiv:2602.02710, D27), for rewards that are not negative.
func (s Shared) centered(group []Trajectory) []float64 {
	a, m := centeredRewards(group), mean(Rewards(group))
	for i := range a {
		switch {
		case s.AdvantagePower != 0 && m > 0:
			a[i] /= math.Pow(m, s.AdvantagePower)
		case s.AdvantagePower != 0:
			a[i] = 0
		}
		if len(a) > 1 {
			a[i] -= s.AdvantageShift
		}
	}
	return a
}

// lengthWeighted returns each reward minus the mean of the group's rewards weighted by
// length, sum n R / sum n: OPO's baseline (arXiv:2505.23585, D26). Equal rewards
// give exact zeros.
func lengthWeighted(group []Trajectory) []float64 {
	rewards := Rewards(group)
	if allEqual(rewards) {
		return make([]float64, len(group))
	}
	tokens := make([]float64, len(group))
	for i, t := range group {
		tokens[i] = float64(len(t.LogProb))
	}
	baseline := means.Mean(rewards, tokens)
	if math.IsNaN(baseline) { // the group has no tokens
		return Centered(rewards)
	}
	for i := range rewards {
		rewards[i] -= baseline
	}
	return rewards
}

// overGreedy returns each reward minus that of the greedy response to the same prompt,
// ReMax's advantage (arXiv:2310.10505, D31).
func overGreedy(group []Trajectory) []float64 {
	a := Rewards(group)
	for i, t := range group {
		a[i] -= t.Greedy.Reward
	}
	return a
}

// roundScaled returns rewards minus the mean of their group, divided by the sample
// standard deviation of the rewards of the round plus eps (TRL's scale_rewards =
// "batch", Lite PPO arXiv:2508.08221, D28).
func (s Shared) roundScaled(groups [][]Trajectory) [][]float64 {
	all := byGroup(groups, centeredRewards)
	var rewards []float64
	for _, group := range groups {
		rewards = append(rewards, Rewards(group)...)
	}
	return divide(all, sampleDeviation(rewards, nil)+s.AdvantageEps)
}

// decoupled is GDPO's advantage (arXiv:2601.05242, D29): the values of each component are
// standardized within the group and added with their weights; the sums, whose mean is 0,
// are divided by their sample standard deviation over the round plus eps. Without
// components, Reward is standardized.
func (s Shared) decoupled(groups [][]Trajectory) [][]float64 {
	var flat []float64
	all := byGroup(groups, func(group []Trajectory) []float64 {
		sums := make([]float64, len(group))
		for _, part := range componentsOf(group) {
			for i, a := range s.Standardize(part.values) {
				sums[i] += part.weight * a
			}
		}
		flat = append(flat, sums...)
		return sums
	})
	return divide(all, sampleDeviation(flat, nil)+s.AdvantageEps)
}

// A part is one component of a group's rewards.
type part struct {
	weight float64
	values []float64
}

// componentsOf returns the components of a group's rewards in the order of their names, or the reward as the only one where
// there are none. A response without a component has 0 there.
func componentsOf(group []Trajectory) (parts []part) {
	weights := map[string]float64{}
	for _, t := range group {
		for name, c := range t.Components {
			weights[name] = c.Weight
		}
	}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		p := part{weights[name], make([]float64, len(group))}
		for i, t := range group {
			p.values[i] = t.Components[name].Value
		}
		parts = append(parts, p)
	}
	if parts == nil {
		return []part{{1, Rewards(group)}}
	}
	return parts
}

// whitened returns x minus its mean over the round, divided by its sample standard
// deviation plus eps (REINFORCE++, arXiv:2501.03262, D30). A response has the weight of
// its number of tokens, as in the released implementations, which whiten token by token.
// If all x are equal, the result is exactly 0.
func whitened(groups [][]Trajectory, x [][]float64, eps float64) [][]float64 {
	var values, tokens []float64
	for g, group := range groups {
		for i, t := range group {
			if n := len(t.LogProb); n > 0 {
				values, tokens = append(values, x[g][i]), append(tokens, float64(n))
			}
		}
	}
	out := make([][]float64, len(x))
	equal := allEqual(slices.Concat(x...))
	m, scale := means.Mean(values, tokens), sampleDeviation(values, tokens)+eps
	for g := range x {
		out[g] = make([]float64, len(x[g]))
		for i, v := range x[g] {
			if !equal && scale > 0 && !math.IsNaN(m) { // NaN: no response has tokens
				out[g][i] = (v - m) / scale
			}
		}
	}
	return out
}

// sampleDeviation returns the standard deviation of a sample (divisor n - 1), in which
// x[i] counts count[i] times, or once if count is nil. Fewer than two values have 0.
func sampleDeviation(x, count []float64) float64 {
	m, n, from := means.Mean(x, count), 0.0, make([]float64, len(x))
	for i, v := range x {
		from[i], n = v-m, n+means.Times(count, i)
	}
	if n < 2 || allEqual(x) {
		return 0
	}
	return means.Root(from, count, n-1)
}

// divide divides every number by scale, if it is positive.
func divide(all [][]float64, scale float64) [][]float64 {
	for _, row := range all {
		for i := range row {
			if scale > 0 {
				row[i] /= scale
			}
		}
	}
	return all
}
