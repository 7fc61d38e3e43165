// Package sapo is Soft Adaptive Policy Optimization (arXiv:2511.20347): in place of a
// clip, a smooth gate lets the gradient of a token fade as its ratio leaves 1,
//
//	L = -1/N sum_i 1/n_i sum_t A_i 4/tau sigmoid(tau (r_t - 1))
//
// with tau = tau_positive (1.0) where A > 0 and tau_negative (1.05) elsewhere, and
// standardized advantages. The weight of a token is
//
//	-A_i/(N n_i) r_t 4 s (1 - s),  s = sigmoid(tau (r_t - 1))
//
// which is GRPO's at r = 1. The formula is checked against TRL 1.16; verl's is the
// same, and limits d to [-20, 20] as is done here from above.
//
// Degenerate cases: an empty response adds nothing and counts in N; a group with
// equal rewards, or of one response, has zero advantages.
package sapo

import (
	"math"

	"onering/objectives"
)

// A sapo is the objective "sapo".
type sapo struct {
	objectives.TokenSum
	// TauPositive and TauNegative say how fast the gradient fades for tokens of
	// positive advantage and for others; the loss divides by them. Default 1, 1.05.
	TauPositive float64 `toml:"tau_positive" range:"[1e-06,)"`
	TauNegative float64 `toml:"tau_negative" range:"[1e-06,)"`
}

func init() {
	objectives.Register("sapo", func() objectives.Objective {
		return &sapo{TokenSum: objectives.NewTokenSum("standardized", "sequence-mean"), TauPositive: 1, TauNegative: 1.05}
	})
}

// gate returns the value and the derivative by LogProb of a token.
func (o *sapo) gate(t *objectives.Trajectory, j int) (value, slope float64) {
	const limit = 20
	a, tau := t.AdvantageAt(j), o.TauNegative
	if a > 0 {
		tau = o.TauPositive
	}
	d := t.LogProb[j] - t.OldLogProb[j]
	r := math.Exp(min(d, limit))
	s := 1 / (1 + math.Exp(-tau*(r-1)))
	if d <= limit {
		slope = a * r * 4 * s * (1 - s)
	}
	return a * 4 / tau * s, slope
}

// Loss implements objectives.Objective; nothing is detached.
func (o *sapo) Loss(b, _ objectives.Batch) float64 {
	return o.SumLoss(b, func(i int, v []float64) {
		for j := range v {
			v[j], _ = o.gate(&b.Trajectories[i], j)
		}
	})
}

// Weights implements objectives.Objective.
func (o *sapo) Weights(b objectives.Batch, w [][]float64) {
	o.SumWeights(b, w, func(i int, g []float64) {
		for j := range g {
			_, g[j] = o.gate(&b.Trajectories[i], j)
		}
	})
}
