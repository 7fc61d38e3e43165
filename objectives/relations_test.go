package objectives_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"onering/objectives"
)

// drawBatch draws two groups of responses with log-ratios of a random scale.
func drawBatch(t *rapid.T, largest float64) objectives.Batch {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
	scale := rapid.Float64Range(0, largest).Draw(t, "scale")
	var b objectives.Batch
	for range 2 {
		var group []objectives.Trajectory
		for range 1 + r.IntN(5) {
			x := objectives.Trajectory{Reward: float64(r.IntN(3))}
			for range r.IntN(30) {
				old := -r.ExpFloat64()
				x.OldLogProb = append(x.OldLogProb, old)
				x.LogProb = append(x.LogProb, old+scale*r.NormFloat64())
				x.RefLogProb = append(x.RefLogProb, old+0.3*r.NormFloat64())
				x.Entropy = append(x.Entropy, r.ExpFloat64())
			}
			group = append(group, x)
		}
		o, err := objectives.New("drgrpo") // centered
		if err != nil {
			t.Fatal(err)
		}
		objectives.SetAdvantages(o, group)
		b.Trajectories = append(b.Trajectories, group...)
	}
	return b
}

func weigh(o objectives.Objective, b objectives.Batch) [][]float64 {
	w := make([][]float64, len(b.Trajectories))
	for i, t := range b.Trajectories {
		w[i] = make([]float64, len(t.LogProb))
	}
	objectives.Weights(o, b, w)
	return w
}

// TestLoneResponses: an objective that wants no groups learns from a round of single responses
// with different rewards; an objective that wants groups learns nothing from this round.
func TestLoneResponses(t *testing.T) {
	for _, name := range builtIn {
		for _, rule := range append(objectives.AdvantageRules(), "") {
			set := keys{}
			if rule != "" {
				set["advantage"] = rule
			}
			o := makeObjective(t, name, set)
			if objectives.NeedsOf(o).Greedy {
				continue
			}
			var groups [][]objectives.Trajectory
			for i := range 4 {
				groups = append(groups, []objectives.Trajectory{{
					Reward: float64(i % 2), LogProb: []float64{-1, -2}, OldLogProb: []float64{-1, -2}, RefLogProb: []float64{-1.5, -1}, Entropy: []float64{1, 1},
					SumPiSquared: []float64{0.5, 0.5}, Group: i,
				}})
			}
			objectives.SetAdvantages(o, groups...)
			b := objectives.Batch{}
			for _, group := range groups {
				if objectives.Keep(o, group) {
					b.Trajectories = append(b.Trajectories, group...)
				}
			}
			learns := false
			for _, row := range weigh(o, b) {
				for _, w := range row {
					learns = learns || w != 0
				}
			}
			if needs := objectives.NeedsOf(o).Group; learns == needs {
				t.Errorf("%s, advantage %q: that it wants groups is %t, and that it learns from single responses %t", name, rule, needs, learns)
			}
		}
	}
}

// keys are toml keys and values.
type keys map[string]any

func makeObjective(t testing.TB, name string, set keys) objectives.Objective {
	t.Helper()
	o, err := objectives.New(name)
	if err != nil {
		t.Fatal(err)
	}
	configure(t, o, set)
	return o
}

