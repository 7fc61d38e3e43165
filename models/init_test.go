package models_test

import (
	"math"
	"slices"
	"testing"

	"onering/models"
	"onering/models/qwen2"
)

func initialised(t *testing.T, text string, seed uint64) *models.Weights {
	t.Helper()
	m, err := models.ParseConfig([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.Init(seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func view(t *testing.T, w *models.Weights, name string) []float32 {
	t.Helper()
	data, _, ok := w.View(name)
	if !ok {
		t.Fatalf("no tensor %q", name)
	}
	return data
}

func TestInit(t *testing.T) {
	// 160,000 embedding elements: three blocks.
	w := initialised(t, with(t, `"vocab_size": 96`, `"vocab_size": 10000, "pad_token_id": 2`), 1)
	embedding := view(t, w, "model.embed_tokens.weight")
	if pad := embedding[2*16 : 3*16]; slices.ContainsFunc(pad, func(x float32) bool { return x != 0 }) {
		t.Errorf("the padding token's embedding is %v, want zeros", pad)
	}
	var sum, squares, fourth float64
	for _, x := range embedding {
		v := float64(x) / 0.02
		sum, squares, fourth = sum+v, squares+v*v, fourth+v*v*v*v
	}
	const block = 1 << 16 // elements of one generator
	// Moments of the normal distribution, within five standard errors.
	n := float64(len(embedding) - 16)
	if e := 5 / math.Sqrt(n); math.Abs(sum/n) > e || math.Abs(squares/n-1) > e*math.Sqrt2 || math.Abs(fourth/n-3) > e*math.Sqrt(96) {
		t.Errorf("moments %g %g %g, want 0 1 3", sum/n, squares/n, fourth/n)
	}
	if slices.Equal(embedding[:block-1000], embedding[block:2*block-1000]) {
		t.Error("two blocks hold the same numbers")
	}
	for _, name := range []string{"model.norm.weight", "model.layers.1.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight"} {
		if slices.ContainsFunc(view(t, w, name), func(x float32) bool { return x != 1 }) {
			t.Errorf("%s is not ones", name)
		}
	}
	if slices.ContainsFunc(view(t, w, "model.layers.0.self_attn.qkv_proj.bias"), func(x float32) bool { return x != 0 }) {
		t.Error("biases are not zero")
	}
	for _, tensor := range w.Tensors() {
		if len(tensor.Shape) == 2 && tensor.Data[0] == 0 {
			t.Errorf("%s was not drawn", tensor.Name)
		}
	}
}

// TestInitDependsOnSeedAndNameOnly: not on the place in the arena.
func TestInitDependsOnSeedAndNameOnly(t *testing.T) {
	const name = "model.layers.1.mlp.up_proj.weight"
	a := view(t, initialised(t, published, 1), name)
	if b := view(t, initialised(t, with(t, `"vocab_size": 96`, `"vocab_size": 99`), 1), name); !slices.Equal(a, b) {
		t.Error("another vocabulary changed a layer's weights")
	}
	if b := view(t, initialised(t, published, 2), name); slices.Equal(a, b) {
		t.Error("another seed gave the same weights")
	}
	if b := view(t, initialised(t, published, 1), "model.layers.0.mlp.up_proj.weight"); slices.Equal(a, b) {
		t.Error("two layers have the same weights")
	}
	// The numbers are fixed: a model made from a seed must stay the same model.
	if want := []float32{0.014675256, 0.022570072, -0.013613289, 0.011471244}; !slices.Equal(a[:4], want) {
		t.Errorf("seed 1 begins %v, want %v", a[:4], want)
	}
}

func BenchmarkInit(b *testing.B) {
	m, err := models.NewModel(qwen2.New(models.Sizes{Hidden: 512, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 128, FFN: 2048, Vocab: 8192, MaxPositions: 128}))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(m.Layout().Size) * 4)
	for b.Loop() {
		w, err := m.Init(1)
		if err != nil {
			b.Fatal(err)
		}
		w.Close()
	}
}
