package all_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	_ "onering/models/all"
	"onering/models/modeltest"
)

// TestFamilies runs the conformance suite and PyTorch's numbers on every folder of
// models/testdata/torch, of which each family that came with onering has one.
func TestFamilies(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join("..", "testdata", "torch", "*", "hf", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join("..", "..", "..", "shared", "goldens", "model", "*", "hf", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range append(folders, more...) {
		dir := filepath.Dir(filepath.Dir(file))
		name := filepath.Base(dir)
		if seen[name] {
			continue // The test also looks in the folder shared beside the repository.
		}
		seen[name] = true
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			Family string `json:"model_type"`
		}
		if err := json.Unmarshal(text, &config); err != nil {
			t.Fatal(err)
		}
		seen[config.Family] = true
		t.Run(config.Family+"/"+name, func(t *testing.T) {
			t.Parallel()
			t.Run("golden", func(t *testing.T) { modeltest.Golden(t, dir) })
			if slices.Contains(folders, file) {
				modeltest.Run(t, string(text))
			}
		})
	}
	for _, family := range []string{"llama", "qwen2", "qwen3", "smollm3"} {
		if !seen[family] {
			t.Errorf("no folder is of the family %q", family)
		}
	}
}
