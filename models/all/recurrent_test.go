package all_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/models/lora"
	"onering/models/modeltest"
)

// TestRecurrentFamilies runs the conformance suite on models some of whose layers keep a state
// in place of keys and values, or see a window.
func TestRecurrentFamilies(t *testing.T) {
	for name, config := range map[string]string{
		"lfm2": `{"model_type": "lfm2", "architectures": ["Lfm2ForCausalLM"], "vocab_size": 19, "hidden_size": 8, "block_ff_dim": 15,
			"block_multiple_of": 2, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "full_attn_idxs": [1], "conv_bias": true,
			"max_position_embeddings": 64}`,
		"qwen3_5": `{"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 19, "hidden_size": 8, "intermediate_size": 10,
			"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "full_attention_interval": 2, "max_position_embeddings": 64,
			"linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 3, "linear_conv_kernel_dim": 3}`,
		"gemma3_text": `{"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "vocab_size": 19, "hidden_size": 8, "intermediate_size": 10,
			"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 6, "sliding_window": 2, "layer_types": ["full_attention", "sliding_attention"], "max_position_embeddings": 64}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			modeltest.Run(t, config)
			m, err := models.ParseConfig([]byte(config), nil)
			if err != nil {
				t.Fatal(err)
			}
			a, err := m.Architecture(models.Compute{})
			if err != nil {
				t.Fatal(err)
			}
			for kind := range a.Geometry().Kinds {
				forward, backward, err := a.LayerBytes(kind, true, 1, 200, 4, 50)
				_, longer, failed := a.LayerBytes(kind, true, 1, 400, 4, 100)
				if err != nil || failed != nil || forward < 1 || backward <= forward || longer < backward*7/4 {
					t.Errorf("layers of kind %d take %d bytes forward, %d backward, and %d for twice as many tokens: %v, %v", kind, forward, backward, longer, err, failed)
				}
			}
		})
	}
}

// TestRecurrentConfigs: what is impossible is named by its key, and both spellings of LFM2's
// keys count as in transformers.
func TestRecurrentConfigs(t *testing.T) {
	const lfm2 = `{"model_type": "lfm2", "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50, "num_hidden_layers": 3`
	const qwen = `{"model_type": "qwen3_5_text", "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50, "num_hidden_layers": 3`
	for text, want := range map[string]string{
		lfm2 + `, "conv_L_cache": 1}`:                        "conv_L_cache",
		lfm2 + `, "block_multiple_of": 0}`:                   "block_multiple_of",
		lfm2 + `, "block_ffn_dim_multiplier": 1e300}`:        "intermediate_size",
		lfm2 + `, "conv_dim": 16}`:                           "conv_dim",
		lfm2 + `, "use_pos_enc": false}`:                     "use_pos_enc",
		lfm2 + `, "full_attn_idxs": "all"}`:                  "full_attn_idxs",
		lfm2 + `, "layer_types": ["conv", "mamba", "conv"]}`: `layer 1 is "mamba"`,
		lfm2 + `, "layer_types": ["conv", "conv"]}`:          "layer_types names 2 layers",
		qwen + `, "linear_num_value_heads": 24}`:             "linear_num_value_heads (24) must be divisible",
		qwen + `, "linear_key_head_dim": 100000}`:            "linear_key_head_dim (100000)",
		qwen + `, "full_attention_interval": 0}`:             "full_attention_interval",
		qwen + `, "attn_output_gate": false}`:                "attn_output_gate",
		qwen + `, "linear_conv_kernel_dim": 1}`:              "linear_conv_kernel_dim",
	} {
		if _, err := models.ParseConfig([]byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]int{
		`, "block_ff_dim": 58, "intermediate_size": 99, "block_multiple_of": 8}`:                                 40, // of 2/3 of 58
		`, "intermediate_size": 58, "block_multiple_of": 8, "block_ffn_dim_multiplier": 1.3}`:                    56,
		`, "intermediate_size": 58, "block_auto_adjust_ff_dim": false}`:                                          58,
		`, "block_ff_dim": 58, "block_multiple_of": 8, "block_ffn_dim_multiplier": null, "tie_embedding": true}`: 40,
		`}`: 8192,
	} {
		m, err := models.ParseConfig([]byte(lfm2+text), nil)
		if err != nil || m.FFN != want {
			t.Errorf("%s: a width of %d, %v, want %d", text, m.FFN, err, want)
		}
	}
}

// TestMergeOfKinds: an adapter of a model whose layers have different modules is merged into the
// modules of each.
func TestMergeOfKinds(t *testing.T) {
	for _, config := range []string{
		`"model_type": "lfm2", "full_attn_idxs": [1]`,
		`"model_type": "qwen3_5_text", "full_attention_interval": 2, "head_dim": 8, "linear_num_key_heads": 1, "linear_num_value_heads": 2`,
	} {
		m, err := models.ParseConfig([]byte(`{"hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 9, `+config+`}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		w, err := m.Init(1)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		s := lora.Default()
		s.Rank = 2
		a, err := lora.New(s, m, "base")
		if err != nil {
			t.Fatal(err)
		}
		adapter, err := a.Init(s, 3)
		if err != nil {
			t.Fatal(err)
		}
		defer adapter.Close()
		for i := range adapter.Data {
			adapter.Data[i] += 0.1 // B begins at 0
		}
		dir := filepath.Join(t.TempDir(), "adapter")
		if err := a.Save(dir, adapter, nil); err != nil {
			t.Fatal(err)
		}
		was := slices.Clone(w.Data)
		if err := lora.Merge(dir, m, w); err != nil {
			t.Fatal(err)
		}
		for _, name := range m.Layout().Names() {
			place, _ := m.Layout().Find(name)
			changed := !slices.Equal(w.Data[place.Offset:place.Offset+place.Size], was[place.Offset:place.Offset+place.Size])
			if want := len(place.Shape) == 2 && strings.Contains(name, "layers."); changed != want {
				t.Errorf("%s: %s changed: %v", config, name, changed)
			}
		}
	}
}
