package runtime_test

import (
	"reflect"
	"testing"

	"onering/models"
	"onering/runtime/runtimetest"
	"onering/sampler"
)

// TestLanes: a small model gets a decoder for every 32 slots, and any other model gets
// one decoder. The bits of what they sample are the same side by side, in turn and alone.
func TestLanes(t *testing.T) {
	env := runtimetest.Test(t)
	c := qwen2Of(models.Sizes{Hidden: 112, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 28, FFN: 320, Vocab: 32, MaxPositions: 512})
	c.Tied, c.RopeTheta = true, 1e4
	_, ring := madeUpRing(t, c, 1)
	for slots, want := range map[int]int{1: 1, 63: 1, 64: 2, 95: 2, 128: 4} {
		if got := env.Lanes(ring, slots); got != want {
			t.Errorf("%d slots: %d lanes, want %d", slots, got, want)
		}
	}
	big := c
	big.FFN = 8000
	_, large := madeUpRing(t, big, 1)
	if got := env.Lanes(large, 64); got != 1 {
		t.Errorf("%d lanes of a model of %d parameters", got, len(large.Weights.Data))
	}

	var reqs []sampler.Request
	for i := range 6 {
		reqs = append(reqs, sampler.Request{Prompt: []int32{3, 4, 5, int32(i)}, ID: uint64(i), Samples: 16})
	}
	opts := sampler.Options{Sampling: sampler.Plain(40), EOS: []int32{7}, Seed: 1}
	all, err := env.NewDecoders(ring, []int{32, 32}, 48)
	check(t, err)
	lanes := sampler.Lanes{AtOnce: 2}
	for _, d := range all {
		defer d.Close()
		lanes.Decoders = append(lanes.Decoders, d)
	}
	want, _, err := lanes.Sample(t.Context(), opts, reqs, nil)
	check(t, err)
	if len(want) != 96 {
		t.Fatalf("%d responses", len(want))
	}
	lanes.AtOnce = 1
	got, _, err := lanes.Sample(t.Context(), opts, reqs, nil)
	check(t, err)
	if !reflect.DeepEqual(got, want) {
		t.Error("in turn the decoders sample otherwise than side by side")
	}
	for half, d := range lanes.Decoders {
		got, _, err := sampler.Sample(t.Context(), d, opts, reqs[3*half:][:3], nil)
		check(t, err)
		for i, x := range got {
			x.Request += 3 * half
			if !reflect.DeepEqual(x, want[48*half+i]) {
				t.Fatalf("response %d differs when its decoder is alone", 48*half+i)
			}
		}
	}
}
