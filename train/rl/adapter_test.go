package rl

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"onering/data"
	"onering/models"
	"onering/models/lora"
	"onering/policy"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/sampler"
	"onering/train/learn"
)

// TestEstimateAdapter: a run that trains an adapter has gradients and moments of the
// adapter's parameters alone, and a base in 16 bits takes half of its layers' memory.
func TestEstimateAdapter(t *testing.T) {
	model, err := models.ParseConfig([]byte(`{"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2,
		"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 64, "tie_word_embeddings": true}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := Default()
	c.Runtime.Device = "cpu"
	c.LoRA.On, c.LoRA.Rank = true, 4
	wide, err := c.EstimateMemory(model, Split{})
	if err != nil {
		t.Fatal(err)
	}
	c.LoRA.BaseDType = "bfloat16"
	narrow, err := c.EstimateMemory(model, Split{})
	if err != nil {
		t.Fatal(err)
	}
	layout := model.Layout()
	first, _ := layout.Find("model.layers.0.input_layernorm.weight")
	after, _ := layout.Find("model.norm.weight")
	layers := int64(after.Offset - first.Offset)
	// These are A and B of q, k, v, o, gate, up and down.
	parameters := int64(2 * 4 * ((64 + 64) + 2*(64+32) + (64 + 64) + 2*(64+192) + (192 + 64)))
	if wide.Of("gradients").Device != 4*parameters || wide.Of("moments").Device != 8*parameters || wide.Of("weights").Device != 4*(int64(layout.Size)+parameters) || wide.Of("weights in fewer bits").Device != 0 {
		t.Errorf("the adapter has %d parameters, the estimate is %+v", parameters, wide)
	}
	if narrow.Of("weights in fewer bits").Device != 2*layers || narrow.Of("weights").Device != wide.Of("weights").Device-4*layers || narrow.Peak != wide.Peak-2*layers+4*64*192 {
		t.Errorf("the layers have %d elements; peak %d, with 16 bits %+v", layers, wide.Peak, narrow)
	}
}

// TestEstimateHeld: an adapter of the 7B shape beside a base in NF4 takes less than 12 GB.
func TestEstimateHeld(t *testing.T) {
	model, err := policy.ReadModel(filepath.Join("..", "..", "bench", "qwen2.5-7b"))
	if err != nil {
		t.Fatal(err)
	}
	c := Default()
	c.Runtime.Device, c.Model.DType, c.LoRA.On, c.LoRA.BaseDType = "cpu", "bfloat16", true, "nf4"
	c.Rollout.PromptsPerRound, c.Rollout.SamplesPerPrompt, c.Rollout.MaxPromptTokens, c.Rollout.MaxNewTokens = 4, 8, 32, 128
	c.Train.BatchSize, c.Train.MicroTokens = 32, 1024
	e, err := c.EstimateMemory(model, Split{})
	if err != nil {
		t.Fatal(err)
	}
	// Embedding and head have 152,064 rows of 3,584, the layers 233,046,016 numbers of matrices each;
	// 9 of 16 bytes hold one. The head is rounded once more.
	const vocabulary, matrices = 152064 * 3584, 28 * 233046016
	if held := e.Of("weights in fewer bits").Device - 2*vocabulary; held < matrices*9/16 || held > matrices*9/16*1001/1000 {
		t.Errorf("the layers take %d bytes", held)
	}
	if wide := e.Of("weights").Device - 8*vocabulary; wide > 4e8 || e.Peak > 12e9 {
		t.Errorf("%d bytes beside embedding and head in float32; the peak is %.2f GB", wide, float64(e.Peak)/1e9)
	}
}

// TestInt8 compares a base in int8 with one in float32 that has the same rounded
// weights: responses must be the same, and their log-probs and the gradients of the adapter but for
// the order of sums.
func TestInt8(t *testing.T) {
	env := runtimetest.Test(t)
	open := func(base string) *policy.Policy {
		p, err := policy.Open(env, policy.Options{Path: data.Arithmetic, DType: "float32", Base: base})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
	narrow, wide := open("int8"), open("float32")
	narrow.Weights.Each(func(first int, part []float32) { copy(wide.Weights.Data[first:], part) })
	type result struct {
		responses []sampler.Response
		gradients [][]float32
	}
	var results []result
	for _, p := range []*policy.Policy{narrow, wide} {
		s := lora.Default()
		s.Rank, s.Init = 4, "gaussian"
		if err := p.NewAdapter(s, "m", 1); err != nil {
			t.Fatal(err)
		}
		for i := range p.Ring.Adapter.Data { // the Bs, too
			p.Ring.Adapter.Data[i] += float32(i%7-3) * 0.01
		}
		results = append(results, result{sixResponses(t, env, p), nil})
		r := &results[len(results)-1]
		o := learn.Options{Temperature: 1, Passes: learn.Passes{MicroTokens: 1000, StashBytes: math.MaxInt}, MaxGradNorm: 1, Optimizer: Default().Optimizer.Rule}
		stepper, err := learn.New(env, p.Ring, o)
		if err != nil {
			t.Fatal(err)
		}
		defer stepper.Close()
		batch := learn.Batch{}
		for i, x := range results[0].responses {
			batch.Sequences = append(batch.Sequences, runtime.NewSequence([]int32{1, 3, 1}, x.IDs))
			batch.Weights = append(batch.Weights, slices.Repeat([]float64{float64(i) - 2.5}, len(x.IDs)))
		}
		if _, err := stepper.Gradients(context.Background(), batch, nil); err != nil {
			t.Fatal(err)
		}
		if err := stepper.WithoutScale(func(gradients []models.Tensor) error {
			for _, g := range gradients {
				r.gradients = append(r.gradients, slices.Clone(g.Data))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	a, b := results[0], results[1]
	near := func(x, y float32) bool { return math.Abs(float64(x-y)) < 1e-4*(1+math.Abs(float64(y))) }
	for i := range a.responses {
		if !slices.Equal(a.responses[i].IDs, b.responses[i].IDs) || !slices.EqualFunc(a.responses[i].LogProb, b.responses[i].LogProb, near) {
			t.Errorf("response %d: %v %v, in float32 %v %v", i, a.responses[i].IDs, a.responses[i].LogProb, b.responses[i].IDs, b.responses[i].LogProb)
		}
	}
	alike := func(x, y []float32) bool {
		var off, all float64
		for i := range y {
			off, all = off+math.Pow(float64(x[i]-y[i]), 2), all+math.Pow(float64(y[i]), 2)
		}
		return len(x) == len(y) && off <= 1e-8*all
	}
	if len(a.gradients) != 2*2*7 || !slices.EqualFunc(a.gradients, b.gradients, alike) {
		t.Errorf("%d gradients, which differ from those in float32", len(a.gradients))
	}
	if slices.Max(a.gradients[0]) == 0 {
		t.Error("the gradients are zero")
	}
}

// sixResponses are responses of a policy to one prompt.
func sixResponses(t *testing.T, env *runtime.Env, p *policy.Policy) []sampler.Response {
	t.Helper()
	d, err := env.NewDecoder(p.Ring, 6, 40)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	responses, _, err := sampler.Sample(context.Background(), d, sampler.Options{Sampling: sampler.Plain(20), Seed: 3}, []sampler.Request{{Prompt: []int32{1, 3, 1}, Samples: 6}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return responses
}
