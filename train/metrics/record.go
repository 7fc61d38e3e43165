// Package metrics has the figures of a run: the records of metrics.jsonl, a round's
// figures from those of its steps, the seconds of each phase, and warnings about
// suspicious figures.
package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"onering/internal/strict"
)

// A Record is one line of metrics.jsonl: names and values in a fixed order.
type Record []Metric

// A Metric is a named value: a float64, an int or a string. The names are fixed;
// docs/reports.md lists them.
type Metric struct {
	Name  string
	Value any
}

// RecordOf returns the record of a line that was read.
func RecordOf(fields map[string]any) (r Record) {
	for name, value := range fields {
		r = r.With(name, value)
	}
	return r
}

// With returns the record with one more metric at its end.
func (r Record) With(name string, value any) Record { return append(r, Metric{name, value}) }

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

// MarshalJSON writes the names in order. JSON has no NaN and no infinities: they
// are written as null.
func (r Record) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range r {
		if i > 0 {
			b.WriteByte(',')
		}
		v := m.Value
		if f, ok := v.(float64); ok && nonfinite(f) {
			v = nil
		}
		name, _ := json.Marshal(m.Name)
		value, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("metrics: %s: %w", m.Name, err)
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// timeFormat is RFC 3339 with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// Line returns the record as a line of metrics.jsonl, with the time of day.
func (r Record) Line(at time.Time) ([]byte, error) {
	text, err := json.Marshal(append(slices.Clip(r), Metric{"time", at.UTC().Format(timeFormat)}))
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

// nonfinite says whether x is NaN or an infinity.
func nonfinite(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }

// Exact floats keep every bit in JSON. NaN and the infinities, which JSON lacks,
// are the strings "NaN", "+Inf" and "-Inf".
type Exact []float64

// MarshalJSON implements json.Marshaler.
func (x Exact) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i, v := range x {
		if i > 0 {
			out = append(out, ',')
		}
		if nonfinite(v) {
			out = fmt.Appendf(out, "%q", fmt.Sprint(v))
		} else {
			text, _ := json.Marshal(v)
			out = append(out, text...)
		}
	}
	return append(out, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler: numbers that JSON lacks are the texts that MarshalJSON writes.
func (x *Exact) UnmarshalJSON(text []byte) error {
	var values []any
	if err := strict.JSON(text, &values); err != nil {
		return err
	}
	*x = make(Exact, len(values))
	for i, v := range values {
		switch v {
		case "NaN":
			(*x)[i] = math.NaN()
		case "+Inf":
			(*x)[i] = math.Inf(1)
		case "-Inf":
			(*x)[i] = math.Inf(-1)
		default:
			n, ok := v.(float64)
			if !ok {
				return fmt.Errorf("element %d is %v: want a number, \"NaN\", \"+Inf\" or \"-Inf\"", i, v)
			}
			(*x)[i] = n
		}
	}
	return nil
}
