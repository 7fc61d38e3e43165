package objectives

import "math"

// Advantages returns the advantages of one group from its shaped rewards: those
// that o computes, else Centered.
func Advantages(o Objective, rewards []float64) []float64 {
	if a, ok := o.(Advantager); ok {
		return a.Advantages(rewards)
	}
	return Centered(rewards)
}

// SetAdvantages fills in Advantage and Degenerate of one whole group: every
// response to one prompt. Rewards are shaped first if o is a Shaper; Reward
// itself stays as it is.
func SetAdvantages(o Objective, group []Trajectory) {
	rewards := make([]float64, len(group))
	shaper, shapes := o.(Shaper)
	for i, t := range group {
		rewards[i] = t.Reward
		if shapes {
			rewards[i] = shaper.Shape(t)
		}
	}
	degenerate := allEqual(rewards)
	for i, a := range Advantages(o, rewards) {
		group[i].Advantage, group[i].Degenerate = a, degenerate
	}
}

// Centered returns rewards minus their mean (D1). Equal rewards give exact zeros.
func Centered(rewards []float64) []float64 {
	a := make([]float64, len(rewards))
	if allEqual(rewards) {
		return a
	}
	m := mean(rewards)
	for i, r := range rewards {
		a[i] = r - m
	}
	return a
}

// Standardized returns (R - mean) / (std + eps), with the sample standard
// deviation (divisor K-1) or the population's (D2). Equal rewards and a group of
// one give exact zeros.
func Standardized(rewards []float64, eps float64, population bool) []float64 {
	a := Centered(rewards)
	if allEqual(rewards) {
		return a
	}
	sum := 0.0
	for _, x := range a {
		sum += x * x
	}
	divisor := float64(len(a))
	if !population {
		divisor--
	}
	std := math.Sqrt(sum / divisor)
	for i := range a {
		a[i] /= std + eps
	}
	return a
}

// LeaveOneOut returns each reward minus the mean of the others (D3, RLOO), which
// is K/(K-1) times Centered. A group of one gives 0.
func LeaveOneOut(rewards []float64) []float64 {
	a := Centered(rewards)
	if k := float64(len(a)); k > 1 {
		for i := range a {
			a[i] *= k / (k - 1)
		}
	}
	return a
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

func allEqual(x []float64) bool {
	for _, v := range x {
		if v != x[0] {
			return false
		}
	}
	return true
}
