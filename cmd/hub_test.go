package cmd

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"onering/data"
	"onering/train/rl"
)

// serveHub imitates a hub that has the files of two folders, model org/tiny and
// data set org/sums, and points the environment at it.
func serveHub(t *testing.T) (commit string) {
	t.Helper()
	model, data := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(model, "config.json"), `{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
		"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
		"vocab_size": 7, "max_position_embeddings": 12, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "tie_word_embeddings": true}`)
	write(filepath.Join(model, "vocab.json"), `{"0": 0, "1": 1, "2": 2, "+": 3, "=": 4, "11": 5, "<eos>": 6}`)
	write(filepath.Join(model, "merges.txt"), "#version: 0.2\n1 1\n")
	out := filepath.Join(t.TempDir(), "tiny")
	if code := run([]string{"init", "--config", model, "--out", out, "-q"}, nil, &bytes.Buffer{}, os.Stderr); code != 0 {
		t.Fatal("init failed")
	}
	write(filepath.Join(data, "test.jsonl"), `{"problem": "1+1", "answer": "2"}`+"\n")

	commit = strings.Repeat("c0", 20)
	folders := map[string]string{"models/org/tiny": out, "datasets/org/sums": data}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for repo, dir := range folders {
			if r.URL.Path == "/api/"+repo+"/revision/main" || r.URL.Path == "/api/"+repo+"/revision/"+commit {
				entries, _ := os.ReadDir(dir)
				var names []string
				for _, e := range entries {
					names = append(names, fmt.Sprintf(`{"rfilename": %q}`, e.Name()))
				}
				fmt.Fprintf(w, `{"sha": %q, "siblings": [%s]}`, commit, strings.Join(names, ","))
				return
			}
			if name, ok := strings.CutPrefix(r.URL.Path, "/"+strings.TrimPrefix(repo, "models/")+"/resolve/"+commit+"/"); ok {
				content, err := os.ReadFile(filepath.Join(dir, filepath.Base(name)))
				if err != nil {
					break
				}
				w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(content)))
				w.Write(content)
				return
			}
		}
		w.Header().Set("X-Error-Code", "RepoNotFound")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(server.Close)
	for name, value := range map[string]string{"HF_ENDPOINT": server.URL, "HF_HOME": t.TempDir(), "HF_HUB_CACHE": "", "HF_HUB_OFFLINE": "", "HF_TOKEN": "", "TRANSFORMERS_OFFLINE": "", "ONERING_OFFLINE": ""} {
		t.Setenv(name, value)
	}
	t.Chdir(t.TempDir())
	return commit
}

// command runs a command line and returns what it printed.
func command(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func TestHub(t *testing.T) {
	commit := serveHub(t)
	for _, tt := range []struct {
		args           []string
		stdin          string
		code           int
		stdout, stderr string
	}{
		{[]string{"tokenize", "--model", "org/tiny"}, `{"text":"1+11="}`, 0, `{"ids":[1,3,1,1,4]}`, ""},
		{[]string{"data", "show", "hf:org/sums"}, "", 0, `{"problem":"1+1","answer":"2"}`, ""},
		{[]string{"data", "show", "hf:org/sums/test.jsonl"}, "", 0, `{"problem":"1+1","answer":"2"}`, ""},
		{[]string{"data", "check", "hf:org/sums", "--model", "org/tiny@" + commit, "--template", "no"}, "", 0, "1 rows", ""},
		{[]string{"tokenize", "--model", "org/none"}, "", 1, "", "onering: hub: org/none: there is no such model at 127.0.0.1"},
		{[]string{"data", "show", "hf:sums"}, "", 1, "", `onering: hub: "hf:sums": write hf:ORG/NAME`},
	} {
		code, stdout, stderr := command(t, tt.stdin, append(tt.args, "-q")...)
		if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%q: code %d\n%s%s", tt.args, code, stdout, stderr)
		}
	}
	// The tokenizer came without the weights; offline, loading the model needs both.
	weights := filepath.Join(os.Getenv("HF_HOME"), "hub", "models--org--tiny", "snapshots", commit, "model.safetensors")
	if _, err := os.Stat(weights); err == nil {
		t.Error("the weights were fetched for the tokenizer")
	}
	t.Setenv("ONERING_OFFLINE", "1")
	if code, _, stderr := command(t, "", "generate", "--model", "org/tiny", "-q"); code != 1 || !strings.Contains(stderr, "lacks model.safetensors") {
		t.Errorf("offline: code %d, %s", code, stderr)
	}
}

