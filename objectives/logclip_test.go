package objectives_test

import (
	"slices"
	"testing"

	"onering/objectives"
)

// TestGateOfSequence: a response that was cut as a whole passes no gradient on, not even
// at a token whose clipped and unclipped values are equal.
func TestGateOfSequence(t *testing.T) {
	c := objectives.LogClip{Clip: 0.4, ClipMode: "sequence", ClipForm: "pessimistic"}
	x := objectives.Trajectory{Advantage: 1, LogProb: []float64{0.2, 0.6}, OldLogProb: []float64{0, 0}}
	var read objectives.ClippedLogRatios
	read.Read(c, x, 0.1)
	if read.Cut != 2 || read.Saturated != 2 || !slices.Equal(read.Z, []float64{0.2, 0.2}) {
		t.Fatalf("read %+v", read)
	}
	w := []float64{1, 1}
	read.Gate(w, x)
	if !slices.Equal(w, []float64{0, 0}) {
		t.Errorf("w = %v after the gate", w)
	}
}

// TestClipSides states which side each form cuts, by the sign of the advantage (D4, D5).
func TestClipSides(t *testing.T) {
	for _, c := range []struct {
		mode, form string
		advantage  float64
		want       []float64
		cut        int
	}{
		{"token", "pessimistic", 1, []float64{-1, 0.1, 0.4}, 1},
		{"token", "pessimistic", 0, []float64{-1, 0.1, 0.4}, 1},
		{"token", "pessimistic", -1, []float64{-0.4, 0.1, 1}, 1},
		{"token", "printed", 1, []float64{-0.4, 0.1, 1}, 1},
		{"token", "printed", 0, []float64{-0.4, 0.1, 1}, 1},
		{"token", "printed", -1, []float64{-1, 0.1, 0.4}, 1},
		{"none", "pessimistic", 1, []float64{-1, 0.1, 1}, 0},
		{"sequence", "pessimistic", 1, []float64{-1, 0.1, 1}, 0},
		{"sequence", "printed", -1, []float64{-1, 0.1, 1}, 0},
	} {
		clip := objectives.LogClip{Clip: 0.4, ClipMode: c.mode, ClipForm: c.form}
		x := objectives.Trajectory{Advantage: c.advantage, LogProb: []float64{-1, 0.1, 1}, OldLogProb: []float64{0, 0, 0}}
		var got objectives.ClippedLogRatios
		got.Read(clip, x, 0.1)
		if !slices.Equal(got.Z, c.want) || got.Cut != c.cut || got.Saturated != 2 {
			t.Errorf("%s, %s, advantage %v: %+v, want %v, %d and 2", c.mode, c.form, c.advantage, got, c.want, c.cut)
		}
	}
	for advantage, sums := range map[float64][]float64{1: {-0.9, 0.4, 0.5}, 0: {-0.9, 0.4, 0.5}, -1: {-0.5, -0.4, 0.9}} {
		for _, sum := range sums {
			clip := objectives.LogClip{Clip: 0.4, ClipMode: "sequence", ClipForm: "pessimistic"}
			var got objectives.ClippedLogRatios
			got.Read(clip, objectives.Trajectory{Advantage: advantage, LogProb: []float64{sum}, OldLogProb: []float64{0}}, 1)
			over := advantage >= 0 && sum > 0.4 || advantage < 0 && sum < -0.4
			if (got.Cut == 1) != over || !over && got.Z[0] != sum {
				t.Errorf("sequence of sum %v, advantage %v: %+v", sum, advantage, got)
			}
		}
	}
}
