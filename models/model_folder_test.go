package models_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/internal/files"
	"onering/models"
)

// write makes a model folder of a config and tensors.
func write(t *testing.T, config string, tensors []models.Tensor) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := models.WriteModel((&files.Draft{Dir: dir}).WriteFile, models.F32, tensors, 0); err != nil {
		t.Fatal(err)
	}
	return dir
}

// toSave makes a model with a generation_config.json, and the folder of a tokenizer with
// files of these names, which they hold.
func toSave(t *testing.T, generation string, names ...string) (c models.Model, w *models.Weights, tokenizer string) {
	t.Helper()
	c, err := models.ParseConfig([]byte(published), []byte(generation))
	if err != nil {
		t.Fatal(err)
	}
	if w, err = c.Init(7); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	tokenizer = t.TempDir()
	for _, name := range names {
		path := filepath.Join(tokenizer, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(name), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	return c, w, tokenizer
}

func TestSaveAndLoad(t *testing.T) {
	const generation = `{"eos_token_id": [91, 90],  "temperature": 0.7}`
	c, w, tokenizer := toSave(t, generation, "tokenizer.json", "merges.txt", "notes.txt", "additional_chat_templates/rag.jinja", "additional_chat_templates/rag.txt")
	for _, o := range []models.SaveOptions{
		{},
		{DType: models.BF16},
		{DType: models.F16, ShardBytes: 4096},
		{Tokenizer: tokenizer, Extra: func(d *files.Draft) error {
			return os.WriteFile(filepath.Join(d.Dir, "extra"), nil, 0o666)
		}},
	} {
		dir := filepath.Join(t.TempDir(), "out")
		if err := c.Save(dir, w, o); err != nil {
			t.Fatal(err)
		}
		d, back, err := models.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer back.Close()
		if !slices.Equal(d.EOS, []int32{91, 90}) || string(d.Text.Generation) != generation || d.Hidden != c.Hidden {
			t.Errorf("%+v: config %+v", o, d)
		}
		wantType := o.DType
		if wantType == models.Invalid {
			wantType = models.F32
		}
		if d.DType != wantType {
			t.Errorf("config.json says %s of tensors of %s", d.DType, wantType)
		}
		for i, x := range back.Data {
			want := w.Data[i]
			switch o.DType {
			case models.BF16:
				want = models.BF16ToFloat32(models.Float32ToBF16(want))
			case models.F16:
				want = models.F16ToFloat32(models.Float32ToF16(want))
			}
			if x != want {
				t.Fatalf("%s: element %d came back as %g, want %g", wantType, i, x, want)
			}
		}
		var files []string
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			files = append(files, e.Name())
		}
		want := []string{"config.json", "generation_config.json", "model.safetensors"}
		if o.Tokenizer != "" {
			want = append(want, "additional_chat_templates", "extra", "merges.txt", "tokenizer.json")
			if text, err := os.ReadFile(filepath.Join(dir, "additional_chat_templates", "rag.jinja")); string(text) != "additional_chat_templates/rag.jinja" {
				t.Errorf("rag.jinja: %q, %v", text, err)
			}
			slices.Sort(want)
		}
		if o.ShardBytes == 0 && !slices.Equal(files, want) {
			t.Errorf("files %q, want %q", files, want)
		}
		if o.ShardBytes > 0 && (!slices.Contains(files, "model.safetensors.index.json") || slices.Contains(files, "model.safetensors")) {
			t.Errorf("shards: files %q", files)
		}
		if err := c.Save(dir, w, o); !errors.Is(err, fs.ErrExist) {
			t.Errorf("onto a folder that is there: %v", err)
		}
	}
	dir := filepath.Join(t.TempDir(), "out")
	broken := errors.New("broken")
	if err := c.Save(dir, w, models.SaveOptions{Extra: func(*files.Draft) error { return broken }}); !errors.Is(err, broken) {
		t.Errorf("%v, want the error of Extra", err)
	}
	if e, _ := os.ReadDir(filepath.Dir(dir)); len(e) != 0 {
		t.Errorf("a failed Save left %v", e)
	}
	if err := c.Save(dir, w, models.SaveOptions{Tokenizer: dir}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the tokenizer's folder: %v", err)
	}
	c.Text.Config, c.Text.Generation = nil, nil
	if err := c.Save(dir, w, models.SaveOptions{}); err == nil {
		t.Error("saved a config without text")
	}
}

func TestLoadChecksTensors(t *testing.T) {
	w := initialised(t, published, 3)
	good := w.Tensors()
	embedding := good[0]
	untied := with(t, `"tie_word_embeddings": true`, `"tie_word_embeddings": false`)
	other := slices.Clone(embedding.Data)
	other[100]++
	head := func(data []float32) models.Tensor {
		return models.Tensor{Name: "lm_head.weight", Shape: embedding.Shape, Data: data}
	}
	freq := models.Tensor{Name: "model.layers.0.self_attn.rotary_emb.inv_freq", Shape: []int{2}, Data: []float32{1, 2}}
	flat := good[2]
	flat.Shape = []int{len(flat.Data)}
	renamed := func(old, new string) (out []models.Tensor) {
		for _, x := range good {
			x.Name = strings.Replace(x.Name, old, new, 1)
			out = append(out, x)
		}
		return out
	}
	named := func(prefix string) []models.Tensor { return renamed("", prefix) }
	cases := []struct {
		name    string
		config  string
		tensors []models.Tensor
		want    string // the error; "" where the folder loads
	}{
		{"as saved", published, good, ""},
		{"inv_freq", published, append(slices.Clone(good), freq), ""},
		{"tied with the same head", published, append(slices.Clone(good), head(embedding.Data)), ""},
		{"tied with the head alone", published, append(slices.Clone(good[1:]), head(embedding.Data)), ""},
		{"tied with another head", published, append(slices.Clone(good), head(other)), "differs from model.embed_tokens.weight"},
		{"tied with a head of another shape", published, append(slices.Clone(good), models.Tensor{Name: "lm_head.weight", Shape: []int{2}, Data: other[:2]}), "lm_head.weight has shape [2]"},
		{"tied with neither", published, good[1:], `missing tensor "model.embed_tokens.weight" [96 16]`},
		{"untied without head", untied, good, `missing tensor "lm_head.weight" [96 16]; if the embedding is the head, state "tie_word_embeddings": true`},
		{"untied", untied, append(slices.Clone(good), head(other)), ""},
		{"in a wrapper", published, named("module."), `: all tensors begin with "module."; missing`},
		{"in a compiled module", published, named("_orig_mod."), `all tensors begin with "_orig_mod."`},
		{"in an adapted model", published, named("base_model.model."), `all tensors begin with "base_model.model."`},
		{"in a larger model", published, append(named("language_model."), models.Tensor{Name: "vision.weight", Shape: []int{1}, Data: []float32{1}}), `26 of 27 tensors begin with "language_model."`},
		{"with wrapped parts", published, renamed(".self_attn.", "._fsdp_wrapped_module.self_attn."), `14 of 26 tensors have within their names "_fsdp_wrapped_module."`},
		{"type auto", with(t, `"torch_dtype": "bfloat16"`, `"dtype": "auto"`), good, ""},
		{"saved by FSDP", with(t, `"Qwen2ForCausalLM"`, `"FSDPQwen2ForCausalLM"`), good, ""},
		{"not gathered", published, append([]models.Tensor{{Name: "model.embed_tokens.weight", Shape: []int{0}}}, good[1:]...), "zero_to_fp32.py"},
		{"type int8", with(t, `"bfloat16"`, `"int8"`), good, `torch_dtype "int8" is not supported`},
		{"no longer quantized", with(t, `"use_cache"`, `"quantization_config": {"load_in_4bit": true}, "use_cache"`), good, "remove this key from config.json"},
		{"unexpected", published, append(slices.Clone(good), models.Tensor{Name: "x", Shape: []int{1}, Data: []float32{1}}), `unexpected tensor "x" [1]`},
		{"shape", published, append(append(slices.Clone(good[:2]), flat), good[3:]...), `"model.layers.0.self_attn.q_proj.weight" has shape [256], want [16 16]`},
		{"config of another size", with(t, `"intermediate_size": 24`, `"intermediate_size": 25`), good, "mlp.gate_proj.weight\" has shape [24 16], want [25 16]"},
		{"fewer layers", with(t, `"num_hidden_layers": 2`, `"num_hidden_layers": 1`), good, `unexpected tensor "model.layers.1.input_layernorm.weight"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := write(t, c.config, c.tensors)
			_, back, err := models.Load(dir)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
					t.Errorf("%v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer back.Close()
			if !slices.Equal(back.Data[:len(w.Data)], w.Data) {
				t.Error("the weights differ")
			}
		})
	}
	if _, _, err := models.Load(filepath.Join(t.TempDir(), "gone")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a folder that is not there: %v", err)
	}
	if _, _, err := models.Load(t.TempDir()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestIndex: an index may name tensors that no shard has and the model does not need, and
// may lack one; a tensor of the model that it names and no shard has is refused.
func TestIndex(t *testing.T) {
	w := initialised(t, published, 3)
	for entry, want := range map[string]string{
		"":                           "",
		`"lm_head.weight": "SHARD",`: "",
		`"model.layers.0.self_attn.rotary_emb.inv_freq": "SHARD",`: "",
		`"model.norm.weight": "SHARD", "unlike": "SHARD",`:         `lacks the tensor "model.norm.weight"`,
	} {
		tensors := w.Tensors()
		if want != "" {
			tensors = slices.DeleteFunc(tensors, func(x models.Tensor) bool { return x.Name == "model.norm.weight" })
		}
		dir := write(t, published, nil)
		if err := errors.Join(os.Remove(filepath.Join(dir, "model.safetensors")), models.WriteSafetensors(files.WriteFile, filepath.Join(dir, "a.safetensors"), models.F32, tensors, nil)); err != nil {
			t.Fatal(err)
		}
		index := strings.ReplaceAll(`{"weight_map": {`+entry+`"model.embed_tokens.weight": "SHARD"}}`, "SHARD", "a.safetensors")
		if err := os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), []byte(index), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := models.Check(dir); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", entry, err, want)
		}
	}
}

// The checksums of a folder's files match the files, however they were written.
func TestSums(t *testing.T) {
	c, w, tokenizer := toSave(t, `{}`, "tokenizer.json")
	long := strings.Repeat("0123456789abcdef", 4<<20) // is written in parts
	writers := map[string]func(io.Writer) error{
		"empty":   func(io.Writer) error { return nil },
		"string":  func(w io.Writer) error { _, err := io.WriteString(w, long+"end"); return err },
		"printed": func(w io.Writer) error { _, err := fmt.Fprintf(w, "%d and %d", 1, 2); return err },
		"copied": func(w io.Writer) error {
			f, err := os.Open(filepath.Join(tokenizer, "tokenizer.json"))
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.Copy(w, f)
			return err
		},
	}
	dir := filepath.Join(t.TempDir(), "out")
	if err := c.Save(dir, w, models.SaveOptions{Tokenizer: tokenizer, Extra: func(d *files.Draft) error {
		for name, write := range writers {
			if err := d.WriteFile(name, write); err != nil {
				return err
			}
		}
		entries, err := os.ReadDir(d.Dir)
		if want := 4 + len(writers); len(entries) != want {
			t.Errorf("%d files, want %d", len(entries), want)
		}
		for _, e := range entries {
			data, err := os.ReadFile(filepath.Join(d.Dir, e.Name()))
			if err != nil {
				return err
			}
			if sum, ok := d.Sum(e.Name()); !ok || sum != fmt.Sprintf("%x", sha256.Sum256(data)) {
				t.Errorf("the sum of %s is %q, %v", e.Name(), sum, ok)
			}
		}
		return err
	}}); err != nil {
		t.Fatal(err)
	}
	if err := files.WriteFolder(filepath.Join(t.TempDir(), "out"), func(d *files.Draft) error {
		if err := d.WriteFile("string", writers["string"]); err != nil {
			return err
		}
		if sum, ok := d.Sum("string"); ok {
			t.Errorf("nobody asked for the sum %s", sum)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
