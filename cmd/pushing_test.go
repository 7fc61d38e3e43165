package cmd

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"onering/models/hub"
	"onering/train"
)

// A run that pushes its checkpoints sends each so many of them while it goes on, and the last one
// at the end.
func TestPushWhileTraining(t *testing.T) {
	files := takePushes(t, "token")
	dir := filepath.Join(t.TempDir(), "run")
	code, stdout, stderr := command(t, "", "train", "--quiet", "--json", "--report=false", "--out", dir, "--set", "output.push_to=me/mine", "--set", "train.rounds=2",
		"--set", "rollout.prompts_per_round=4", "--set", "train.batch_size=32", "--set", "train.save_every=1", "--set", "eval.suites=")
	if code != 0 || strings.Contains(stdout, "early") {
		t.Fatalf("code %d\n%s%s", code, stdout, stderr)
	}
	for _, name := range []string{"model.safetensors", "config.json", "README.md"} {
		if len(files[name]) == 0 {
			t.Errorf("%s was not pushed", name)
		}
	}
	t.Setenv("HF_TOKEN", "another")
	code, _, stderr = command(t, "", "train", "--quiet", "--out", dir+"-4", "--set", "output.push_to=me/mine")
	if code == 0 || !strings.Contains(stderr, `output.push_to = "me/mine": `) || !strings.Contains(stderr, "or is not valid") {
		t.Errorf("code %d: a run with a token that the hub does not know begins\n%s", code, stderr)
	}
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "0") // the test would wait for the attempts' own pauses
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer busy.Close()
	t.Setenv("HF_ENDPOINT", busy.URL)
	code, stdout, stderr = command(t, "", "train", "--quiet", "--json", "--report=false", "--out", dir+"-3", "--set", "output.push_to=me/mine", "--set", "train.rounds=1",
		"--set", "rollout.prompts_per_round=4", "--set", "train.batch_size=32", "--set", "eval.suites=")
	if code != 1 || !strings.Contains(stdout, `"rounds":1`) || !strings.Contains(stderr, "onering push --model ") {
		t.Errorf("code %d: the summary of a run whose last push failed is missing\n%s%s", code, stdout, stderr)
	}
	t.Setenv("HF_TOKEN", "")
	code, _, stderr = command(t, "", "train", "--quiet", "--out", dir+"-2", "--set", "output.push_to=me/mine")
	if code == 0 || !strings.Contains(stderr, `output.push_to = "me/mine": `) || !strings.Contains(stderr, "set HF_TOKEN") {
		t.Errorf("code %d: a run without a token begins\n%s", code, stderr)
	}
	if _, err := newPusher(t.Context(), train.Pushing{PushTo: "mine"}, hub.Options{}); err == nil || !strings.Contains(err.Error(), "OWNER/NAME") {
		t.Error(err)
	}
}
