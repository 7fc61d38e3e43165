package report

import (
	"math"
	"strconv"
)

// Points are a line of a chart: [x, y] pairs in the order of x.
type points [][2]float64

// MarshalJSON writes the pairs with seven significant digits of x, a step as a
// rule, and four of y: charts show no more, and pages stay small.
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

func appendNumber(b []byte, x float64) []byte {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, x, 'g', 4, 64)
}

// pointsOf pairs xs with a column, leaving out what is no number.
func pointsOf(xs []int, column []float64) points {
	var p points
	for i, y := range column {
		if !math.IsNaN(y) && !math.IsInf(y, 0) {
			p = append(p, [2]float64{float64(xs[i]), y})
		}
	}
	return p
}

// thin keeps at most limit points, of each stretch the lowest and the highest:
// a spike of one step stays visible.
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

// Average is the mean of a metric over runs, as [step, value] pairs of at most
// limit steps: of the optimizer steps where these log it, else of the rounds. It is
// nil where no run has it.
func Average(runs []*Run, metric string, limit int) [][2]float64 {
	for _, table := range []func(*Run) *Table{steps, rounds} {
		var lines []points
		for _, r := range runs {
			if l := pointsOf(table(r).Step, table(r).Column(metric)); len(l) > 0 {
				lines = append(lines, l)
			}
		}
		if len(lines) > 0 {
			return thin(average(lines), limit)
		}
	}
	return nil
}

// average is the mean line of several, point by point: runs log the same things
// in the same order, but where an objective drops groups, their rounds do not
// end with the same step. It ends where less than half of the lines go on.
func average(lines []points) points {
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
