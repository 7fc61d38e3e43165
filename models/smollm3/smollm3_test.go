package smollm3_test

import (
	"fmt"
	"strings"
	"testing"

	"onering/models"
	_ "onering/models/smollm3"
)

// TestLayersWithoutRope reads the list, in which a 1 is a layer with a rotary embedding,
// and, without a list, the interval.
func TestLayersWithoutRope(t *testing.T) {
	const shape = `{"model_type": "smollm3", "hidden_size": 12, "intermediate_size": 14, "num_hidden_layers": 5, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 9`
	for keys, want := range map[string]string{
		``:                                "[false false false true false]",
		`, "no_rope_layer_interval": 2`:   "[false true false true false]",
		`, "no_rope_layers": null`:        "[false false false true false]",
		`, "no_rope_layers": [0,1,1,0,1]`: "[true false false true false]",
		`, "no_rope_layers": [1,1,1,1,1,0], "no_rope_layer_interval": 2`: "[false false false false false]", // it may be longer
		`, "no_rope_layers": [1, 0]`:                                     "no_rope_layers names 2 layers, num_hidden_layers is 5",
		`, "no_rope_layers": "all"`:                                      `no_rope_layers: want a list of 1 and 0, found "all"`,
		`, "no_rope_layer_interval": 0`:                                  "no_rope_layer_interval: want a positive whole number",
		`, "use_sliding_window": true`:                                   "use_sliding_window true is not supported",
	} {
		m, err := models.ParseConfig([]byte(shape+keys+"}"), nil)
		got := fmt.Sprint(err)
		if err == nil {
			a, err := m.Architecture(models.Compute{})
			if err != nil {
				t.Fatal(err)
			}
			var without []bool
			for i, g := 0, a.Geometry(); i < g.Layers; i++ {
				without = append(without, !g.Kinds[g.Kind(i)].Turns())
			}
			got = fmt.Sprint(without)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", keys, got, want)
		}
	}
}
