package objectives_test

import (
	"math"
	"strings"
	"testing"

	"onering/objectives"
)

// twoResponses is one group: a right response of two tokens and a wrong response of one token.
func twoResponses() [][]objectives.Trajectory {
	return [][]objectives.Trajectory{{
		{Reward: 1, LogProb: []float64{-0.9, -0.2}, OldLogProb: []float64{-1.0, -0.1}},
		{Reward: 0, LogProb: []float64{-2.0}, OldLogProb: []float64{-1.5}},
	}}
}

// TestEvaluateByHand has r = e^0.1, e^-0.1 and e^-0.5, which is cut to 0.8; A = +-1/2; N L = 6000.
func TestEvaluateByHand(t *testing.T) {
	out, err := objectives.Evaluate(makeObjective(t, "drgrpo", nil), twoResponses(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if want := -0.5 / 6000 * (math.Exp(0.1) + math.Exp(-0.1) - 0.8); math.Abs(out.Loss-want) > 1e-18 {
		t.Errorf("loss = %v, want %v", out.Loss, want)
	}
	for k, want := range [][]float64{{-0.5 / 6000 * math.Exp(0.1), -0.5 / 6000 * math.Exp(-0.1)}, {0}} {
		row := out.Groups[0][k]
		for j := range want {
			if math.Abs(row.Weights[j]-want[j]) > 1e-18 || math.Signbit(row.Weights[j]) != (want[j] < 0) {
				t.Errorf("response %d: w = %v, want %v", k, row.Weights, want)
			}
		}
		if row.Advantage != 0.5-float64(k) || *row.Clipped != float64(k) {
			t.Errorf("response %d: advantage %v, clipped %v", k, row.Advantage, *row.Clipped)
		}
	}
}

// TestEvaluateRefuses: input that an objective cannot use, and results that are
// not finite, are errors that name the response.
func TestEvaluateRefuses(t *testing.T) {
	on := func(n int) objectives.Trajectory { // on returns n tokens of a policy that has not moved.
		x := objectives.Trajectory{Reward: 1, LogProb: []float64{}, OldLogProb: []float64{}}
		for range n {
			x.LogProb, x.OldLogProb = append(x.LogProb, -1), append(x.OldLogProb, -1)
		}
		return x
	}
	moved := func(old ...float64) objectives.Trajectory { // a wrong response
		x := on(len(old))
		x.Reward, x.OldLogProb = 0, old
		return x
	}
	short := on(1)
	short.OldLogProb = nil
	long := on(1)
	long.OldLogProb = []float64{-1, -2}
	tokens := on(1)
	tokens.TokenAdvantage = []float64{}
	weighed := func(weight float64) objectives.Trajectory {
		x := on(1)
		x.Components = map[string]objectives.Component{"a": {1, 1}, "b": {1, weight}}
		return x
	}
	for _, c := range []struct {
		name, objective string
		set             keys
		group           []objectives.Trajectory
		want            string
	}{
		{"no old log-probs", "grpo", nil, []objectives.Trajectory{short}, `group 0, response 0: 0 old log-probs for 1 response tokens`},
		{"lengths that differ", "grpo", nil, []objectives.Trajectory{on(1), long}, `group 0, response 1: 2 old log-probs for 1 response tokens`},
		{"no reference for the reward", "drgrpo", keys{"kl_reward": 0.1}, []objectives.Trajectory{on(1)}, `0 reference log-probs for 1`},
		{"no reference", "grpo", keys{"kl_beta": 0.1}, []objectives.Trajectory{on(1)}, `0 reference log-probs for 1`},
		{"no entropy", "pmpo", keys{"p_rule": "entropy"}, []objectives.Trajectory{on(1)}, `0 entropies for 1`},
		{"token advantages", "gspo", nil, []objectives.Trajectory{tokens}, `0 token advantages for 1`},
		{"weights that differ", "gdpo", nil, []objectives.Trajectory{on(1), weighed(1), weighed(2)}, `group 0, response 2: component "b" has the weight 2, and 1 in response 1`},
		{"an infinite loss", "gmpo", keys{"norm": "sum", "clip_mode": "none"}, []objectives.Trajectory{moved(-601, -601), on(0)}, `the loss is +Inf: too large a ratio for this objective; group 0, response 0, token 0 is farthest: log-prob -1, old log-prob -601`},
		{"an infinite weight", "grpo", keys{"clip_low": 1, "clip_high": 1e300, "advantage": "centered", "advantage_eps": 0}, []objectives.Trajectory{moved(-801, -1), on(1)}, `is +Inf`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := objectives.Evaluate(makeObjective(t, c.objective, c.set), [][]objectives.Trajectory{c.group}, 0, 1)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "objectives: ") {
				t.Errorf("error %v, want objectives: ... %s", err, c.want)
			}
		})
	}
	for _, c := range []struct {
		o    *stub
		want string
	}{
		{&stub{invalid: errInvalid}, errInvalid.Error()},
		{&stub{weight: math.Inf(1)}, "group 0, response 0: the weight of token 0 is +Inf"},
	} {
		if _, err := objectives.Evaluate(c.o, twoResponses(), 0, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}

// TestEvaluateWithoutDiagnoser: the advantage is reported for every objective.
func TestEvaluateWithoutDiagnoser(t *testing.T) {
	out, err := objectives.Evaluate(&stub{}, twoResponses(), 0, 1)
	if err != nil || out.Groups[0][0].Advantage != 0.5 || out.Groups[0][0].P != nil {
		t.Errorf("got %+v, %v", out, err)
	}
}

// stub is an objective whose methods return values that Evaluate must handle.
type stub struct {
	objectives.Objective
	invalid error
	weight  float64
}

func (o *stub) Loss(b, at objectives.Batch) float64 { return 0 }
func (o *stub) Weights(b objectives.Batch, w [][]float64) {
	for i := range w {
		for j := range w[i] {
			w[i][j] = o.weight
		}
	}
}
func (o *stub) Validate() error { return o.invalid }
