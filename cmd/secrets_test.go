package cmd

import (
	"bytes"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestSecrets: the token of a hub goes to the hub and nowhere else. It is in no
// file that a run, an evaluation or a download leaves, and in nothing that a
// command prints, not even where the hub sends it back.
func TestSecrets(t *testing.T) {
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	const marker = "hf_MarkerThatMustNotAppear0123456789"
	commit := serveHub(t)
	target, err := url.Parse(os.Getenv("HF_ENDPOINT"))
	if err != nil {
		t.Fatal(err)
	}
	// A server in front of that hub wants the token, and repeats it wherever it can.
	var asked, refused atomic.Int64
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		r.Header.Set("X-Request-Token", marker)
		if r.StatusCode >= 400 {
			r.Header.Set("X-Error-Message", "no access with Bearer "+marker)
		}
		return nil
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+marker:
			refused.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		case strings.Contains(r.URL.Path, "odd"):
			w.Header().Set("X-Error-Message", marker)
			w.WriteHeader(http.StatusTeapot)
		case strings.Contains(r.URL.Path, "strange"):
			w.Write([]byte(`{"sha": "` + marker + `/../x"}`))
		default:
			asked.Add(1)
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_TOKEN", marker)
	// The test also searches the caches of downloads; the library has its own cache.
	if cache, err := os.UserCacheDir(); err == nil && os.Getenv("ONERING_CACHE") == "" {
		t.Setenv("ONERING_CACHE", filepath.Join(cache, "onering"))
	}
	if err := os.WriteFile("prompts.jsonl", []byte(`{"prompt": "1+1"}`+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}

	run := []string{"train", "-v", "--out", "run", "--set", "model.path=org/tiny", "--set", "data.train=hf:org/sums",
		"--set", "eval.suites=held=hf:org/sums", "--set", "model.template=no", "--set", "train.rounds=1", "--set", "train.batch_size=4",
		"--set", "rollout.prompts_per_round=2", "--set", "rollout.samples_per_prompt=2", "--set", "rollout.max_new_tokens=4", "--set", "rollout.max_prompt_tokens=8"}
	for _, tt := range []struct {
		code int
		args []string
	}{
		{0, run},
		{0, []string{"train", "-v", "--resume", "--out", "run", "--set", "train.rounds=2"}},
		{0, []string{"report", "run"}},
		{0, []string{"watch", "run"}},
		{0, []string{"eval", "-v", "--model", "org/tiny@" + commit, "--suite", "held=hf:org/sums", "--template", "no", "--max-tokens", "4", "--out", "responses.jsonl"}},
		{0, []string{"generate", "-v", "--model", "org/tiny", "--max-tokens", "4", "prompts.jsonl"}},
		{0, []string{"data", "show", "hf:org/sums"}},
		{0, []string{"doctor"}},
		{0, []string{"doctor", "--json"}},
		{1, []string{"generate", "-v", "--model", "org/none"}},
		{1, []string{"generate", "-v", "--model", "org/odd"}},
		{1, []string{"generate", "-v", "--model", "org/strange"}},
		{1, []string{"train", "-v", "--out", "bad", "--set", "model.path=org/odd"}},
	} {
		code, stdout, stderr := command(t, "", tt.args...)
		if code != tt.code {
			t.Errorf("%q: code %d, want %d\n%s%s", tt.args, code, tt.code, stdout, stderr)
		}
		if strings.Contains(stdout+stderr, marker) {
			t.Errorf("%q prints the token:\n%s%s", tt.args, stdout, stderr)
		}
		if code == 1 && stderr == "" {
			t.Errorf("%q says nothing", tt.args)
		}
	}
	if asked.Load() == 0 || refused.Load() > 0 {
		t.Errorf("the hub was asked %d times with the token and %d times without: this test would not see it", asked.Load(), refused.Load())
	}
	files := 0
	for _, root := range []string{".", os.Getenv("HF_HOME")} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if strings.Contains(path, marker) {
				t.Errorf("a file is called after the token: %s", path)
			}
			text, err := os.ReadFile(path)
			if bytes.Contains(text, []byte(marker)) {
				t.Errorf("%s holds the token", path)
			}
			files++
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"run/run.toml", "run/log.txt", "run/metrics.jsonl", "run/report.html", "responses.jsonl"} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d files, %d requests", files, asked.Load())
}