// TestEquivalences: pairs of objectives that must agree do agree, in loss and in every weight.
func TestEquivalences(t *testing.T) {
	for _, c := range []struct {
		claim     string
		a         string
		setA      keys
		b         string
		setB      keys
		tolerance float64
	}{
		{"p = 0 is gmpo", "pmpo", keys{"p_rule": "fixed", "p": 0}, "gmpo", nil, 1e-12},
		{"p -> 0 goes to gmpo", "pmpo", keys{"p_rule": "fixed", "p": 1e-9}, "gmpo", nil, 1e-7},
		{"p = 0 is gmpo under a sequence clip", "pmpo", keys{"p_rule": "fixed", "p": 0, "clip_mode": "sequence"}, "gmpo", keys{"clip_mode": "sequence"}, 1e-12},
		{"p = 0 times n is gmpo times n", "pmpo", keys{"p_rule": "fixed", "p": 0, "norm": "count-times"}, "gmpo", keys{"norm": "count-times"}, 1e-12},
		{"p = 1 without clip is grpo without clip", "pmpo", keys{"p_rule": "fixed", "p": 1, "clip_mode": "none"}, "grpo", keys{"clip_low": 1, "clip_high": 1e300}, 1e-12},
		{"p = 1 summed without clip is grpo's sum", "pmpo", keys{"p_rule": "fixed", "p": 1, "clip_mode": "none", "norm": "sum"}, "grpo", keys{"clip_low": 1, "clip_high": 1e300, "aggregate": "constant", "constant_length": 1}, 1e-12},
		{"p_min = p_max is fixed p", "pmpo", keys{"p_min": 0.3, "p_max": 0.3}, "pmpo", keys{"p_rule": "fixed", "p": 0.3}, 0},
		{"gmpo without clip is gspo without clip", "gmpo", keys{"clip_mode": "none"}, "gspo", keys{"clip_low": 1, "clip_high": 1e300}, 1e-12},
		{"gspo-token has gspo's gradient", "gspo", keys{"clip_low": 0.2, "clip_high": 0.2, "token_level": true}, "gspo", keys{"clip_low": 0.2, "clip_high": 0.2}, 1e-12},
		{"dapo is grpo but for clip and mean", "dapo", keys{"clip_high": 0.2}, "grpo", keys{"aggregate": "token-mean"}, 0},
		{"drgrpo is grpo but for the constant", "drgrpo", keys{"constant_length": 40}, "grpo", keys{"aggregate": "constant", "constant_length": 40}, 0},
		{"a wide clip cuts nothing", "pmpo", keys{"clip": 1e6}, "pmpo", keys{"clip_mode": "none"}, 1e-12},
		{"a wide sequence clip cuts nothing", "gmpo", keys{"clip": 1e6, "clip_mode": "sequence"}, "gmpo", keys{"clip_mode": "none"}, 1e-12},
		{"eps_ess out of reach is p_max", "pmpo", keys{"eps_ess": 1e6}, "pmpo", keys{"p_rule": "fixed", "p": 0.99}, 0},
		{"direct with eps_ess out of reach is p_max", "pmpo", keys{"p_rule": "direct", "eps_ess": 1e6}, "pmpo", keys{"p_rule": "fixed", "p": 0.99}, 0},
		{"cosine starts at p_max", "pmpo", keys{"p_rule": "cosine"}, "pmpo", keys{"p_rule": "fixed", "p": 0.99}, 1e-12},
	} {
		t.Run(c.claim, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				b := drawBatch(rt, 1)
				one, other := makeObjective(t, c.a, c.setA), makeObjective(t, c.b, c.setB)
				if x, y := one.Loss(b, b), other.Loss(b, b); math.Abs(x-y) > c.tolerance*max(1, math.Abs(y)) {
					rt.Fatalf("losses %v and %v", x, y)
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

// TestOnPolicy: at d = 0 the ratios are 1 for every mean, so that all objectives with one
// mean over tokens and trajectories agree.
func TestOnPolicy(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := drawBatch(rt, 0)
		want := weigh(makeObjective(t, "grpo", nil), b)
		for name, set := range map[string][]keys{
			"gmpo": {nil, {"clip_mode": "sequence"}},
			"gspo": {nil, {"token_level": true}},
			"pmpo": {nil, {"p_rule": "direct"}, {"target": "attainable"}, {"clip_form": "printed"}, {"p_max": 4}, {"p_negative": 0.0}},
		} {
			for _, s := range set {
				got := weigh(makeObjective(t, name, s), b)
				for i := range want {
					for j := range want[i] {
						if math.Abs(got[i][j]-want[i][j]) > 1e-13 {
							rt.Fatalf("%s %v: trajectory %d, token %d: w = %v, grpo has %v", name, s, i, j, got[i][j], want[i][j])
						}
					}
				}
			}
		}
	})
}

// TestWeightSum: where nothing is clipped the weights of a response sum to
// -A r/N (its gradient along a common shift of all log-probs).
func TestWeightSum(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := drawBatch(rt, 1)
		for _, o := range []objectives.Objective{
			makeObjective(t, "pmpo", keys{"clip_mode": "none"}),
			makeObjective(t, "pmpo", keys{"clip_mode": "none", "target": "attainable", "p_max": 4}),
			makeObjective(t, "pmpo", keys{"clip_mode": "none", "norm": "count-times"}),
			makeObjective(t, "gmpo", keys{"clip_mode": "none"}),
			makeObjective(t, "gspo", keys{"clip_low": 1, "clip_high": 1e300}),
		} {
			w := weigh(o, b)
			for i, d := range o.(objectives.Diagnoser).Diagnose(b) {
				if len(w[i]) == 0 {
					continue
				}
				sum := 0.0
				for _, x := range w[i] {
					sum += x
				}
				if want := -d.Advantage * *d.Ratio / float64(len(w)); math.Abs(sum-want) > 1e-12*max(1, math.Abs(want)) {
					rt.Fatalf("%T, trajectory %d: weights sum to %v, want %v", o, i, sum, want)
				}
			}
		}
	})
}

