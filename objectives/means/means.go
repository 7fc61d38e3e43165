// Package means has the numbers that objectives are made of: power means of ratios, given by their logarithms, their
// effective sample size, the exponent at which that meets a target, and means that do not overflow.
package means

import "math"

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Mean returns the mean of x, in which x[i] counts count[i] times, or once if
// count is nil. It is NaN if there are no values.
func Mean(x, count []float64) float64 {
	var sum, n float64
	if count == nil {
		for _, v := range x {
			sum += v
		}
		n = float64(len(x))
	}
	for i, times := range count {
		sum, n = sum+times*x[i], n+times
	}
	if finite(sum) {
		return sum / n
	}
	// Only the sum overflows: the mean lies between the values.
	sum = 0
	for i, v := range x {
		sum += Times(count, i) / n * v
	}
	return sum
}

// Root returns the root of the sum of the squares of a, in which a[i] counts
// count[i] times, or once if count is nil, over divisor.
func Root(a, count []float64, divisor float64) float64 {
	sum, most := 0.0, 0.0
	for i, v := range a {
		sum, most = sum+Times(count, i)*v*v, max(most, math.Abs(v))
	}
	if sum > 1e-280 && finite(sum) || most == 0 {
		return math.Sqrt(sum / divisor)
	}
	// The squares overflow or underflow, though the root does not.
	sum = 0
	for i, v := range a {
		sum += Times(count, i) * (v / most) * (v / most)
	}
	return most * math.Sqrt(sum/divisor)
}

// Times returns count[i], or 1 if count is nil.
func Times(count []float64, i int) float64 {
	if count == nil {
		return 1
	}
	return count[i]
}
