package qwen2_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"onering/models"
	_ "onering/models/qwen2"
)

// TestGoldenFolders loads what transformers wrote, in both styles of config,
// saves it and compares with the list of parameters that PyTorch gave.
func TestGoldenFolders(t *testing.T) {
	root := filepath.Join("..", "testdata", "torch")
	for _, name := range []string{"tied", "untied", "headdim"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, name, "golden.json"))
			if err != nil {
				t.Fatal(err)
			}
			var golden struct {
				Params map[string][]int `json:"params"`
			}
			if err := json.Unmarshal(text, &golden); err != nil {
				t.Fatal(err)
			}
			from := filepath.Join(root, name, "hf")
			c, w, err := models.Load(from)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if len(golden.Params) != len(w.Layout.Names()) {
				t.Errorf("%d tensors, want %d", len(w.Layout.Names()), len(golden.Params))
			}
			for _, tensor := range w.Tensors() {
				if !slices.Equal(tensor.Shape, golden.Params[tensor.Name]) {
					t.Errorf("%s has shape %v, want %v", tensor.Name, tensor.Shape, golden.Params[tensor.Name])
				}
			}
			dir := filepath.Join(t.TempDir(), "out")
			if err := c.Save(dir, w, models.SaveOptions{Tokenizer: from}); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"config.json", "generation_config.json"} {
				want, err := os.ReadFile(filepath.Join(from, file))
				if err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(filepath.Join(dir, file)); string(got) != string(want) {
					t.Errorf("%s changed: %v\n%s", file, err, got)
				}
			}
			_, back, err := models.Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer back.Close()
			if !slices.Equal(back.Data, w.Data) {
				t.Error("the weights differ after Save")
			}
			// Gradients are stored under the same names.
			f, err := models.OpenSafetensors(filepath.Join(root, name, "grads.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := back.Load(f); err != nil {
				t.Error(err)
			}
		})
	}
}
