package rl

import (
	"math"
	"strings"
	"testing"

	"onering/train"
	"onering/train/learn"
	"onering/train/metrics"
)

// TestClock: a schedule falls from the full rate at the first step to 0 after the last
// one, for any number of steps in the rounds, and continues from its present rate if the
// number of rounds changes.
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
		l := &learner{config: c, clock: clock{rounds: tt.rounds, steps: float64(c.steps())}}
		at, got := train.Position{}, []float64(nil)
		for at.Round = range tt.batches {
			if at.Round == 2 {
				l.config.Train.Rounds = tt.later
				l.clock = clock{tt.later, l.clock.steps, 2, l.clock.done(2, nil)}
			}
			r := &round{batches: make([][]int, tt.batches[at.Round])}
			for range r.batches {
				got = append(got, l.config.Optimizer.Rate(8, at.Step, l.clock.total(at, r)))
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

// TestRoundLine: a line fits 80 columns for any figures, and begins with the most
// important ones. Unmeasured figures are left out.
func TestRoundLine(t *testing.T) {
	r := metrics.Record{}.With("round", 3).With("reward", 0.5).With("entropy", 0.25).With("response_length/mean", 12.4).
		With("truncated_share", 0.0).With("no_answer_share", 0.5).With("logp_gap_max", math.NaN()).With("loss", -0.1).With("seconds/rollout", 1.5)
	if got, want := roundLine(r, 4, "2 s left"), "round 3/4  reward 0.500  no answer 0.50  length 12  1.50 s, 2 s left"; got != want {
		t.Errorf("%q", got)
	}
	r = metrics.Record{}.With("round", 12345678).With("seconds/learn", 1e6)
	for _, name := range []string{"reward", "response_length/mean", "entropy", "truncated_share", "no_answer_share", "logp_gap_max", "p/mean", "grad_norm", "kl", "clip_fraction", "loss"} {
		r = r.With(name, 12345.678)
	}
	if got := roundLine(r, 100000000, metrics.Left(1e9, 12345678, 100000000)); len(got) > 80 || !strings.Contains(got, "  reward 12345.678  ") {
		t.Errorf("%d columns: %q", len(got), got)
	}
	if s := (&metrics.Gap{}).Record(); !math.IsNaN(s.Float("logp_gap_max")) {
		t.Error("a gap is stated where nothing was compared")
	}
}