// TestHubEverywhere: every flag and argument that takes a model or data takes a name on
// the hub. The imitated hub sees a request for the name.
func TestHubEverywhere(t *testing.T) {
	serveHub(t)
	for name, text := range map[string]string{"one.jsonl": `{"problem": "1+1", "answer": "2", "response": "2"}`, "failure.json": `{"version": 1, "step": 1, "temperature": 1, "micro_tokens": 1, "trajectories": [{"prompt_ids": [1]}]}`} {
		if err := os.WriteFile(name, []byte(text+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	covered := map[string]bool{}
	for _, line := range []string{
		"tokenize --model org/none",
		"generate --model org/none",
		"chat --model org/none",
		"serve --model org/none",
		"merge --model org/none --adapter a --out o",
		"score --model org/none",
		"step --model org/none --out o",
		"eval --model org/none --suite one.jsonl",
		"eval --model org/tiny --suite hf:org/none",
		"eval --model org/tiny --suite held=hf:org/none/test.jsonl",
		"sft --model org/none --data one.jsonl --out o",
		"dpo --model org/none --data one.jsonl --out o",
		"dpo --model org/tiny --data hf:org/none --out o",
		"sft --model org/tiny --data hf:org/none --out o",
		"export --model org/none --out o",
		"init --config org/none --out o",
		"init --model org/none --out o",
		"bench --config org/none",
		"replay failure.json --model org/none",
		"data show hf:org/none",
		"data check hf:org/none",
		"data check one.jsonl --model org/none",
		"train --model org/none --out o",
		"train --model org/tiny --data hf:org/none --out o",
		"train --set model.path=org/none --out o",
		"train --set model.path=org/tiny --set data.train=hf:org/none --out o",
		"train --set eval.suites=held=hf:org/none --out o",
		"train --dry-run --set model.path=org/none --out o",
	} {
		args := strings.Fields(line)
		code, _, stderr := command(t, "", append(args, "-q")...)
		if code != 1 || !strings.Contains(stderr, "org/none") || !strings.Contains(stderr, "there is no such ") {
			t.Errorf("%s: code %d\n%s", line, code, stderr)
		}
		for i, word := range args {
			if i+1 < len(args) && strings.HasPrefix(word, "--") && strings.Contains(args[i+1], "org/none") {
				covered[args[0]+" "+word] = true
			}
		}
	}
	walk(newRoot(), func(c *cobra.Command) {
		for _, name := range []string{"model", "data", "suite"} {
			first := strings.Fields(c.CommandPath() + " -")[1]
			if first == "push" {
				continue // the request sends the local file
			}
			if c.LocalFlags().Lookup(name) != nil && !covered[first+" --"+name] {
				t.Errorf("%s --%s has no line here", c.CommandPath(), name)
			}
		}
	})
}

// TestLocalConfig: training works on local paths, and run.toml keeps the names on the hub with
// their commit.
func TestLocalConfig(t *testing.T) {
	commit := serveHub(t)
	var c cobra.Command
	c.SetContext(t.Context())
	c.SetErr(&bytes.Buffer{})
	config := rl.Config{}
	config.Model.Path, config.Data.Train = "org/tiny", rl.TrainFiles{{Path: "hf:org/sums/test.jsonl"}}
	if err := config.Eval.Suites.UnmarshalTOML([]any{"held=hf:org/sums", "hf:org/sums/test.jsonl", data.Arithmetic, "amc=amc.jsonl"}); err != nil {
		t.Fatal(err)
	}
	local, err := localConfig(&c, &config)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(os.Getenv("HF_HOME"), "hub")
	cached := filepath.Join(root, "datasets--org--sums", "snapshots", commit)
	if want := filepath.Join(root, "models--org--tiny", "snapshots", commit); local.Model.Path != want || config.Model.Path != "hf:org/tiny@"+commit {
		t.Errorf("model %q, %q", local.Model.Path, config.Model.Path)
	}
	if !local.Data.Train.Is(filepath.Join(cached, "test.jsonl")) || !config.Data.Train.Is("hf:org/sums@"+commit+"/test.jsonl") {
		t.Errorf("data %q, %q", local.Data.Train, config.Data.Train)
	}
	want := fmt.Sprint([]string{"held=" + cached, "test=" + filepath.Join(cached, "test.jsonl"), data.Arithmetic, "amc=amc.jsonl"})
	if got := fmt.Sprint(local.Eval.Suites.Paths()); got != want || config.Eval.Suites[0].Path != "held=hf:org/sums" {
		t.Errorf("suites %s, want %s", got, want)
	}
}
