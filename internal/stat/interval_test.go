package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestWilson(t *testing.T) {
	// These are from Newcombe, "Two-sided confidence intervals for the single
	// proportion", 1998, Table I, method 3.
	for _, tt := range []struct{ right, n, low, high float64 }{
		{81, 263, 0.2553, 0.3662},
		{15, 148, 0.0624, 0.1605},
		{0, 20, 0, 0.1611},
		{1, 29, 0.0061, 0.1718},
	} {
		values := make([]float64, int(tt.n))
		for i := range int(tt.right) {
			values[i] = 1
		}
		e := Share(values, 1)
		if math.Abs(e.Low-tt.low) > 5e-5 || math.Abs(e.High-tt.high) > 5e-5 || e.Value != tt.right/tt.n {
			t.Errorf("%v of %v: %+v, want %v to %v", tt.right, tt.n, e, tt.low, tt.high)
		}
	}
}

// A population of problems: the chance of a right answer is Beta(a, b) over
// problems, so its mean is a/(a+b).
type population struct{ a, b float64 }

func (p population) mean() float64 { return p.a / (p.a + p.b) }

// draw simulates the shares of right samples for n problems with so many samples each.
func (p population) draw(r *rand.Rand, n, samples int) []float64 {
	out := make([]float64, n)
	for i := range out {
		x, y := gamma(r, p.a), gamma(r, p.b)
		chance := x / (x + y)
		for range samples {
			if r.Float64() < chance {
				out[i] += 1 / float64(samples)
			}
		}
	}
	return out
}

// gamma draws from Gamma(shape, 1): Marsaglia and Tsang, 2000.
func gamma(r *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(r, shape+1) * math.Pow(r.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-r.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// The settings of the simulations: the sizes of the benchmarks, easy and hard
// ones, problems that are all alike and problems that are all or nothing.
var (
	sizes       = []int{30, 83, 500}
	sampleSizes = []int{1, 16}
	populations = []population{{0.3, 1.5}, {0.1, 0.9}, {0.5, 0.5}, {3, 1}, {20, 20}, {0.9, 0.1}}
)

func trials(t *testing.T) int {
	if testing.Short() {
		return 300
	}
	return 2000
}

// covered simulates and checks that 95 % of the intervals hold the truth. It allows for
// the error of the simulation and of few problems, with which intervals of hard problems
// are too narrow and those of equal problems too wide.
func covered(t *testing.T, name string, problems int, trial func(r *rand.Rand) (Estimate, float64)) float64 {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 7))
	hits, n := 0, trials(t)
	for range n {
		e, truth := trial(r)
		if e.Low <= truth && truth <= e.High {
			hits++
		}
		if !(e.Low <= e.Value && e.Value <= e.High) {
			t.Fatalf("%s: %+v does not enclose its value", name, e)
		}
	}
	got := float64(hits) / float64(n)
	slack := 3.5 * math.Sqrt(0.95*0.05/float64(n))
	short, wide := 0.025, 0.05
	switch {
	case problems >= 500:
		short, wide = 0.01, 0.015
	case problems >= 80:
		short, wide = 0.015, 0.045
	}
	if got < 0.95-short-slack || got > 0.95+wide+slack {
		t.Errorf("%s: %.1f %% of the intervals hold the truth, want 95", name, 100*got)
	}
	return got
}

func TestShareCoverage(t *testing.T) {
	for _, n := range sizes {
		for _, samples := range sampleSizes {
			for _, p := range populations {
				got := covered(t, "mean", n, func(r *rand.Rand) (Estimate, float64) {
					return Share(p.draw(r, n, samples), samples), p.mean()
				})
				t.Logf("%3d problems x %2d, Beta(%g, %g): %.1f %%", n, samples, p.a, p.b, 100*got)
			}
		}
	}
}

// TestClusters: 16 samples of one problem are not 16 problems. An interval that treats
// them as problems is far too narrow, and Interval is not.
func TestClusters(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	p := population{0.3, 0.7}
	naive, n := 0, trials(t)
	for range n {
		values := p.draw(r, 83, 16)
		m, _ := moments(values)
		if e := wilson(m, 83*16); e.Low <= p.mean() && p.mean() <= e.High {
			naive++
		}
	}
	if share := float64(naive) / float64(n); share > 0.6 {
		t.Errorf("the naive interval holds the truth in %.2f of cases: the simulation does not tell", share)
	}
}

func TestAverageCoverage(t *testing.T) {
	// These are like the five benchmarks, from hard and small to easy and large.
	suites := []struct {
		n int
		p population
	}{{30, population{0.2, 1}}, {83, population{0.5, 0.6}}, {500, population{1, 0.3}}, {272, population{0.3, 0.9}}, {675, population{0.4, 0.6}}}
	truth := 0.0
	for _, s := range suites {
		truth += s.p.mean() / float64(len(suites))
	}
	for _, samples := range sampleSizes {
		got := covered(t, "average", 1560, func(r *rand.Rand) (Estimate, float64) {
			var all []Estimate
			for _, s := range suites {
				all = append(all, Share(s.p.draw(r, s.n, samples), samples))
			}
			return Average(all), truth
		})
		t.Logf("average of 5, %d samples: %.1f %%", samples, 100*got)
	}
}

// drawPair is two models on the same problems: B solves a problem with the
// chance of A, moved by a shift in the logit.
func (p population) drawPair(r *rand.Rand, n, samples int, shift float64) (a, b []float64) {
	a, b = make([]float64, n), make([]float64, n)
	for i := range n {
		x, y := gamma(r, p.a), gamma(r, p.b)
		first := x / (x + y)
		second := 1 / (1 + math.Exp(-shift)*(1-first)/first)
		for range samples {
			if r.Float64() < first {
				a[i] += 1 / float64(samples)
			}
			if r.Float64() < second {
				b[i] += 1 / float64(samples)
			}
		}
	}
	return a, b
}

func (p population) shifted(shift float64) float64 {
	r := rand.New(rand.NewPCG(9, 9))
	sum := 0.0
	const n = 400_000
	for range n {
		x, y := gamma(r, p.a), gamma(r, p.b)
		first := x / (x + y)
		sum += 1/(1+math.Exp(-shift)*(1-first)/first) - first
	}
	return sum / n
}

func TestDifferenceCoverage(t *testing.T) {
	for _, shift := range []float64{0, 0.8} {
		for _, p := range []population{{0.3, 1.5}, {0.5, 0.5}, {20, 20}} {
			truth := p.shifted(shift)
			for _, n := range sizes {
				for _, samples := range sampleSizes {
					got := covered(t, "difference", n, func(r *rand.Rand) (Estimate, float64) {
						a, b := p.drawPair(r, n, samples, shift)
						return Difference(a, b, samples, samples), truth
					})
					t.Logf("%3d problems x %2d, Beta(%g, %g), shift %g: %.1f %%", n, samples, p.a, p.b, shift, 100*got)
				}
			}
		}
	}
}

func TestDifferenceEdges(t *testing.T) {
	same := []float64{1, 0, 1, 1}
	if e := Difference(same, same, 1, 1); e.Value != 0 || e.Low > 0 || e.High < 0 || e.High-e.Low > 0.5 {
		t.Errorf("a model against itself: %+v", e)
	}
	none, all := []float64{0, 0, 0}, []float64{1, 1, 1}
	if e := Difference(none, all, 1, 1); e.Value != 1 || e.High != 1 || e.Low >= 1 || e.Low < 0 {
		t.Errorf("all against none: %+v", e)
	}
}
