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
	}{q0: {2, 24, 12, 6. / 2}, q1: {4, 24, 12, 8. / 4}, down: {3, 12, 14, 5. / 3}, "lm_head": {4, 23, 12, 8. / 4}}
	// PEFT writes the tensor beside a product of the head, and reads others that have the model's names.
	tensors := []models.Tensor{numbers("lm_head.base_layer.weight", 23, 12), numbers("model.layers.0.input_layernorm.weight", 12), numbers("model.norm.weight", 12)}
	for name, p := range products {
		tensors = append(tensors, numbers(name+".lora_A.weight", p.rank, p.in), numbers(name+".lora_B.weight", p.out, p.rank))
	}
	const config = `{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj", "lm_head"], "exclude_modules": ["layers.0.mlp.down_proj"], "modules_to_save": ["0.input_layernorm"],
		"rank_pattern": {"layers.0.self_attn.q_proj": 2, ".*down_proj": 3, "q_proj": 4, "^lm": 9}, "alpha_pattern": {"^model.layers.0.*q_proj": 6, "^down_proj": 50, "down_proj": 5}}`
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
	want["lm_head.weight"], want["model.layers.0.input_layernorm.weight"], want["model.norm.weight"] = slices.Clone(tensors[0].Data), tensors[1].Data, tensors[2].Data
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
	if err := lora.Merge(dir, m, base); err != nil {
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

// TestMergeRefused: tensors other than those that PEFT would load, and a merge that no model
// folder can hold, are refused with the reason.
func TestMergeRefused(t *testing.T) {
	const q = "model.layers.0.self_attn.q_proj"
	a, b := numbers(q+".lora_A.weight", 2, 12), numbers(q+".lora_B.weight", 24, 2)
	up := []models.Tensor{numbers("model.layers.0.mlp.up_proj.lora_A.weight", 2, 12), numbers("model.layers.0.mlp.up_proj.lora_B.weight", 14, 2)}
	head, embedding := numbers("lm_head.weight", 23, 12), numbers("model.embed_tokens.weight", 23, 12)
	nan := numbers(q+".lora_A.weight", 2, 12)
	nan.Data[3] = float32(math.NaN())
	inner := func(name string, x models.Tensor) models.Tensor {
		x.Name = strings.Replace(x.Name, ".weight", name, 1)
		return x
	}
	for want, c := range map[string]struct {
		keys    string
		tensors []models.Tensor
	}{
		"": {``, []models.Tensor{a, b}},
		"lora_A.weight\" has shape [2 12], want [8 12]":           {`"rank_pattern": {"q_proj": 8}`, []models.Tensor{a, b}},
		"missing tensor \"base_model.model." + q + ".lora_B":      {``, []models.Tensor{a}},
		"missing tensor \"base_model.model." + q + ".lora_A":      {``, []models.Tensor{b}},
		"has NaN at its element 3":                                {``, []models.Tensor{nan, b}},
		"modules_to_save has one of lm_head and":                  {`"modules_to_save": ["lm_head"]`, []models.Tensor{a, b, head}},
		"its folder cannot hold two":                              {`"modules_to_save": ["embed_tokens"]`, []models.Tensor{a, b, embedding}},
		"or both with different numbers":                          {`"modules_to_save": ["lm_head", "embed_tokens"]`, []models.Tensor{a, b, head, embedding}},
		"target_modules has lm_head, and the head":                {`"target_modules": ["lm_head"]`, []models.Tensor{a, b}},
		"both target_modules and modules_to_save have model.":     {`"modules_to_save": ["elf_attn.q_proj"]`, []models.Tensor{a, b}},
		"missing tensor \"base_model.model.model.norm.weight":     {`"modules_to_save": ["model.norm"]`, []models.Tensor{a, b}},
		"has shape [2 13]":                                        {``, []models.Tensor{numbers(q+".lora_A.weight", 2, 13), b}},
		"has shape [14], want [12]":                               {``, []models.Tensor{a, b, numbers("model.norm.weight", 14)}},
		"unexpected tensor \"base_model.model.model.layers.0.mlp": {``, append(up, a, b)},
		"unexpected tensor \"base_model.model." + q + ".weight":   {``, []models.Tensor{a, b, numbers(q+".weight", 24, 12)}},
		"unexpected tensor \"base_model.model.model.embed":        {``, []models.Tensor{a, b, numbers("model.embed_tokens.lora_embedding_A", 2, 23)}},
		`all tensors have within their names "default."`:          {``, []models.Tensor{inner(".default.weight", a), inner(".default.weight", b)}},
		"use_dora is true":                                        {`"use_dora": true`, []models.Tensor{a, b}},
		`alpha_pattern.q_proj is "x", not a number`:               {`"alpha_pattern": {"q_proj": "x"}`, []models.Tensor{a, b}},
		"missing tensor \"base_model.model.model.layers.1.self":   {`"exclude_modules": ["v_proj"]`, []models.Tensor{a, b}},
	} {
		config := `{"r": 2, "layers_to_transform": [0]`
		if strings.Contains(c.keys, "exclude") {
			config = `{"r": 2`
		}
		if !strings.Contains(c.keys, "target_modules") {
			config += `, "target_modules": ["q_proj"]`
		}
		if c.keys != "" {
			config += ", " + c.keys
		}
		config += "}"
		base, err := smallModel(t).Init(3)
		if err != nil {
			t.Fatal(err)
		}
		err = lora.Merge(mergeFolder(t, config, c.tensors), smallModel(t), base)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		base.Close()
	}
	// A head and an embedding with the same numbers are one tensor, and so is an embedding
	// that modules_to_save does not name.
	for keys, tensors := range map[string][]models.Tensor{
		`"modules_to_save": ["lm_head", "embed_tokens"]`:                   {a, b, inner(".weight", models.Tensor{Name: head.Name, Shape: head.Shape, Data: embedding.Data}), embedding},
		`"modules_to_save": ["embed_tokens"], "ensure_weight_tying": true`: {a, b, embedding},
		`"modules_to_save": null`:                                          {a, b, embedding},
	} {
		base, err := smallModel(t).Init(3)
		if err != nil {
			t.Fatal(err)
		}
		defer base.Close()
		if err := lora.Merge(mergeFolder(t, `{"r": 2, "target_modules": ["q_proj"], "layers_to_transform": 0, `+keys+"}", tensors), smallModel(t), base); err != nil {
			t.Errorf("%s: %v", keys, err)
		}
		if w, _, _ := base.View("model.embed_tokens.weight"); !slices.Equal(w, embedding.Data) {
			t.Errorf("%s: the embedding is not the one that was trained", keys)
		}
	}
}
