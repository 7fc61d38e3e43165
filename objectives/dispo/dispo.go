// Package dispo is DISPO (arXiv:2602.00983): CISPO whose bounds of the importance weight
// depend on the sign of the advantage, so that four cases are set apart: weights above
// and below 1, in responses better and worse than their group,
//
//	L = -1/T sum_i sum_t sg[clip(r_t, 1 - low, 1 + high)] A_i LogProb_t
//
// with (low, high) = (0.2, 10) for A >= 0 and (1, 100) for A < 0, and standardized
// advantages. The weight of a token is -A_i/T times the clipped ratio.
//
// We read the abstract of the paper, and its objective as a public list of papers quotes
// it: a mean over the tokens of a group of sg(r) A log pi, with r clipped by four bounds.
// The bounds are those of a fork of slime that has the loss (orangeaico/slime,
// slime/utils/ppo_utils.py and its run scripts), and of a third party's summary of the
// paper; the two agree.
//
// Degenerate cases: an empty response adds nothing; a batch without tokens has loss 0;
// a group with equal rewards, or of one response, has zero advantages.
package dispo

import (
	"math"

	"onering/objectives"
)

// A dispo is the objective "dispo".
type dispo struct {
	objectives.TokenSum
	// LowPositive and HighPositive limit the ratio of a token to [1 - low, 1 + high] for
	// A >= 0, LowNegative and HighNegative for A < 0. Default 0.2, 10, 1, 100.
	LowPositive  float64 `toml:"low_positive" range:"[0,1]"`
	HighPositive float64 `toml:"high_positive" range:"[0,)"`
	LowNegative  float64 `toml:"low_negative" range:"[0,1]"`
	HighNegative float64 `toml:"high_negative" range:"[0,)"`
}

func init() {
	objectives.Register("dispo", func() objectives.Objective {
		return &dispo{
			TokenSum:    objectives.NewTokenSum("standardized", "token-mean"),
			LowPositive: 0.2, HighPositive: 10, LowNegative: 1, HighNegative: 100,
		}
	})
}

// bounds returns the least and the greatest ratio of a token with advantage a.
func (o *dispo) bounds(a float64) (least, most float64) {
	if a >= 0 {
		return 1 - o.LowPositive, 1 + o.HighPositive
	}
	return 1 - o.LowNegative, 1 + o.HighNegative
}

// coefficients sets k to the advantages times the clipped ratios.
func (o *dispo) coefficients(t *objectives.Trajectory, k []float64) {
	for j, logp := range t.LogProb {
		a := t.AdvantageAt(j)
		least, most := o.bounds(a)
		k[j] = a * max(least, min(math.Exp(logp-t.OldLogProb[j]), most))
	}
}

// Loss implements objectives.Objective; the ratios are detached.
func (o *dispo) Loss(b, at objectives.Batch) float64 { return o.Reinforce(b, at, o.coefficients) }

// Weights implements objectives.Objective.
func (o *dispo) Weights(b objectives.Batch, w [][]float64) { o.ReinforceWeights(b, w, o.coefficients) }

// Diagnose implements objectives.Diagnoser.
func (o *dispo) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	return b.DiagnoseCut(func(t *objectives.Trajectory, j int) bool {
		least, most := o.bounds(t.AdvantageAt(j))
		r := math.Exp(t.LogProb[j] - t.OldLogProb[j])
		return r < least || r > most
	})
}

var _ objectives.Diagnoser = (*dispo)(nil)
