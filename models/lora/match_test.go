package lora_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"onering/models"
	"onering/models/lora"
)

// TestTargets compares the modules, ranks and scales of adapters with those that PEFT gives
// a model (testdata/targets.py). What PEFT refuses is refused.
func TestTargets(t *testing.T) {
	text, err := os.ReadFile("testdata/targets.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Config json.RawMessage
		Want   *struct {
			Products map[string][]int
			Saved    []string
		}
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	config := strings.NewReplacer(`"num_hidden_layers": 2`, `"num_hidden_layers": 11`, `"tie_word_embeddings": true`, `"tie_word_embeddings": false`).Replace(small)
	m, err := models.ParseConfig([]byte(config), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		products, saved, err := lora.Matched([]byte(`{"r": 4, "lora_alpha": 8, `+string(c.Config)[1:]), m)
		switch text := string(c.Config); {
		case strings.Contains(text, `{,`) || strings.Contains(text, `Z`): // which Go's patterns lack
			if err == nil || !strings.Contains(err.Error(), "not supported here") {
				t.Errorf("%s: error %v", text, err)
			}
			continue
		case (err == nil) != (c.Want != nil):
			t.Errorf("%s: %v, error %v, want %v", text, products, err, c.Want)
			continue
		case err != nil:
			continue
		}
		var want []string
		for key, layers := range c.Want.Products {
			part := strings.Fields(key)
			scale, _ := strconv.ParseFloat(part[2], 64)
			entry := fmt.Sprintf("%s %s %.6g", part[0], part[1], scale)
			if len(layers) == 0 {
				want = append(want, entry)
			}
			for _, l := range layers {
				want = append(want, fmt.Sprintf("model.layers.%d.%s", l, entry))
			}
		}
		slices.Sort(want)
		slices.Sort(products)
		slices.Sort(saved)
		if !slices.Equal(products, want) || !slices.Equal(saved, c.Want.Saved) {
			t.Errorf("%s:\n%q and %q, want\n%q and %q", c.Config, products, saved, want, c.Want.Saved)
		}
	}
}
