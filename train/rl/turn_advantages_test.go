package rl

import (
	"fmt"
	"testing"

	"onering/data"
	"onering/objectives"
	"onering/reward"
	"onering/sampler"
)

// TestTurnAdvantages: each turn is compared with the same turn of the problem's other
// episodes by the sum of the rewards from this turn on.
func TestTurnAdvantages(t *testing.T) {
	o, err := objectives.New("drgrpo")
	if err != nil {
		t.Fatal(err)
	}
	episode := func(sample int, ends []int, earned ...float64) rollout {
		x := rollout{Sample: sample, graded: graded{Response: make([]int32, 6), LogProb: make([]float64, 6), Entropy: make([]float64, 6), Prompt: []int32{1}}}
		for _, at := range ends {
			x.Observed = append(x.Observed, sampler.Observed{At: at, IDs: []int32{2}})
		}
		sum := 0.0
		for _, e := range earned {
			x.TurnRewards = append(x.TurnRewards, e)
			sum += e
		}
		x.Score = reward.Score{Value: sum}
		return x
	}
	r := newRound([]data.Problem{{}}, []rollout{episode(0, []int{2, 4}, 0, 1, 2), episode(1, []int{3}, 1, 0), episode(2, nil, 4)}, 3)
	r.compareGroups(3, o)
	r.compareTurns(3, o)
	for i, want := range []string{
		"[0.3333333333333335 0.3333333333333335 1.5 1.5 0 0]", // 3 - 8/3; 3 - 3/2; alone
		"[-1.6666666666666665 -1.6666666666666665 -1.6666666666666665 -1.5 -1.5 -1.5]",
		"[1.3333333333333335 1.3333333333333335 1.3333333333333335 1.3333333333333335 1.3333333333333335 1.3333333333333335]",
	} {
		if got := fmt.Sprint(r.trajectories[i].TokenAdvantage); got != want {
			t.Errorf("episode %d: %s, want %s", i, got, want)
		}
	}
}
