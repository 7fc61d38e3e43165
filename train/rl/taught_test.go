package rl

import (
	"testing"

	"onering/data"
	"onering/objectives"
	"onering/reward"
)

// TestTaught: a problem teaches where a step learns from its responses, whatever their
// rewards add up to. So do the warnings see it, and data.rest.
func TestTaught(t *testing.T) {
	part := func(a, b float64) map[string]objectives.Component {
		return map[string]objectives.Component{"a": {Value: a, Weight: 2}, "b": {Value: b, Weight: 1}}
	}
	equalSums := []map[string]objectives.Component{part(0, 2), part(1, 0)}
	for _, x := range []struct {
		name, objective string
		rewards         []float64
		parts           []map[string]objectives.Component
		cut, mask       bool // the responses are truncated, and masked
		want            measure
	}{
		{"different rewards", "grpo", []float64{0, 1}, nil, false, false, taught},
		{"equal rewards", "grpo", []float64{1, 1}, nil, false, false, untaught},
		{"equal sums of parts that differ", "gdpo", []float64{2, 2}, equalSums, false, false, taught},
		{"equal sums where only sums count", "grpo", []float64{2, 2}, equalSums, false, false, untaught},
		{"equal parts", "gdpo", []float64{2, 2}, []map[string]objectives.Component{part(1, 0), part(1, 0)}, false, false, untaught},
		{"a group that is left out", "dapo", []float64{0, 0}, nil, false, false, untaught},
		{"a mean that is not positive", "maxrl", []float64{-1, 0}, nil, false, false, untaught},
		{"a mean that is positive", "maxrl", []float64{0, 1}, nil, false, false, taught},
		{"rewards below 0", "rloo", []float64{-1, 0}, nil, false, false, taught},
		{"truncated", "grpo", []float64{0, 1}, nil, true, false, taught},
		{"truncated and masked", "grpo", []float64{0, 1}, nil, true, true, untaught},
		{"a teacher", "opd", []float64{0, 0}, nil, false, false, taught},
		{"one response of two that are compared with the round", "reinforcepp", []float64{0, 0, 1, 1}, nil, false, false, taught},
	} {
		o, err := objectives.New(x.objective)
		if err != nil {
			t.Fatal(err)
		}
		c := Default()
		c.Objective.Settings = o
		if x.mask {
			c.Train.Truncated = "mask"
		}
		var sampled []rollout
		for i, value := range x.rewards {
			r := rollout{Problem: i / 2, Sample: i % 2, graded: graded{
				Response: []int32{1, 2}, LogProb: []float64{-1, -1}, Truncated: x.cut, Score: reward.Score{Value: value},
			}}
			if x.parts != nil {
				r.Score.Components, r.Score.Weights = map[string]float64{}, map[string]float64{}
				for name, p := range x.parts[i] {
					r.Score.Components[name], r.Score.Weights[name] = p.Value, p.Weight
				}
			}
			sampled = append(sampled, r)
		}
		r := newRound(make([]data.Problem, len(sampled)/2), sampled, 2)
		r.compareGroups(2, o)
		of, idle := r.measures(c)
		if of[0] != x.want || (idle == 1) != (x.want == untaught) {
			t.Errorf("%s with %s: measure %d, want %d; share %v", x.name, x.objective, of[0], x.want, idle)
		}
	}
}
