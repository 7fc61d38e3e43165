package dpo

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

// TestTorch compares losses and gradients with those of PyTorch; see testdata/make.py.
func TestTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/losses.json")
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
		s := Settings{x.Loss, x.Beta, x.Smoothing, x.Margin, x.Desirable, x.Undesirable}
		pairs := make([]Pair, len(tt.LogP[0]))
		for i := range pairs {
			pairs[i] = Pair{
				Response{tt.LogP[0][i], tt.Reference[0][i], int(tt.Tokens[0][i])},
				Response{tt.LogP[1][i], tt.Reference[1][i], int(tt.Tokens[1][i])},
			}
		}
		var mismatched []Response
		for i := range tt.Mismatched[0] {
			mismatched = append(mismatched, Response{LogProb: tt.Mismatched[0][i], Reference: tt.Mismatched[1][i]})
		}
		loss, chosen, rejected := s.Of(pairs, mismatched)
		near(tt.Name, loss, tt.Loss)
		for i := range pairs {
			near(tt.Name+", chosen", chosen[i], tt.Slopes[0][i])
			near(tt.Name+", rejected", rejected[i], tt.Slopes[1][i])
		}
	}
	if len(cases) < 7 {
		t.Errorf("%d cases", len(cases))
	}
}

// TestExtreme: whatever the log-probs are, losses and gradients are finite.
func TestExtreme(t *testing.T) {
	for _, loss := range []string{"dpo", "ipo", "simpo", "orpo", "kto"} {
		s := Default()
		s.Loss = loss
		for _, a := range []float64{0, -1e-15, -700, -1e5} {
			for _, b := range []float64{0, -1e-15, -700, -1e5} {
				value, chosen, rejected := s.Of([]Pair{{Response{a, b, 1}, Response{b, a, 3}}}, []Response{{a, b, 1}})
				for _, x := range []float64{value, chosen[0], rejected[0]} {
					if math.IsNaN(x) || math.IsInf(x, 0) {
						t.Errorf("%s of %v and %v: %v, %v, %v", loss, a, b, value, chosen, rejected)
					}
				}
			}
		}
	}
}
