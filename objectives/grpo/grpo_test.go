package grpo

import (
	"testing"

	"onering/objectives"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "grpo") }

// TestVariantsConform runs the suite on settings other than the defaults.
func TestVariantsConform(t *testing.T) {
	for name, set := range map[string]func(*grpo){
		"token-mean":    func(o *grpo) { o.Aggregate = "token-mean" },
		"constant":      func(o *grpo) { o.Aggregate, o.ConstantLength = "constant", 16 },
		"KL, entropy":   func(o *grpo) { o.KLBeta, o.EntropyBonus = 0.04, 0.01 },
		"population":    func(o *grpo) { o.AdvantageStd, o.AdvantageEps = "population", 1e-4 },
		"leave one out": func(o *grpo) { o.Advantage = "rloo" },
		"no clip":       func(o *grpo) { o.ClipLow, o.ClipHigh = 1, 1e300 },
	} {
		t.Run(name, func(t *testing.T) {
			objectivetest.RunNew(t, func() objectives.Objective {
				o, err := objectives.New("grpo")
				if err != nil {
					t.Fatal(err)
				}
				set(o.(*grpo))
				return o
			})
		})
	}
}
