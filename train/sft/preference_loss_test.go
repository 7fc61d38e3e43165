package sft

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

// TestPreferenceLosses compares losses and gradients with those of PyTorch; see testdata/preferences/make.py.
func TestPreferenceLosses(t *testing.T) {
	text, err := os.ReadFile("testdata/preferences/losses.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name     string
		Settings struct {
			Loss                   string
			Beta, Margin           float64
			Smoothing              float64 `json:"label_smoothing"`
			Desirable, Undesirable float64
		}
		LogP, Reference, Tokens, Mismatched, Slopes [2][]float64
		Loss                                        float64
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	near := func(name string, got, want float64) {
		if !(math.Abs(got-want) <= 1e-12*max(1, math.Abs(want))) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	for _, tt := range cases {
		x := tt.Settings
		s := preferenceLoss{x.Loss, x.Beta, x.Smoothing, x.Margin, x.Desirable, x.Undesirable}
		of := func(side, i int) response {
			return response{tt.LogP[side][i], tt.Reference[side][i], int(tt.Tokens[side][i])}
		}
		var pairs []pair
		single := len(tt.LogP[0]) != len(tt.LogP[1])
		for i := range tt.LogP[0] {
			if single {
				pairs = append(pairs, pair{chosen: of(0, i), only: "chosen"})
			} else {
				pairs = append(pairs, pair{chosen: of(0, i), rejected: of(1, i)})
			}
		}
		for i := 0; single && i < len(tt.LogP[1]); i++ {
			pairs = append(pairs, pair{rejected: of(1, i), only: "rejected"})
		}
		var mismatched []response
		for i := range tt.Mismatched[0] {
			mismatched = append(mismatched, response{logp: tt.Mismatched[0][i], reference: tt.Mismatched[1][i]})
		}
		loss, chosen, rejected := s.meanOf(pairs, mismatched)
		near(tt.Name, loss, tt.Loss)
		for i, slope := range tt.Slopes[0] {
			near(tt.Name+", chosen", chosen[i], slope)
		}
		for i, slope := range tt.Slopes[1] {
			near(tt.Name+", rejected", rejected[len(pairs)-len(tt.Slopes[1])+i], slope)
		}
	}
	if len(cases) < 9 {
		t.Errorf("%d cases", len(cases))
	}
}

// TestExtremePreferences: whatever the log-probs are, losses and gradients are finite.
func TestExtremePreferences(t *testing.T) {
	for _, loss := range []string{"dpo", "ipo", "simpo", "orpo", "kto"} {
		s := defaultLoss()
		s.Loss = loss
		for _, a := range []float64{0, -1e-15, -700, -1e5} {
			for _, b := range []float64{0, -1e-15, -700, -1e5} {
				value, chosen, rejected := s.meanOf([]pair{{response{a, b, 1}, response{b, a, 3}, ""}}, []response{{a, b, 1}})
				for _, x := range []float64{value, chosen[0], rejected[0]} {
					if math.IsNaN(x) || math.IsInf(x, 0) {
						t.Errorf("%s of %v and %v: %v, %v, %v", loss, a, b, value, chosen, rejected)
					}
				}
			}
		}
	}
}
