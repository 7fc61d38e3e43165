package objectives

import (
	"math"
	"testing"
)

type termed struct{ Shared }

func (termed) Loss(b, at Batch) float64       { return 0 }
func (termed) Weights(b Batch, w [][]float64) {}

// TestTermStats: a term's share is 0 without its weight, grows with it to 1, and counts no
// token that is certain.
func TestTermStats(t *testing.T) {
	b := Batch{Trajectories: []Trajectory{{LogProb: []float64{-1, 0}, RefLogProb: []float64{-2, -5}, Entropy: []float64{0.5, 0}}}}
	pull := -math.Expm1(-1.0) * 0.5 // of the KL penalty on the first token, at a kl_beta of 1
	for _, x := range []struct{ beta, bonus, kl, entropy float64 }{
		{1, 0, pull / (pull + 0.2), math.NaN()},
		{1e9, 0, 1, math.NaN()},
		{0, 1e9, math.NaN(), 1},
		{0, 0, math.NaN(), math.NaN()},
	} {
		got := map[string]float64{"term_share/kl": math.NaN(), "term_share/entropy": math.NaN()}
		w := [][]float64{{0.2 + x.beta*pull, 7}}
		if x.beta == 0 {
			w[0][0] = 0.2
		}
		for _, s := range TermStats(termed{Shared{penalties: penalties{KLBeta: x.beta, EntropyBonus: x.bonus}}}, b, w) {
			got[s.Name] = s.Value
		}
		for name, want := range map[string]float64{"term_share/kl": x.kl, "term_share/entropy": x.entropy} {
			if g := got[name]; math.IsNaN(g) != math.IsNaN(want) || math.Abs(g-want) > 1e-6 {
				t.Errorf("%+v: %s is %v, want %v", x, name, g, want)
			}
		}
	}
}
