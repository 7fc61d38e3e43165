package rl

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"onering/objectives"
)

// TestRateByESS compares the factor of the learning rate with what NumPy computed.
func TestRateByESS(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "objectives", "testdata", "field", "controllers.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Rate []struct {
			D      [][]float64
			Factor float64
		}
	}
	if err := json.Unmarshal(text, &golden); err != nil || len(golden.Rate) < 4 {
		t.Fatal(len(golden.Rate), err)
	}
	for i, c := range golden.Rate {
		var b objectives.Batch
		for _, d := range c.D {
			b.Trajectories = append(b.Trajectories, objectives.Trajectory{LogProb: d, OldLogProb: make([]float64, len(d))})
		}
		if got := rateByESS(b); math.Abs(got-c.Factor) > 1e-12 {
			t.Errorf("batch %d: %v, want %v", i, got, c.Factor)
		}
	}
}
