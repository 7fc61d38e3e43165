package means_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"onering/objectives/means"
)

// plainESS and bisect implement D9 literally. Solver must give the same results.
func plainESS(z []float64, p float64) float64 {
	if len(z) == 0 {
		return 1
	}
	top := math.Inf(-1)
	for _, v := range z {
		top = max(top, v)
	}
	s1, s2 := 0.0, 0.0
	for _, v := range z {
		e := math.Exp(p * (v - top))
		s1 += e
		s2 += e * e
	}
	return s1 * s1 / s2 / float64(len(z))
}

// bisect also reports whether a comparison was so close that rounding decided it.
func bisect(s means.Solver, z []float64, eta float64) (p float64, tied bool) {
	fits := func(p, eta float64) bool {
		ess := plainESS(z, p)
		tied = tied || math.Abs(ess-eta) < 1e-13
		return ess >= eta
	}
	if fits(s.PMax, eta-1e-12) {
		return s.PMax, tied
	}
	if !fits(s.PMin, eta+1e-12) {
		return s.PMin, tied
	}
	lo, hi := s.PMin, s.PMax
	for i := 0; (s.Tolerance > 0 && hi-lo > s.Tolerance) || (s.Tolerance == 0 && i < s.Bisections); i++ {
		mid := 0.5 * (lo + hi)
		if mid <= lo || mid >= hi {
			break
		}
		if fits(mid, eta) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return 0.5 * (lo + hi), tied
}

// logRatios draws z of 1 to 200 tokens on a random scale; some are clipped, some
// are mostly zeros with outliers, as in training.
func logRatios(t *rapid.T) []float64 {
	n := rapid.IntRange(1, 200).Draw(t, "n")
	exponents := rapid.OneOf(rapid.Float64Range(-6, 2.6), rapid.Float64Range(-1, 1), rapid.Float64Range(-0.5, 0.5))
	scale := math.Pow(10, exponents.Draw(t, "log10 scale"))
	sparse := rapid.Bool().Draw(t, "sparse")
	clip := rapid.Bool().Draw(t, "clip")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	z := make([]float64, n)
	for j := range z {
		if sparse && r.IntN(8) > 0 {
			continue
		}
		z[j] = scale * r.NormFloat64()
		if clip {
			z[j] = min(z[j], 0.4)
		}
	}
	return z
}

// TestSolverIsBisection: the shortcuts of Solver change no bit of the answer, except
// where a comparison is a tie within rounding.
func TestSolverIsBisection(t *testing.T) {
	interior, ties, total := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		z := logRatios(t)
		s := means.Solver{
			PMin:       rapid.SampledFrom([]float64{0, 0.01, 0.3}).Draw(t, "p_min"),
			PMax:       rapid.SampledFrom([]float64{0.3, 0.99, 2, 4}).Draw(t, "p_max"),
			Bisections: rapid.SampledFrom([]int{1, 3, 10, 10, 10, 30}).Draw(t, "bisections"),
		}
		n := float64(len(z))
		f := rapid.Float64Range(0, 1).Draw(t, "f")
		eta := 1/n + f*(1-1/n)
		if rapid.Bool().Draw(t, "reachable") {
			eta = plainESS(z, s.PMin+f*(s.PMax-s.PMin))
		}
		want, tied := bisect(s, z, eta)
		total++
		if want > s.PMin && want < s.PMax {
			interior++
		}
		if tied {
			ties++
		} else if got := s.Solve(z, eta); got != want {
			t.Fatalf("Solve = %v, bisection gives %v (target %v)", got, want, eta)
		}
	})
	// With -short the test draws too few problems for this check.
	if total >= 100 && (interior == 0 || ties > total/2) {
		t.Errorf("%d problems, %d with an interior answer, %d with ties", total, interior, ties)
	}
}

func TestSolverTolerance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		z := logRatios(t)
		s := means.Solver{PMin: 0.01, PMax: 4, Bisections: 10, Tolerance: math.Pow(10, rapid.Float64Range(-12, -2).Draw(t, "log10 tolerance"))}
		eta := plainESS(z, rapid.Float64Range(0.01, 4).Draw(t, "p"))
		got := s.Solve(z, eta)
		want, _ := bisect(s, z, eta)
		if math.Abs(got-want) > s.Tolerance && math.Abs(plainESS(z, got)-plainESS(z, want)) > 1e-11 {
			t.Fatalf("Solve = %v, bisection gives %v", got, want)
		}
	})
}

func TestSolverAttainable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		z := logRatios(t)
		s := means.Solver{PMin: 0.01, PMax: rapid.SampledFrom([]float64{0.99, 4}).Draw(t, "p_max"), Tolerance: 1e-12}
		f := rapid.Float64Range(0, 1).Draw(t, "f")
		p, eta := s.SolveAttainable(z, f)
		top, bottom := plainESS(z, s.PMax), plainESS(z, s.PMin)
		if want := top + f*(bottom-top); math.Abs(eta-want) > 1e-12 {
			t.Fatalf("target = %v, want %v", eta, want)
		}
		if got := plainESS(z, p); math.Abs(got-eta) > 1e-9 {
			t.Fatalf("p = %v has ESS %v, want %v", p, got, eta)
		}
	})
	z := []float64{0.3, -0.2, 0.1, 0}
	s := means.Solver{PMin: 0.01, PMax: 0.99, Bisections: 10}
	for f, want := range map[float64]float64{0: 0.99, 1: 0.01} {
		if p, _ := s.SolveAttainable(z, f); p != want {
			t.Errorf("f = %v: p = %v, want %v", f, p, want)
		}
	}
	// The curve is about 1 - p^2 var z, so p is about p_max sqrt(1-f).
	if p, _ := s.SolveAttainable(z, 0.5); math.Abs(p-0.99*math.Sqrt(0.5)) > 0.02 {
		t.Errorf("f = 0.5: p = %v, want about %v", p, 0.99*math.Sqrt(0.5))
	}
}

