package limits

import (
	"math"
	"testing"
)

// TestDecode: a slot takes another response when one ends, and a step counts the rows and
// tokens of that moment.
func TestDecode(t *testing.T) {
	r := Round{Responses: []int{3, 1, 2}, Prompt: 10}
	for slots, want := range map[int][3]float64{1: {6, 6, 70}, 2: {3, 6, 71}, 5: {3, 6, 70}} {
		var got [3]float64
		r.Slots = slots
		for i, f := range []func(rows, context float64) float64{
			func(_, _ float64) float64 { return 1 },
			func(rows, _ float64) float64 { return rows },
			func(_, context float64) float64 { return context },
		} {
			got[i] = r.decode(f)
		}
		if got[0] != want[0] || got[1] != want[1] || math.Abs(got[2]-want[2]) > 8 {
			t.Errorf("%d slots: %v steps, rows and tokens, want %v", slots, got, want)
		}
	}
}

// TestSeconds: at measured sizes an estimate equals the measurement; between two sizes it
// lies between their measurements. Each part of a round adds to the estimate.
func TestSeconds(t *testing.T) {
	at := func(r Round) float64 { s, _ := r.Seconds("NVIDIA H100 80GB HBM3"); return s }
	for _, x := range rates {
		n := int(x.parameters)
		for what, pair := range map[string][2]float64{
			"update":   {at(Round{Parameters: n, Steps: 2}), 2 * x.update / 1e3},
			"learning": {at(Round{Parameters: n, Learned: 2 * ratedTokens, Again: 1}), 2 * (x.learn + x.score) / 1e3},
			"decoding": {at(Round{Parameters: n, Responses: []int{100}, Prompt: ratedContext - 50, Slots: 1}), 100 * x.steps[0] / 1e3},
			"crossing": {at(Round{Parameters: n, Steps: 1, HostBytes: hostRate, Sent: rankRate, Linked: linkRate}), 3 + x.update/1e3},
		} {
			if math.Abs(pair[0]-pair[1]) > 1e-9 {
				t.Errorf("%s of %d parameters takes %v s, want %v", what, n, pair[0], pair[1])
			}
		}
	}
	if a, b, c := at(Round{Parameters: 1.544e9, Steps: 1}), at(Round{Parameters: 3e9, Steps: 1}), at(Round{Parameters: 7.616e9, Steps: 1}); a >= b || b >= c {
		t.Errorf("updates of %v, %v and %v s", a, b, c)
	}
	for gpu, want := range map[string]bool{"NVIDIA H200": true, "NVIDIA A100-SXM4-80GB": false, "": false} {
		if _, measured := (Round{Parameters: 7e9}).Seconds(gpu); measured != want {
			t.Errorf("%q: measured %t", gpu, measured)
		}
	}
	if s, measured := (Round{Parameters: 1e8, Steps: 1}).Seconds("H100"); measured || s <= 0 {
		t.Errorf("a small model: %v s, measured %t", s, measured)
	}
}
