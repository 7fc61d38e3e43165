package all_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/models"
)

// TestRopes compares the rotary embeddings that configs state with tables of transformers.
func TestRopes(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "goldens", "families", "parts", "rope.json"))
	if err != nil {
		t.Skip("../shared with the tables is not here")
	}
	var tables map[string]struct {
		HeadDim     int            `json:"head_dim"`
		Positions   int            `json:"max_position_embeddings"`
		Rope        map[string]any `json:"rope_parameters"`
		Frequencies []float64      `json:"inverse_frequencies"`
		Scale       float64        `json:"factor_on_cos_and_sin"`
	}
	if err := json.Unmarshal(raw, &tables); err != nil {
		t.Fatal(err)
	}
	for name, want := range tables {
		family := "qwen3"
		if want.Rope["llama_4_scaling_beta"] != nil {
			family = "ministral3"
		} else if want.Rope["partial_rotary_factor"] != nil {
			family = "phi3"
		}
		rope, _ := json.Marshal(want.Rope)
		m, err := models.ParseConfig(fmt.Appendf(nil, `{"model_type": %q, "hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
			"num_key_value_heads": 1, "vocab_size": 9, "head_dim": %d, "max_position_embeddings": %d, "rope_parameters": %s}`, family, want.HeadDim, want.Positions, rope), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		a, err := m.Architecture(models.Compute{})
		if err != nil {
			t.Fatal(err)
		}
		k := a.Geometry().Kinds[0]
		if len(k.Frequencies) != len(want.Frequencies) || math.Abs(float64(k.Scale)-want.Scale) > 1e-6 {
			t.Errorf("%s: %d frequencies, factor %g, want %d and %g", name, len(k.Frequencies), k.Scale, len(want.Frequencies), want.Scale)
			continue
		}
		for i, f := range want.Frequencies {
			if math.Abs(float64(k.Frequencies[i])-f) > 1e-7*f {
				t.Errorf("%s: frequency %d is %g, want %g", name, i, k.Frequencies[i], f)
			}
		}
	}
}

// TestNewNorms: norms that multiply by 1 + weight begin at 0, others at 1. A window that no row
// reaches is none.
func TestNewNorms(t *testing.T) {
	const sizes = `"hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
		"vocab_size": 9, "max_position_embeddings": 64`
	for config, want := range map[string]float32{
		`{"model_type": "gemma2", "head_dim": 4, "sliding_window": 64, ` + sizes + `}`: 0,
		`{"model_type": "olmo3", "sliding_window": 70, ` + sizes + `}`:                 1,
	} {
		m, err := models.ParseConfig([]byte(config), nil)
		if err != nil {
			t.Fatal(err)
		}
		w, err := m.Init(1)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for _, x := range w.Tensors() {
			if len(x.Shape) == 1 && x.Data[0] != want {
				t.Errorf("%s: %s begins with %g, want %g", config, x.Name, x.Data[0], want)
			}
		}
		a, err := m.Architecture(models.Compute{})
		if err != nil {
			t.Fatal(err)
		}
		if n := a.Geometry().Kinds.Window(); n != 0 {
			t.Errorf("%s: a window of %d", config, n)
		}
	}
}

// TestContext: the limit of a model whose longrope has a short list is not max_position_embeddings,
// and its remedy is another list.
func TestContext(t *testing.T) {
	const sizes = `{"model_type": "phi3", "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 9,
		"max_position_embeddings": 640, "original_max_position_embeddings": 40, "rope_scaling": {"type": "longrope", "short_factor": [1, 1.5], "long_factor": [1, `
	for long, want := range map[string]string{"4": "original_max_position_embeddings is 40, up to which longrope's short_factor counts", "1.5": "max_position_embeddings is 640"} {
		m, err := models.ParseConfig([]byte(sizes+long+"]}}"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Context(); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
