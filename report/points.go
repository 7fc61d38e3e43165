package report

import (
	"math"
	"strconv"
)

// points are a line of a chart: [x, y] pairs in the order of x.
type points [][2]float64

// MarshalJSON writes x, which is usually a step, with seven significant digits and y
// with four. Charts show no more digits, and the page stays small.
func (p points) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 14*len(p)), '[')
	for i, xy := range p {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		b = strconv.AppendFloat(b, xy[0], 'g', 7, 64)
		b = append(b, ',')
		b = appendNumber(b, xy[1])
		b = append(b, ']')
	}
	return append(b, ']'), nil
}

// appendNumber appends x with four significant digits, or null if x is not finite.
func appendNumber(b []byte, x float64) []byte {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, x, 'g', 4, 64)
}

// pointsOf pairs xs with the values of a column. It omits values that are not finite.
func pointsOf(xs []int, column []float64) points {
	var p points
	for i, y := range column {
		if !math.IsNaN(y) && !math.IsInf(y, 0) {
			p = append(p, [2]float64{float64(xs[i]), y})
		}
	}
	return p
}

// thin returns at most limit points of a line. It divides the line into stretches and keeps
// the lowest and the highest point of each, so that a spike of one step stays visible.
func thin(p points, limit int) points {
	if len(p) <= limit || limit < 4 {
		return p
	}
	stretches := limit / 2
	kept := make(points, 0, limit)
	for s := range stretches {
		part := p[s*len(p)/stretches : (s+1)*len(p)/stretches]
		low, high := 0, 0
		for i := range part {
			if part[i][1] < part[low][1] {
				low = i
			}
			if part[i][1] > part[high][1] {
				high = i
			}
		}
		kept = append(kept, part[min(low, high)])
		if low != high {
			kept = append(kept, part[max(low, high)])
		}
	}
	return kept
}

// meanLine returns the mean of several lines, point by point. The i-th points of two runs
// belong together even if their steps differ: an objective that drops groups takes fewer steps
// in a round. The mean ends where more than half of the lines have ended.
func meanLine(lines []points) points {
	var mean points
	for i := 0; ; i++ {
		var at [2]float64
		n := 0.0
		for _, p := range lines {
			if i < len(p) {
				at[0] += p[i][0]
				at[1] += p[i][1]
				n++
			}
		}
		if n == 0 || 2*n < float64(len(lines)) {
			return mean
		}
		mean = append(mean, [2]float64{at[0] / n, at[1] / n})
	}
}
