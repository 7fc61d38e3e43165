package lora_test

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/internal/files"
	"onering/models"
	"onering/models/lora"
)

// mergeFolder writes the folder of an adapter with these tensors.
func mergeFolder(t *testing.T, config string, tensors []models.Tensor) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	put := func(name string, write func(io.Writer) error) error {
		return files.WriteFile(filepath.Join(dir, name), write)
	}
	if err := models.WriteSafetensors(put, "adapter_model.safetensors", models.F32, tensors, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func numbers(name string, shape ...int) models.Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	x := models.Tensor{Name: "base_model.model." + name, Shape: shape, Data: make([]float32, n)}
	for i := range x.Data {
		x.Data[i] = float32(math.Sin(float64(i + len(name)*7)))
	}
	return x
}

// TestMerge: the merge adds adapters with ranks and scales by module, layers without
// products, and modules that were trained whole to the weights, and changes nothing else.
func TestMerge(t *testing.T) {
	m, err := models.ParseConfig([]byte(strings.Replace(small, `"tie_word_embeddings": true`, `"tie_word_embeddings": false`, 1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	const q0, q1, down = "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.down_proj"
	products := map[string]struct {
		rank, out, in int
		scale         float64
	}{q0: {2, 24, 12, 6. / 2}, q1: {4, 24, 12, 8. / 4}, down: {3, 12, 14, 5. / 3}}
	tensors := []models.Tensor{numbers("lm_head.weight", 23, 12), numbers("model.layers.0.input_layernorm.modules_to_save.weight", 12)}
	for name, p := range products {
		tensors = append(tensors, numbers(name+".lora_A.weight", p.rank, p.in), numbers(name+".lora_B.weight", p.out, p.rank))
	}
	const config = `{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"], "layers_to_transform": [0, 1], "modules_to_save": ["lm_head", "input_layernorm"],
		"rank_pattern": {"layers.0.self_attn.q_proj": 2, ".*down_proj": 3, "q_proj": 4}, "alpha_pattern": {"^model.layers.0.*q_proj": 6, "down_proj": 5}}`
	dir := mergeFolder(t, config, tensors)
	base, err := m.Init(3)
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	want := map[string][]float32{}
	for _, x := range base.Tensors() {
		want[x.Name] = slices.Clone(x.Data)
	}
	data := map[string][]float32{}
	for _, x := range tensors {
		data[x.Name] = x.Data
	}
	for name, p := range products {
		a, b := data["base_model.model."+name+".lora_A.weight"], data["base_model.model."+name+".lora_B.weight"]
		for i := range p.out {
			for j := range p.in {
				sum := 0.0
				for k := range p.rank {
					sum += float64(b[i*p.rank+k]) * float64(a[k*p.in+j])
				}
				want[name+".weight"][i*p.in+j] += float32(p.scale * sum)
			}
		}
	}
	want["lm_head.weight"], want["model.layers.0.input_layernorm.weight"] = tensors[0].Data, tensors[1].Data
	if err := lora.Merge(dir, base); err != nil {
		t.Fatal(err)
	}
	for _, x := range base.Tensors() {
		for i, v := range x.Data {
			if math.Abs(float64(v-want[x.Name][i])) > 1e-5 {
				t.Fatalf("%s[%d] = %g, want %g", x.Name, i, v, want[x.Name][i])
			}
		}
	}
	if _, err := lora.Read(dir, m); err == nil || !strings.Contains(err.Error(), "onering merge") {
		t.Errorf("beside the model: error %v, want the remedy", err)
	}
}

// TestMergeRefused: a merge that no model folder can hold is refused with the reason.
func TestMergeRefused(t *testing.T) {
	const config, q = `{"r": 2, "target_modules": ["q_proj"]}`, "model.layers.0.self_attn.q_proj"
	a, b := numbers(q+".lora_A.weight", 2, 12), numbers(q+".lora_B.weight", 24, 2)
	head, embedding := numbers("lm_head.weight", 23, 12), numbers("model.embed_tokens.weight", 23, 12)
	nan := numbers(q+".lora_A.weight", 2, 12)
	nan.Data[3] = float32(math.NaN())
	for want, c := range map[string]struct {
		config  string
		tensors []models.Tensor
	}{
		"":                                                {config, []models.Tensor{a, b}},
		"its rank is 2, and adapter_config":               {strings.Replace(config, `"r": 2`, `"r": 2, "rank_pattern": {"q_proj": 8}`, 1), []models.Tensor{a, b}},
		"lora_B.weight\" beside it":                       {config, []models.Tensor{a}},
		"it has no lora_A beside it":                      {config, []models.Tensor{b}},
		"it has NaN at its element 3":                     {config, []models.Tensor{nan, b}},
		"save the model untied":                           {config, []models.Tensor{a, b, head}},
		"which are one tensor":                            {config, []models.Tensor{embedding}},
		"has the shape [2 13]":                            {config, []models.Tensor{numbers(q+".lora_A.weight", 2, 13), b}},
		"the model has [12]":                              {config, []models.Tensor{numbers("model.norm.weight", 14)}},
		"is no matrix of this model":                      {config, []models.Tensor{numbers("model.layers.7.mlp.up_proj.lora_A.weight", 2, 12), numbers("model.layers.7.mlp.up_proj.lora_B.weight", 14, 2)}},
		"merges the two matrices of a linear module only": {config, []models.Tensor{numbers("model.embed_tokens.lora_embedding_A", 2, 23)}},
		"use_dora is true":                                {strings.Replace(config, `"r": 2`, `"r": 2, "use_dora": true`, 1), []models.Tensor{a, b}},
		`alpha_pattern: "q_proj": want a numb`:            {strings.Replace(config, `"r": 2`, `"r": 2, "alpha_pattern": {"q_proj": "x"}`, 1), []models.Tensor{a, b}},
	} {
		base, err := smallModel(t).Init(3)
		if err != nil {
			t.Fatal(err)
		}
		err = lora.Merge(mergeFolder(t, c.config, c.tensors), base)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		base.Close()
	}
	// A head and an embedding that share their weights are one tensor.
	base, err := smallModel(t).Init(3)
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	embedding.Data = slices.Clone(head.Data)
	if err := lora.Merge(mergeFolder(t, config, []models.Tensor{a, b, head, embedding}), base); err != nil {
		t.Fatal(err)
	}
	if w, _, _ := base.View("model.embed_tokens.weight"); !slices.Equal(w, head.Data) {
		t.Error("the embedding is not the one that was trained")
	}
}
