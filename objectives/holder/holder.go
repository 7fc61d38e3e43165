// Package holder is HölderPO (arXiv:2605.12058): the ratio of a response is the power
// mean of its tokens' ratios, whose order p falls from 2 to -2 over the run,
//
//	rho_i = (1/n_i sum_t exp(p d_t))^(1/p)
//	L     = -1/N sum_i min(rho_i A_i, clip(rho_i, 1 - clip_low, 1 + clip_high) A_i)
//
// with d = LogProb - OldLogProb unclipped, p = 0 the geometric mean (D32), standardized
// advantages and clips of 0.2. A large p follows the tokens that have become likelier, a
// small one those that have become less likely. The weight of a token is
//
//	-A_i/N rho_i softmax(p d)_t, or 0 throughout a response that the clip cut (D33).
//
// # The exponent
//
// p_rule = "linear" (default), "square", "cube" and "sin" lead from p_first = 2 to
// p_last = -2 over the optimizer steps of the run (objectives.Batch.Schedule; D39); p_first
// below p_last lets p rise. "fixed" uses p. The paper's table 5 names them Linear, Square,
// Cube and Sin, Des and Asc. The authors' code counts rounds of eight steps, from 1 to 500,
// which is never more than 1/500 of the range away.
//
// # The clip
//
// clip_mode = "token" clips each log-ratio where its advantage pushes it, in place of the
// mean (D34): z = min(d, ln(1 + clip_high)) for A >= 0, max(d, ln(1 - clip_low)) for A < 0.
// A token that is cut stays in the mean and passes no gradient. With p = 1 that is grpo.
// "both" is a third branch of the authors' code, which no table of theirs uses (D35): it
// clips d to +-ln(1 + clip_high) whatever the advantage is, and does not read clip_low. With
// one width the clip of the mean could not bind. "none" clips nothing.
//
// # Where paper and code differ
//
// The code of the authors' mathematics runs sums ratios rather than logarithms, adds 1e-8
// to lengths and ratios, and is not finite once p d > 88. This objective computes the mean
// in the log domain, as the paper and the authors' ALFWorld fork do, and is finite for
// |d| <= 700 (D48).
//
// Degenerate cases: an empty response adds nothing, counts in N and has ratio 1; a group
// with equal rewards, or of one response, has zero advantages.
package holder

import (
	"errors"
	"math"

	"onering/objectives"
	"onering/objectives/means"
)

// A holder is the objective "holder".
type holder struct {
	objectives.SequenceRatio
	objectives.RatioBound
	// PRule is linear (default), square, cube, sin or fixed.
	PRule string `toml:"p_rule" choice:"linear square cube sin fixed"`
	// P is the exponent of p_rule = "fixed". Default 1.
	P float64 `toml:"p" needs:"p_rule=fixed" range:"(-inf,)"`
	// PFirst and PLast are the exponents at the two ends of a schedule. Default 2 and -2.
	PFirst float64 `toml:"p_first" needs:"p_rule!=fixed" range:"(-inf,)"`
	PLast  float64 `toml:"p_last" needs:"p_rule!=fixed" range:"(-inf,)"`
	// ClipMode is sequence (default), token, both or none.
	ClipMode string `toml:"clip_mode" choice:"sequence token both none"`
}

func init() {
	objectives.Register("holder", func() objectives.Objective {
		return &holder{
			SequenceRatio: objectives.SequenceRatio{Shared: objectives.Defaults("standardized")},
			RatioBound:    objectives.RatioBound{ClipLow: 0.2, ClipHigh: 0.2},
			PRule:         "linear", P: 1, PFirst: 2, PLast: -2,
			ClipMode: "sequence",
		}
	})
}

// exponent returns p at the step of b.
func (o *holder) exponent(b objectives.Batch) float64 {
	if o.PRule == "fixed" {
		return o.P
	}
	return b.Schedule(o.PRule, o.PFirst, o.PLast)
}

// read sets c to the log-ratios of t, clipped token by token if the mode says so.
func (o *holder) read(c *objectives.ClippedLogRatios, t objectives.Trajectory) {
	lo, hi := math.Inf(-1), math.Inf(1)
	switch {
	case o.ClipMode == "both":
		hi = math.Log1p(o.ClipHigh)
		lo = -hi
	case o.ClipMode == "token" && t.Advantage >= 0:
		hi = math.Log1p(o.ClipHigh)
	case o.ClipMode == "token":
		lo = math.Log1p(-o.ClipLow)
	}
	c.ReadWithin(t, lo, hi, math.Inf(1))
}

// bound returns the ratio e^l after clipping the mean, and whether the clip cut it.
func (o *holder) bound(l, advantage float64) (ratio float64, cut bool) {
	if o.ClipMode != "sequence" {
		return math.Exp(l), false
	}
	return o.Bounded(math.Exp(l), advantage)
}

// Validate refuses impossible combinations.
func (o *holder) Validate() error { return errors.Join(o.SequenceRatio.Validate(), o.CheckDual()) }

// Loss implements objectives.Objective; nothing is detached.
func (o *holder) Loss(b, _ objectives.Batch) float64 {
	c := new(objectives.ClippedLogRatios)
	p := o.exponent(b)
	return o.SequenceLoss(b, func(i int) float64 {
		o.read(c, b.Trajectories[i])
		ratio, _ := o.bound(means.LogPowerMean(c.Z, p, nil), b.Trajectories[i].Advantage)
		return ratio
	})
}

// Weights implements objectives.Objective.
func (o *holder) Weights(b objectives.Batch, w [][]float64) {
	c := new(objectives.ClippedLogRatios)
	p := o.exponent(b)
	o.SequenceWeights(b, w, func(i int, g []float64) float64 {
		t := b.Trajectories[i]
		o.read(c, t)
		ratio, cut := o.bound(means.LogPowerMean(c.Z, p, g), t.Advantage)
		if cut {
			clear(g)
		}
		c.Gate(g, t)
		return ratio
	})
}

// Diagnose implements objectives.Diagnoser: log_ratio is the mean before the clip.
func (o *holder) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	c := new(objectives.ClippedLogRatios)
	p := o.exponent(b)
	all := make([]objectives.Diagnostics, len(b.Trajectories))
	for i, t := range b.Trajectories {
		o.read(c, t)
		l, n := 0.0, len(c.Z)
		if n > 0 {
			l = means.LogPowerMean(c.Z, p, nil)
		}
		clipped := c.Cut
		if _, cut := o.bound(l, t.Advantage); cut {
			clipped = n
		}
		all[i] = objectives.Diagnostics{
			Advantage: t.Advantage, P: new(p), ESS: new(means.ESS(c.Z, p)),
			Clipped: objectives.Fraction(clipped, n),
		}
		all[i].SetLogRatio(l)
	}
	return all
}

var _ objectives.Diagnoser = (*holder)(nil)
