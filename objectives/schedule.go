package objectives

import "math"

// Schedule returns the value at this step of a setting that goes from first, at the
// first step of the run, to last, at its end. With x = Step/Steps, clamped to [0, 1] and
// 0 where Steps is unknown (D39), and m the middle of first and last,
//
//	linear   first + (last - first) x
//	square   first + (last - first) x^2
//	cube     m + (last - first)/2 (2x - 1)^3
//	sin      m - (last - first)/2 cos(pi x)
func (b Batch) Schedule(shape string, first, last float64) float64 {
	x := 0.0
	if b.Steps > 0 {
		x = min(max(float64(b.Step)/float64(b.Steps), 0), 1)
	}
	switch y := 2*x - 1; shape {
	case "square":
		x *= x
	case "cube":
		x = 0.5 + 0.5*y*y*y
	case "sin":
		return last + (first-last)*0.5*(1+math.Cos(x*math.Pi))
	}
	return first + (last-first)*x
}
