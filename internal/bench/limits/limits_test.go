package limits_test

import (
	"testing"

	"onering/internal/bench/limits"
	"onering/models"
	_ "onering/models/all"
)

// The work of a layer is its matrices' work, counted by hand.
func TestWork(t *testing.T) {
	g := models.Geometry{Sizes: models.Sizes{Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 4, FFN: 16, Vocab: 10}, CacheWidth: 16, Compute: models.F32}
	optimizer, err := models.NewOptimizer("adamw")
	if err != nil {
		t.Fatal(err)
	}
	m := limits.ModelOf(g, 100, optimizer, false)
	matrices := 2 * (8*8 + 2*8*4 + 8*8 + 3*8*16)
	if got, want := m.Prompt(1), float64(2*matrices+2*4*8); got.FLOPs != want {
		t.Errorf("one token: %v, want %v", got, want)
	}
	// The first token of a response attends to the prompt and to itself.
	if got, want := m.Response(3, 1), m.Prompt(4).FLOPs-m.Prompt(3).FLOPs+2*8*10; got.FLOPs != want {
		t.Errorf("a response: %v, want %v", got, want)
	}
	if got, want := m.Decode(2, 7), (limits.Work{FLOPs: float64(2*2*(matrices+80) + 2*4*8*7), Bytes: float64(4*(matrices+80) + 2*2*16*4*7)}); got != want {
		t.Errorf("a step: %v, want %v", got, want)
	}
	if got := m.Update(); got.Bytes != 2800 {
		t.Errorf("an update: %v", got)
	}
	if got := (limits.Work{FLOPs: 6, Bytes: 10}).Seconds(limits.Peaks{FLOPS: 3, Bytes: 10}); got != 2 {
		t.Errorf("%v seconds", got)
	}
}
