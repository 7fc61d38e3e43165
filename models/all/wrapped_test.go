package all_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/models/decoder"
	"onering/models/lora"
)

// TestTower: Save keeps the tensors of the vision tower as they are, in their own type, and writes
// the type of the language model into both places of config.json.
func TestTower(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join("..", "..", "..", "shared", "goldens", "families", "*_wrapped", "hf"))
	if err != nil || len(folders) == 0 {
		t.Skip("../shared with the golden folders is not here")
	}
	for _, from := range folders {
		m, w, err := models.Load(from)
		if err != nil {
			if strings.Contains(err.Error(), "model_type \"qwen3_5\" is not supported") {
				continue // a family that is not here yet
			}
			t.Fatal(err)
		}
		defer w.Close()
		to := filepath.Join(t.TempDir(), "out")
		if err := m.Save(to, w, models.SaveOptions{DType: models.BF16, ShardBytes: 20000}); err != nil {
			t.Fatal(err)
		}
		before, after := tensorsOf(t, from), tensorsOf(t, to)
		if len(before) != len(after) {
			t.Errorf("%s: %d tensors, were %d", from, len(after), len(before))
		}
		text := m.Layout().Names()
		for name, x := range before {
			if y := after[name]; !slices.Contains(text, name) && (y.DType != x.DType || string(y.data) != string(x.data)) || y.data == nil {
				t.Errorf("%s: %s is %s, was %s, or its numbers changed", from, name, y.DType, x.DType)
			}
		}
		var config struct {
			DType, TorchDType string
			Text              struct {
				DType      string `json:"dtype"`
				TorchDType string `json:"torch_dtype"`
			} `json:"text_config"`
		}
		raw, err := os.ReadFile(filepath.Join(to, "config.json"))
		if err == nil {
			err = json.Unmarshal(raw, &config)
		}
		if err != nil || config.Text.DType+config.Text.TorchDType != "bfloat16" {
			t.Errorf("%s: %v, config.json states %+v", from, err, config)
		}
		if _, again, err := models.Load(to); err != nil {
			t.Error(err)
		} else {
			again.Close()
		}
	}
}

