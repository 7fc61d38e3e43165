package lora_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/models"
	_ "onering/models/all"
	"onering/models/lora"
)

const small = `{"model_type": "llama", "hidden_size": 12, "intermediate_size": 14, "num_hidden_layers": 2, "num_attention_heads": 4,
	"num_key_value_heads": 2, "head_dim": 6, "vocab_size": 23, "max_position_embeddings": 16, "tie_word_embeddings": true}`

func smallModel(t *testing.T) models.Model {
	t.Helper()
	m, err := models.ParseConfig([]byte(small), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRefused: an adapter that the graphs cannot compute is refused with the name of its key.
func TestRefused(t *testing.T) {
	m := smallModel(t)
	for _, tt := range []struct{ config, want string }{
		{`"use_dora": true`, "use_dora"},
		{`"use_qalora": true`, "use_qalora"},
		{`"init_lora_weights": "pissa"`, "init_lora_weights"},
		{`"init_lora_weights": "pissa_niter_4"`, "init_lora_weights"},
		{`"init_lora_weights": "olora"`, "init_lora_weights"},
		{`"init_lora_weights": "loftq"`, "init_lora_weights"},
		{`"init_lora_weights": "corda"`, "init_lora_weights"},
		{`"modules_to_save": ["lm_head"]`, "modules_to_save"},
		{`"bias": "all"`, "bias"},
		{`"lora_bias": true`, "lora_bias"},
		{`"rank_pattern": {"layers.0.self_attn.q_proj": 4}`, "rank_pattern"},
		{`"alpha_pattern": {"layers.1.self_attn.q_proj": 4}`, "alpha_pattern"},
		{`"rank_pattern": {"q_proj": 4.5}`, `rank_pattern: "q_proj" (4.5) must be a whole number`},
		{`"alpha_pattern": {"q_proj": null}`, `alpha_pattern: "q_proj" must be a number of float32`},
		{`"alpha_pattern": {"q_proj": 1e300}`, `alpha_pattern: "q_proj" must be a number of float32`},
		{`"alpha_pattern": ["q_proj"]`, "alpha_pattern is a list, not an object"},
		{`"alpha_pattern": {"(?!v)._proj": 4}`, `alpha_pattern: the pattern "(?!v)._proj" has "(?!", which is not supported`},
		{`"layers_to_transform": [0]`, "layers_to_transform"},
		{`"layers_to_transform": [null]`, "layers_to_transform[0] is null, not a whole number"},
		{`"layers_to_transform": [0], "target_modules": ".*q_proj"`, "PEFT refuses both together"},
		{`"layer_replication": [[0, 1]]`, "layer_replication"},
		{`"trainable_token_indices": [1]`, "trainable_token_indices"},
		{`"exclude_modules": ["layers.0.self_attn.q_proj"]`, "exclude_modules"},
		{`"exclude_modules": ".*(?<!v)_proj"`, `exclude_modules: the pattern ".*(?<!v)_proj" has "(?<`},
		{`"fan_in_fan_out": true`, "fan_in_fan_out"},
		{`"peft_type": "LOHA"`, "peft_type"},
		{`"a_method_of_next_year": {"x": 1}`, "a_method_of_next_year"},
		{`"r": 0`, "r (0)"},
		{`"r": "many"`, `r is "many", not a whole number`},
		{`"lora_alpha": 1e999`, "lora_alpha"},
		{`"lora_alpha": 1e300`, "lora_alpha"},
		{`"target_modules": ["q_proj", "lm_head"]`, "target_modules has lm_head: all layers"},
		{`"target_modules": ["q_proj", "embed_tokens"]`, "model.embed_tokens, an embedding"},
		{`"target_modules": ["model.layers.1.self_attn.q_proj"]`, "all layers share one graph"},
		{`"target_modules": "(" `, "target_modules"},
		{`"target_modules": ".*nothing"`, "name no module"},
		{`"target_modules": null`, "target_modules"},
		{`"target_modules": 7`, "target_modules"},
		{`"r": 4, "r": 5`, "twice"},
	} {
		dir := t.TempDir()
		if !strings.Contains(tt.config, "target_modules") {
			tt.config += `, "target_modules": ["q_proj"]`
		}
		if err := os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte("{"+tt.config+"}"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := lora.Read(dir, m); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.config, err, tt.want)
		}
	}
}

// TestTargets: names, whole paths, a pattern and all-linear mean what they mean in
// PEFT.
func TestModules(t *testing.T) {
	m := smallModel(t)
	all := []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
	for targets, want := range map[string][]string{
		`"all-linear"`:             all,
		`["v_proj", "q_proj"]`:     {all[0], all[2]},
		`["self_attn.o_proj"]`:     {all[3]},
		`".*mlp\\.(gate|up)_proj"`: {all[4], all[5]},
		`["model.layers.0.mlp.down_proj", "layers.1.mlp.down_proj"]`: {all[6]},
		// What is the same in all layers, one graph computes.
		`["v_proj", "query_key_value"], "rank_pattern": {"^v_proj": 4}`:                                       {all[2]},
		`"all-linear", "exclude_modules": ".*mlp.*", "modules_to_save": ["score"]`:                            all[:4],
		`["o_proj"], "layers_to_transform": [0, 1], "rank_pattern": {"o_proj": 2}, "alpha_pattern": {"q": 1}`: {all[3]},
	} {
		dir := t.TempDir()
		text := `{"r": 2, "lora_alpha": 3, "use_rslora": true, "target_modules": ` + targets + `}`
		if err := os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		a, err := lora.Read(dir, m)
		if err != nil {
			t.Error(err)
			continue
		}
		if !slices.Equal(a.Modules, want) || a.Rank != 2 || math.Abs(a.Scale-3/math.Sqrt2) > 1e-15 {
			t.Errorf("%s: rank %d, scale %g, modules %v", targets, a.Rank, a.Scale, a.Modules)
		}
	}
}

// TestNew: a new adapter begins with B zero and A within its bound, and is read back
// from its folder as it was.
func TestNew(t *testing.T) {
	m := smallModel(t)
	s := lora.Default()
	s.Rank, s.Alpha = 4, 8
	a, err := lora.New(s, m, "some/base")
	if err != nil {
		t.Fatal(err)
	}
	w, err := a.Init(s, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, x := range w.Tensors() {
		most := 0.0
		for _, v := range x.Data {
			most = max(most, math.Abs(float64(v)))
		}
		if bound := 1 / math.Sqrt(float64(x.Shape[1])); strings.Contains(x.Name, "lora_A") && (most > bound || most < bound/2) || strings.Contains(x.Name, "lora_B") && most != 0 {
			t.Errorf("%s: the largest number is %g", x.Name, most)
		}
	}
	dir := filepath.Join(t.TempDir(), "adapter")
	if err := a.Save(dir, w, nil); err != nil {
		t.Fatal(err)
	}
	b, err := lora.Read(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	back, err := b.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	if !slices.Equal(back.Data, w.Data) || b.Scale != 2 || !slices.Equal(a.Modules, b.Modules) {
		t.Errorf("read back: scale %g, modules %v", b.Scale, b.Modules)
	}
	w.Data[len(w.Data)-1] = float32(math.NaN())
	broken := filepath.Join(t.TempDir(), "adapter")
	if err := a.Save(broken, w, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Check(broken); err != nil {
		t.Errorf("names and shapes alone: %v", err)
	}
	if _, err := b.Load(broken); err == nil || !strings.Contains(err.Error(), `lora_B.weight" has NaN at its element`) {
		t.Errorf("a tensor with NaN: error %v", err)
	}
	s.Targets = []string{"q_proj", "nothing"}
	if _, err := lora.New(s, m, ""); err == nil || !strings.Contains(err.Error(), `lora.targets: "nothing"`) {
		t.Errorf("error %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(`{"r": 4, "target_modules": ["q_proj"]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if b, err = lora.Read(dir, m); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Load(dir); err == nil || !strings.Contains(err.Error(), "unexpected tensor") {
		t.Errorf("tensors of modules that are not targets: error %v", err)
	}
}

// TestGolden compares merged weights with PEFT's.
func TestGolden(t *testing.T) {
	goldens, err := filepath.Glob("../../../shared/goldens/lora/*/golden.json")
	if err != nil || len(goldens) == 0 {
		t.Skip("no ../shared/goldens/lora beside the repository")
	}
	for _, golden := range goldens {
		dir := filepath.Dir(golden)
		text, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		var g struct {
			Config struct {
				Base  string
				Scale float64
			}
		}
		if err := json.Unmarshal(text, &g); err != nil {
			t.Fatal(err)
		}
		m, base, err := models.Load(filepath.Join(dir, "../..", g.Config.Base, "hf"))
		if err != nil {
			t.Fatal(err)
		}
		defer base.Close()
		a, err := lora.Read(filepath.Join(dir, "adapter"), m)
		if err != nil {
			t.Fatal(err)
		}
		w, err := a.Load(filepath.Join(dir, "adapter"))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if math.Abs(a.Scale-g.Config.Scale) > 1e-12 {
			t.Errorf("%s: scale %g, want %g", dir, a.Scale, g.Config.Scale)
		}
		before := slices.Clone(base.Data)
		if err := lora.Merge(filepath.Join(dir, "adapter"), m, base); err != nil {
			t.Fatal(err)
		}
		merged, err := models.OpenSafetensors(filepath.Join(dir, "merged.safetensors"))
		if os.IsNotExist(err) || strings.HasSuffix(dir, "-init") { // B is zero
			if !slices.Equal(before, base.Data) {
				t.Errorf("%s: merging zero changes weights", dir)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer merged.Close()
		for _, x := range base.Tensors() {
			info, changed := merged.Info(x.Name)
			if !changed {
				place, _ := base.Layout.Find(x.Name)
				if !slices.Equal(x.Data, before[place.Offset:place.Offset+place.Size]) {
					t.Errorf("%s: merging changed %s", dir, x.Name)
				}
				continue
			}
			want := make([]float32, info.Elements)
			if err := merged.ReadFloat32(x.Name, want, 0); err != nil {
				t.Fatal(err)
			}
			gap, most := 0.0, 0.0
			for i, v := range want {
				gap, most = max(gap, math.Abs(float64(v-x.Data[i]))), max(most, math.Abs(float64(v)))
			}
			if gap > 1e-6*most {
				t.Errorf("%s: %s is %g off, of at most %g", dir, x.Name, gap, most)
			}
		}
	}
}
