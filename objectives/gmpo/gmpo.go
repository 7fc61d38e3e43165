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
// clip_mode = "sequence" clips the sum of d instead, "none" nothing (D13). norm
// replaces the mean: "sum" is exp(sum_t z_t), GMPO's own form without norm;
// "count-times" is n_i r_i (D14). pmpo with p_rule = "fixed", p = 0 and
// standardized advantages is this objective, but for norm = "sum".
//
// Degenerate cases: an empty response adds nothing, counts in N and has ratio 1; a
// group with equal rewards, or of one response, has zero advantages. With norm =
// "sum" the ratio of a long response can overflow; its loss is then infinite.
package gmpo

import (
	"errors"
	"math"
	"sync"

	"onering/objectives"
)

// A GMPO is the objective "gmpo".
type GMPO struct {
	objectives.Shared
	objectives.LogClip
	// Norm is mean (default), sum or count-times.
	Norm string `toml:"norm"`
}

func init() {
	objectives.Register("gmpo", func() objectives.Objective {
		return &GMPO{
			Shared:  objectives.Defaults("standardized"),
			LogClip: objectives.DefaultLogClip(),
			Norm:    "mean",
		}
	})
}

// Validate implements objectives.Validator.
func (o *GMPO) Validate() error {
	return errors.Join(
		o.Shared.Validate(),
		o.LogClip.Validate(),
		objectives.OneOf("norm", o.Norm, "mean", "sum", "count-times"),
	)
}

// buffers are reused from call to call, so that nothing is allocated per token.
var buffers = sync.Pool{New: func() any { return new([]float64) }}

// clipped returns z in a buffer, with LogClip's count of tokens cut.
func (o *GMPO) clipped(buffer *[]float64, t objectives.Trajectory) (z []float64, cut int) {
	n := len(t.LogProb)
	if cap(*buffer) < n {
		*buffer = make([]float64, n)
	}
	z = (*buffer)[:n]
	cut, _ = o.Apply(z, t, 0)
	return z, cut
}

// logRatio returns log r_i in the chosen norm, 0 for an empty response.
func (o *GMPO) logRatio(z []float64) float64 {
	if len(z) == 0 {
		return 0
	}
	sum, n := 0.0, float64(len(z))
	for _, v := range z {
		sum += v
	}
	switch o.Norm {
	case "sum":
		return sum
	case "count-times":
		return sum/n + math.Log(n)
	}
	return sum / n
}

// Loss implements objectives.Objective; nothing is detached.
func (o *GMPO) Loss(b, _ objectives.Batch) float64 {
	buffer := buffers.Get().(*[]float64)
	defer buffers.Put(buffer)
	loss, count := 0.0, float64(len(b.Trajectories))
	for _, t := range b.Trajectories {
		if len(t.LogProb) == 0 {
			continue
		}
		if t.Advantage != 0 {
			z, _ := o.clipped(buffer, t)
			loss -= t.Advantage / count * math.Exp(o.logRatio(z))
		}
		loss += o.Penalty(t, 1/(count*float64(len(t.LogProb))))
	}
	return loss
}

// Weights implements objectives.Objective.
func (o *GMPO) Weights(b objectives.Batch, w [][]float64) {
	buffer := buffers.Get().(*[]float64)
	defer buffers.Put(buffer)
	count := float64(len(b.Trajectories))
	for i, t := range b.Trajectories {
		n := float64(len(t.LogProb))
		clear(w[i])
		if t.Advantage != 0 {
			z, cut := o.clipped(buffer, t)
			each := -t.Advantage / count * math.Exp(o.logRatio(z))
			if o.Norm != "sum" {
				each /= n
			}
			for j := range w[i] {
				w[i][j] = each
			}
			o.Gate(w[i], z, t, cut)
		}
		o.AddPenalty(t, 1/(count*n), w[i])
	}
}

// Diagnose implements objectives.Diagnoser.
func (o *GMPO) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	buffer := buffers.Get().(*[]float64)
	defer buffers.Put(buffer)
	all := make([]objectives.Diagnostics, len(b.Trajectories))
	for i, t := range b.Trajectories {
		z, cut := o.clipped(buffer, t)
		all[i] = objectives.Diagnostics{Advantage: t.Advantage, Clipped: objectives.Fraction(cut, len(z))}
		all[i].SetLogRatio(o.logRatio(z))
	}
	return all
}

var _ objectives.Diagnoser = (*GMPO)(nil)
