package sweep

import (
	"cmp"
	"math"
	"onering/internal/stat"
	"slices"
)

// A pairedTest is the result of comparing two variants on the seeds that both have.
type pairedTest struct {
	N          int     // number of seeds
	Difference float64 // mean of the first variant minus the second
	SE         float64 // standard error of Difference; NaN for one seed
	Low, High  float64 // 95 % interval of Difference by Student's t
	P          float64 // two-sided p-value of the sign-flip test
	Adjusted   float64 // P after Holm's correction over all comparisons
}

// paired tests whether the mean of the differences d is 0. Without differences all but N is NaN.
func paired(d []float64) pairedTest {
	t := pairedTest{N: len(d), Difference: stat.Mean(d), SE: stat.StandardError(d), P: math.NaN()}
	if len(d) > 0 {
		t.P = stat.SignFlip(d)
	}
	h := tQuantile(len(d)-1) * t.SE
	t.Low, t.High = t.Difference-h, t.Difference+h
	return t
}

// adjustByHolm sets the field Adjusted of tests by Holm's step-down method: it multiplies the k-th smallest of m
// p-values by m-k+1, limits the product to 1 and raises it to the adjusted value before, if that is larger.
func adjustByHolm(tests []*pairedTest) {
	order := slices.Clone(tests)
	slices.SortStableFunc(order, func(a, b *pairedTest) int { return cmp.Compare(a.P, b.P) })
	least := 0.0
	for k, t := range order {
		least = max(least, min(1, float64(len(order)-k)*t.P))
		t.Adjusted = least
	}
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
