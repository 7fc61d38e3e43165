// Package variants compares the variants of a sweep: means and standard errors
// over seeds, paired comparisons, and tables and figures of both.
package variants

import (
	"math"
	"math/rand/v2"
	"slices"
)

// A Test compares two variants on the seeds that both have.
type Test struct {
	N          int     // seeds
	Difference float64 // mean of the first variant minus the second
	SE         float64 // its standard error; NaN for one seed
	Low, High  float64 // its 95 % interval by Student's t
	P          float64 // two-sided, of the sign-flip test
	Adjusted   float64 // P after Holm's correction over the sweep's comparisons
}

// Up to exactSeeds differences every combination of signs is tried, beyond that
// so many random ones as flips says.
const (
	exactSeeds = 18
	flips      = 100_000
)

// Paired tests whether the differences of pairs have the mean 0. The sign-flip
// test asks how often the mean would be as far from 0 as it is if each difference
// were as likely to have the other sign. It assumes no distribution. With n pairs
// the smallest possible p-value is 2^(1-n).
func Paired(d []float64) Test {
	t := Test{N: len(d), Difference: mean(d), SE: standardError(d), P: signFlip(d)}
	h := tQuantile(len(d)-1) * t.SE
	t.Low, t.High = t.Difference-h, t.Difference+h
	return t
}

func signFlip(d []float64) float64 {
	if len(d) == 0 {
		return math.NaN()
	}
	seen, scale := 0.0, 0.0
	for _, x := range d {
		seen += x
		scale += math.Abs(x)
	}
	least := math.Abs(seen) - 1e-12*scale // sums that differ by rounding count as equal
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
	extreme := 1 // the signs as they are count as one draw
	for range flips {
		sum := 0.0
		for from := 0; from < len(d); from += 64 {
			sum += flipped(d[from:min(from+64, len(d))], r.Uint64())
		}
		if math.Abs(sum) >= least {
			extreme++
		}
	}
	return float64(extreme) / (flips + 1)
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

// adjust sets Adjusted of a family of tests by Holm's step-down method: the k-th
// smallest of m p-values is multiplied by m-k+1, and the results never decrease.
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

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x)) // NaN if there are none
}

// standardError returns that of the mean, from the sample variance, or NaN for
// fewer than two values.
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

// tQuantile returns the 97.5 % quantile of Student's t for df degrees of freedom,
// NaN for df = 0. Beyond the table it uses the first terms of the expansion at the
// normal quantile, which are exact to four digits.
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
