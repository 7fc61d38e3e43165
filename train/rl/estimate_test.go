package rl

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"onering/models"
	"onering/models/qwen2"
	"onering/runtime"
)

// These are the shapes of Qwen2.5-Math.
var (
	math1B5 = qwen2Math(models.Sizes{Hidden: 1536, Layers: 28, Heads: 12, KVHeads: 2, HeadDim: 128, FFN: 8960, Vocab: 151936, MaxPositions: 4096}, true)
	math7B  = qwen2Math(models.Sizes{Hidden: 3584, Layers: 28, Heads: 28, KVHeads: 4, HeadDim: 128, FFN: 18944, Vocab: 152064, MaxPositions: 4096}, false)
)

func qwen2Math(sizes models.Sizes, tied bool) models.Model {
	shape := qwen2.New(sizes)
	shape.Tied = tied
	m, err := models.NewModel(shape)
	if err != nil {
		panic(err)
	}
	return m
}

// TestEstimateCUDA: the paper's recipe - 1,024 trajectories a round, 3,000 tokens, K = 8
// - fits a GPU of 40 GB with the 1.5B model, and one of 141 GB with the 7B model if the
// moments are on the host.
func TestEstimateCUDA(t *testing.T) {
	for _, tt := range []struct {
		name         string
		model        models.Model
		parameters   int64
		slots, micro int
		onDevice     int64 // peaks, in GB rounded up
		onHost       int64
	}{
		{"1.5B", math1B5, 1_543_714_304, 48, 4096, 39, 27},
		{"1.5B", math1B5, 1_543_714_304, 128, 4096, 50, 38},
		{"1.5B", math1B5, 1_543_714_304, 128, 8192, 52, 39},
		{"7B", math7B, 7_615_616_512, 16, 4096, 147, 87},
		{"7B", math7B, 7_615_616_512, 128, 8192, 183, 122},
	} {
		c := Default()
		c.Model.DType, c.Runtime.Device = "bfloat16", "cuda"
		c.Rollout.Slots, c.Train.MicroTokens = tt.slots, tt.micro
		e, err := c.EstimateMemory(tt.model, Split{})
		if err != nil {
			t.Fatal(err)
		}
		n := tt.parameters
		layers := n - int64(tt.model.Vocab*tt.model.Hidden) - int64(tt.model.Hidden)
		if tt.name == "7B" {
			layers -= int64(tt.model.Vocab * tt.model.Hidden)
		}
		if e.Of("weights").Device != 4*n || e.Of("gradients").Device != 4*n || e.Of("moments").Device != 8*n || e.Of("weights in fewer bits").Device != 2*layers {
			t.Errorf("%s of %d parameters, %d of layers: %+v", tt.name, n, layers, e)
		}
		prompts := min(c.Rollout.PromptsPerRound, tt.slots+1) * c.Rollout.MaxPromptTokens
		if want := int64(tt.slots*4024+prompts+min(prompts, 8192)) * 2 * 2 * int64(28*tt.model.KVHeads*128); e.Of("KV cache").Device != want {
			t.Errorf("%s: the cache of %d slots is %d bytes, want %d", tt.name, tt.slots, e.Of("KV cache").Device, want)
		}
		up := func(n int64) int64 { return (n + 999_999_999) / 1_000_000_000 }
		c.Optimizer.Offload = runtime.OffloadMoments
		less, err := c.EstimateMemory(tt.model, Split{})
		if err != nil {
			t.Fatal(err)
		}
		// Writing a checkpoint takes the largest tensor, and while training goes on a copy of
		// weights and moments, too.
		embedding := int64(4 * tt.model.Vocab * tt.model.Hidden)
		if e.Saving != embedding || less.Saving != embedding || e.Copy != 12*n+embedding || less.Copy != e.Copy {
			t.Errorf("%s: a checkpoint takes %d bytes of the host, offloaded %d, beside training %d and %d", tt.name, e.Saving, less.Saving, e.Copy, less.Copy)
		}
		if up(e.Peak) != tt.onDevice || up(less.Peak) != tt.onHost || less.Of("moments").Device != 0 || less.Of("moments").Host != 8*n {
			t.Errorf("%s with %d slots and micro-batches of %d: %d GB, %d GB with the moments on the host, want %d and %d",
				tt.name, tt.slots, tt.micro, up(e.Peak), up(less.Peak), tt.onDevice, tt.onHost)
		}
	}
	// The 7B model has micro-batches of 4 x 1,024 on a GPU of 80 GB: moments and the
	// layers' float32 weights are on the host.
	c := Default()
	c.Model.DType, c.Runtime.Device, c.Optimizer.Offload = "bfloat16", "cuda", runtime.OffloadAll
	c.Rollout.MaxPromptTokens, c.Rollout.MaxNewTokens, c.Rollout.Slots, c.Train.MicroTokens = 256, 768, 64, 4096
	e := must(c.EstimateMemory(math7B, Split{}))(t)
	matrices := int64(28 * (2*3584*3584 + 2*3584*512 + 3*3584*18944))
	n := int64(7_615_616_512)
	if w := e.Of("weights"); w.Device != 4*(n-matrices) || w.Host != 4*matrices || e.Of("gradients").Device != 4*n || e.Of("moments").Host != 8*n || e.Saving != int64(4*math7B.Vocab*math7B.Hidden) {
		t.Errorf("weights %+v, moments %+v, %d bytes for a checkpoint", w, e.Of("moments"), e.Saving)
	}
	if t.Logf("7B: %v", e.Lines()); e.Peak > 66e9 {
		t.Errorf("7B takes %d bytes of a GPU", e.Peak)
	}
	// Each of eight GPUs has an eighth of moments and of the layers' float32 weights, with
	// moments on the GPU.
	c.Optimizer.Offload, c.Distributed.Shard = runtime.OffloadNone, "optimizer"
	c.Rollout.Slots = 32
	e = must(c.EstimateMemory(math7B, Split{Ranks: 8, OnHost: 8}))(t)
	own := 4 * matrices / 8
	if w, m := e.Of("weights").Device, e.Of("moments").Device; w != 4*(n-matrices)+own || m != n || e.Gathered != 7*n+7*own || e.Peak > 72e9 {
		t.Errorf("weights %d, moments %d, others have %d, peak %d", w, m, e.Gathered, e.Peak)
	}
	c = Default()
	c.Model.DType, c.Runtime.Device = "float32", "cuda:1"
	e, err := c.EstimateMemory(math1B5, Split{})
	if err != nil || e.Of("weights in fewer bits").Device != 0 || e.Peak <= e.Certain() {
		t.Errorf("in float32: %+v, %v", e, err)
	}
}

