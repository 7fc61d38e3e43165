package stat

import (
	"math"
	"math/rand/v2"
)

const (
	exactWork  = 2e8     // limit of additions in the exact test over integer differences; they take some 0.2 s
	exactSigns = 18      // up to this number of other differences, all combinations of signs are tried
	flips      = 100_000 // number of random sign combinations where the exact test would take too long
)

// SignFlip returns the two-sided p-value of the sum of paired differences. The test asks how often a sum at least as
// far from 0 would come up if each difference could equally well have had the other sign; it assumes nothing else.
// With differences of -1, 0 and 1 it is McNemar's exact test. With n differences the smallest p-value is 2^(1-n).
func SignFlip(d []float64) float64 {
	var values []float64
	total, scale, whole := 0.0, 0.0, true
	for _, x := range d {
		if x != 0 {
			values = append(values, x)
			total += x
			scale += math.Abs(x)
			whole = whole && x == math.Trunc(x)
		}
	}
	least := math.Abs(total) - 1e-12*scale // so that rounding cannot make equal sums differ
	switch {
	case whole && 2*scale*float64(len(values)) <= exactWork:
		return wholeFlip(values, int(math.Abs(total)))
	case len(values) <= exactSigns:
		extreme := 0
		for signs := range 1 << len(values) {
			if math.Abs(flipped(values, uint64(signs))) >= least {
				extreme++
			}
		}
		return float64(extreme) / float64(int(1)<<len(values))
	}
	return randomFlip(values, least)
}

// wholeFlip returns the p-value of whole differences whose sum is seen or -seen: it computes the distribution of the
// sum over all signs, one difference after the other. dist[r+s] is the probability of sum s, |s| <= r.
func wholeFlip(d []float64, seen int) (p float64) {
	dist, r := []float64{1}, 0
	for _, v := range d {
		x := int(math.Abs(v))
		next := make([]float64, 2*(r+x)+1)
		for i, p := range dist {
			next[i] += p / 2
			next[i+2*x] += p / 2
		}
		dist, r = next, r+x
	}
	for i, q := range dist {
		if s := i - r; s >= seen || s <= -seen {
			p += q
		}
	}
	return min(1, p)
}

// randomFlip estimates the p-value from random flips, the same in every call: the share of sums at least as far from
// 0 as least. The observed sum counts as one of the draws, so that the p-value is never 0 and the test keeps its
// level.
func randomFlip(d []float64, least float64) float64 {
	r := rand.New(rand.NewPCG(1, 2))
	extreme := 1
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
	for _, x := range d {
		if bits&1 == 1 {
			x = -x
		}
		bits >>= 1
		sum += x
	}
	return sum
}
