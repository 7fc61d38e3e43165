package objectives

import (
	"errors"
	"math"
)

// RatioClip is PPO's clipped surrogate, token by token (D21). With r = e^d it is
//
//	-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)
//
// and the tokens of a batch are summed as tokenMean says. grpo, drgrpo, dapo and
// objectives that differ only in the advantage are this objective with other defaults.
type RatioClip struct {
	TokenSum
	RatioBound
}

// NewRatioClip returns the default settings with the given advantage, mean and bounds.
func NewRatioClip(advantage, aggregate string, low, high float64) RatioClip {
	return RatioClip{NewTokenSum(advantage, aggregate), RatioBound{ClipLow: low, ClipHigh: high}}
}

// Validate refuses impossible combinations.
func (o *RatioClip) Validate() error { return errors.Join(o.TokenSum.Validate(), o.CheckDual()) }

// Loss implements Objective; nothing is detached.
func (o *RatioClip) Loss(b, _ Batch) float64 {
	return o.SumLoss(b, func(i int, v []float64) {
		t := &b.Trajectories[i]
		for j, logp := range t.LogProb {
			if a := t.AdvantageAt(j); a != 0 {
				r, _ := o.Bound(math.Exp(logp-t.OldLogProb[j]), a)
				v[j] = r * a
			} else {
				v[j] = 0 // the ratio may be infinite
			}
		}
	})
}

// Weights implements Objective.
func (o *RatioClip) Weights(b Batch, w [][]float64) {
	o.SumWeights(b, w, func(i int, g []float64) {
		t := &b.Trajectories[i]
		for j, logp := range t.LogProb {
			a := t.AdvantageAt(j)
			if r, cut := o.Bound(math.Exp(logp-t.OldLogProb[j]), a); cut || a == 0 {
				g[j] = 0
			} else {
				g[j] = r * a
			}
		}
	})
}

var _ Diagnoser = (*RatioClip)(nil)

// Diagnose implements Diagnoser.
func (o *RatioClip) Diagnose(b Batch) []Diagnostics {
	return b.DiagnoseCut(func(t *Trajectory, j int) bool {
		_, cut := o.Bound(math.Exp(t.LogProb[j]-t.OldLogProb[j]), t.AdvantageAt(j))
		return cut
	})
}
