package cmd

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/train"
	"onering/train/rl"
)

// takePushes imitates a hub that takes pushes to me/mine as small files, and points
// the environment at it. It returns what the branch main holds.
func takePushes(t *testing.T, token string) map[string][]byte {
	t.Helper()
	files, exists := map[string][]byte{}, false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch path := r.URL.Path; {
		case r.Header.Get("Authorization") != "Bearer "+token:
			w.WriteHeader(http.StatusUnauthorized)
		case path == "/api/repos/create":
			exists = true
		case !exists:
			w.Header().Set("X-Error-Code", "RepoNotFound")
			w.WriteHeader(http.StatusNotFound)
		case path == "/api/models/me/mine/revision/main":
			fmt.Fprintf(w, `{"sha": %q, "private": true, "siblings": []}`, strings.Repeat("a", 40))
		case path == "/api/models/me/mine/preupload/main":
			var q struct{ Files []map[string]any }
			if err := json.Unmarshal(body, &q); err != nil {
				t.Error(err)
			}
			for _, f := range q.Files {
				f["uploadMode"] = "regular"
			}
			json.NewEncoder(w).Encode(map[string]any{"files": q.Files})
		case path == "/api/models/me/mine/commit/main":
			for line := range bytes.Lines(body) {
				var q struct {
					Value struct{ Path, Content string }
				}
				if err := json.Unmarshal(line, &q); err != nil {
					t.Error(err)
				}
				if q.Value.Path != "" {
					files[q.Value.Path], _ = base64.StdEncoding.DecodeString(q.Value.Content)
				}
			}
			fmt.Fprintf(w, `{"commitOid": %q}`, strings.Repeat("b", 40))
		default:
			t.Errorf("%s %s", r.Method, path)
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_TOKEN", token)
	return files
}

// TestPush pushes the newest checkpoint of a run with a card.
func TestPush(t *testing.T) {
	serveHub(t) // for a model
	model, err := filepath.Abs("model")
	if err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := command(t, "", "init", "--config", "org/tiny", "--out", model, "-q"); code != 0 {
		t.Fatal(stderr)
	}
	config := rl.Default()
	config.Model.Path = "hf:org/tiny@" + strings.Repeat("c0", 20)
	config.Model.System = "a private prompt"
	config.Data.Train = rl.TrainFiles{{Path: "/home/someone/problems.jsonl"}}
	config.Output.Dir = "/home/someone/run"
	text, err := encodeConfig(&config)
	if err != nil {
		t.Fatal(err)
	}
	for n, step := range []string{"step-000004", "step-000012"} {
		checkpoint := filepath.Join("run", "checkpoints", step)
		if err := os.MkdirAll(filepath.Dir(checkpoint), 0o777); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := command(t, "", "init", "--config", model, "--out", checkpoint, "--seed", fmt.Sprint(n), "-q"); code != 0 {
			t.Fatal(stderr)
		}
	}
	if err := os.WriteFile("run/run.toml", text, 0o666); err != nil {
		t.Fatal(err)
	}

	const token = "hf_MarkerThatMustNotAppear0123456789"
	files := takePushes(t, token)
	code, stdout, stderr := command(t, "", "push", "--model", "run", "--to", "me/mine", "--private", "--license", "mit", "-v")
	if code != 0 || stdout != os.Getenv("HF_ENDPOINT")+"/me/mine\n" || strings.Contains(stderr, token) {
		t.Fatalf("code %d\n%s%s", code, stdout, stderr)
	}
	want, err := os.ReadFile("run/checkpoints/step-000012/model.safetensors")
	if err != nil || !bytes.Equal(files["model.safetensors"], want) {
		t.Errorf("%d bytes of weights, want those of the newest checkpoint, %d; %v", len(files["model.safetensors"]), len(want), err)
	}
	card := string(files["README.md"])
	for _, part := range []string{"base_model: org/tiny\n", "license: mit\n", "# mine\n", "optimizer step 12", "[objective]\nname = \"pmpo\"\n", "learning_rate = 1e-06"} {
		if !strings.Contains(card, part) {
			t.Errorf("the card lacks %q:\n%s", part, card)
		}
	}
	for _, part := range []string{"someone", "private prompt", t.TempDir()} {
		if strings.Contains(card, part) {
			t.Errorf("the card has %q:\n%s", part, card)
		}
	}
	// The checkpoint is unchanged: verify would count a further file as damage.
	if _, err := os.Stat("run/checkpoints/step-000012/README.md"); err == nil {
		t.Error("the card was written into the checkpoint")
	}

	// A damaged checkpoint is not sent.
	if err := os.MkdirAll("run/checkpoints/step-000012/state", 0o777); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := command(t, "", "push", "--model", "run", "--to", "me/mine", "-q"); code != 1 || !strings.Contains(stderr, "SHA256SUMS is missing: the checkpoint is damaged") {
		t.Errorf("code %d\n%s", code, stderr)
	}
	if _, err := train.Folder("run/checkpoints/step-000004").Model(); err != nil {
		t.Error(err)
	}
}
