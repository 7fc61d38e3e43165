package objectives_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"onering/objectives"
)

// TestPoints: the objectives of the paper's family, whose formulas are written out, are points of "policy"; and the plane
// of scope and mean has published objectives at its edges.
func TestPoints(t *testing.T) {
	sequence := keys{"scope": "sequence", "advantage": "standardized"}
	with := func(base keys, more keys) keys {
		all := keys{}
		for _, m := range []keys{base, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	for _, c := range []struct {
		claim     string
		name      string
		of        keys
		point     keys
		tolerance float64
	}{
		{"grpo", "grpo", nil, keys{"bound": "clip"}, 0},
		{"drgrpo", "drgrpo", nil, keys{"advantage": "centered", "aggregate": "constant", "constant_length": 3000.0, "bound": "clip"}, 0},
		{"dapo", "dapo", nil, keys{"aggregate": "token-mean", "bound": "clip", "clip_high": 0.28}, 0},
		{"gpg", "gpg", nil, keys{"advantage": "centered", "aggregate": "token-mean", "gradient": "detached", "weight": "one"}, 1e-14},
		{"gspo", "gspo", nil, with(sequence, keys{"bound": "clip", "clip_low": 3e-4, "clip_high": 4e-4}), 1e-12},
		{"gspo with a dual clip", "gspo", keys{"clip_low": 0.2, "clip_high": 0.2, "clip_dual": 1.1}, with(sequence, keys{"bound": "clip", "clip_dual": 1.1}), 1e-12},
		{"gmpo: sequence and p = 0", "gmpo", nil, with(sequence, keys{"inner": "token"}), 1e-12},
		{"pmpo: sequence and p by ESS", "pmpo", nil, keys{"advantage": "centered", "scope": "sequence", "mean": "ess", "inner": "token"}, 1e-12},
		{"pmpo, one turn", "pmpo", nil, keys{"advantage": "centered", "scope": "turn", "mean": "ess", "inner": "token"}, 1e-12},
		{"gmpo, one turn", "gmpo", nil, keys{"scope": "turn", "inner": "token"}, 1e-12},
		{"holder on its way from 2 to -2", "holder", nil, with(sequence, keys{"mean": "2", "mean_last": -2.0, "bound": "clip"}), 1e-12},
		{"token: grpo at every p", "grpo", nil, keys{"scope": "token", "mean": "-3", "bound": "clip"}, 1e-15},
		{"next of one token: grpo", "grpo", nil, keys{"scope": "next", "scope_tokens": 1, "mean": "2", "bound": "clip"}, 1e-12},
		{"prefix, p to minus infinity: the minimum", "policy", keys{"scope": "prefix", "mean": "min", "bound": "clip"}, keys{"scope": "prefix", "mean": "-1e7", "bound": "clip"}, 1e-5},
		{"before, p to minus infinity: MinPRO's ratio", "minpro", nil, keys{"aggregate": "token-mean", "scope": "before", "mean": "-1e7", "with_token": "times", "gradient": "detached", "cap": 5.0}, 1e-5},
		{"a product is n times the geometric mean", "rloo", keys{"advantage": "standardized", "clip_low": 1.0, "clip_high": 1e300}, with(sequence, keys{"mean": "product"}), 1e-12},
	} {
		t.Run(c.claim, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				b := drawBatch(rt, 0.5)
				b.Step, b.Steps = 3, 10
				one, other := makeObjective(t, c.name, c.of), makeObjective(t, "policy", c.point)
				for _, at := range []objectives.Batch{b, nearby(b)} { // what is detached is taken at other log-probs, too
					if x, y := one.Loss(b, at), other.Loss(b, at); math.Abs(x-y) > c.tolerance*max(1, math.Abs(y)) {
						rt.Fatalf("losses %v and %v", x, y)
					}
				}
				if c.tolerance > 1e-6 { // a minimum has one token, a mean of order -1e7 shares between those that are almost as small
					return
				}
				v, w := weigh(one, b), weigh(other, b)
				for i := range w {
					for j := range w[i] {
						if math.Abs(v[i][j]-w[i][j]) > c.tolerance*max(1, math.Abs(w[i][j])) {
							rt.Fatalf("trajectory %d, token %d: %v and %v", i, j, v[i][j], w[i][j])
						}
					}
				}
			})
		})
	}
}

// nearby returns b with other log-probs.
func nearby(b objectives.Batch) objectives.Batch {
	r := rand.New(rand.NewPCG(9, 9))
	b.Trajectories = append([]objectives.Trajectory{}, b.Trajectories...)
	for i, t := range b.Trajectories {
		moved := make([]float64, len(t.LogProb))
		for j, logp := range t.LogProb {
			moved[j] = logp + 0.1*r.NormFloat64()
		}
		b.Trajectories[i].LogProb = moved
	}
	return b
}