// TestSolverEdges: if all z are equal, or there is one z or none, ESS is 1 at every p and the
// answer is p_max.
func TestSolverEdges(t *testing.T) {
	s := means.Solver{PMin: 0.01, PMax: 0.99, Bisections: 10}
	for _, z := range [][]float64{nil, {}, {0}, {-3}, {700}, {0.2, 0.2, 0.2}, make([]float64, 1000)} {
		for _, eta := range []float64{0, 0.5, 1} {
			if p := s.Solve(z, eta); p != s.PMax {
				t.Errorf("%d equal z, target %v: p = %v, want p_max", len(z), eta, p)
			}
		}
		if p, eta := s.SolveAttainable(z, 0.5); p != s.PMax || eta != 1 {
			t.Errorf("%d equal z, attainable: p = %v, target %v", len(z), p, eta)
		}
		if x := means.ESS(z, 2); x != 1 {
			t.Errorf("%d equal z: ESS = %v", len(z), x)
		}
	}
	z := []float64{-1, 0, 2}
	for eta, want := range map[float64]float64{1: 0.01, 2: 0.01, 1. / 3: 0.99, 0: 0.99} {
		if p := s.Solve(z, eta); p != want {
			t.Errorf("target %v: p = %v, want %v", eta, p, want)
		}
	}
}

// TestESSFalls: ESS is 1 at p = 0, falls with p, and stays in [1/n, 1]; shifting z
// changes nothing, and scaling z is scaling p (the paper's scale invariance).
func TestESSFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		z := logRatios(t)
		p := rapid.Float64Range(0, 4).Draw(t, "p")
		q := rapid.Float64Range(p, 4).Draw(t, "q")
		a, b := means.ESS(z, p), means.ESS(z, q)
		if a < b-1e-12 || a > 1+1e-12 || b < 1/float64(len(z))-1e-12 {
			t.Fatalf("ESS(%v) = %v, ESS(%v) = %v", p, a, q, b)
		}
		if x := means.ESS(z, 0); math.Abs(x-1) > 1e-12 {
			t.Fatalf("ESS(0) = %v", x)
		}
		if want := plainESS(z, p); math.Abs(a-want) > 1e-13*want {
			t.Fatalf("ESS(%v) = %v, want %v", p, a, want)
		}
		shift, scale := rapid.Float64Range(-5, 5).Draw(t, "shift"), rapid.Float64Range(0.1, 5).Draw(t, "scale")
		moved, scaled := make([]float64, len(z)), make([]float64, len(z))
		for j, v := range z {
			moved[j], scaled[j] = v+shift, v*scale
		}
		if x := means.ESS(moved, p); math.Abs(x-a) > 1e-9 {
			t.Fatalf("shifted by %v: ESS = %v, want %v", shift, x, a)
		}
		if x := means.ESS(scaled, p/scale); math.Abs(x-a) > 1e-9 {
			t.Fatalf("scaled by %v: ESS = %v, want %v", scale, x, a)
		}
	})
}

// TestLargest solves for 100,000 tokens, log-ratios of +-700 and p up to 4.
func TestLargest(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for name, draw := range map[string]func() float64{
		"two sided": func() float64 { return 700 * (2*r.Float64() - 1) },
		"ends":      func() float64 { return float64(r.IntN(2))*1400 - 700 },
		"one high":  func() float64 { return -700 },
	} {
		z := make([]float64, 100_000)
		for j := range z {
			z[j] = draw()
		}
		z[17] = 700
		for _, p := range []float64{0, 1e-9, 0.01, 0.5, 1, 2, 4} {
			if x := means.ESS(z, p); !(x >= 1e-5*(1-1e-9) && x <= 1+1e-9) || math.Abs(x-plainESS(z, p)) > 1e-12 {
				t.Errorf("%s: ESS(%v) = %v", name, p, x)
			}
			w := make([]float64, len(z))
			sum := 0.0
			l := means.LogPowerMean(z, p, w)
			for _, x := range w {
				sum += x
			}
			if !(l >= -700 && l <= 700) || math.Abs(sum-1) > 1e-9 {
				t.Errorf("%s: log M_%v = %v, softmax sums to %v", name, p, l, sum)
			}
		}
		s := means.Solver{PMin: 0.01, PMax: 4, Bisections: 10}
		for _, eta := range []float64{1e-5, 0.01, 0.3, 0.999} {
			if want, tied := bisect(s, z, eta); !tied && s.Solve(z, eta) != want {
				t.Errorf("%s: target %v: p = %v, want %v", name, eta, s.Solve(z, eta), want)
			}
		}
	}
}
