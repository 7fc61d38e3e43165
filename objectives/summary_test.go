package objectives

import (
	"math"
	"regexp"
	"slices"
	"testing"
)

func TestSummarize(t *testing.T) {
	tokens := func(n int) []float64 { return make([]float64, n) }
	b := Batch{Trajectories: []Trajectory{
		{Advantage: 1, LogProb: tokens(10), OldLogProb: tokens(10)},
		{Advantage: -1, LogProb: []float64{-1, -2}, OldLogProb: []float64{-2, -5}, RefLogProb: []float64{-2, -2}}, // delta 1, 3
		{Advantage: 3, LogProb: []float64{-4}, OldLogProb: tokens(1)},                                             // delta -4
		{Advantage: 5}, // An empty response counts in no figure.
		{Advantage: 0, LogProb: tokens(1), OldLogProb: tokens(1)}, // has no sign
	}}
	w := [][]float64{
		{0, -4, 0, 0, 1, 0, 0, 0, 0, 0},
		{3, 3},
		{0}, // no gradient
		{},
		{0},
	}
	d := []Diagnostics{
		{P: new(0.5), AtPMax: new(false), LogRatio: new(-1.0), ESS: new(0.25)},
		{P: new(1.0), AtPMax: new(true), LogRatio: new(2.0)},
		{P: new(0.75), AtPMax: new(false), LogRatio: new(0.0)},
		{P: new(9.0), AtPMax: new(true), LogRatio: new(9.0), ESS: new(9.0)},
		{P: new(0.75), AtPMax: new(true), LogRatio: new(-1.0)},
	}
	got := map[string]float64{}
	for _, s := range b.Summarize(w, d) {
		if _, twice := got[s.Name]; twice {
			t.Errorf("%s is there twice", s.Name)
		}
		got[s.Name] = s.Value
	}
	nan := math.NaN()
	for name, want := range map[string]float64{
		"p/mean": 0.75, "p/mean/pos": 0.625, "p/mean/neg": 1,
		"p/max": 1, "p/max/pos": 0.75, "p/max/neg": 1,
		"p/share_at_max": 0.5, "p/share_at_max/pos": 0, "p/share_at_max/neg": 1,
		"ess": 0.25, "ess/neg": nan,
		// The figures do not depend on the objective's LogRatio.
		"log_ratio/mean": -0.5, "log_ratio/min": -4, "log_ratio/max": 2, "log_ratio/max/pos": 0, "log_ratio/mean/pos": -2,
		"kl": math.Exp(-1) / 2, "kl/pos": nan, "kl/neg": math.Exp(-1) / 2,
		"delta/min": -4, "delta/max": 3, "delta/std/neg": 1, "delta/max/pos": 0,
		// The first response has 0.8 of its gradient on one token of ten and the
		// rest on another; the second spreads it evenly.
		"grad_share/top10": (0.8 + 0.1) / 2, "grad_share/top20/pos": 1, "grad_share/top50/neg": 0.5,
		"grad_share/top90": (1 + 0.9) / 2,
	} {
		x, ok := got[name]
		if !ok || math.Abs(x-want) > 1e-15 || math.IsNaN(x) != math.IsNaN(want) {
			t.Errorf("%s = %v (present: %v), want %v", name, x, ok, want)
		}
	}
	if _, ok := got["clipped"]; ok {
		t.Error("clipped is there, but nothing reports it")
	}
}

// TestSummarizeOrder: the names and their order depend on the objective alone, so
// that every line of a log has the same columns.
func TestSummarizeOrder(t *testing.T) {
	names := func(advantage float64) (names []string) {
		b := Batch{Trajectories: []Trajectory{{Advantage: advantage, LogProb: []float64{-1}, OldLogProb: []float64{-2}}}}
		for _, s := range b.Summarize([][]float64{{advantage}}, []Diagnostics{{P: new(1.0)}}) {
			names = append(names, s.Name)
		}
		return names
	}
	if a, b := names(1), names(-1); !slices.Equal(a, b) {
		t.Errorf("%v\n%v", a, b)
	}
	every := regexp.MustCompile(`^(grad_share|log_ratio|delta)/`)
	for _, s := range (Batch{}).Summarize(nil, nil) {
		if !every.MatchString(s.Name) || !math.IsNaN(s.Value) {
			t.Errorf("empty batch without diagnostics: %v", s)
		}
	}
}
