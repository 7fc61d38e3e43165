package pmpo_test

import (
	"math"
	"strings"
	"testing"

	"onering/objectives"
	"onering/objectives/objectivetest"
	"onering/objectives/pmpo"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "pmpo") }

// newPMPO returns the objective with its defaults, changed by set unless it is nil.
func newPMPO(t testing.TB, set func(*pmpo.PMPO)) *pmpo.PMPO {
	t.Helper()
	o, err := objectives.New("pmpo")
	if err != nil {
		t.Fatal(err)
	}
	p := o.(*pmpo.PMPO)
	if set != nil {
		set(p)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestVariantsConform runs the suite on settings other than the defaults.
func TestVariantsConform(t *testing.T) {
	for name, set := range map[string]func(*pmpo.PMPO){
		"printed":        func(o *pmpo.PMPO) { o.ClipForm = "printed" },
		"sequence clip":  func(o *pmpo.PMPO) { o.ClipMode = "sequence" },
		"no clip":        func(o *pmpo.PMPO) { o.ClipMode = "none" },
		"count-times":    func(o *pmpo.PMPO) { o.Norm = "count-times" },
		"fixed 0":        func(o *pmpo.PMPO) { o.PRule, o.P = "fixed", 0 },
		"fixed 1":        func(o *pmpo.PMPO) { o.PRule = "fixed" },
		"direct":         func(o *pmpo.PMPO) { o.PRule = "direct" },
		"length":         func(o *pmpo.PMPO) { o.PRule = "length" },
		"entropy":        func(o *pmpo.PMPO) { o.PRule = "entropy" },
		"cosine":         func(o *pmpo.PMPO) { o.PRule = "cosine" },
		"attainable":     func(o *pmpo.PMPO) { o.Target = "attainable" },
		"p_negative":     func(o *pmpo.PMPO) { o.PNegative = new(0.25) },
		"fine, p_max 4":  func(o *pmpo.PMPO) { o.Tolerance, o.PMax = 1e-9, 4 },
		"entropy, bonus": func(o *pmpo.PMPO) { o.PRule, o.EntropyBonus = "entropy", 0.01 },
		"KL and entropy": func(o *pmpo.PMPO) { o.KLBeta, o.EntropyBonus = 0.04, 0.01 },
		"standardized":   func(o *pmpo.PMPO) { o.Advantage = "standardized" },
		"leave one out":  func(o *pmpo.PMPO) { o.Advantage = "rloo" },
		"eps_ess 0":      func(o *pmpo.PMPO) { o.EpsESS = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			objectivetest.RunNew(t, func() objectives.Objective { return newPMPO(t, set) })
		})
	}
}

// one is a response with the given advantage and log-ratios.
func one(advantage float64, d ...float64) objectives.Trajectory {
	return objectives.Trajectory{Advantage: advantage, LogProb: d, OldLogProb: make([]float64, len(d)), Entropy: make([]float64, len(d))}
}

// TestPNegative: only responses of negative advantage take the fixed p, under
// every rule, empty ones too.
func TestPNegative(t *testing.T) {
	for _, rule := range []string{"ess", "fixed", "direct", "length", "entropy", "cosine"} {
		set := func(o *pmpo.PMPO) { o.PRule = rule }
		b := objectives.Batch{Trajectories: []objectives.Trajectory{one(1, 2, -2, 0.3), one(-1, 2, -2, 0.3), one(0, 1, -1), one(-1)}}
		without := newPMPO(t, set).Diagnose(b)
		with := newPMPO(t, func(o *pmpo.PMPO) { set(o); o.PNegative = new(0.125) }).Diagnose(b)
		for i, a := range []float64{1, -1, 0, -1} {
			want := *without[i].P
			if a < 0 {
				want = 0.125
			}
			if *with[i].P != want {
				t.Errorf("%s, advantage %v: p = %v, want %v", rule, a, *with[i].P, want)
			}
		}
	}
	// p = 0 gives every token of a wrong response the same weight.
	b := objectives.Batch{Trajectories: []objectives.Trajectory{one(-1, -0.3, 0.2, 0)}}
	w := [][]float64{make([]float64, 3)}
	newPMPO(t, func(o *pmpo.PMPO) { o.PNegative = new(0.0) }).Weights(b, w)
	want := math.Exp(-0.1/3) / 3
	for _, x := range w[0] {
		if math.Abs(x-want) > 1e-15 {
			t.Errorf("w = %v, want %v each", w[0], want)
		}
	}
}

// TestEmptyResponse: an empty response is logged as D8 defines.
func TestEmptyResponse(t *testing.T) {
	for _, c := range []struct {
		set func(*pmpo.PMPO)
		p   float64
	}{
		{nil, 0.99},
		{func(o *pmpo.PMPO) { o.PMax, o.Target = 4, "attainable" }, 4},
		{func(o *pmpo.PMPO) { o.PRule, o.P = "fixed", 0.3 }, 0.3},
		{func(o *pmpo.PMPO) { o.PRule = "direct" }, 0.99},
		{func(o *pmpo.PMPO) { o.PRule = "entropy" }, 0.99},
		{func(o *pmpo.PMPO) { o.Norm = "count-times" }, 0.99},
	} {
		b := objectives.Batch{Trajectories: []objectives.Trajectory{one(1), one(-1, 0.1)}}
		d := newPMPO(t, c.set).Diagnose(b)[0]
		if *d.P != c.p || *d.ClipFraction != 0 || *d.ESS != 1 || *d.TargetESS != 1 || *d.Ratio != 1 || *d.LogRatio != 0 || *d.Clipped != 0 {
			t.Errorf("p = %v (want %v), f = %v, ESS = %v, target %v, r = %v, log r = %v, clipped %v", *d.P, c.p, *d.ClipFraction, *d.ESS, *d.TargetESS, *d.Ratio, *d.LogRatio, *d.Clipped)
		}
	}
}

// TestOverflow: without norm the ratio of a long response overflows at a small p;
// its logarithm is still reported, and clipped tokens still have weight 0.
func TestOverflow(t *testing.T) {
	d := make([]float64, 2000)
	d[0], d[1] = 1, -1
	b := objectives.Batch{Trajectories: []objectives.Trajectory{one(1, d...), one(0, d...)}}
	o := newPMPO(t, func(o *pmpo.PMPO) { o.Norm, o.PRule, o.P = "sum", "fixed", 0.01 })
	told := o.Diagnose(b)[0]
	if told.Ratio != nil || math.Abs(*told.LogRatio-math.Log(2000)/0.01) > 0.01 {
		t.Errorf("r = %v, log r = %v", told.Ratio, *told.LogRatio)
	}
	w := [][]float64{make([]float64, 2000), make([]float64, 2000)}
	o.Weights(b, w)
	if w[0][0] != 0 || !math.IsInf(w[0][1], -1) || w[1][5] != 0 {
		t.Errorf("w = %v, %v and %v, want 0, -Inf and 0", w[0][0], w[0][1], w[1][5])
	}
	if loss := o.Loss(b, b); !math.IsInf(loss, -1) {
		t.Errorf("loss = %v, want -Inf", loss)
	}
}

// TestAttainableTarget: p is p_max at f = 0, p_min at f = 1 and strictly between them for
// other f, where the paper's target leaves p at p_max.
func TestAttainableTarget(t *testing.T) {
	for _, c := range []struct {
		d             []float64
		paper, lo, hi float64
	}{
		{[]float64{0.05, -0.05, 0, 0.02}, 0.99, 0.99, 0.99},
		{[]float64{0.2, -0.2, 0, 0.02}, 0.99, 0.65, 0.75}, // 0.99 sqrt(1/2) = 0.70
		{[]float64{0.2, -0.2, 0.15, -0.3}, 0.01, 0.01, 0.01},
	} {
		b := objectives.Batch{Trajectories: []objectives.Trajectory{one(1, c.d...)}}
		paper := newPMPO(t, nil).Diagnose(b)[0]
		if *paper.P != c.paper || *paper.AtPMax != (c.paper == 0.99) {
			t.Errorf("%v: paper's p = %v, want %v", c.d, *paper.P, c.paper)
		}
		x := newPMPO(t, func(o *pmpo.PMPO) { o.Target = "attainable" }).Diagnose(b)[0]
		if *x.P < c.lo || *x.P > c.hi || math.Abs(*x.ESS-*x.TargetESS) > 1e-3 {
			t.Errorf("%v: attainable p = %v, want it in [%v, %v]; ESS %v, target %v", c.d, *x.P, c.lo, c.hi, *x.ESS, *x.TargetESS)
		}
	}
}

// TestCosine checks both ends of the schedule, and steps outside the run.
func TestCosine(t *testing.T) {
	o := newPMPO(t, func(o *pmpo.PMPO) { o.PRule = "cosine" })
	for _, c := range []struct {
		step, steps int
		want        float64
	}{{0, 10, 0.99}, {5, 10, 0.5}, {10, 10, 0.01}, {11, 10, 0.01}, {-1, 10, 0.99}, {3, 0, 0.99}} {
		b := objectives.Batch{Step: c.step, Steps: c.steps, Trajectories: []objectives.Trajectory{one(1, 0.1, 0)}}
		if p := *o.Diagnose(b)[0].P; math.Abs(p-c.want) > 1e-15 {
			t.Errorf("step %d of %d: p = %v, want %v", c.step, c.steps, p, c.want)
		}
	}
}

// TestAllocations: a step allocates buffers of its own, and nothing for a response or a token.
func TestAllocations(t *testing.T) {
	b, w := benchmarkBatch(0.5)
	for name, set := range map[string]func(*pmpo.PMPO){
		"ess":        nil,
		"attainable": func(o *pmpo.PMPO) { o.Target = "attainable" },
		"length":     func(o *pmpo.PMPO) { o.PRule = "length" },
	} {
		o := newPMPO(t, set)
		o.Weights(b, w)
		if n := testing.AllocsPerRun(5, func() { o.Weights(b, w) }); n > 4 {
			t.Errorf("%s: %v allocations a step", name, n)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, set := range map[string]func(*pmpo.PMPO){
		"p_rule":            func(o *pmpo.PMPO) { o.PRule = "" },
		"p_min = 2":         func(o *pmpo.PMPO) { o.PMin = 2 },
		"bisections = 0":    func(o *pmpo.PMPO) { o.Bisections = 0 },
		"bisections = 2000": func(o *pmpo.PMPO) { o.Bisections = 2000 },
		"p_negative = NaN":  func(o *pmpo.PMPO) { o.PNegative = new(math.NaN()) },
		"p = 0":             func(o *pmpo.PMPO) { o.Norm, o.PRule, o.P = "sum", "fixed", 0 },
		"p_min = 0":         func(o *pmpo.PMPO) { o.Norm, o.PMin = "sum", 0 },
		"p_min = -1":        func(o *pmpo.PMPO) { o.Norm, o.PMin = "sum", -1 },
		"p_negative = 0":    func(o *pmpo.PMPO) { o.Norm, o.PNegative = "sum", new(0.0) },
	} {
		o := newPMPO(t, nil)
		set(o)
		if err := objectives.Check(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	newPMPO(t, func(o *pmpo.PMPO) { o.Norm, o.PMin, o.PMax = "sum", -3, -1 })                // 0 is not in the range
	newPMPO(t, func(o *pmpo.PMPO) { o.Norm, o.PMin, o.PRule, o.P = "sum", 0, "fixed", 0.5 }) // p_min is not used
}

func TestState(t *testing.T) {
	o := newPMPO(t, nil)
	for _, text := range []string{``, `{`, `{"mean":1}`, `{"mean":1,"variance":-1}`, `{"mean":1,"variance":1,"n":3}`, `{"mean":1,"variance":1}{}`, `[]`} {
		if err := o.UnmarshalText([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), "pmpo: state") {
			t.Errorf("state %q: error %v", text, err)
		}
	}
	for _, text := range []string{`{"mean":21.5,"variance":130.25}`, `null`} {
		if err := o.UnmarshalText([]byte(text)); err != nil {
			t.Error(err)
		}
		if got, err := o.MarshalText(); err != nil || string(got) != text {
			t.Errorf("state %s comes back as %s (%v)", text, got, err)
		}
	}
	// An empty response does not count, and a batch of empty responses changes nothing.
	o.PRule = "length"
	o.Observe(objectives.Batch{Trajectories: []objectives.Trajectory{one(1), one(1)}})
	if got, _ := o.MarshalText(); string(got) != "null" {
		t.Errorf("after empty responses: %s", got)
	}
	o.Observe(objectives.Batch{Trajectories: []objectives.Trajectory{one(1), one(1, 0, 0), one(1, 0, 0, 0, 0)}})
	if got, _ := o.MarshalText(); string(got) != `{"mean":3,"variance":1}` {
		t.Errorf("after lengths 2 and 4: %s", got)
	}
}

// TestZeroAdvantage: A = 0 counts as positive (D5), and the difference shows only in the log.
func TestZeroAdvantage(t *testing.T) {
	b := objectives.Batch{Trajectories: []objectives.Trajectory{{LogProb: []float64{-1, -3}, OldLogProb: []float64{-3, -1}}}}
	d := newPMPO(t, func(o *pmpo.PMPO) { o.PRule, o.P = "fixed", 0 }).Diagnose(b)[0]
	if want := (0.4 - 2) / 2; math.Abs(*d.LogRatio-want) > 1e-15 {
		t.Errorf("log r = %v, want %v: the upper side is to be clipped", *d.LogRatio, want)
	}
}

// TestLeastDeviation: a history without variance has the deviation 1e-6 (D16).
func TestLeastDeviation(t *testing.T) {
	o := newPMPO(t, func(o *pmpo.PMPO) { o.PRule = "entropy" })
	if err := o.UnmarshalText([]byte(`{"mean":1,"variance":0}`)); err != nil {
		t.Fatal(err)
	}
	b := objectives.Batch{Trajectories: []objectives.Trajectory{
		{LogProb: []float64{-1}, OldLogProb: []float64{-1}, Entropy: []float64{1 + 1e-6}},
	}}
	if p, want := *o.Diagnose(b)[0].P, 0.01+0.98/(1+math.E); math.Abs(p-want) > 1e-9 {
		t.Errorf("p = %v, want %v", p, want)
	}
}
