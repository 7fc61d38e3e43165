package rl

import (
	"math"
	"slices"
	"testing"

	"onering/sampler"
	"onering/train/rundir"
)

// TestAddTurns: rewards belong to their turns, even if no token stands between two turns.
func TestAddTurns(t *testing.T) {
	decode := func(ids []int32) string { return string(rune('a' + ids[0])) }
	for _, c := range []struct {
		rollout graded
		authors string
		rewards []float64 // the rewards of the turns that have one
	}{
		{graded{Response: []int32{1, 2}, TurnRewards: []float64{1}}, "p", []float64{1}},
		{graded{Response: []int32{1, 2, 3}, TurnRewards: []float64{math.NaN(), 1}, Observed: []sampler.Observed{{At: 2}}}, "pp", []float64{1}},
		{graded{Response: []int32{1, 2}, TurnRewards: []float64{0.5}, Observed: []sampler.Observed{{At: 2, IDs: []int32{7}}}}, "pe", []float64{0.5}},
		{graded{Response: []int32{1, 2, 3}, TurnRewards: []float64{0.5, 1, math.NaN()}, Observed: []sampler.Observed{{At: 1, IDs: []int32{7, 8}}, {At: 2, IDs: []int32{9}}}}, "pepep", []float64{0.5, 1}},
	} {
		x := rollout{graded: c.rollout}
		for i := range x.Response {
			x.LogProb = append(x.LogProb, -float64(i+1))
		}
		line := rundir.RolloutLine{IDs: x.Response, LogP: x.LogProb}
		x.addTurns(&line, decode)
		authors, rewards := "", []float64(nil)
		for _, turn := range line.Turns {
			authors += turn.Author[:1]
			if turn.Reward != nil {
				rewards = append(rewards, *turn.Reward)
			}
		}
		if err := line.Turns.Check(len(line.IDs)); err != nil || authors != c.authors || !slices.Equal(rewards, c.rewards) || !slices.Equal(rundir.Sampled(line.Turns, line.LogP), x.LogProb) || len(line.LogP) != len(line.IDs) {
			t.Errorf("%+v: %v, authors %q, rewards %v, %d log-probs of %d tokens", c.rollout, err, authors, rewards, len(line.LogP), len(line.IDs))
		}
	}
}
