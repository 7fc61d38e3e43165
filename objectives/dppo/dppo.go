// Package dppo is Divergence PPO with the binary total variation, DPPO-TV
// (arXiv:2602.04879): a token leaves the trust region when its probability has moved
// too far, not its ratio, so that rare tokens are not over-penalized,
//
//	M_t = [pi_t - mu_t <= tv_high]  for A > 0,  [pi_t - mu_t >= -tv_low]  for A <= 0
//	L   = -1/T sum_i sum_t sg[M_t min(r_t, cap)] A_i LogProb_t + 1/T sum drift d_t^2
//
// with pi = e^LogProb, mu = e^OldLogProb, thresholds of 0.2, cap = 20 and standardized
// advantages. The weight of a token is -A_i/T M_t min(r_t, cap) + 2 drift d_t / T.
//
// This is verl's dppo_tv (drift = 0), and the authors' dppo_binary_tv
// (sail-sg/Stable-RL), which leaves thresholds and cap to its run scripts. prime-rl's
// default loss has the same mask and thresholds, no cap, and drift = 1e-3 (its kl_tau),
// which tokens without advantage pay there too. The paper was not read.
//
// Degenerate cases: an empty response adds nothing; a batch without tokens has loss 0;
// a group with equal rewards, or of one response, has zero advantages.
package dppo

import (
	"math"

	"onering/objectives"
)

// A dppo is the objective "dppo".
type dppo struct {
	objectives.TokenSum
	// TVLow and TVHigh bound how far the probability of a token may fall and rise.
	// Default 0.2.
	TVLow  float64 `toml:"tv_low" range:"[0,1]"`
	TVHigh float64 `toml:"tv_high" range:"[0,1]"`
	// Cap bounds the importance weight. Default 20.
	Cap float64 `toml:"cap" range:"[0,)"`
	// Drift is the weight of the squared log-ratio. Default 0.
	Drift float64 `toml:"drift" range:"[0,)"`
}

func init() {
	objectives.Register("dppo", func() objectives.Objective {
		return &dppo{TokenSum: objectives.NewTokenSum("standardized", "token-mean"), TVLow: 0.2, TVHigh: 0.2, Cap: 20}
	})
}

// outside reports whether token j has left the trust region.
func (o *dppo) outside(t *objectives.Trajectory, j int) bool {
	moved := math.Exp(t.LogProb[j]) - math.Exp(t.OldLogProb[j])
	if t.AdvantageAt(j) > 0 {
		return moved > o.TVHigh
	}
	return moved < -o.TVLow
}

// coefficients sets k to the advantages times the masked importance weights.
func (o *dppo) coefficients(t *objectives.Trajectory, k []float64) {
	for j, logp := range t.LogProb {
		k[j] = 0
		if !o.outside(t, j) {
			k[j] = t.AdvantageAt(j) * min(math.Exp(logp-t.OldLogProb[j]), o.Cap)
		}
	}
}

// Loss implements objectives.Objective; mask and ratios are detached.
func (o *dppo) Loss(b, at objectives.Batch) float64 {
	return o.SumLoss(b, func(i int, v []float64) {
		t := &b.Trajectories[i]
		o.coefficients(&at.Trajectories[i], v)
		for j, logp := range t.LogProb {
			d := logp - t.OldLogProb[j]
			v[j] = v[j]*logp - o.drift(t)*d*d
		}
	})
}

// drift returns Drift, or 0 for a response that teaches nothing.
func (o *dppo) drift(t *objectives.Trajectory) float64 {
	if !t.HasAdvantage() {
		return 0
	}
	return o.Drift
}

// Weights implements objectives.Objective.
func (o *dppo) Weights(b objectives.Batch, w [][]float64) {
	o.SumWeights(b, w, func(i int, g []float64) {
		t := &b.Trajectories[i]
		o.coefficients(t, g)
		for j, logp := range t.LogProb {
			g[j] -= 2 * o.drift(t) * (logp - t.OldLogProb[j])
		}
	})
}

// Diagnose implements objectives.Diagnoser.
func (o *dppo) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	return b.DiagnoseCut(o.outside)
}

var _ objectives.Diagnoser = (*dppo)(nil)
