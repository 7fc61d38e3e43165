package learn

import "math"

// A Schedule is the learning rate over the steps of a run.
type Schedule struct {
	Peak   float64 // the highest rate
	Warmup int     // steps of the linear rise to it
	// Steps of the whole run, the warm-up included.
	Steps int
	// Shape after the warm-up: "constant", or "linear" or "cosine", which are 0 at
	// the last step.
	Shape string
}

// Rate is the learning rate of step n, from 1.
func (s Schedule) Rate(n int) float64 {
	if n <= s.Warmup {
		return s.Peak * float64(n) / float64(s.Warmup)
	}
	share := 0.0 // of the steps after the warm-up that are done
	if s.Steps > s.Warmup {
		share = float64(n-s.Warmup) / float64(s.Steps-s.Warmup)
	}
	switch s.Shape {
	case "linear":
		return s.Peak * max(0, 1-share)
	case "cosine":
		return s.Peak * 0.5 * (1 + math.Cos(math.Pi*min(1, share)))
	}
	return s.Peak
}
