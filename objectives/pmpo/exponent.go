package pmpo

import (
	"math"
	"sync"

	"onering/objectives"
)

// A rule chooses the exponent of each response of one batch.
type rule struct {
	*PMPO
	solver  objectives.Solver
	moments moments // that lengths or entropies are scored against
	cosine  float64 // the exponent of the cosine rule
}

// rule prepares the choice of exponents for b.
func (o *PMPO) rule(b objectives.Batch) rule {
	r := rule{
		PMPO:   o,
		solver: objectives.Solver{PMin: o.PMin, PMax: o.PMax, Bisections: o.Bisections, Tolerance: o.Tolerance},
	}
	switch o.PRule {
	case "length", "entropy":
		if o.history != nil {
			r.moments = *o.history
		} else {
			r.moments, _ = o.measure(b) // the first batch is scored against itself (D16)
		}
	case "cosine":
		done := 0.0
		if b.Steps > 0 {
			done = min(max(float64(b.Step)/float64(b.Steps), 0), 1)
		}
		r.cosine = o.PMin + (o.PMax-o.PMin)*0.5*(1+math.Cos(done*math.Pi))
	}
	return r
}

// exponent returns p for t, whose clipped log-ratios are z, saturated of them
// beyond eps_ess before the clip.
func (r *rule) exponent(t objectives.Trajectory, z []float64, saturated int) float64 {
	n := len(z)
	switch {
	case r.PNegative != nil && t.Advantage < 0:
		return *r.PNegative
	case r.PRule == "fixed":
		return r.P
	case n == 0:
		return r.PMax
	}
	f := float64(saturated) / float64(n)
	switch r.PRule {
	case "direct":
		return min(max(1-f, r.PMin), r.PMax)
	case "cosine":
		return r.cosine
	case "length", "entropy":
		score := (r.statistic(t) - r.moments.Mean) / max(math.Sqrt(r.moments.Variance), 1e-6)
		return r.PMin + (r.PMax-r.PMin)*sigmoid(-r.EMAAlpha*score)
	}
	if saturated == 0 {
		return r.PMax // either target is then at or below ESS(p_max)
	}
	if r.Target == "attainable" {
		p, _ := r.solver.SolveAttainable(z, f)
		return p
	}
	return r.solver.Solve(z, paperTarget(n, f))
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// scratch is reused from call to call, so that nothing is allocated per token.
type scratch struct{ z []float64 }

var pool = sync.Pool{New: func() any { return new(scratch) }}

func take() *scratch    { return pool.Get().(*scratch) }
func (s *scratch) put() { pool.Put(s) }

// clipped returns z of t in s, valid until its next use, the number of tokens cut
// and the number with |d| > eps_ess.
func (o *PMPO) clipped(s *scratch, t objectives.Trajectory) (z []float64, counts [2]int) {
	n := len(t.LogProb)
	if cap(s.z) < n {
		s.z = make([]float64, n)
	}
	z = s.z[:n]
	counts[0], counts[1] = o.Apply(z, t, o.EpsESS)
	return z, counts
}

// A reading is what is known of one response before its ratio.
type reading struct {
	z         []float64 // in scratch
	cut       int
	saturated int
	p         float64
}

func (s *scratch) read(r rule, t objectives.Trajectory) reading {
	z, counts := r.clipped(s, t)
	return reading{z: z, cut: counts[0], saturated: counts[1], p: r.exponent(t, z, counts[1])}
}
