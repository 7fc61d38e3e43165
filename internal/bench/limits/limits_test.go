package limits_test

import (
	"testing"

	"onering/internal/bench/limits"
	"onering/models"
	_ "onering/models/all"
	"onering/train/metrics"
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

// A round's shares are those of its phases. A phase is left out if it took no time or did
// work outside the steps.
func TestTally(t *testing.T) {
	g := models.Geometry{Sizes: models.Sizes{Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 4, FFN: 16, Vocab: 10}, CacheWidth: 16, Compute: models.F32}
	optimizer, err := models.NewOptimizer("adamw")
	if err != nil {
		t.Fatal(err)
	}
	tally := &limits.Tally{Model: limits.ModelOf(g, 100, optimizer, false)}
	tally.Step([]limits.Sequence{{Problem: 1, Prompt: 3, Response: 2, Live: true}, {Problem: 1, Prompt: 3, Response: 4}})
	peaks := limits.Peaks{FLOPS: 1e6, Bytes: 1e6}
	times := metrics.Record{}.With("seconds/rollout", 0.0).With("seconds/score", 0.5).With("seconds/backward", 0.5).With("seconds/optimizer", 0.0056)
	r := tally.Shares(peaks, times)
	forward := tally.Model.Prompt(3).Add(tally.Model.Response(3, 2))
	backward := tally.Model.Backward(forward)
	forward = forward.Add(tally.Model.Response(3, 4))
	if got, want := r.Float("limit/score"), forward.FLOPs/1e6/0.5; got != want {
		t.Errorf("score %v, want %v", got, want)
	}
	if got, want := r.Float("limit/backward"), backward.FLOPs/1e6/0.5; got != want {
		t.Errorf("backward %v, want %v", got, want)
	}
	if got := r.Float("limit/optimizer"); got != 0.5 {
		t.Errorf("optimizer %v", got)
	}
	if r.Get("limit/rollout") != nil {
		t.Errorf("a rollout of no time: %v", r)
	}
	if r := tally.Shares(peaks, times); r.Float("limit/optimizer") != 0 {
		t.Errorf("the next round has %v", r)
	}
}
