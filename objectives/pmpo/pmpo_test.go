package pmpo_test

import (
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
