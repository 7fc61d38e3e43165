package metrics

import (
	"math"
	"time"
)

// A Phase is a part of a round whose seconds are counted.
type Phase string

// The phases of a round, in the order in which metrics.jsonl lists their seconds.
const (
	PhaseRollout   Phase = "rollout"
	PhaseScore     Phase = "score"
	PhaseWeights   Phase = "weights"
	PhaseBackward  Phase = "backward"
	PhaseReduce    Phase = "reduce" // only with several ranks
	PhaseOptimizer Phase = "optimizer"
	PhaseOther     Phase = "other"
)

var phases = []Phase{PhaseRollout, PhaseScore, PhaseWeights, PhaseBackward, PhaseReduce, PhaseOptimizer, PhaseOther}

// A Stopwatch counts the seconds that each phase takes.
type Stopwatch struct {
	Now func() time.Time // the clock, which tests replace

	seconds map[Phase]float64
	phase   Phase
	since   time.Time
}

// NewStopwatch starts a Stopwatch in PhaseOther.
func NewStopwatch() *Stopwatch {
	return &Stopwatch{Now: time.Now, seconds: make(map[Phase]float64), phase: PhaseOther, since: time.Now()}
}

// Enter ends the current phase and begins another one.
func (s *Stopwatch) Enter(phase Phase) {
	now := s.Now()
	s.seconds[s.phase] += now.Sub(s.since).Seconds()
	s.phase, s.since = phase, now
}

// Take returns the seconds of every phase since the last Take, to the
// microsecond, and enters PhaseOther.
func (s *Stopwatch) Take() Record {
	s.Enter(PhaseOther)
	var r Record
	for _, p := range phases {
		if _, seen := s.seconds[p]; p == PhaseReduce && !seen {
			continue // there is a single rank
		}
		r = append(r, Metric{"seconds/" + string(p), math.Round(s.seconds[p]*1e6) / 1e6})
	}
	clear(s.seconds)
	return r
}
