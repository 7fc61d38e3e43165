// Package cispo is Clipped IS-weight Policy Optimization (MiniMax-M1,
// arXiv:2506.13585): REINFORCE whose importance weights are clipped and detached, so
// that no token loses its gradient,
//
//	L = -1/T sum_i sum_t sg[max(floor, min(r_t, cap))] A_i LogProb_t
//
// with standardized advantages. The weight of a token is -A_i/T times the clipped ratio.
//
// Implementations differ in the bounds. The default cap of 5 without a lower bound is
// TRL 1.16's (epsilon_high = 5, as ScaleRL has it; there the bound is on r itself). The
// paper and verl clip r to [1 - low, 1 + high], which is floor = 1 - low and cap =
// 1 + high; the paper switches the lower bound off.
//
// Degenerate cases: an empty response adds nothing; a batch without tokens has loss 0;
// a group with equal rewards, or of one response, has zero advantages.
package cispo

import (
	"errors"
	"math"

	"onering/objectives"
)

// A cispo is the objective "cispo".
type cispo struct {
	objectives.TokenSum
	// Cap bounds the importance weight of a token from above. Default 5.
	Cap float64 `toml:"cap" range:"[0,)"`
	// Floor bounds the importance weight from below. Default 0.
	Floor float64 `toml:"floor"`
}

func init() {
	objectives.Register("cispo", func() objectives.Objective {
		return &cispo{TokenSum: objectives.NewTokenSum("standardized", "token-mean"), Cap: 5}
	})
}

// Validate refuses impossible settings.
func (o *cispo) Validate() error {
	return errors.Join(o.TokenSum.Validate(), objectives.Within("floor", o.Floor, 0, o.Cap))
}

// coefficients sets k to the advantages times the clipped ratios.
func (o *cispo) coefficients(t *objectives.Trajectory, k []float64) {
	for j, logp := range t.LogProb {
		k[j] = t.AdvantageAt(j) * max(o.Floor, min(math.Exp(logp-t.OldLogProb[j]), o.Cap))
	}
}

// Loss implements objectives.Objective; the ratios are detached.
func (o *cispo) Loss(b, at objectives.Batch) float64 { return o.Reinforce(b, at, o.coefficients) }

// Weights implements objectives.Objective.
func (o *cispo) Weights(b objectives.Batch, w [][]float64) { o.ReinforceWeights(b, w, o.coefficients) }

// Diagnose implements objectives.Diagnoser.
func (o *cispo) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	return b.DiagnoseCut(func(t *objectives.Trajectory, j int) bool {
		r := math.Exp(t.LogProb[j] - t.OldLogProb[j])
		return r > o.Cap || r < o.Floor
	})
}

var _ objectives.Diagnoser = (*cispo)(nil)
