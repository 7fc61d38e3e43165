// Package variants compares the variants of a sweep. It computes means and standard
// errors over seeds and paired tests, and shows them in tables and figures.
package variants

import (
	"math"
	"math/rand/v2"
	"slices"
)

// A Test is the result of comparing two variants on the seeds that both have.
type Test struct {
	N          int     // number of seeds
	Difference float64 // mean of the first variant minus the second
	SE         float64 // standard error of Difference; NaN for one seed
	Low, High  float64 // 95 % interval of Difference by Student's t
	P          float64 // two-sided p-value of the sign-flip test
	Adjusted   float64 // P after Holm's correction over the sweep's comparisons
}

// signFlip tries every combination of signs of up to exactSeeds differences. For more
// differences it tries randomFlips random combinations.
const (
	exactSeeds  = 18
	randomFlips = 100_000
)

// Paired tests whether the mean of the differences d is 0. The sign-flip test assumes
// that each difference could equally well have had the other sign. Its p-value is the
// share of all combinations of signs whose mean is at least as far from 0 as the mean
// of d. It assumes nothing else about the distribution. With n differences the smallest
// possible p-value is 2^(1-n).
func Paired(d []float64) Test {
	t := Test{N: len(d), Difference: mean(d), SE: standardError(d), P: signFlip(d)}
	h := tQuantile(len(d)-1) * t.SE
	t.Low, t.High = t.Difference-h, t.Difference+h
	return t
}

// signFlip returns the p-value of the sign-flip test, or NaN if d is empty. Random
// combinations come from a fixed seed.
func signFlip(d []float64) float64 {
	if len(d) == 0 {
		return math.NaN()
	}
	total, scale := 0.0, 0.0
	for _, x := range d {
		total += x
		scale += math.Abs(x)
	}
	least := math.Abs(total) - 1e-12*scale // so that rounding cannot make equal sums differ
	if len(d) <= exactSeeds {
		extreme := 0
		for signs := range 1 << len(d) {
			if math.Abs(flipped(d, uint64(signs))) >= least {
				extreme++
			}
		}
		return float64(extreme) / float64(int(1)<<len(d))
	}
	r := rand.New(rand.NewPCG(1, 2))
	extreme := 1 // the actual signs count as one combination
	for range randomFlips {
		sum := 0.0
		for from := 0; from < len(d); from += 64 {
			sum += flipped(d[from:min(from+64, len(d))], r.Uint64())
		}
		if math.Abs(sum) >= least {
			extreme++
		}
	}
	return float64(extreme) / (randomFlips + 1)
}

// flipped returns the sum of d with the sign of d[i] changed if bit i is set.
func flipped(d []float64, bits uint64) (sum float64) {
	for i, x := range d {
		if bits>>i&1 == 1 {
			x = -x
		}
		sum += x
	}
	return sum
}

// adjust sets the field Adjusted of tests by Holm's step-down method: it multiplies the
// k-th smallest of m p-values by m-k+1, limits the product to 1 and raises it to the
// adjusted value before, if that is larger.
func adjust(tests []*Test) {
	order := slices.Clone(tests)
	slices.SortStableFunc(order, func(a, b *Test) int {
		switch {
		case a.P < b.P:
			return -1
		case a.P > b.P:
			return 1
		}
		return 0
	})
	least := 0.0
	for k, t := range order {
		least = max(least, min(1, float64(len(order)-k)*t.P))
		t.Adjusted = least
	}
}

// mean returns the mean of x, or NaN if x is empty.
func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// standardError returns the standard error of the mean of x, from the sample variance.
// It returns NaN for fewer than two values.
func standardError(x []float64) float64 {
	if len(x) < 2 {
		return math.NaN()
	}
	m, sum := mean(x), 0.0
	for _, v := range x {
		sum += (v - m) * (v - m)
	}
	n := float64(len(x))
	return math.Sqrt(sum / (n - 1) / n)
}

// t975 are the 97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom.
var t975 = []float64{
	12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
	2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
	2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
}

// tQuantile returns the 97.5 % quantile of Student's t for df degrees of freedom, or
// NaN for df < 1. For more degrees than t975 has, it uses the first terms of the
// Cornish-Fisher expansion around the normal quantile, which give four correct digits.
func tQuantile(df int) float64 {
	switch {
	case df < 1:
		return math.NaN()
	case df <= len(t975):
		return t975[df-1]
	}
	const z = 1.959964
	n := float64(df)
	return z + (z*z*z+z)/(4*n) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*n*n)
}
