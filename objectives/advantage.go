package objectives

import (
	"slices"

	"onering/objectives/means"
)

// Advantages returns the advantages of the groups of one round, whose rewards are shaped:
// by o's own method, or else Centered.
func Advantages(o Objective, groups [][]Trajectory) [][]float64 {
	switch o := o.(type) {
	case Advantager:
		return byGroup(groups, o.Advantages)
	case RoundAdvantager:
		return o.RoundAdvantages(groups)
	}
	return byGroup(groups, centeredRewards)
}

// byGroup applies a rule to each group.
func byGroup(groups [][]Trajectory, rule func([]Trajectory) []float64) [][]float64 {
	all := make([][]float64, len(groups))
	for g, group := range groups {
		all[g] = rule(group)
	}
	return all
}

// centeredRewards returns Centered of the rewards of a group.
func centeredRewards(group []Trajectory) []float64 { return Centered(Rewards(group)) }

// Rewards returns the rewards of a group.
func Rewards(group []Trajectory) []float64 {
	rewards := make([]float64, len(group))
	for i, t := range group {
		rewards[i] = t.Reward
	}
	return rewards
}

// SetAdvantages fills in Advantage, TokenAdvantage and Degenerate of complete groups
// (every response to a prompt) that form a round. It first shapes the rewards if o is a
// Shaper, and subtracts kl_reward's part from those of sampled responses, not from the greedy one's; Reward itself stays
// unchanged. Degenerate says that the rewards so changed are equal.
func SetAdvantages(o Objective, groups ...[]Trajectory) {
	shaped := make([][]Trajectory, len(groups))
	shaper, shapes := o.(Shaper)
	klPenalty := func(Trajectory) float64 { return 0 }
	if s, ok := o.(hasShared); ok {
		klPenalty = s.settings().klPenalty
	}
	for g, group := range groups {
		shaped[g] = slices.Clone(group)
		for i, t := range group {
			if shapes {
				shaped[g][i].Reward = shaper.Shape(t)
			}
			shaped[g][i].Reward -= klPenalty(t)
			if shapes && t.Greedy != nil {
				greedy := *t.Greedy
				greedy.Reward = shaper.Shape(greedy)
				shaped[g][i].Greedy = &greedy
			}
		}
	}
	all := Advantages(o, shaped)
	tokens, perToken := o.(TokenAdvantager)
	for g, group := range groups {
		degenerate := allRewardsEqual(shaped[g])
		for i, a := range all[g] {
			group[i].Advantage, group[i].Degenerate = a, degenerate
			shaped[g][i].Advantage = a // for TokenAdvantages below
		}
		if !perToken {
			continue
		}
		for i, row := range tokens.TokenAdvantages(shaped[g]) {
			if row != nil {
				group[i].TokenAdvantage = row
			}
		}
	}
}

// allRewardsEqual says whether all rewards of a group are equal, including the greedy
// response's if there is one.
func allRewardsEqual(group []Trajectory) bool {
	rewards := Rewards(group)
	if len(group) > 0 && group[0].Greedy != nil {
		rewards = append(rewards, group[0].Greedy.Reward)
	}
	return allEqual(rewards)
}

// Centered returns rewards minus their mean (D1). Equal rewards give exact zeros.
func Centered(rewards []float64) []float64 {
	a := make([]float64, len(rewards))
	if allEqual(rewards) {
		return a
	}
	m := mean(rewards)
	for i, r := range rewards {
		a[i] = r - m
	}
	return a
}

func total(x []float64) (sum float64) {
	for _, v := range x {
		sum += v
	}
	return sum
}

func mean(x []float64) float64 { return means.Mean(x, nil) }

func allEqual(x []float64) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return v != x[0] })
}
