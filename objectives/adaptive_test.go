package objectives_test

import (
	"encoding"
	"math"
	"testing"

	"onering/objectives"
)

// TestAdaptive: the coefficients of the KL and of the entropy follow their targets in every objective, and their state
// gives another one the same weights. kl_reward follows too.
func TestAdaptive(t *testing.T) {
	step := func(far float64) objectives.Batch {
		x := objectives.Trajectory{LogProb: []float64{-1, -2}, OldLogProb: []float64{-1, -1.9}, RefLogProb: []float64{-1 - far, -2 - far},
			Entropy: []float64{1, 1.5}, Greedy: &objectives.Trajectory{Reward: 0.5}}
		y, z := x, x
		x.Reward, y.Reward = 1, 0
		group := []objectives.Trajectory{x, y, z}
		return objectives.Batch{Trajectories: group, Steps: 1}
	}
	for _, name := range builtIn {
		set := keys{"kl_beta": 0.1, "kl_target": 0.01, "kl_horizon": 30, "kl_gradient": "own", "entropy_bonus": 0.2, "entropy_target": 2.0, "entropy_step": 0.1}
		o, fresh := makeObjective(t, name, set), makeObjective(t, name, set)
		b := step(0.5)
		before := weigh(fresh, b)
		o.(objectives.Observer).Observe(b)
		text, err := o.(encoding.TextMarshaler).MarshalText()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		restored := makeObjective(t, name, set)
		if err := restored.(encoding.TextUnmarshaler).UnmarshalText(text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		after, again := weigh(o, b), weigh(restored, b)
		// A penalty's slope is beta (1 - e^x) c with x = -0.5, and beta rises by 0.2 * 3/30.
		for i := range after {
			for j, w := range after[i] {
				want := 0.1 * 0.02 * -math.Expm1(-0.5) * scaleOf(o, b, i)
				if d := w - before[i][j]; math.Abs(d-want) > 1e-12 || again[i][j] != w {
					t.Fatalf("%s: the weight of token %d moves by %v, want %v; restored %v, was %v", name, j, d, want, again[i][j], w)
				}
			}
		}
		v := [][]float64{{0, 0}, {0, 0}, {0, 0}}
		o.(objectives.EntropyWeigher).EntropyWeights(b, v)
		if want := -0.3 * scaleOf(o, b, 0); math.Abs(v[0][0]-want) > 1e-12 {
			t.Errorf("%s: the entropy weighs %v, want %v", name, v[0][0], want)
		}
	}
	set := keys{"advantage": "centered", "kl_reward": 0.1, "kl_target": 0.1, "kl_horizon": 30}
	o := makeObjective(t, "grpo", set)
	b := step(0.5) // OldLogProb - RefLogProb is 0.5 and 0.6
	o.(objectives.Observer).Observe(b)
	if text, err := o.(encoding.TextMarshaler).MarshalText(); err != nil || string(text) != `{"kl_reward":0.10200000000000001}` {
		t.Errorf("the state is %s, %v", text, err)
	}
}

// scaleOf is what a token counts in the penalties of o: that of its entropy, over -1.
func scaleOf(o objectives.Objective, b objectives.Batch, i int) float64 {
	if s, ok := o.(interface {
		TokenScale(b objectives.Batch, i int) float64
	}); ok {
		return s.TokenScale(b, i)
	}
	return 1 / float64(len(b.Trajectories)*len(b.Trajectories[i].LogProb))
}
