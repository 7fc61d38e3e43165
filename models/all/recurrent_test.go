package all_test

import (
	"testing"

	"onering/models"
	"onering/models/modeltest"
)

// TestRecurrentFamilies runs the conformance suite on models some of whose layers keep a state
// in place of keys and values.
func TestRecurrentFamilies(t *testing.T) {
	for name, config := range map[string]string{
		"lfm2": `{"model_type": "lfm2", "architectures": ["Lfm2ForCausalLM"], "vocab_size": 19, "hidden_size": 8, "block_ff_dim": 15,
			"block_multiple_of": 2, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "full_attn_idxs": [1], "conv_bias": true,
			"max_position_embeddings": 64}`,
		"qwen3_5": `{"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 19, "hidden_size": 8, "intermediate_size": 10,
			"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "full_attention_interval": 2, "max_position_embeddings": 64,
			"linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 3, "linear_conv_kernel_dim": 3}`,
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
