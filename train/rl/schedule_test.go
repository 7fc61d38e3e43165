package rl

import (
	"math"
	"testing"

	"onering/train"
	"onering/train/learn"
)

// TestClock: a schedule falls from the whole rate at the first step to 0 behind the last
// one, whatever number of steps the rounds turn out to have, and goes on from where it is
// when the number of rounds changes.
func TestClock(t *testing.T) {
	c := Default()
	c.Rollout.PromptsPerRound, c.Rollout.SamplesPerPrompt, c.Train.BatchSize = 4, 4, 4 // 4 steps a round
	c.Optimizer.LearningRate, c.Optimizer.Schedule = 8, learn.Schedule{Shape: "linear"}
	for name, tt := range map[string]struct {
		rounds, later int   // later is the number of rounds after round 2
		batches       []int // of each round
		want          []float64
	}{
		"all steps":     {2, 2, []int{4, 4}, []float64{8, 7, 6, 5, 4, 3, 2, 1}},
		"dropped":       {4, 4, []int{1, 0, 2, 1}, []float64{8, 4, 3, 2}},
		"none at first": {4, 4, []int{0, 1, 1, 1}, []float64{8, 4, 2}},
		"more rounds":   {4, 6, []int{2, 2, 2, 1, 1, 1}, []float64{8, 7, 6, 5, 4, 3.5, 3, 2, 1}},
		"fewer rounds":  {4, 3, []int{1, 1, 4}, []float64{8, 6, 4, 3, 2, 1}},
	} {
		c.Train.Rounds = tt.rounds
		l := &learner{config: c, clock: clock{rounds: tt.rounds}}
		at, got := train.Position{}, []float64(nil)
		for at.Round = range tt.batches {
			if at.Round == 2 {
				l.config.Train.Rounds = tt.later
				l.clock = clock{tt.later, 2, l.clock.done(2, nil)}
			}
			r := &round{batches: make([][]int, tt.batches[at.Round])}
			for range r.batches {
				got = append(got, l.config.Optimizer.Rate(8, at.Step, l.total(at, r)))
				r.steps = append(r.steps, nil)
				at.Step++
			}
		}
		same := len(got) == len(tt.want)
		for i := 0; same && i < len(got); i++ {
			same = math.Abs(got[i]-tt.want[i]) < 1e-12
		}
		if !same {
			t.Errorf("%s: rates %v, want %v", name, got, tt.want)
		}
	}
}
