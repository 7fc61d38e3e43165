package gspo

import (
	"math"
	"testing"

	"onering/objectives"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "gspo") }

func newGSPO(t *testing.T, set func(*gspo)) *gspo {
	t.Helper()
	o, err := objectives.New("gspo")
	if err != nil {
		t.Fatal(err)
	}
	set(o.(*gspo))
	return o.(*gspo)
}

// TestVariantsConform runs the suite on settings other than the defaults.
func TestVariantsConform(t *testing.T) {
	for name, set := range map[string]func(*gspo){
		"token level":       func(o *gspo) { o.TokenLevel = true },
		"wide, token level": func(o *gspo) { o.TokenLevel, o.ClipLow, o.ClipHigh = true, 0.2, 0.2 },
		"wide":              func(o *gspo) { o.ClipLow, o.ClipHigh = 0.2, 0.2 },
		"KL, entropy":       func(o *gspo) { o.KLBeta, o.EntropyBonus = 0.04, 0.01 },
	} {
		t.Run(name, func(t *testing.T) {
			objectivetest.RunNew(t, func() objectives.Objective { return newGSPO(t, set) })
		})
	}
}

// TestTokenAdvantage: GSPO-token weighs each token by its own advantage and cuts each by
// its own sign; plain GSPO ignores token advantages.
func TestTokenAdvantage(t *testing.T) {
	b := objectives.Batch{Trajectories: []objectives.Trajectory{{
		Advantage: 1, LogProb: []float64{-1, -1, -1}, OldLogProb: []float64{-1.3, -1.3, -1.3},
		TokenAdvantage: []float64{-2, 1, 0},
	}}}
	w := [][]float64{make([]float64, 3)}
	s := math.Exp(0.3)
	for level, want := range map[bool][]float64{true: {2 * s / 3, 0, 0}, false: {0, 0, 0}} {
		o := newGSPO(t, func(o *gspo) { o.TokenLevel, o.ClipHigh = level, 0.2 })
		o.Weights(b, w)
		for j := range want {
			if math.Abs(w[0][j]-want[j]) > 1e-15 {
				t.Errorf("token_level %v: w = %v, want %v", level, w[0], want)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	for _, set := range []func(*gspo){
		func(o *gspo) { o.ClipLow = -1 },
		func(o *gspo) { o.ClipHigh = math.Inf(1) },
		func(o *gspo) { o.Advantage = "" },
	} {
		if err := objectives.Check(newGSPO(t, set)); err == nil {
			t.Error("an impossible configuration is accepted")
		}
	}
}
