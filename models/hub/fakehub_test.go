package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

const testToken = "hf_0123456789abcdefSECRET"

// A fakeHub imitates the hub: its API, its addresses of files with their
// headers, and another host that large files are redirected to.
type fakeHub struct {
	t        *testing.T
	hub, cdn *httptest.Server

	mu       sync.Mutex
	kind     kind
	id       string
	commit   string
	files    map[string][]byte
	private  bool // needs the token
	requests []string
	// fault, if not nil, may answer in the hub's place and says whether it answered.
	fault func(w http.ResponseWriter, r *http.Request) bool
	// body, if not nil, writes a file's content in the hub's place.
	body func(w http.ResponseWriter, r *http.Request, name string, content []byte) bool
}

func newFakeHub(t *testing.T) *fakeHub {
	f := &fakeHub{t: t, kind: model, id: "org/name", commit: strings.Repeat("a1", 20), files: map[string][]byte{
		"config.json":       []byte(`{"model_type": "qwen2"}`),
		"tokenizer.json":    []byte(`{}`),
		"merges.txt":        {},
		"model.safetensors": []byte(strings.Repeat("weights ", 40000)),
		"pytorch_model.bin": []byte("not wanted"),
		"README.md":         []byte("not wanted"),
		"onnx/model.onnx":   []byte("not wanted"),
	}}
	f.hub, f.cdn = httptest.NewServer(http.HandlerFunc(f.serve)), httptest.NewServer(http.HandlerFunc(f.serveLarge))
	t.Cleanup(f.hub.Close)
	t.Cleanup(f.cdn.Close)
	return f
}

// isLarge says whether the hub would keep a file in Git LFS.
func isLarge(name string) bool {
	return strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".parquet")
}

func sha256Of(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func gitSHA(content []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(content)), content...))
	return hex.EncodeToString(sum[:])
}

func (f *fakeHub) note(host string, r *http.Request) {
	line := host + " " + r.Method + " " + r.URL.EscapedPath()
	if x := r.Header.Get("Range"); x != "" {
		line += " " + x
	}
	f.requests = append(f.requests, line)
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Error-Code", code)
	w.Header().Set("X-Error-Message", message)
	w.WriteHeader(status)
}

func (f *fakeHub) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note("hub", r)
	if f.fault != nil && f.fault(w, r) {
		return
	}
	if f.private && r.Header.Get("Authorization") != "Bearer "+testToken {
		refuse(w, http.StatusUnauthorized, "RepoNotFound", "Repository not found")
		return
	}
	base := "/" + f.id
	if f.kind.prefix != "" {
		base = "/" + f.kind.prefix + base
	}
	path := r.URL.EscapedPath()
	if revision, ok := strings.CutPrefix(path, "/api/"+f.kind.plural+"/"+f.id+"/revision/"); ok {
		if revision != "main" && revision != f.commit && revision != "refs%2Fconvert%2Fparquet" {
			refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id")
			return
		}
		var siblings []any
		for name := range f.files {
			siblings = append(siblings, map[string]any{"rfilename": name})
		}
		json.NewEncoder(w).Encode(map[string]any{"sha": f.commit, "siblings": siblings})
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, base+"/resolve/")
	revision, name, _ := strings.Cut(rest, "/")
	if !ok || revision != f.commit && revision != "main" {
		refuse(w, http.StatusNotFound, "RepoNotFound", "")
		return
	}
	content, ok := f.files[name]
	if !ok {
		refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return
	}
	w.Header().Set("X-Repo-Commit", f.commit)
	if isLarge(name) {
		w.Header().Set("X-Linked-Etag", `"`+sha256Of(content)+`"`)
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(content)))
		w.Header().Set("Etag", `"of the redirect"`)
		http.Redirect(w, r, f.cdn.URL+"/"+name+"?Signature=sesame", http.StatusFound)
		return
	}
	w.Header().Set("Etag", `W/"`+gitSHA(content)+`"`)
	if f.body != nil && r.Method == http.MethodGet && f.body(w, r, name, content) {
		return
	}
	w.Write(content)
}

// serveLarge is the other host: it must never see the token.
func (f *fakeHub) serveLarge(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note("cdn", r)
	if x := r.Header.Get("Authorization"); x != "" {
		f.t.Errorf("the other host was given %q", x)
	}
	if r.URL.Query().Get("Signature") != "sesame" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	content := f.files[name]
	if f.body != nil && f.body(w, r, name, content) {
		return
	}
	http.ServeContent(w, r, name, time.Time{}, strings.NewReader(string(content)))
}

// seen returns the requests so far that contain a text, and forgets all.
func (f *fakeHub) seen(text string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, r := range f.requests {
		if strings.Contains(r, text) {
			out = append(out, r)
		}
	}
	f.requests = nil
	return out
}

// An env is the variables of one test, with a cache of its own.
type env map[string]string

func (f *fakeHub) env() env {
	return env{"HOME": f.t.TempDir(), "HF_HOME": f.t.TempDir(), "HF_ENDPOINT": f.hub.URL}
}

// A watch collects the messages to a caller. It skips waiting.
type watch struct {
	mu      sync.Mutex
	notices []string
	waits   []time.Duration
	last    map[string][2]int64
}

func (w *watch) options(t *testing.T, e env) Options {
	w.last = map[string][2]int64{}
	return Options{
		Getenv: func(k string) string { return e[k] },
		Notice: func(text string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.notices = append(w.notices, text)
		},
		Progress: func(file string, done, total int64) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if done < 0 || total > 0 && done > total {
				t.Errorf("progress of %s: %d of %d", file, done, total)
			}
			w.last[file] = [2]int64{done, total}
		},
		wait: func(ctx context.Context, d time.Duration) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.waits = append(w.waits, d)
			return ctx.Err()
		},
	}
}

// resolve resolves with a fresh watch and wants that no message holds the token
// or a signature.
func (e env) resolve(t *testing.T, name string) (string, *watch, error) {
	t.Helper()
	w := &watch{}
	dir, err := Resolve(t.Context(), name, w.options(t, e))
	for _, text := range append(w.notices, fmt.Sprint(err)) {
		if strings.Contains(text, testToken) || strings.Contains(text, "sesame") {
			t.Errorf("a secret in %q", text)
		}
	}
	return dir, w, err
}

func (f *fakeHub) wantFile(path, name string) {
	f.t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != string(f.files[name]) {
		f.t.Errorf("%s: %d bytes, %v; want %d", path, len(got), err, len(f.files[name]))
	}
}

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
