package all_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/models"
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
			if strings.Contains(err.Error(), "is not supported, only") {
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
