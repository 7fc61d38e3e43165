package gmpo_test

import (
	"testing"

	"onering/objectives"
	"onering/objectives/gmpo"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "gmpo") }

// TestVariantsConform runs the suite on settings other than the defaults.
func TestVariantsConform(t *testing.T) {
	for name, set := range map[string]func(*gmpo.GMPO){
		"printed":       func(o *gmpo.GMPO) { o.ClipForm = "printed" },
		"sequence clip": func(o *gmpo.GMPO) { o.ClipMode = "sequence" },
		"no clip":       func(o *gmpo.GMPO) { o.ClipMode = "none" },
		"count-times":   func(o *gmpo.GMPO) { o.Norm = "count-times" },
		"KL, entropy":   func(o *gmpo.GMPO) { o.KLBeta, o.EntropyBonus = 0.04, 0.01 },
	} {
		t.Run(name, func(t *testing.T) {
			objectivetest.RunNew(t, func() objectives.Objective {
				o, err := objectives.New("gmpo")
				if err != nil {
					t.Fatal(err)
				}
				set(o.(*gmpo.GMPO))
				return o
			})
		})
	}
}
