package gmpo

import (
	"testing"

	"onering/objectives"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "gmpo") }

// TestVariantsConform runs the suite on settings other than the defaults.
func TestVariantsConform(t *testing.T) {
	for name, set := range map[string]func(*gmpo){
		"printed":       func(o *gmpo) { o.ClipForm = "printed" },
		"sequence clip": func(o *gmpo) { o.ClipMode = "sequence" },
		"no clip":       func(o *gmpo) { o.ClipMode = "none" },
		"count-times":   func(o *gmpo) { o.Norm = "count-times" },
		"KL, entropy":   func(o *gmpo) { o.KLBeta, o.EntropyBonus = 0.04, 0.01 },
	} {
		t.Run(name, func(t *testing.T) {
			objectivetest.RunNew(t, func() objectives.Objective {
				o, err := objectives.New("gmpo")
				if err != nil {
					t.Fatal(err)
				}
				set(o.(*gmpo))
				return o
			})
		})
	}
}
