package models_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/models/decoder"
)

// published is a config.json as Qwen2.5 models on the hub have it, of a small shape.
const published = `{
  "architectures": ["Qwen2ForCausalLM"],
  "attention_dropout": 0.0,
  "bos_token_id": 90,
  "eos_token_id": 91,
  "hidden_act": "silu",
  "hidden_size": 16,
  "initializer_range": 0.02,
  "intermediate_size": 24,
  "max_position_embeddings": 128,
  "max_window_layers": 21,
  "model_type": "qwen2",
  "num_attention_heads": 4,
  "num_hidden_layers": 2,
  "num_key_value_heads": 2,
  "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0,
  "sliding_window": 4096,
  "tie_word_embeddings": true,
  "torch_dtype": "bfloat16",
  "use_cache": true,
  "use_mrope": false,
  "use_sliding_window": false,
  "vocab_size": 96
}
`

// with is published with old replaced by new.
func with(t *testing.T, old, new string) string {
	t.Helper()
	if strings.Count(published, old) != 1 {
		t.Fatalf("%q is not once in the config", old)
	}
	return strings.Replace(published, old, new, 1)
}

func shape(m models.Model) decoder.Shape { return m.Design.(decoder.Shape) }

func TestParseConfig(t *testing.T) {
	c, err := models.ParseConfig([]byte(published), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Hidden != 16 || c.Layers != 2 || c.Heads != 4 || c.KVHeads != 2 || c.HeadDim != 4 || c.FFN != 24 ||
		c.Vocab != 96 || c.MaxPositions != 128 || shape(c).RopeTheta != 1e6 || shape(c).RMSEps != 1e-6 || !shape(c).Tied ||
		!slices.Equal(c.EOS, []int32{91}) || c.Pad != nil || c.InitRange != 0.02 || c.DType != models.BF16 {
		t.Errorf("%+v", c)
	}
	for _, v := range []struct {
		name, old, new string
		ok             func(models.Model) bool
	}{
		{"rope_parameters", `"rope_theta": 1000000.0`, `"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}`, func(c models.Model) bool { return shape(c).RopeTheta == 5e5 }},
		{"both thetas", `"rope_theta": 1000000.0`, `"rope_theta": 7, "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}`, func(c models.Model) bool { return shape(c).RopeTheta == 5e5 }},
		{"theta beside rope_parameters", `"rope_theta": 1000000.0`, `"rope_theta": 7, "rope_parameters": {"rope_type": "default"}`, func(c models.Model) bool { return shape(c).RopeTheta == 7 }},
		{"no theta", `"rope_theta": 1000000.0,`, ``, func(c models.Model) bool { return shape(c).RopeTheta == 10000 }},
		{"rope_scaling null", `"rope_theta": 1000000.0`, `"rope_theta": 7, "rope_scaling": null`, func(c models.Model) bool { return shape(c).RopeTheta == 7 }},
		{"rope_scaling default", `"rope_theta": 1000000.0`, `"rope_theta": 7, "rope_scaling": {"type": "default"}`, func(c models.Model) bool { return shape(c).RopeTheta == 7 }},
		{"dtype", `"torch_dtype": "bfloat16"`, `"dtype": "float32"`, func(c models.Model) bool { return c.DType == models.F32 }},
		{"no dtype", `"torch_dtype": "bfloat16",`, ``, func(c models.Model) bool { return c.DType == models.Invalid }},
		{"head_dim", `"hidden_size": 16`, `"hidden_size": 18, "head_dim": 6`, func(c models.Model) bool { return c.HeadDim == 6 }},
		{"head_dim null", `"hidden_size": 16`, `"hidden_size": 16, "head_dim": null`, func(c models.Model) bool { return c.HeadDim == 4 }},
		{"kv heads null", `"num_key_value_heads": 2`, `"num_key_value_heads": null`, func(c models.Model) bool { return c.KVHeads == 4 }},
		{"dropout", `"attention_dropout": 0.0`, `"attention_dropout": 0.1`, func(models.Model) bool { return true }},
		{"untied", `"tie_word_embeddings": true`, `"tie_word_embeddings": false`, func(c models.Model) bool { return !shape(c).Tied }},
		{"tie unstated", `"tie_word_embeddings": true,`, ``, func(c models.Model) bool { return !shape(c).Tied }},
		{"eos list", `"eos_token_id": 91`, `"eos_token_id": [91, 90]`, func(c models.Model) bool { return slices.Equal(c.EOS, []int32{91, 90}) }},
		{"eos null", `"eos_token_id": 91`, `"eos_token_id": null`, func(c models.Model) bool { return c.EOS == nil }},
		{"pad", `"bos_token_id": 90`, `"pad_token_id": 3`, func(c models.Model) bool { return c.Pad != nil && *c.Pad == 3 }},
		{"layer types", `"use_cache": true`, `"layer_types": ["full_attention", "full_attention"]`, func(c models.Model) bool { return true }},
		{"no architectures", `"architectures": ["Qwen2ForCausalLM"],`, ``, func(c models.Model) bool { return true }},
	} {
		c, err := models.ParseConfig([]byte(with(t, v.old, v.new)), nil)
		if err != nil || !v.ok(c) {
			t.Errorf("%s: %+v, %v", v.name, c, err)
		}
	}
}

func TestEOSOfGenerationConfig(t *testing.T) {
	for generation, want := range map[string][]int32{
		`{"eos_token_id": [5, 6]}`:                  {5, 6},
		`{"eos_token_id": 7, "temperature": 0.7}`:   {7},
		`{"eos_token_id": null}`:                    {91},
		`{"do_sample": true, "pad_token_id": 9999}`: {91},
	} {
		c, err := models.ParseConfig([]byte(published), []byte(generation))
		if err != nil || !slices.Equal(c.EOS, want) {
			t.Errorf("%s: eos %v, %v, want %v", generation, c.EOS, err, want)
		}
	}
	for generation, want := range map[string]string{
		`{"eos_token_id": "x"}`: "generation_config.json: eos_token_id: want a token id",
		`{"eos_token_id": 96}`:  "eos_token_id (96) is not in the vocabulary of 96",
		`[]`:                    "generation_config.json: the text is a list, not an object",
	} {
		if _, err := models.ParseConfig([]byte(published), []byte(generation)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", generation, err, want)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	cases := []struct{ old, new, want string }{
		{`"model_type": "qwen2"`, `"model_type": "mixtral"`, `model_type "mixtral" is not supported`},
		{`"Qwen2ForCausalLM"`, `"Qwen2ForSequenceClassification"`, `architectures ["Qwen2ForSequenceClassification"] is not supported`},
		{`"hidden_act": "silu"`, `"hidden_act": "gelu"`, `hidden_act "gelu" is not supported, only "silu"`},
		{`"use_sliding_window": false`, `"use_sliding_window": true`, "use_sliding_window true is not supported"},
		{`"use_mrope": false`, `"use_mrope": true`, "use_mrope true"},
		{`"use_cache": true`, `"quantization_config": {"bits": 4}`, `quantization_config {"bits": 4}: quantized weights are not supported, but for those of bitsandbytes in nf4: if the tensors have 16 bits`},
		{`"use_cache": true`, `"rope_scaling": {"type": "yarn", "factor": 0.5}`, `rope_scaling: factor (0.5) must be at least 1`},
		{`"use_cache": true`, `"rope_parameters": {"rope_type": "linear"}`, `rope_parameters: no factor, which rope_type "linear" needs`},
		{`"use_cache": true`, `"rope_parameters": {"rope_type": "dynamic"}`, `rope_parameters: rope_type "dynamic" is not supported`},
		{`"use_cache": true`, `"rope_parameters": {"full_attention": {"rope_theta": 1}}`, `rope_parameters: full_attention`},
		{`"use_cache": true`, `"rope_parameters": {"rope_theta": "x"}`, `rope_theta: want a number`},
		{`"use_cache": true`, `"layer_types": ["full_attention", "sliding_attention"]`, `layer 1 is "sliding_attention"`},
		{`"use_cache": true`, `"layer_types": ["full_attention"]`, "names 1 layers, num_hidden_layers is 2"},
		{`"use_cache": true`, `"hidden_size": 16`, `"hidden_size" is stated twice`},
		{`"torch_dtype": "bfloat16"`, `"torch_dtype": "int8"`, `torch_dtype "int8" is not supported`},
		{`"hidden_size": 16`, `"hidden_size": 65`, "hidden_size (65) must be divisible by num_attention_heads (4)"},
		{`"hidden_size": 16`, `"hidden_size": 20`, "head_dim (5) must be even"},
		{`"hidden_size": 16,`, ``, "no hidden_size"},
		{`"hidden_size": 16`, `"hidden_size": "16"`, `hidden_size: want a positive whole number, found "16"`},
		{`"hidden_size": 16`, `"hidden_size": 16.5`, "want a positive whole number"},
		{`"hidden_size": 16`, `"hidden_size": 99999999999999999999`, "want a positive whole number"},
		{`"num_attention_heads": 4`, `"num_attention_heads": 0`, "num_attention_heads: want a positive"},
		{`"num_attention_heads": 4`, `"num_attention_heads": -4`, "num_attention_heads: want a positive"},
		{`"num_key_value_heads": 2`, `"num_key_value_heads": 3`, "num_attention_heads (4) must be divisible by num_key_value_heads (3)"},
		{`"num_hidden_layers": 2`, `"num_hidden_layers": 1000000000`, "num_hidden_layers (1000000000) must be from 1 to"},
		{`"vocab_size": 96`, `"vocab_size": 4000000000000`, "vocab_size (4000000000000)"},
		{`"rms_norm_eps": 1e-06`, `"rms_norm_eps": 0`, "rms_norm_eps (0)"},
		{`"rope_theta": 1000000.0`, `"rope_theta": -1`, "rope_theta (-1)"},
		{`"eos_token_id": 91`, `"eos_token_id": 96`, "eos_token_id (96) is not in the vocabulary"},
		{`"eos_token_id": 91`, `"eos_token_id": [1, -1]`, "eos_token_id (-1)"},
		{`"tie_word_embeddings": true`, `"tie_word_embeddings": "yes"`, `tie_word_embeddings: want true or false, found "yes"`},
		{`{`, ``, "more text follows"},
		{`96
}`, `96`, "ends in the middle"},
	}
	for _, c := range cases {
		if _, err := models.ParseConfig([]byte(strings.Replace(published, c.old, c.new, 1)), nil); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "config.json") {
			t.Errorf("%s for %s: %v, want %q", c.new, c.old, err, c.want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(published), []byte(`{"eos_token_id": [1]}`))
	f.Add([]byte(strings.Replace(published, `"rope_theta": 1000000.0`, `"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}`, 1)), []byte("{}"))
	f.Fuzz(func(t *testing.T, config, generation []byte) {
		c, err := models.ParseConfig(config, generation)
		if err != nil {
			return
		}
		if c.Layers < 100 && c.Layout().Size < 1 {
			t.Error("accepted a model without weights")
		}
		text, err := models.WithDType(config, models.F32)
		if err != nil {
			t.Fatal(err)
		}
		again, err := models.ParseConfig(text, generation)
		if err != nil {
			t.Fatalf("the text that Save writes is refused: %v\n%s", err, text)
		}
		if again.Hidden != c.Hidden || shape(again).RopeTheta != shape(c).RopeTheta || !slices.Equal(again.EOS, c.EOS) {
			t.Errorf("the text that Save writes reads differently:\n%s", text)
		}
	})
}

// TestTextKeepsEverything: only the value of dtype changes.
func TestTextKeepsEverything(t *testing.T) {
	same, err := models.WithDType([]byte(published), models.BF16)
	if err != nil || !bytes.Equal(same, []byte(published)) {
		t.Errorf("%v:\n%s", err, same)
	}
	f32, err := models.WithDType([]byte(published), models.F32)
	if want := with(t, "bfloat16", "float32"); err != nil || string(f32) != want {
		t.Errorf("%v:\n%s", err, f32)
	}
}
