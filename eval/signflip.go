package eval

import "math/rand/v2"

// The sign-flip test asks how often a difference at least as large as the observed
// one would come up if the two models were equally good: then each problem's
// difference is as likely to be in favour of one as of the other, so its sign may
// be flipped.
// With one sample a problem this is McNemar's exact test. All p-values are
// two-sided.

// exactWork bounds the additions of the exact test; 2e8 take some 0.2 s.
const exactWork = 2e8

// flips is the number of random flips where the exact test would take too long.
const flips = 100_000

// signFlip returns the p-value of the sum of d, the exact one if that is cheap.
func signFlip(d []int) float64 {
	total, nonzero := 0.0, 0
	for _, x := range d {
		if x != 0 {
			total += float64(max(x, -x))
			nonzero++
		}
	}
	if float64(nonzero)*2*total > exactWork {
		values := make([]float64, len(d))
		for i, x := range d {
			values[i] = float64(x)
		}
		return randomFlip(values)
	}
	return exactFlip(d)
}

// exactFlip computes the distribution of the sum over all signs, one difference
// after the other: dist[r+s] is the probability of sum s, |s| <= r.
func exactFlip(d []int) float64 {
	dist, r, seen := []float64{1}, 0, 0
	for _, x := range d {
		seen += x
		if x == 0 {
			continue
		}
		x = max(x, -x)
		next := make([]float64, 2*(r+x)+1)
		for i, p := range dist {
			next[i] += p / 2
			next[i+2*x] += p / 2
		}
		dist, r = next, r+x
	}
	seen = max(seen, -seen)
	p := 0.0
	for i, q := range dist {
		if s := i - r; s >= seen || s <= -seen {
			p += q
		}
	}
	return min(1, p)
}

// randomFlip estimates the p-value from random flips. The observed sum counts as
// one of the draws, so that the p-value is never 0 and the test keeps its level.
// The draws are the same in every call.
func randomFlip(d []float64) float64 {
	var values []float64
	seen, scale := 0.0, 0.0
	for _, x := range d {
		if x != 0 {
			values = append(values, x)
			seen += x
			scale += max(x, -x)
		}
	}
	seen = max(seen, -seen) - 1e-12*scale // sums that differ by rounding only count as equal
	r := rand.New(rand.NewPCG(1, 2))
	extreme := 1
	for range flips {
		sum := 0.0
		var bits uint64
		for i, x := range values {
			if i%64 == 0 {
				bits = r.Uint64()
			}
			if bits&1 == 1 {
				x = -x
			}
			bits >>= 1
			sum += x
		}
		if sum >= seen || sum <= -seen {
			extreme++
		}
	}
	return float64(extreme) / (flips + 1)
}
