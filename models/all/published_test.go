package all_test

import (
	"os"
	"path/filepath"
	"testing"

	"onering/models"
)

// TestPublishedShapes counts the parameters of the published models whose
// config.json lies in bench.
func TestPublishedShapes(t *testing.T) {
	for folder, want := range map[string]int{
		"qwen2.5-0.5b": 494_032_768, "qwen3-0.6b": 596_049_920, "llama-3.2-1b": 1_235_814_400, "smollm2-135m": 134_515_008,
		"qwen3-4b": 4_022_468_096, "qwen3-8b": 8_190_735_360,
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "bench", folder, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		m, err := models.ParseConfig(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		n, layout := 0, m.Layout()
		for _, name := range layout.Names() {
			place, _ := layout.Find(name)
			n += place.Size
		}
		if n != want {
			t.Errorf("%s has %d parameters, want %d", folder, n, want)
		}
	}
}
