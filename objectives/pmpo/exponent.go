package pmpo

import (
	"math"

	"onering/objectives"
	"onering/objectives/means"
)

// A rule chooses the exponent of each response of one batch.
type rule struct {
	*PMPO
	solver  means.Solver
	moments moments // means and variances for the z-scores of lengths or entropies
	planned float64 // the exponent of the cosine and linear rules
}

// rule prepares the choice of exponents for b.
func (o *PMPO) rule(b objectives.Batch) rule {
	r := rule{PMPO: o, solver: o.solver()}
	switch o.PRule {
	case "length", "entropy":
		if o.history != nil {
			r.moments = *o.history
		} else {
			r.moments, _ = o.measure(b) // the first batch is scored against itself (D16)
		}
	case "cosine":
		r.planned = b.Schedule("sin", o.PMax, o.PMin)
	case "linear":
		r.planned = b.Schedule("linear", o.PMax, o.PMin)
	}
	return r
}

// exponent returns p for t, whose clipped log-ratios are c, by the rule p_rule; "ess" is the paper's.
func (r *rule) exponent(t objectives.Trajectory, c *objectives.ClippedLogRatios) float64 {
	n := len(c.Z)
	switch {
	case r.PNegative != nil && t.Advantage < 0:
		return *r.PNegative
	case r.PRule == "fixed":
		return r.P
	case n == 0:
		return r.PMax
	}
	f := float64(c.Saturated) / float64(n) // the share of tokens with |log-ratio| > eps_ess
	switch r.PRule {
	case "direct":
		return min(max(1-f, r.PMin), r.PMax)
	case "cosine", "linear":
		return r.planned
	case "length", "entropy":
		score := (r.statistic(t) - r.moments.Mean) / max(math.Sqrt(r.moments.Variance), 1e-6)
		return r.PMin + (r.PMax-r.PMin)*sigmoid(-r.EMAAlpha*score)
	}
	if c.Saturated == 0 { // here p_rule is "ess"
		return r.PMax // either target is then at or below ESS(p_max)
	}
	if r.Target == "attainable" {
		p, _ := r.solver.SolveAttainable(c.Z, f)
		return p
	}
	return r.solver.Solve(c.Z, paperTarget(n, f))
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