// advantages returns those of a rule for the rewards of a group.
func advantages(rule, std string, rewards []float64) []float64 {
	group := make([]objectives.Trajectory, len(rewards))
	for i, r := range rewards {
		group[i].Reward = r
	}
	return objectives.Shared{Advantage: rule, AdvantageStd: std}.RoundAdvantages([][]objectives.Trajectory{group})[0]
}

// TestScaleInvariance: centered advantages are linear in the rewards, and weights in the
// advantages; standardized advantages do not depend on the rewards' scale or offset.
func TestScaleInvariance(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		scale := rapid.Float64Range(0.1, 50).Draw(rt, "scale")
		offset := rapid.Float64Range(-10, 10).Draw(rt, "offset")
		n := rapid.IntRange(2, 16).Draw(rt, "n")
		rewards, moved := make([]float64, n), make([]float64, n)
		for i := range rewards {
			rewards[i] = rapid.Float64Range(-1, 1).Draw(rt, "reward")
			moved[i] = scale*rewards[i] + offset
		}
		rewards[0], moved[0] = 2, scale*2+offset // not all equal
		sum := 0.0
		for name, a := range map[string][2][]float64{
			"centered": {objectives.Centered(rewards), objectives.Centered(moved)},
			"rloo":     {advantages("rloo", "sample", rewards), advantages("rloo", "sample", moved)},
		} {
			for i := range rewards {
				sum += a[0][i]
				if math.Abs(a[1][i]-scale*a[0][i]) > 1e-12*(scale+math.Abs(offset)) {
					rt.Fatalf("%s: %v at scale %v, %v at scale 1", name, a[1][i], scale, a[0][i])
				}
			}
		}
		if math.Abs(sum) > 1e-12 {
			rt.Fatalf("advantages sum to %v", sum)
		}
		for divisor, std := range map[int]string{n - 1: "sample", n: "population"} {
			a, b := advantages("standardized", std, rewards), advantages("standardized", std, moved)
			squares := 0.0
			for i := range a {
				squares += a[i] * a[i]
				if math.Abs(a[i]-b[i]) > 1e-9 {
					rt.Fatalf("standardized: %v and %v", a[i], b[i])
				}
			}
			if math.Abs(squares-float64(divisor)) > 1e-9 {
				rt.Fatalf("standardized, %s: squares sum to %v, want %v", std, squares, divisor)
			}
		}

		b := drawBatch(rt, 1)
		larger := objectives.Batch{Trajectories: append([]objectives.Trajectory(nil), b.Trajectories...)}
		for i := range larger.Trajectories {
			larger.Trajectories[i].Advantage *= scale
		}
		for _, name := range builtIn {
			o := makeObjective(t, name, nil)
			scale := scale
			switch {
			case objectives.NeedsOf(o).Teacher: // which says all
				scale = 1
			case name == "p3o": // p3o's pull does not scale with the rewards, nor does drift.
				o = makeObjective(t, name, keys{"pull": false})
			case name == "dro" || name == "ipo":
				o = makeObjective(t, name, keys{"drift": 0})
			case name == "real" || name == "tpo": // which take the sign of an advantage, or the reward itself
				scale = 1
			}
			v, w := weigh(o, b), weigh(o, larger)
			for i := range v {
				for j := range v[i] {
					if math.Abs(w[i][j]-scale*v[i][j]) > 1e-12*scale*max(1, math.Abs(v[i][j])) {
						rt.Fatalf("%s: advantages times %v: w = %v, want %v", name, scale, w[i][j], scale*v[i][j])
					}
				}
			}
		}
	})
}

// TestExtremeRewards: rewards whose sums or squares leave the range of numbers get the
// same advantages as these rewards in another unit.
func TestExtremeRewards(t *testing.T) {
	round := func(unit float64) [][]objectives.Trajectory {
		groups := make([][]objectives.Trajectory, 2)
		for g := range groups {
			for i, r := range []float64{1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1, -1} {
				groups[g] = append(groups[g], objectives.Trajectory{
					Reward: r * unit, LogProb: make([]float64, 1+(i+g)%3), Greedy: &objectives.Trajectory{Reward: unit},
				})
			}
		}
		return groups
	}
	for _, rule := range objectives.AdvantageRules() {
		for _, deviation := range []string{"sample", "population"} {
			o := makeObjective(t, "grpo", keys{"advantage": rule, "advantage_eps": 0.0, "advantage_std": deviation})
			want := objectives.Advantages(o, round(1))
			relative := slices.Contains([]string{"centered", "rloo", "opo", "remax", "rae", "hierarchical", "otb", "gigpo"}, rule)
			for _, power := range []int{1022, -900} {
				unit := math.Ldexp(1, power)
				for g, row := range objectives.Advantages(o, round(unit)) {
					for i, a := range row {
						if relative {
							a /= unit
						}
						if !(math.Abs(a-want[g][i]) <= 1e-12) {
							t.Errorf("%s, %s: rewards times 2^%d: the advantage of response %d of group %d is %v, want %v", rule, deviation, power, i, g, a, want[g][i])
						}
					}
				}
			}
		}
	}
}

