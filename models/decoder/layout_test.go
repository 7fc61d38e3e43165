package decoder

import (
	"slices"
	"testing"

	"onering/models"
)

func TestLayout(t *testing.T) {
	// Every size differs, so that no two are mistaken for one another.
	c := Shape{Sizes: models.Sizes{Hidden: 10, Layers: 1, Heads: 3, KVHeads: 1, HeadDim: 4, FFN: 14, Vocab: 50},
		Block: Block{QKVBias: true}, Names: LlamaNames}
	want := []struct {
		name  string
		shape []int
	}{
		{"model.embed_tokens.weight", []int{50, 10}},
		{"model.layers.0.input_layernorm.weight", []int{10}},
		{"model.layers.0.self_attn.q_proj.weight", []int{12, 10}},
		{"model.layers.0.self_attn.k_proj.weight", []int{4, 10}},
		{"model.layers.0.self_attn.v_proj.weight", []int{4, 10}},
		{"model.layers.0.self_attn.q_proj.bias", []int{12}},
		{"model.layers.0.self_attn.k_proj.bias", []int{4}},
		{"model.layers.0.self_attn.v_proj.bias", []int{4}},
		{"model.layers.0.self_attn.o_proj.weight", []int{10, 12}},
		{"model.layers.0.post_attention_layernorm.weight", []int{10}},
		{"model.layers.0.mlp.gate_proj.weight", []int{14, 10}},
		{"model.layers.0.mlp.up_proj.weight", []int{14, 10}},
		{"model.layers.0.mlp.down_proj.weight", []int{10, 14}},
		{"model.norm.weight", []int{10}},
		{"lm_head.weight", []int{50, 10}},
	}
	l := c.Layout()
	var names []string
	for _, w := range want {
		names = append(names, w.name)
		if p, _ := l.Find(w.name); !slices.Equal(p.Shape, w.shape) {
			t.Errorf("%s has shape %v, want %v", w.name, p.Shape, w.shape)
		}
	}
	if !slices.Equal(l.Names(), names) {
		t.Errorf("names %q", l.Names())
	}
	for name, shape := range map[string][]int{
		"model.layers.0.self_attn.qkv_proj.weight": {20, 10},
		"model.layers.0.self_attn.qkv_proj.bias":   {20},
		"model.layers.0.mlp.gate_up_proj.weight":   {28, 10},
	} {
		if p, _ := l.Find(name); !slices.Equal(p.Shape, shape) {
			t.Errorf("%s has shape %v, want %v", name, p.Shape, shape)
		}
	}
	c.Tied = true
	if _, ok := c.Layout().Find("lm_head.weight"); ok {
		t.Error("a tied model has an lm_head.weight")
	}
}
