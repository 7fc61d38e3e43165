package decoder_test

import (
	"math"
	"strings"
	"testing"

	"onering/models"
	"onering/models/decoder"
	_ "onering/models/llama"
)

// TestLlama3Frequencies: the scaled frequencies of Llama 3.2 1B by the three cases
// of the definition, and both spellings of config.json are the same.
func TestLlama3Frequencies(t *testing.T) {
	const shape = `{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2, "num_attention_heads": 32,
		"num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128, "max_position_embeddings": 131072, `
	const scaling = `"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192`
	for name, rest := range map[string]string{
		"hub":      `"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", ` + scaling + `}}`,
		"old type": `"rope_theta": 500000.0, "rope_scaling": {"type": "llama3", ` + scaling + `}}`,
		"v5":       `"rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", ` + scaling + `}}`,
		"both":     `"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", ` + scaling + `}, "rope_parameters": {"rope_theta": 7, "rope_type": "default"}}`,
	} {
		m, err := models.ParseConfig([]byte(shape+rest), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kept, blended, slowed := 0, 0, 0
		for i, got := range m.Design.(decoder.Shape).Kinds[0].Frequencies {
			f := math.Pow(500000, -2*float64(i)/64)
			wavelength := 2 * math.Pi / f
			want := f
			switch {
			case wavelength > 8192:
				want = f / 32
				slowed++
			case wavelength > 8192/4:
				s := (8192/wavelength - 1) / (4 - 1)
				want = (1-s)*f/32 + s*f
				blended++
			default:
				kept++
			}
			if !(math.Abs(float64(got)-want) <= 1e-7*want) {
				t.Errorf("%s: frequency %d is %g, want %g", name, i, got, want)
			}
		}
		if kept == 0 || blended == 0 || slowed == 0 {
			t.Errorf("%s: %d frequencies kept, %d blended, %d slowed: want some of each", name, kept, blended, slowed)
		}
	}
	for rest, want := range map[string]string{
		`"rope_scaling": {"rope_type": "llama3", "factor": 8}}`:                                        "rope_scaling: no low_freq_factor",
		`"rope_scaling": {"rope_type": "llama3", ` + strings.Replace(scaling, "32.0", "0.5", 1) + `}}`: "factor (0.5) must be at least 1",
		`"rope_scaling": {"rope_type": "llama3", ` + strings.Replace(scaling, "4.0", "1", 1) + `}}`:    "low_freq_factor (1) must be positive and below high_freq_factor (1)",
		`"rope_scaling": {"rope_type": "llama3", ` + strings.Replace(scaling, "8192", "0", 1) + `}}`:   "original_max_position_embeddings (0) must be at least 1",
		`"rope_scaling": {"rope_type": "llama3", "mscale": 1, ` + scaling + `}}`:                       `mscale 1 is not supported with "llama3"`,
		`"rope_scaling": {"rope_type": "dynamic", "factor": 2}}`:                                       `rope_type "dynamic" is not supported`,
		`"rope_scaling": {"factor": 2}}`:                                                               `factor 2 is not supported with "default"`,
		`"rope_scaling": {"rope_type": "longrope"}, "rope_parameters": {"rope_theta": 7}}`:             `rope_scaling: no short_factor, which rope_type "longrope" needs`,
		`"rope_parameters": {"rope_theta": 7, "rope_type": "default", "partial_rotary_factor": 0.5}}`:  "partial_rotary_factor 0.5 is not supported, only 1",
	} {
		if _, err := models.ParseConfig([]byte(shape+rest), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rest, err, want)
		}
	}
}