// TestAdapterOfWrapped: the file of an adapter names tensors by the paths of modules, and its
// config means no module of the vision tower.
func TestAdapterOfWrapped(t *testing.T) {
	m, err := models.ParseConfig([]byte(`{"model_type": "gemma3", "text_config": {"hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2, "vocab_size": 9}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, targets := range [][]string{{"all-linear"}, {"q_proj", "mlp.down_proj"}} {
		s := lora.Default()
		s.Rank, s.Targets = 2, targets
		a, err := lora.New(s, m, "base")
		if err != nil {
			t.Fatal(err)
		}
		w, err := a.Init(s, 3)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		dir := filepath.Join(t.TempDir(), "adapter")
		if err := a.Save(dir, w, nil); err != nil {
			t.Fatal(err)
		}
		for name := range tensorsOf(t, dir) {
			if !strings.HasPrefix(name, "base_model.model.model.language_model.layers.") {
				t.Errorf("the file has %s", name)
			}
		}
		text, err := os.ReadFile(filepath.Join(dir, "adapter_config.json"))
		if err != nil || !strings.Contains(string(text), `"target_modules": "model\\.language_model\\.(?:.*\\.)?(?:`) {
			t.Errorf("%v, adapter_config.json is\n%s", err, text)
		}
		back, err := lora.Read(dir, m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := back.Load(dir)
		if err != nil || !slices.Equal(again.Data, w.Data) {
			t.Errorf("%v, or its numbers changed", err)
		}
	}
}

// A stored tensor is one as its file has it.
type stored struct {
	DType   string
	Offsets [2]int `json:"data_offsets"`
	data    []byte
}

func tensorsOf(t *testing.T, dir string) map[string]stored {
	t.Helper()
	list, _ := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	all := map[string]stored{}
	for _, path := range list {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n := 8 + (int(raw[0]) | int(raw[1])<<8 | int(raw[2])<<16)
		header := map[string]json.RawMessage{}
		if err := json.Unmarshal(raw[8:n], &header); err != nil {
			t.Fatal(err)
		}
		for name, text := range header {
			var x stored
			if name == "__metadata__" || json.Unmarshal(text, &x) != nil {
				continue
			}
			x.data = raw[n+x.Offsets[0] : n+x.Offsets[1]]
			all[name] = x
		}
	}
	return all
}

// TestErrors: what is missing is named, and what a text_config leaves out has the family's defaults.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"model_type": "gemma3"}`: "no text_config",
		`{"model_type": "gemma3", "text_config": {"model_type": "gemma4_text"}}`: `model_type "gemma4_text" is not supported`,
		`{"model_type": "mistral3", "text_config": {"hidden_size": "wide"}}`:     "text_config: hidden_size",
	} {
		if _, err := models.ParseConfig([]byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	m, err := models.ParseConfig([]byte(`{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}, "vision_config": {"hidden_size": 8}, "eos_token_id": [1, 106]}`), nil)
	if err != nil || m.Hidden != 2304 || m.Heads != 8 || m.KVHeads != 4 || m.HeadDim != 256 || m.Vocab != 262208 || !slices.Equal(m.EOS, []int32{1, 106}) {
		t.Errorf("a text_config without defaults is %+v, %v", m.Sizes, err)
	}
}

// TestRefused: what no graph computes is refused by its name.
func TestRefused(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "qwen3_moe", "num_experts": 128}`:                                         `"qwen3_moe" is not supported (it has layers with experts: num_experts 128)`,
		`{"model_type": "gpt_oss", "num_local_experts": 32}`:                                      `layers with experts: num_local_experts 32`,
		`{"model_type": "llama4", "text_config": {"num_local_experts": 16}}`:                      `"llama4" is not supported (it has layers with experts: num_local_experts 16)`,
		`{"model_type": "gemma4", "text_config": {"num_experts": null}}`:                          `"gemma4" is not supported, only`,
		`{"model_type": "bamba", "mamba_d_state": 256}`:                                           `it has mamba layers: mamba_d_state 256`,
		`{"model_type": "mamba2", "state_size": 128}`:                                             `it has mamba layers`,
		`{"model_type": "gemma3", "text_config": {}, "quantization_config": {"bits": 4}}`:         "quantized weights are not supported",
		`{"model_type": "mistral", "num_local_experts": 8}`:                                       "num_local_experts 8 is not supported",
		`{"model_type": "gemma3_text", "layer_types": ["mamba"], "num_hidden_layers": 1}`:         `layer 0 is "mamba"`,
		`{"model_type": "gemma3_text", "use_bidirectional_attention": true}`:                      "use_bidirectional_attention true",
		`{"model_type": "olmo2", "rope_scaling": {"rope_type": "dynamic", "factor": 2}, ` + sizes: `rope_type "dynamic" is not supported`,
	} {
		if _, err := models.ParseConfig([]byte(config), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

const sizes = `"vocab_size": 9, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}`

// TestMinistralWithoutRope: without rope_parameters the rotary embedding of Ministral 3 is the
// one of the published models, as transformers has it.
func TestMinistralWithoutRope(t *testing.T) {
	published := `"rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}, `
	var designs []decoder.Shape
	for _, rope := range []string{published, "", `"rope_parameters": null, `, `"rope_theta": 10000, `} {
		m, err := models.ParseConfig([]byte(`{"model_type": "ministral3", "num_key_value_heads": 1, `+rope+sizes), nil)
		if err != nil {
			t.Fatal(err)
		}
		designs = append(designs, m.Design.(decoder.Shape))
	}
	for i, d := range designs[1:] {
		if d.Block.QueryScale != 0.1 || d.Block.QueryLength != 16384 || !reflect.DeepEqual(d.Kinds, designs[0].Kinds) {
			t.Errorf("spelling %d: %+v, want %+v", i+1, d, designs[0])
		}
	}
}

// TestTiedWithin: a language model within a larger one has the head that transformers gives it
// where no key says so.
func TestTiedWithin(t *testing.T) {
	for text, tied := range map[string]bool{
		`"model_type": "mistral3", "text_config": {"model_type": "mistral"`:                                                       false, // Mistral Small 3.1
		`"model_type": "mistral3", "text_config": {`:                                                                              false,
		`"model_type": "mistral3", "tie_word_embeddings": true, "text_config": {"model_type": "mistral"`:                          true,
		`"model_type": "mistral3", "text_config": {"model_type": "ministral3", "rope_theta": 10000`:                               true,
		`"model_type": "mistral3", "text_config": {"tie_word_embeddings": false, "model_type": "ministral3", "rope_theta": 10000`: false,
		`"model_type": "gemma3", "text_config": {`:                                                                                true,
		`"model_type": "qwen3_5", "text_config": {`:                                                                               false,
	} {
		if !strings.HasSuffix(text, "{") {
			text += ", "
		}
		m, err := models.ParseConfig([]byte("{"+text+`"hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 9}}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, head := m.Layout().Find("language_model.lm_head.weight"); strings.Contains(text, "mistral3") && head == tied {
			t.Errorf("%s: a head of its own %v", text, head)
		}
		if shape := m.Design.(decoder.Shape); shape.Tied != tied {
			t.Errorf("%s: tied %v, want %v", text, shape.Tied, tied)
		}
	}
}
