package metrics

import (
	"math"
	"slices"
	"strings"
)

// Moments returns the mean and the population standard deviation of x, NaN for no
// numbers.
func Moments(x []float64) (mean, std float64) {
	if len(x) == 0 {
		return math.NaN(), math.NaN()
	}
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	for _, v := range x {
		std += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(std / float64(len(x)))
}

// AppendSteps adds to a round's record what the records of its optimizer steps
// come to: how many were skipped, and of every float the mean over the steps; the
// largest or the smallest where the last part of the name begins with max or min.
// Figures that the round's record has already stay as they are.
func (r Record) AppendSteps(steps []Record) Record {
	var names []string // in the order of their first appearance
	values := map[string][]float64{}
	skipped := 0
	for _, s := range steps {
		if s.Get("skipped") != nil {
			skipped++
		}
		for _, m := range s {
			v, ok := m.Value.(float64)
			if !ok {
				continue
			}
			if _, seen := values[m.Name]; !seen {
				names = append(names, m.Name)
				values[m.Name] = nil
			}
			if !math.IsNaN(v) {
				values[m.Name] = append(values[m.Name], v)
			}
		}
	}
	if skipped > 0 {
		r = append(r, Metric{"skipped_steps", skipped})
	}
	for _, name := range names {
		if len(values[name]) == 0 || r.Get(name) != nil {
			continue
		}
		v, _ := Moments(values[name])
		switch _, last, _ := strings.Cut(name, "/"); {
		case strings.HasPrefix(last, "max"):
			v = slices.Max(values[name])
		case strings.HasPrefix(last, "min"):
			v = slices.Min(values[name])
		}
		r = append(r, Metric{name, v})
	}
	return r
}
