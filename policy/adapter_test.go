package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/models/lora"
	"onering/runtime/runtimetest"
	"onering/sampler"
	"onering/tokenize"
)

// talkerFolder writes the model of random weights of testdata/talker with a generation_config.json,
// and an adapter of it.
func talkerFolder(t *testing.T, generation string) (model, adapter string) {
	t.Helper()
	runtimetest.Test(t)
	const shape = "testdata/talker"
	config, err := os.ReadFile(filepath.Join(shape, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := models.ParseConfig(config, []byte(generation))
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.Init(3)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	model, adapter = filepath.Join(t.TempDir(), "model"), filepath.Join(t.TempDir(), "adapter")
	if err := m.Save(model, w, models.SaveOptions{DType: models.F32, Tokenizer: shape}); err != nil {
		t.Fatal(err)
	}
	s := lora.Default()
	s.Rank = 2
	a, err := lora.New(s, m, model)
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := a.Init(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer tensors.Close()
	if err := a.Save(adapter, tensors, nil); err != nil {
		t.Fatal(err)
	}
	return model, adapter
}

// TestGeneration: the tokenizer's end-of-sequence token ends responses beside those of
// generation_config.json. Temperature and filters come from that file where it states them.
func TestGeneration(t *testing.T) {
	model, _ := talkerFolder(t, `{"eos_token_id": [7], "do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": null, "repetition_penalty": 1.05}`)
	p, err := Open(runtimetest.Test(t), Options{Path: model})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !slices.Equal(p.Model.EOS, []int32{7, 8}) {
		t.Errorf("responses end at %v, want 7 and the tokenizer's 8", p.Model.EOS)
	}
	for _, limit := range []int{0, 5} { // 0 is a limit that is not known yet.
		got, err := p.Sampling(sampler.Plain(limit))
		if want := (sampler.Sampling{Temperature: 0.6, TopP: 1, TopK: 20, MaxNewTokens: limit}); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	for text, want := range map[string]string{`{}`: "T=1", `{"temperature": 0}`: "greedy", `{"temperature": 1e-8}`: "greedy", `{"temperature": 2, "top_k": -1, "min_p": 0.1}`: "T=2, min-p 0.1", `{"top_p": 3}`: "--generation-config=false"} {
		p.Model.Text.Generation = []byte(text)
		got, err := p.Sampling(sampler.Plain(5))
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && got.Describe() != want {
			t.Errorf("%s: %s, %v, want %s", text, got.Describe(), err, want)
		}
	}
}

// TestAdapterTokenizer: an adapter's own chat template and tokenizer replace the model's,
// also if other adapters are loaded, and the adapter's checkpoints keep them.
func TestAdapterTokenizer(t *testing.T) {
	model, adapter := talkerFolder(t, "{}")
	if err := os.WriteFile(filepath.Join(adapter, "chat_template.jinja"), []byte("{{ messages[0].content }}??"), 0o644); err != nil {
		t.Fatal(err)
	}
	uses := filepath.Join("additional_chat_templates", "rag.jinja")
	if err := os.Mkdir(filepath.Join(adapter, filepath.Dir(uses)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(adapter, uses), []byte("rag"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := Open(runtimetest.Test(t), Options{Path: model, Named: map[string]string{"a": adapter}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	with, err := p.With("a")
	if err != nil {
		t.Fatal(err)
	}
	talk := tokenize.Talk(tokenize.Message{Role: "user", Content: "1"})
	own, err := with.Tokenizer.Chat(talk)
	models, failed := p.Tokenizer.Chat(talk)
	if err != nil || failed != nil || own != "1??" || models == own {
		t.Errorf("the adapter writes %q, %v, the model %q, %v", own, err, models, failed)
	}
	saved := filepath.Join(t.TempDir(), "checkpoint")
	if err := with.Save(saved, with.Ring.Trained(), 0, nil); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(saved, uses)); err != nil || string(text) != "rag" {
		t.Errorf("the checkpoint has %q, %v as a template of its own use", text, err)
	}
	again, err := adapterTokenizer(saved, model)
	if err != nil || again == nil {
		t.Fatal(again, err)
	}
	if text, err := again.Chat(talk); err != nil || text != "1??" {
		t.Errorf("the checkpoint writes %q, %v", text, err)
	}
}

// TestSampledHasNoAdapters: a policy whose head is held in fewer bits takes no adapter, which was trained
// with the head as it is.
func TestSampledHasNoAdapters(t *testing.T) {
	model, adapter := talkerFolder(t, "{}")
	p, err := Open(runtimetest.Test(t), Options{Path: model, Base: "bfloat16", Sampled: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.WithAdapter(adapter); err == nil || !strings.Contains(err.Error(), "head is held in fewer bits") {
		t.Errorf("an adapter beside a held head: %v", err)
	}
}

// An adapter that is loaded after the weights have moved is compared with all of them, also where a
// CPU in bfloat16 holds them in halves.
func TestLateAdapterBesideHalves(t *testing.T) {
	for _, d := range []string{"float32", "bfloat16"} {
		model, adapter := talkerFolder(t, "{}")
		env := runtimetest.Test(t)
		p, err := Open(env, Options{Path: model, DType: d})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		state := func(digest string) {
			if err := errors.Join(os.MkdirAll(filepath.Join(adapter, "state"), 0o755),
				os.WriteFile(filepath.Join(adapter, "state", "state.json"), fmt.Appendf(nil, `{"base": {"model": "m", "digest": %q}}`, digest), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		state(p.Weights.Checksum())
		decoder, err := env.NewDecoder(p.Ring, 1, 16)
		if err != nil {
			t.Fatal(err)
		}
		defer decoder.Close()
		with, err := p.WithAdapter(adapter)
		if err != nil {
			t.Fatalf("%s: %v", d, err)
		}
		with.Close()
		state("crc32c:1")
		if _, err := p.WithAdapter(adapter); err == nil || !strings.Contains(err.Error(), "name the model") {
			t.Errorf("%s: another base: %v", d, err)
		}
	}
}
