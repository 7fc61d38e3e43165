package objectives_test

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"onering/objectives"
	"onering/objectives/objectivetest"
)

// A boxBatch is one round of box.json.
type boxBatch struct {
	Rows []struct {
		Group                           int
		Old, New, Ref, Sampled, Entropy []float64
		Parts                           map[string]float64
		Reward, Greedy                  float64
	}
	Weights    map[string]float64
	Advantages map[string][]float64
	Methods    map[string]struct {
		Objective string
		Settings  map[string]any
		From      string
		Loss      *float64 // nil where the reference's numbers are not comparable
		W         [][]float64
	}
}

// groups returns the rows as `onering weights` reads them.
func (b boxBatch) groups() [][]objectives.Trajectory {
	var groups [][]objectives.Trajectory
	for _, row := range b.Rows {
		for len(groups) <= row.Group {
			groups = append(groups, nil)
		}
		parts := map[string]objectives.Component{}
		for name, value := range row.Parts {
			parts[name] = objectives.Component{Value: value, Weight: b.Weights[name]}
		}
		groups[row.Group] = append(groups[row.Group], objectives.Trajectory{
			Reward: row.Reward, Components: parts, LogProb: row.New, OldLogProb: row.Old, RefLogProb: row.Ref,
			SampleLogProb: row.Sampled, Entropy: row.Entropy, Greedy: &objectives.Trajectory{Reward: row.Greedy},
		})
	}
	return groups
}