func must[T any](x T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

// TestEstimateMeasured: the estimate of a step on 4 x 1,024 tokens, with all activations
// kept, equals the memory that onering bench took on an H100 and an H200 (docs/lab/gpu.md).
func TestEstimateMeasured(t *testing.T) {
	for _, x := range []struct {
		model    models.Model
		offload  runtime.Offload
		measured float64 // GB
	}{{math1B5, runtime.OffloadNone, 37}, {math7B, runtime.OffloadMoments, 91}} {
		c := Default()
		c.Model.DType, c.Runtime.Device, c.Train.room, c.Optimizer.Offload = "bfloat16", "cuda", math.MaxInt, x.offload
		c.Rollout.Slots, c.Rollout.MaxPromptTokens, c.Rollout.MaxNewTokens, c.Train.MicroTokens = 1, 1, 1023, 4096
		e := must(c.EstimateMemory(x.model, Split{}))(t)
		if ratio := float64(e.Peak) / 1e9 / x.measured; ratio < 0.97 || ratio > 1.05 {
			t.Errorf("the estimate is %.3f of the %v GB that were measured", ratio, x.measured)
		}
	}
}

// TestChoose: open settings are chosen so that the run fits, with larger sizes for more
// memory; settings that are set stay, and on devices other than CUDA's all settings stay.
func TestChoose(t *testing.T) {
	nothing, all := func(string) bool { return false }, func(string) bool { return true }
	c := Default()
	c.Model.DType, c.Runtime.Device = "bfloat16", "cuda"
	s := must(c.architecture(math1B5))(t)
	var slots []int
	for _, gb := range []int64{24, 30, 40, 80, 141} {
		on := card{name: "a card", model: "H100", bytes: gb * 1e9}
		p := must(s.plan(c, on, all))(t)
		taken := c
		p.Apply(&taken)
		if e := must(taken.EstimateMemory(math1B5, Split{}))(t); e.Peak != p.Peak || p.Fits != (p.Peak <= on.bytes) || p.Fits && p.Seconds <= 0 || !p.Fits && gb > 24 {
			t.Errorf("%d GB: %+v, of which the estimate is %d", gb, p, e.Peak)
		}
		if gb <= 30 && p.Offload == runtime.OffloadNone || gb == 141 && p.Offload != runtime.OffloadNone { // Of these, Choose takes the faster one by the rates.
			t.Errorf("%d GB: %+v", gb, p)
		}
		slots = append(slots, p.Slots)
		on.host = 1e9
		if p = must(s.plan(c, on, all))(t); p.Fits && p.Offload != runtime.OffloadNone {
			t.Errorf("%d GB: %+v where the host has no room", gb, p)
		}
		on.model = "another GPU"
		if p = must(s.plan(c, on, nothing))(t); p.Slots != 32 || p.MicroTokens != 4096 || p.Fits && p.StashBytes < 1000 || p.Offload != runtime.OffloadNone || p.Seconds != 0 {
			t.Errorf("%d GB: %+v where all is set", gb, p)
		}
		least := c
		least.Train.Stash = "inputs"
		if less := must(s.plan(least, on, nothing))(t); less.StashBytes != 0 || less.Peak > p.Peak || p.Fits && less.Peak == p.Peak {
			t.Errorf("%d GB: %+v where layers keep their inputs, else %+v", gb, less, p)
		}
	}
	if !slices.IsSorted(slots[1:]) || slots[4] != 512 {
		t.Errorf("slots %v", slots)
	}
	c.Runtime.Device, c.Model.DType = "cpu", "float32"
	was := fmt.Sprint(c)
	if plans, err := c.Choose(math1B5, Split{}, all, true); err != nil || plans != nil || fmt.Sprint(c) != was {
		t.Errorf("on the CPU: %v, %v", plans, err)
	}
}