// TestRatioRisesWithP: a ratio rises with p, and ESS falls with the distance of p from 0, for any
// clip.
func TestRatioRisesWithP(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := drawBatch(rt, 2)
		mode := rapid.SampledFrom([]string{"token", "sequence", "none"}).Draw(rt, "clip_mode")
		p := rapid.Float64Range(-4, 4).Draw(rt, "p")
		q := rapid.Float64Range(p, 4).Draw(rt, "q")
		at := func(p float64) []objectives.Diagnostics {
			return makeObjective(t, "pmpo", keys{"p_rule": "fixed", "p": p, "clip_mode": mode}).(objectives.Diagnoser).Diagnose(b)
		}
		low, high := at(p), at(q)
		for i := range low {
			if *low[i].LogRatio > *high[i].LogRatio+1e-12 || p >= 0 && *low[i].ESS < *high[i].ESS-1e-12 || q <= 0 && *low[i].ESS > *high[i].ESS+1e-12 {
				rt.Fatalf("trajectory %d: p %v and %v: log r %v and %v, ESS %v and %v", i, p, q, *low[i].LogRatio, *high[i].LogRatio, *low[i].ESS, *high[i].ESS)
			}
		}
	})
}

// TestPenalties: k3 and entropy enter each objective with the weights that its policy
// term gives to tokens (D20). The test writes these weights out.
func TestPenalties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := drawBatch(rt, 0.5)
		const beta, bonus = 0.04, 0.3
		for _, name := range builtIn {
			each := func(n int) float64 { return 1 / float64(len(b.Trajectories)*n) }
			aggregate := ""
			if f, has := fieldsOf(makeObjective(t, name, nil))["aggregate"]; has {
				aggregate = f.String()
			}
			switch {
			case name == "gpg" || aggregate == "token-mean":
				each = func(int) float64 { return 1 / float64(b.Tokens()) }
			case aggregate == "constant":
				each = func(int) float64 { return 1 / (3000 * float64(len(b.Trajectories))) }
			}
			plain := makeObjective(t, name, nil)
			o := makeObjective(t, name, keys{"kl_beta": beta, "entropy_bonus": bonus, "kl_gradient": "own"})
			if objectives.NeedsOf(plain).Reference != objectives.NeedsOf(plain).Teacher || objectives.NeedsOf(plain).Entropy {
				rt.Fatalf("%s asks for what its defaults do not use", name)
			}
			if !objectives.NeedsOf(o).Reference || !objectives.NeedsOf(o).Entropy {
				rt.Fatalf("%s does not ask for the reference and the entropy", name)
			}
			want := plain.Loss(b, b)
			w, plainW := weigh(o, b), weigh(plain, b)
			v := make([][]float64, len(w))
			for i := range w {
				v[i] = make([]float64, len(w[i]))
			}
			if !objectives.NeedsOf(o).EntropyGradient || objectives.NeedsOf(plain).EntropyGradient {
				rt.Fatalf("%s: WeighsEntropy is wrong", name)
			}
			o.(objectives.EntropyWeigher).EntropyWeights(b, v)
			for i, x := range b.Trajectories {
				c := each(len(x.LogProb))
				for j := range x.LogProb {
					k := x.RefLogProb[j] - x.LogProb[j]
					want += c * (beta*(math.Exp(k)-k-1) - bonus*x.Entropy[j])
					if slope := plainW[i][j] + c*beta*(1-math.Exp(k)); math.Abs(w[i][j]-slope) > 1e-12 {
						rt.Fatalf("%s: trajectory %d, token %d: w = %v, want %v", name, i, j, w[i][j], slope)
					}
					if math.Abs(v[i][j]+c*bonus) > 1e-15 {
						rt.Fatalf("%s: trajectory %d, token %d: v = %v, want %v", name, i, j, v[i][j], -c*bonus)
					}
				}
			}
			if got := o.Loss(b, b); math.Abs(got-want) > 1e-12*max(1, math.Abs(want)) {
				rt.Fatalf("%s: loss = %v, want %v", name, got, want)
			}
		}
	})
}
