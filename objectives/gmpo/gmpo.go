// Package gmpo is Geometric-Mean Policy Optimization (arXiv:2507.20673): the ratio
// of a response is the geometric mean of its tokens' clipped ratios,
//
//	r_i = exp(1/n_i sum_t z_t)
//	L   = -1/N sum_i A_i r_i
//
// where z is d = LogProb - OldLogProb, clipped in the log domain at clip = 0.4
// (objectives.LogClip, D4). Advantages are standardized (D1). The weight of a token
// is -A_i r_i / (N n_i), or 0 where the clip cut it.
//
// clip_mode = "sequence" clips the sum of d instead, "none" turns the clip off (D13). norm
// replaces the mean: "sum" is exp(sum_t z_t), GMPO's own form without norm;
// "count-times" is n_i r_i (D14). pmpo with p_rule = "fixed", p = 0 and
// standardized advantages is this objective, except for norm = "sum".
//
// Degenerate cases: an empty response adds nothing, counts in N and has ratio 1; a
// group with equal rewards, or of one response, has zero advantages. With norm =
// "sum" the ratio of a long response can overflow; its loss is then infinite.
package gmpo

import (
	"math"

	"onering/objectives"
)

// A gmpo is the objective "gmpo".
type gmpo struct{ objectives.ClippedMean }

func init() {
	objectives.Register("gmpo", func() objectives.Objective {
		return &gmpo{objectives.DefaultClippedMean("standardized")}
	})
}

// logRatio returns log r of the clipped log-ratios z. Unless g is nil it sets g to
// the derivative with respect to z.
func (o *gmpo) logRatio(z, g []float64) float64 {
	if o.Norm != "sum" {
		return o.LogMean(z, 0, g)
	}
	sum := 0.0
	for _, v := range z {
		sum += v
	}
	for j := range g {
		g[j] = 1
	}
	return sum
}

// Loss implements objectives.Objective. A response's ratio is exp of the mean of its clipped log-ratios; norm sum takes their
// sum, and count-times multiplies that ratio by their number. Nothing is detached, so the second batch, from which detached
// quantities come, is not used.
func (o *gmpo) Loss(b, _ objectives.Batch) float64 {
	c := new(objectives.ClippedLogRatios)
	return o.SequenceLoss(b, func(i int) float64 {
		c.Read(o.LogClip, b.Trajectories[i], 0) // 0: Saturated is not used here
		return math.Exp(o.logRatio(c.Z, nil))
	})
}

// Weights implements objectives.Objective. A token whose log-ratio was cut gets only the penalty's weight.
func (o *gmpo) Weights(b objectives.Batch, w [][]float64) {
	c := new(objectives.ClippedLogRatios)
	o.SequenceWeights(b, w, func(i int, g []float64) float64 {
		c.Read(o.LogClip, b.Trajectories[i], 0)
		l := o.logRatio(c.Z, g)
		c.Gate(g, b.Trajectories[i])
		return math.Exp(l)
	})
}

// Diagnose implements objectives.Diagnoser.
func (o *gmpo) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	c := new(objectives.ClippedLogRatios)
	all := make([]objectives.Diagnostics, len(b.Trajectories))
	for i, t := range b.Trajectories {
		c.Read(o.LogClip, t, 0)
		all[i] = objectives.Diagnostics{Advantage: t.Advantage, Clipped: objectives.Fraction(c.Cut, len(c.Z))}
		logRatio := 0.0 // the log-ratio of an empty response
		if len(c.Z) > 0 {
			logRatio = o.logRatio(c.Z, nil)
		}
		all[i].SetLogRatio(logRatio)
	}
	return all
}

var _ objectives.Diagnoser = (*gmpo)(nil)
