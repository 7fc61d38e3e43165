package train

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// A Record is one line of metrics.jsonl: names and values in a fixed order.
type Record []Metric

// A Metric is a named value. The names are fixed; docs/architecture.md lists
// them.
type Metric struct {
	Name  string
	Value any
}

// Get returns the value of a name, nil where the record lacks it.
func (r Record) Get(name string) any {
	for _, m := range r {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

// Float returns a numeric value, NaN where the record lacks it.
func (r Record) Float(name string) float64 {
	switch v := r.Get(name).(type) {
	case float64:
		return v
	case int:
		return float64(v)
	}
	return math.NaN()
}

// MarshalJSON writes the names in order. JSON has no NaN: it is null.
func (r Record) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range r {
		if i > 0 {
			b.WriteByte(',')
		}
		v := m.Value
		if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			v = nil
		}
		name, _ := json.Marshal(m.Name)
		value, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("train: metric %s: %w", m.Name, err)
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// The phases that seconds are counted by.
const (
	phaseRollout   = "rollout"
	phaseScore     = "score"
	phaseWeights   = "weights"
	phaseBackward  = "backward"
	phaseOptimizer = "optimizer"
	phaseOther     = "other"
)

var phases = []string{phaseRollout, phaseScore, phaseWeights, phaseBackward, phaseOptimizer, phaseOther}

// A stopwatch shares out the time that passes among phases.
type stopwatch struct {
	seconds map[string]float64
	phase   string
	since   time.Time
}

func newStopwatch() *stopwatch {
	return &stopwatch{seconds: make(map[string]float64), phase: phaseOther, since: time.Now()}
}

// enter ends the current phase.
func (s *stopwatch) enter(phase string) {
	now := time.Now()
	s.seconds[s.phase] += now.Sub(s.since).Seconds()
	s.phase, s.since = phase, now
}

// take returns the seconds by phase since the last take.
func (s *stopwatch) take() Record {
	s.enter(phaseOther)
	var r Record
	for _, p := range phases {
		r = append(r, Metric{"seconds/" + p, math.Round(s.seconds[p]*1e6) / 1e6})
	}
	clear(s.seconds)
	return r
}

// moments are the mean and the population standard deviation of some numbers.
func moments(x []float64) (mean, std float64) {
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
