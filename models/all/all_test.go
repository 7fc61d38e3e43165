package all_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"onering/models"
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
	var more []string
	for _, kind := range []string{"model", "families"} {
		some, err := filepath.Glob(filepath.Join("..", "..", "..", "shared", "goldens", kind, "*", "hf", "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		more = append(more, some...)
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
			if !slices.Contains(models.Families(), config.Family) {
				t.Skipf("no family %q", config.Family)
			}
			t.Parallel()
			t.Run("golden", func(t *testing.T) { modeltest.Golden(t, dir) })
			if slices.Contains(folders, file) || os.Getenv("ONERING_LONG") != "" {
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