// TestBox compares the objectives, rules for advantages and masks that the paper lacks
// with TRL's trainers and formulas in PyTorch (testdata/box.py).
func TestBox(t *testing.T) {
	var batches []boxBatch
	readJSON(t, filepath.Join("testdata", "box.json"), &batches)
	if len(batches) != 2 {
		t.Fatalf("%d batches, want 2", len(batches))
	}
	tested, rules := map[string]bool{}, map[string]bool{"centered": true} // The other golden files have the rule centered.
	for n, b := range batches {
		for rule, want := range b.Advantages {
			rules[rule] = true
			groups := b.groups()
			objectives.SetAdvantages(makeObjective(t, "grpo", keys{"advantage": rule}), groups...)
			for i, x := range slices.Concat(groups...) {
				if !close(x.Advantage, want[i], 1e-9) {
					t.Errorf("batch %d, advantage %s: response %d has %v, want %v", n, rule, i, x.Advantage, want[i])
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(b.Methods)) {
			m := b.Methods[name]
			tested[m.Objective] = true
			t.Run(name, func(t *testing.T) {
				out, err := objectives.Evaluate(makeObjective(t, m.Objective, m.Settings), b.groups(), 3, 10)
				if err != nil {
					t.Fatal(err)
				}
				if m.Loss != nil && !close(out.Loss, *m.Loss, 1e-9) {
					t.Errorf("batch %d: loss = %v, want %v", n, out.Loss, *m.Loss)
				}
				for i, row := range slices.Concat(out.Groups...) {
					for j, want := range m.W[i] {
						if math.Abs(row.Weights[j]-want) > 1e-9*max(1e-3, math.Abs(want)) {
							t.Errorf("batch %d, response %d, token %d: w = %v, want %v", n, i, j, row.Weights[j], want)
						}
					}
				}
			})
		}
	}
	for _, name := range objectives.AdvantageRules() {
		inField := slices.Contains([]string{"pass-k", "hierarchical", "otb", "gigpo", "rae"}, name)
		if !rules[name] && !inField {
			t.Errorf("no golden has the advantage %q", name)
		}
	}
	for _, name := range builtIn {
		elsewhere := fieldNames[name] != "" || slices.Contains([]string{"grpo", "drgrpo", "dapo", "gpg", "gspo", "gmpo", "pmpo", "holder", "p3o", "apmpo"}, name)
		if !elsewhere && !tested[name] {
			t.Errorf("no golden has the objective %q", name)
		}
	}
}

// TestMasksConform runs the suite on masks with objectives of all kinds: weights with
// masks are still the derivative of the loss.
func TestMasksConform(t *testing.T) {
	if testing.Short() {
		t.Skip("repeats the conformance suite")
	}
	all := keys{
		"mask_off_policy": 0.01, "top_entropy": 0.7, "clip_cov": 0.2, "clip_cov_low": 0.0, "clip_cov_high": 1e6,
		"kl_cov": 0.2, "importance_cap": 1.1, "kl_beta": 0.04, "entropy_bonus": 0.01,
	}
	for _, name := range []string{"grpo", "gpg", "gmpo", "pmpo", "cispo"} {
		t.Run(name, func(t *testing.T) {
			objectivetest.RunNew(t, func() objectives.Objective { return makeObjective(t, name, all) })
		})
		t.Run(name+", slopes", func(t *testing.T) {
			o := makeObjective(t, name, all)
			b := objectives.Batch{Trajectories: slices.Concat(maskedGroups(o)...), Step: 1, Steps: 2}
			compareSlopes(t, o, b)
		})
	}
}

// TestRulesConform runs the suite on each rule for advantages.
func TestRulesConform(t *testing.T) {
	for _, rule := range objectives.AdvantageRules() {
		t.Run(rule, func(t *testing.T) {
			objectivetest.RunNew(t, func() objectives.Objective {
				return makeObjective(t, "grpo", keys{"advantage": rule})
			})
		})
	}
}

// maskedGroups is the first batch of box.json, written by hand with numbers that differ.
func maskedGroups(o objectives.Objective) [][]objectives.Trajectory {
	groups := make([][]objectives.Trajectory, 2)
	for g := range groups {
		for k := range 3 {
			x := objectives.Trajectory{Reward: float64(k + g*k)}
			for j := range 6 + k {
				phase := float64(1 + j + 7*k + 31*g)
				old := -0.3 - math.Abs(2*math.Sin(phase))
				x.OldLogProb = append(x.OldLogProb, old)
				x.LogProb = append(x.LogProb, old+0.3*math.Cos(3*phase))
				x.RefLogProb = append(x.RefLogProb, old+0.1*math.Sin(5*phase))
				x.SampleLogProb = append(x.SampleLogProb, old+0.2*math.Sin(11*phase))
				x.Entropy = append(x.Entropy, 1+math.Sin(13*phase))
			}
			groups[g] = append(groups[g], x)
		}
	}
	objectives.SetAdvantages(o, groups...)
	return groups
}

// compareSlopes compares the function Weights with differences of the function Loss.
func compareSlopes(t *testing.T, o objectives.Objective, b objectives.Batch) {
	t.Helper()
	w := make([][]float64, len(b.Trajectories))
	for i, x := range b.Trajectories {
		w[i] = make([]float64, len(x.LogProb))
	}
	objectives.Weights(o, b, w)
	compared := 0
	for i := range b.Trajectories {
		for j := range w[i] {
			at := func(h float64) float64 {
				moved := objectives.Batch{Trajectories: slices.Clone(b.Trajectories), Step: b.Step, Steps: b.Steps}
				moved.Trajectories[i].LogProb = slices.Clone(b.Trajectories[i].LogProb)
				moved.Trajectories[i].LogProb[j] += h
				return objectives.Loss(o, moved, b)
			}
			const h = 1e-5
			up, down := (at(h)-at(0))/h, (at(0)-at(-h))/h
			if math.Abs(up-down) > 1e-3 {
				continue // a kink
			}
			compared++
			if slope := (up + down) / 2; math.Abs(slope-w[i][j]) > 1e-6 {
				t.Errorf("trajectory %d, token %d: w = %v, the difference quotient is %v", i, j, w[i][j], slope)
			}
		}
	}
	if compared < 30 {
		t.Errorf("only %d tokens compared", compared)
	}
}

// TestClipCov: the mask drops as many tokens as requested, all within the range, and the
// same tokens for any order of responses.
func TestClipCov(t *testing.T) {
	plain := makeObjective(t, "gpg", nil)
	o := makeObjective(t, "gpg", keys{"clip_cov": 0.1, "clip_cov_low": 0.05, "clip_cov_high": 0.9})
	b := objectives.Batch{Trajectories: slices.Concat(maskedGroups(o)...), Steps: 1}
	advantage, logp := 0.0, 0.0
	for _, x := range b.Trajectories {
		for _, l := range x.LogProb {
			advantage += x.Advantage / float64(b.Tokens())
			logp += l / float64(b.Tokens())
		}
	}
	weights := func(o objectives.Objective, b objectives.Batch) [][]float64 {
		w := make([][]float64, len(b.Trajectories))
		for i, x := range b.Trajectories {
			w[i] = make([]float64, len(x.LogProb))
		}
		objectives.Weights(o, b, w)
		return w
	}
	before, after := weights(plain, b), weights(o, b)
	dropped := 0
	for i, x := range b.Trajectories {
		for j := range after[i] {
			switch {
			case after[i][j] == before[i][j]:
			case after[i][j] != 0:
				t.Errorf("response %d, token %d: w = %v, want 0 or %v", i, j, after[i][j], before[i][j])
			default:
				dropped++
				if c := (x.Advantage - advantage) * (x.LogProb[j] - logp); c <= 0.05 || c >= 0.9 {
					t.Errorf("response %d, token %d is dropped, whose covariance is %v", i, j, c)
				}
			}
		}
	}
	if want := b.Tokens() / 10; dropped != want {
		t.Errorf("%d tokens are dropped, want %d", dropped, want)
	}
	reversed := b
	reversed.Trajectories = slices.Clone(b.Trajectories)
	slices.Reverse(reversed.Trajectories)
	again := weights(o, reversed)
	slices.Reverse(again)
	for i := range after {
		for j := range after[i] {
			if (after[i][j] == 0) != (again[i][j] == 0) {
				t.Errorf("response %d, token %d is dropped in one order only", i, j)
			}
		}
	}
	b.Step = 7
	if slices.EqualFunc(weights(o, b), after, slices.Equal[[]float64]) {
		t.Error("another step drops the same tokens")
	}
}

// TestMaskStats: the log says how much is masked, and says nothing in a run without masks.
func TestMaskStats(t *testing.T) {
	o := makeObjective(t, "grpo", keys{"top_entropy": 0.25})
	b := objectives.Batch{Trajectories: slices.Concat(maskedGroups(o)...)}
	stats := objectives.MaskStats(o, b)
	if len(stats) != 2 || stats[0].Name != "mask/mean" || math.Abs(stats[0].Value-0.25) > 0.05 || math.Abs(stats[1].Value-0.75) > 0.05 {
		t.Errorf("%+v", stats)
	}
	if stats := objectives.MaskStats(makeObjective(t, "grpo", nil), b); stats != nil {
		t.Errorf("without masks: %+v", stats)
	}
	if !objectives.NeedsOf(makeObjective(t, "grpo", keys{"kl_cov": 0.1})).Live(objectives.Trajectory{}) ||
		objectives.NeedsOf(o).Live(objectives.Trajectory{}) || !objectives.NeedsOf(o).Live(objectives.Trajectory{TokenAdvantage: []float64{0, 1}}) {
		t.Error("Live is wrong")
	}
}

// perToken sets token advantages, and replaces the rules of Shared with a rule of its own.
type perToken struct {
	objectives.Shared
	seen []objectives.Trajectory
}

func (o *perToken) Loss(b, at objectives.Batch) float64 { return 0 }
func (o *perToken) Weights(b objectives.Batch, w [][]float64) {
}
func (o *perToken) Advantages(group []objectives.Trajectory) []float64 {
	o.seen = append(o.seen, group...)
	return make([]float64, len(group))
}
func (o *perToken) TokenAdvantages(group []objectives.Trajectory) [][]float64 {
	rows := make([][]float64, len(group))
	for i, x := range group {
		rows[i] = make([]float64, len(x.LogProb))
		for j := range rows[i] {
			rows[i][j] = x.Reward * float64(j)
		}
	}
	return rows
}

// TestAdvantagers: an Advantager is asked before the rules of Shared and sees every field
// of the responses. TokenAdvantages come after it.
func TestAdvantagers(t *testing.T) {
	o := &perToken{Shared: objectives.Defaults("standardized")}
	group := []objectives.Trajectory{
		{Reward: 1, LogProb: []float64{-1, -2}, SampleLogProb: []float64{-1.5, -2.5}, IDs: []int32{4, 2}, Truncated: true,
			Components: map[string]objectives.Component{"math": {Value: 1, Weight: 1}}},
		{Reward: 3, LogProb: []float64{-1}},
	}
	objectives.SetAdvantages(o, group)
	if len(o.seen) != 2 || o.seen[0].IDs[1] != 2 || !o.seen[0].Truncated || o.seen[0].Components["math"].Value != 1 || o.seen[0].SampledLogProb()[0] != -1.5 {
		t.Errorf("Advantages has seen %+v", o.seen)
	}
	if group[0].AdvantageAt(1) != 1 || group[1].AdvantageAt(0) != 0 || group[0].Advantage != 0 || !group[0].HasAdvantage() || group[1].HasAdvantage() {
		t.Errorf("token advantages: %+v", group)
	}
}

// TestTokenAdvantages: objectives that are sums over tokens weigh each token by its
// own advantage.
func TestTokenAdvantages(t *testing.T) {
	for _, name := range []string{"grpo", "cispo", "sapo", "dppo", "m2po", "gpg"} {
		x := objectives.Trajectory{Advantage: 1, LogProb: []float64{-1, -1}, OldLogProb: []float64{-1, -1}, TokenAdvantage: []float64{-2, 0.5}}
		w := weigh(makeObjective(t, name, nil), objectives.Batch{Trajectories: []objectives.Trajectory{x}})
		if math.Abs(w[0][0]-1) > 1e-12 || math.Abs(w[0][1]+0.25) > 1e-12 {
			t.Errorf("%s: w = %v, want [1 -0.25]", name, w[0])
		}
	}
}
