package metrics

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"
)

// Exact floats come back with every bit.
func TestExact(t *testing.T) {
	inf := math.Inf(1)
	x := Exact{0, -0.1, 1e-300, 1.0 / 3, inf, -inf, 5e-324}
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	var y Exact
	if err := json.Unmarshal(text, &y); err != nil || !reflect.DeepEqual(x, y) {
		t.Errorf("%s came back as %v, error %v", text, y, err)
	}
	if err := json.Unmarshal([]byte(`[true]`), &y); err == nil {
		t.Error("a truth value is taken for a number")
	}
}

// A line keeps the order of its names, has the time last, and has null for NaN.
func TestLine(t *testing.T) {
	r := Record{{"kind", "step"}, {"b", 0.5}, {"a", 2}, {"c", math.NaN()}}
	line, err := r.Line(time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC))
	if want := `{"kind":"step","b":0.5,"a":2,"c":null,"time":"2026-01-02T03:04:05.678Z"}` + "\n"; err != nil || string(line) != want {
		t.Errorf("%s, error %v, want %s", line, err, want)
	}
}

// A round has the means of its steps' figures, or their extremes if the name says so, and
// its own figures unchanged.
func TestAppendSteps(t *testing.T) {
	steps := []Record{
		{{"kind", "step"}, {"loss", 1.0}, {"p/max", 0.25}, {"p/min", 0.25}, {"reward", 9.0}, {"step", 1}},
		{{"kind", "step"}, {"skipped", 1}, {"loss", math.NaN()}},
		{{"kind", "step"}, {"loss", 3.0}, {"p/max", 0.75}, {"p/min", 0.5}, {"nothing", math.NaN()}, {"step", 3}},
	}
	got := Record{{"kind", "round"}, {"reward", 0.5}}.AppendSteps(steps)
	want := Record{{"kind", "round"}, {"reward", 0.5}, {"skipped_steps", 1}, {"loss", 2.0}, {"p/max", 0.75}, {"p/min", 0.25}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
