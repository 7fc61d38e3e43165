package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var wanted = []string{"config.json", "merges.txt", "model.safetensors", "tokenizer.json"}

// TestLayout: the cache is as the Python client has it.
func TestLayout(t *testing.T) {
	f := newFakeHub(t)
	e := f.env()
	dir, w, err := e.resolve(t, "org/name")
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(e["HF_HOME"], "hub", "models--org--name")
	if want := filepath.Join(root, "snapshots", f.commit); dir != want {
		t.Errorf("folder %s, want %s", dir, want)
	}
	files, err := listFiles(dir)
	if err != nil || !slices.Equal(files, wanted) {
		t.Errorf("files %q, %v, want %q", files, err, wanted)
	}
	for _, name := range wanted {
		f.wantFile(filepath.Join(dir, name), name)
		sum := gitSHA(f.files[name])
		if isLarge(name) {
			sum = sha256Of(f.files[name])
		}
		if to, err := os.Readlink(filepath.Join(dir, name)); err != nil || to != filepath.Join("..", "..", "blobs", sum) {
			t.Errorf("%s links to %s, %v", name, to, err)
		}
		if p := w.last[name]; p[0] != int64(len(f.files[name])) || p[0] != p[1] {
			t.Errorf("the last progress of %s is %+v", name, p)
		}
	}
	if ref, err := os.ReadFile(filepath.Join(root, "refs", "main")); err != nil || string(ref) != f.commit {
		t.Errorf("ref %q, %v", ref, err)
	}
	if blobs, _ := listFiles(filepath.Join(root, "blobs")); len(blobs) != len(wanted) {
		t.Errorf("blobs %q", blobs)
	}
	// The second time, the client asks for the list only.
	f.seen("")
	if again, _, err := e.resolve(t, "hf:org/name@main"); err != nil || again != dir {
		t.Errorf("again: %s, %v", again, err)
	}
	if r := f.seen(""); len(r) != 1 || !strings.HasPrefix(r[0], "hub GET /api/models/org/name/revision/main") {
		t.Errorf("requests %q", r)
	}
	// For a commit in the cache, the client requests nothing.
	if again, _, err := e.resolve(t, "org/name@"+f.commit); err != nil || again != dir || len(f.seen("")) != 0 {
		t.Errorf("by commit: %s, %v", again, err)
	}
}

func TestPin(t *testing.T) {
	for _, tt := range []struct{ name, path, want string }{
		{"org/name", "/c/models--org--name/snapshots/abc", "hf:org/name@abc"},
		{"org/name@v1", "/c/models--org--name/snapshots/abc", "hf:org/name@abc"},
		{"hf:org/data/a/b.parquet", "/c/datasets--org--data/snapshots/abc/a/b.parquet", "hf:org/data@abc/a/b.parquet"},
		{"models/mine", "models/mine", "models/mine"},
		{"x/snapshots/mine", "x/snapshots/mine", "x/snapshots/mine"},
		{"builtin:arithmetic", "builtin:arithmetic", "builtin:arithmetic"},
	} {
		if got := Pin(tt.name, tt.path); got != tt.want {
			t.Errorf("Pin(%q, %q) = %q, want %q", tt.name, tt.path, got, tt.want)
		}
	}
}

func TestNoWeights(t *testing.T) {
	f := newFakeHub(t)
	f.files["additional_chat_templates/rag.jinja"] = []byte("rag")
	f.files["additional_chat_templates/old/rag.jinja"] = []byte("old")
	e := f.env()
	o := (&watch{}).options(t, e)
	o.NoWeights = true
	dir, err := Resolve(t.Context(), "org/name", o)
	if err != nil {
		t.Fatal(err)
	}
	if files, _ := listFiles(dir); !slices.Equal(files, []string{"additional_chat_templates/rag.jinja", "config.json", "merges.txt", "tokenizer.json"}) {
		t.Errorf("files %q", files)
	}
	// A folder that is complete for one purpose is incomplete for the other.
	e["HF_HUB_OFFLINE"] = "1"
	if _, _, err := e.resolve(t, "org/name"); !errors.Is(err, errOffline) {
		t.Error(err)
	}
}

// TestUpdate: a new commit fetches what has changed.
func TestUpdate(t *testing.T) {
	f := newFakeHub(t)
	e := f.env()
	old, _, err := e.resolve(t, "org/name")
	if err != nil {
		t.Fatal(err)
	}
	f.seen("")
	f.commit, f.files["config.json"] = strings.Repeat("b2", 20), []byte(`{"model_type": "qwen2", "new": 1}`)
	dir, _, err := e.resolve(t, "org/name")
	if err != nil || dir == old {
		t.Fatalf("%s, %v", dir, err)
	}
	f.wantFile(filepath.Join(dir, "config.json"), "config.json")
	if r := f.seen("GET"); len(r) != 2 || !strings.HasSuffix(r[1], "/config.json") {
		t.Errorf("requests %q", r)
	}
	if _, err := os.Stat(filepath.Join(old, "model.safetensors")); err != nil {
		t.Error(err)
	}
}

func TestShards(t *testing.T) {
	f := newFakeHub(t)
	delete(f.files, "model.safetensors")
	f.files["model.safetensors.index.json"] = []byte(`{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors", "c": "model-00001-of-00002.safetensors"}}`)
	f.files["model-00001-of-00002.safetensors"] = []byte("one")
	f.files["model-00002-of-00002.safetensors"] = []byte("two")
	f.files["consolidated.safetensors"] = []byte("not wanted")
	e := f.env()
	dir, _, err := e.resolve(t, "org/name")
	if err != nil {
		t.Fatal(err)
	}
	files, _ := listFiles(dir)
	if want := []string{"config.json", "merges.txt", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json", "tokenizer.json"}; !slices.Equal(files, want) {
		t.Errorf("files %q", files)
	}
	// Offline, a missing shard is an error.
	e["HF_HUB_OFFLINE"] = "1"
	if again, _, err := e.resolve(t, "org/name"); err != nil || again != dir {
		t.Errorf("offline: %s, %v", again, err)
	}
	os.Remove(filepath.Join(dir, "model-00002-of-00002.safetensors"))
	if _, _, err := e.resolve(t, "org/name"); !errors.Is(err, errOffline) || !strings.Contains(err.Error(), "lacks model-00002-of-00002.safetensors") {
		t.Errorf("offline without a shard: %v", err)
	}
}

// TestToken: the hub receives the token, wherever it is set, and no other host does; the
// fake hub reports a token at the other host.
func TestToken(t *testing.T) {
	for _, set := range []func(e env){
		func(e env) { e["HF_TOKEN"] = testToken },
		func(e env) { e["HUGGING_FACE_HUB_TOKEN"] = testToken },
		func(e env) { os.WriteFile(filepath.Join(e["HF_HOME"], "token"), []byte(testToken+"\n"), 0o600) },
		func(e env) {
			e["HF_TOKEN_PATH"] = filepath.Join(e["HOME"], "mine")
			os.WriteFile(e["HF_TOKEN_PATH"], []byte(testToken), 0o600)
		},
	} {
		f := newFakeHub(t)
		f.private = true
		e := f.env()
		if _, _, err := e.resolve(t, "org/name"); !errors.Is(err, errUnauthorized) || !strings.Contains(err.Error(), "set HF_TOKEN") {
			t.Errorf("without a token: %v", err)
		}
		set(e)
		if _, _, err := e.resolve(t, "org/name"); err != nil {
			t.Error(err)
		}
		if len(f.seen("cdn GET")) == 0 {
			t.Error("no large file came from the other host")
		}
	}
}

func TestSameOrigin(t *testing.T) {
	hub := "https://huggingface.co"
	for address, want := range map[string]bool{
		"https://huggingface.co/x": true, "https://HuggingFace.co:443/x": true, "http://huggingface.co/x": false,
		"https://cdn.huggingface.co/x": false, "https://huggingface.co.evil.com/": false, "https://huggingface.co:444/": false,
		"https://huggingface.co@evil.com/": false,
	} {
		if got := sameOrigin(mustParse(t, address), mustParse(t, hub)); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name, token  string
		status       int
		code, said   string
		is           error
		want, unwant string
	}{
		{"org/name", "", 401, "RepoNotFound", "Repository not found", errUnauthorized, "there is no such model at 127.0.0.1", ""},
		{"org/name", "", 401, "", "", errUnauthorized, "or it is private: check the name, or set HF_TOKEN", ""},
		{"org/name", "hf_x", 401, "RepoNotFound", "", errUnauthorized, "the token in HF_TOKEN may not read it", "hf_x"},
		{"org/name", "", 401, "GatedRepo", "", errGated, "this model is gated: accept its terms at http://127.0.0.1", ""},
		{"org/name", "hf_x", 403, "GatedRepo", "Ask for access", errGated, "(it says: Ask for access)", "hf_x"},
		{"org/name", "hf_x", 403, "", "", errUnauthorized, "refuses the list of files", "hf_x"},
		{"org/name", "", 404, "RepoNotFound", "", errNotFound, "there is no such model", ""},
		{"org/name", "", 404, "", "", errNotFound, `check the name and the revision "main"`, ""},
		{"org/name@v9", "", 404, "RevisionNotFound", "Invalid rev id: v9", errNotFound, `there is no revision "v9"`, ""},
		{"org/name", "", 418, "", "", nil, "418 I'm a teapot", ""},
		{"org/name", "", 400, "", "", nil, "400 Bad Request", ""},
		{"org/name", "", 410, "", "", nil, "410 Gone", ""},
		{"org/name", "", 422, "", "", nil, "422 Unprocessable Entity", ""},
		{"org/name", "", 451, "", "", nil, "451 Unavailable For Legal Reasons", ""},
		{"org/name", "", 501, "", "", nil, "501 Not Implemented", ""},
	} {
		f := newFakeHub(t)
		f.fault = func(w http.ResponseWriter, r *http.Request) bool {
			refuse(w, tt.status, tt.code, tt.said)
			return true
		}
		e := f.env()
		e["HF_TOKEN"] = tt.token
		_, w, err := e.resolve(t, tt.name)
		var x *fault
		if !errors.As(err, &x) || x.Status != tt.status || x.Repo != "org/name" || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%d %s: %#v", tt.status, tt.code, err)
			continue
		}
		if text := err.Error(); !strings.Contains(text, tt.want) || tt.unwant != "" && strings.Contains(text, tt.unwant) || !strings.HasPrefix(text, "hub: org/name: ") {
			t.Errorf("%d %s: %q, want %q", tt.status, tt.code, text, tt.want)
		}
		if len(w.waits) > 0 || len(f.seen("")) != 1 {
			t.Errorf("%d %s: asked again", tt.status, tt.code)
		}
	}
}

// times returns a fault that happens n times on requests that contain a text.
func (f *fakeHub) times(n int, text string, answer func(w http.ResponseWriter)) {
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if n == 0 || !strings.Contains(r.Method+" "+r.URL.Path, text) {
			return false
		}
		n--
		answer(w)
		return true
	}
}

func TestRetries(t *testing.T) {
	for _, tt := range []struct {
		text   string
		answer func(w http.ResponseWriter)
		want   time.Duration // the first wait; 0 takes the client's own
	}{
		{"GET /api", func(w http.ResponseWriter) { w.Header().Set("Retry-After", "17"); w.WriteHeader(429) }, 17 * time.Second},
		{"HEAD", func(w http.ResponseWriter) { w.Header().Set("Retry-After", "3"); w.WriteHeader(503) }, 3 * time.Second},
		{"GET /org/name/resolve", func(w http.ResponseWriter) { w.WriteHeader(500) }, 0},
		{"GET /api", func(w http.ResponseWriter) { w.WriteHeader(408) }, 0},
		{"GET /api", func(w http.ResponseWriter) { panic(http.ErrAbortHandler) }, 0},
	} {
		f := newFakeHub(t)
		f.times(2, tt.text, tt.answer)
		_, w, err := f.env().resolve(t, "org/name")
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
		}
		if len(w.waits) != 2 || len(w.notices) != 2 {
			t.Fatalf("%s: waits %v, notices %q", tt.text, w.waits, w.notices)
		}
		if tt.want > 0 && w.waits[0] != tt.want || tt.want == 0 && (w.waits[0] < firstWait/2 || w.waits[1] > 3*firstWait) {
			t.Errorf("%s: waits %v", tt.text, w.waits)
		}
	}
	// In the end it gives up.
	f := newFakeHub(t)
	f.times(1000, "", func(w http.ResponseWriter) { w.WriteHeader(502) })
	_, w, err := f.env().resolve(t, "org/name")
	if err == nil || !strings.Contains(err.Error(), "502 Bad Gateway") || len(w.waits) != maxAttempts-1 {
		t.Errorf("%v after %d waits", err, len(w.waits))
	}
	// The client does not wait for an hour.
	f.times(1000, "", func(w http.ResponseWriter) { w.Header().Set("Retry-After", "3600"); w.WriteHeader(429) })
	if _, w, err := f.env().resolve(t, "org/name"); err == nil || !strings.Contains(err.Error(), "asks to wait 1h0m0s") || len(w.waits) != 0 {
		t.Errorf("%v after waits %v", err, w.waits)
	}
}

// cut sends a part of what is asked for and ends the connection.
func cut(part int) func(w http.ResponseWriter, r *http.Request, name string, content []byte) bool {
	return func(w http.ResponseWriter, r *http.Request, name string, content []byte) bool {
		if !isLarge(name) {
			return false
		}
		from := 0
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
		}
		rest := content[from:]
		w.Header().Set("Content-Length", fmt.Sprint(len(rest)))
		if from > 0 {
			w.WriteHeader(http.StatusPartialContent)
		}
		w.Write(rest[:min(part, len(rest))])
		return true
	}
}

// TestTruncation: after a body is cut off, the download continues where it stopped.
func TestTruncation(t *testing.T) {
	f := newFakeHub(t)
	f.body = cut(100_000)
	dir, w, err := f.env().resolve(t, "org/name")
	if err != nil {
		t.Fatal(err)
	}
	f.wantFile(filepath.Join(dir, "model.safetensors"), "model.safetensors")
	r := f.seen("cdn GET")
	if len(r) != 4 || strings.Contains(r[0], "bytes") || !strings.HasSuffix(r[3], "bytes=300000-") {
		t.Errorf("requests %q", r)
	}
	if len(w.waits) != 3 {
		t.Errorf("waits %v", w.waits)
	}
}

// TestStall: a body that stalls counts as cut off.
func TestStall(t *testing.T) {
	f := newFakeHub(t)
	stalls := 0
	f.body = func(w http.ResponseWriter, r *http.Request, name string, content []byte) bool {
		if !isLarge(name) || r.Header.Get("Range") != "" {
			return false
		}
		stalls++
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		w.Write(content[:5000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	w := &watch{}
	o := w.options(t, f.env())
	o.stall = time.Second
	dir, err := Resolve(t.Context(), "org/name", o)
	if err != nil || stalls != 1 || len(w.waits) != 1 {
		t.Fatalf("%v after %d stalls, waits %v", err, stalls, w.waits)
	}
	f.wantFile(filepath.Join(dir, "model.safetensors"), "model.safetensors")
}

// TestSignature: the other host's signed addresses give access for a while, so messages
// never show them; resolve checks that.
func TestSignature(t *testing.T) {
	f := newFakeHub(t)
	f.body = func(w http.ResponseWriter, r *http.Request, name string, content []byte) bool {
		if isLarge(name) {
			panic(http.ErrAbortHandler)
		}
		return false
	}
	if _, w, err := f.env().resolve(t, "org/name"); err == nil || !strings.Contains(err.Error(), "/model.safetensors: ") || len(w.notices) == 0 {
		t.Errorf("%v, notices %q", err, w.notices)
	}
}

// TestResume: a process continues the download that an earlier process left unfinished.
func TestResume(t *testing.T) {
	f := newFakeHub(t)
	e := f.env()
	f.body = cut(100_000)
	ctx, cancel := context.WithCancel(t.Context())
	w := &watch{}
	o := w.options(t, e)
	o.wait = func(context.Context, time.Duration) error { cancel(); return ctx.Err() }
	if _, err := Resolve(ctx, "org/name", o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	blobs := filepath.Join(e["HF_HOME"], "hub", "models--org--name", "blobs")
	incomplete := filepath.Join(blobs, sha256Of(f.files["model.safetensors"])+".incomplete")
	if info, err := os.Stat(incomplete); err != nil || info.Size() != 100_000 {
		t.Fatalf("%v, %v", info, err)
	}
	// An incomplete snapshot has no ref.
	if exists(filepath.Join(e["HF_HOME"], "hub", "models--org--name", "refs", "main")) {
		t.Error("a ref to a snapshot that is not whole")
	}
	f.body = nil
	f.seen("")
	dir, _, err := e.resolve(t, "org/name")
	if err != nil {
		t.Fatal(err)
	}
	f.wantFile(filepath.Join(dir, "model.safetensors"), "model.safetensors")
	if r := f.seen("GET"); len(r) != 3 || !strings.HasSuffix(r[2], "cdn GET /model.safetensors bytes=100000-") {
		t.Errorf("requests %q", r)
	}
	if exists(incomplete) {
		t.Error("the incomplete file is still there")
	}
}

// TestResumeOddities: beginnings that are not the file's or too long, and servers that do
// not continue from them.
func TestResumeOddities(t *testing.T) {
	whole := newFakeHub(t).files["model.safetensors"]
	for _, tt := range []struct {
		name, begun string
		body        func(w http.ResponseWriter, r *http.Request, name string, content []byte) bool
		gets        int
	}{
		{"another file's beginning", "not these weights", nil, 2},
		{"all of another file", strings.Repeat("x", len(whole)), nil, 1},
		{"too long", strings.Repeat("x", len(whole)+5), nil, 1},
		{"already whole", string(whole), nil, 0},
		{"server sends all", string(whole[:1000]), func(w http.ResponseWriter, r *http.Request, name string, content []byte) bool {
			if isLarge(name) {
				w.Write(content)
			}
			return isLarge(name)
		}, 1},
		{"server sends another range", string(whole[:1000]), func(w http.ResponseWriter, r *http.Request, name string, content []byte) bool {
			if r.Header.Get("Range") == "" {
				return false
			}
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(content)-1, len(content)))
			w.WriteHeader(http.StatusPartialContent)
			w.Write(content)
			return true
		}, 2},
		{"server says 416", string(whole[:1000]), func(w http.ResponseWriter, r *http.Request, name string, content []byte) bool {
			if r.Header.Get("Range") != "" {
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				return true
			}
			return false
		}, 2},
		{"server sends more than there is", "", func(w http.ResponseWriter, r *http.Request, name string, content []byte) bool {
			if isLarge(name) {
				w.Write(append(content[:len(content):len(content)], "more"...))
				return true
			}
			return false
		}, -1},
	} {
		f := newFakeHub(t)
		f.body = tt.body
		e := f.env()
		blobs := filepath.Join(e["HF_HOME"], "hub", "models--org--name", "blobs")
		os.MkdirAll(blobs, 0o777)
		if tt.begun != "" {
			os.WriteFile(filepath.Join(blobs, sha256Of(whole)+".incomplete"), []byte(tt.begun), 0o666)
		}
		dir, _, err := e.resolve(t, "org/name")
		gets := len(f.seen("cdn GET"))
		if tt.gets < 0 {
			if err == nil || !strings.Contains(err.Error(), "longer than the 320000 bytes of the file") {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil || gets != tt.gets {
			t.Errorf("%s: %v after %d requests, want %d", tt.name, err, gets, tt.gets)
			continue
		}
		f.wantFile(filepath.Join(dir, "model.safetensors"), "model.safetensors")
	}
}

// TestChecksum: a file whose checksum differs from the stated one is never used.
func TestChecksum(t *testing.T) {
	for _, name := range []string{"model.safetensors", "tokenizer.json"} {
		f := newFakeHub(t)
		f.body = func(w http.ResponseWriter, r *http.Request, file string, content []byte) bool {
			if file != name {
				return false
			}
			w.Write([]byte(strings.Repeat("y", len(content))))
			return true
		}
		e := f.env()
		_, w, err := e.resolve(t, "org/name")
		if !errors.Is(err, errChecksum) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if len(w.notices) != 1 || !strings.Contains(w.notices[0], "downloading it again") {
			t.Errorf("%s: notices %q", name, w.notices)
		}
		files, _ := listFiles(filepath.Join(e["HF_HOME"], "hub"))
		for _, file := range files {
			if text, _ := os.ReadFile(filepath.Join(e["HF_HOME"], "hub", file)); strings.Contains(string(text), "yy") {
				t.Errorf("%s: %s holds what came", name, file)
			}
		}
	}
	// Without a stated checksum there is no check.
	f := newFakeHub(t)
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead {
			w.Header().Set("Etag", `"v1/x"`)
		}
		return r.Method == http.MethodHead
	}
	if _, _, err := f.env().resolve(t, "org/name"); err == nil || !strings.Contains(err.Error(), `gives no checksum of config.json (ETag "v1/x")`) {
		t.Errorf("without a checksum: %v", err)
	}
}

func TestOffline(t *testing.T) {
	f := newFakeHub(t)
	e := f.env()
	for _, variable := range []string{"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		e := f.env()
		e[variable] = "true"
		if _, _, err := e.resolve(t, "org/name"); !errors.Is(err, errOffline) || !strings.Contains(err.Error(), `revision "main" is not in the cache`) {
			t.Errorf("%s: %v", variable, err)
		}
	}
	if len(f.seen("")) > 0 {
		t.Error("the hub was asked")
	}
	dir, _, err := e.resolve(t, "org/name")
	if err != nil {
		t.Fatal(err)
	}
	f.seen("")
	e["HF_HUB_OFFLINE"] = "1"
	if again, _, err := e.resolve(t, "org/name"); err != nil || again != dir || len(f.seen("")) > 0 {
		t.Errorf("%s, %v", again, err)
	}
	if _, _, err := e.resolve(t, "org/name@v2"); !errors.Is(err, errOffline) {
		t.Error(err)
	}
	// The hub cannot be reached: the client uses the cache, and says so.
	e["HF_HUB_OFFLINE"] = ""
	f.hub.Close()
	again, w, err := e.resolve(t, "org/name")
	if err != nil || again != dir || len(w.waits) != 0 || len(w.notices) != 1 || !strings.Contains(w.notices[0], "from the cache") {
		t.Errorf("%s, %v, waits %v, notices %q", again, err, w.waits, w.notices)
	}
	if _, w, err := e.resolve(t, "org/other"); err == nil || len(w.waits) != maxAttempts-1 {
		t.Errorf("%v after waits %v", err, w.waits)
	}
	// The blob of a link is missing, so the snapshot does not count.
	e["HF_HUB_OFFLINE"] = "1"
	os.Remove(filepath.Join(e["HF_HOME"], "hub", "models--org--name", "blobs", sha256Of(f.files["model.safetensors"])))
	if _, _, err := e.resolve(t, "org/name"); !errors.Is(err, errOffline) || !strings.Contains(err.Error(), "lacks model.safetensors") {
		t.Error(err)
	}
}

// TestRefused: a hub that refuses is not treated as one that is unreachable.
func TestRefused(t *testing.T) {
	f := newFakeHub(t)
	e := f.env()
	if _, _, err := e.resolve(t, "org/name"); err != nil {
		t.Fatal(err)
	}
	f.private = true
	if _, _, err := e.resolve(t, "org/name"); !errors.Is(err, errUnauthorized) {
		t.Error(err)
	}
}

// TestDangling: the client repairs a link to a missing blob.
func TestDangling(t *testing.T) {
	f := newFakeHub(t)
	e := f.env()
	dir, _, err := e.resolve(t, "org/name")
	if err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(filepath.Join(filepath.Dir(filepath.Dir(dir)), "blobs"))
	if _, _, err := e.resolve(t, "org/name"); err != nil {
		t.Fatal(err)
	}
	for _, name := range wanted {
		f.wantFile(filepath.Join(dir, name), name)
	}
}

func TestRenamed(t *testing.T) {
	f := newFakeHub(t)
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		rest, old := strings.CutPrefix(r.URL.Path, "/old/name")
		api, oldAPI := strings.CutPrefix(r.URL.Path, "/api/models/old/name")
		switch {
		case old:
			http.Redirect(w, r, "/org/name"+rest, http.StatusTemporaryRedirect)
		case oldAPI:
			http.Redirect(w, r, "/api/models/org/name"+api, http.StatusTemporaryRedirect)
		}
		return old || oldAPI
	}
	dir, _, err := f.env().resolve(t, "old/name")
	if err != nil {
		t.Fatal(err)
	}
	f.wantFile(filepath.Join(dir, "model.safetensors"), "model.safetensors")
}

func TestRedirects(t *testing.T) {
	f := newFakeHub(t)
	for to, want := range map[string]string{"/api/models/org/name/revision/main": "more than 10 redirects", "": "redirect without a web address", "file:///etc/passwd": "redirect without a web address"} {
		f.fault = func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
			return true
		}
		_, w, err := f.env().resolve(t, "org/name")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", to, err)
		}
		if len(w.waits) > 0 {
			t.Errorf("%q: asked again after %v", to, w.waits)
		}
	}
}

// TestUnstatedSize has a hub send bodies without a length, which are read up to a
// limit.
func TestUnstatedSize(t *testing.T) {
	const limit = 1 << 20
	for _, length := range []int{limit / 2, 1 << 30} {
		f := newFakeHub(t)
		f.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, "/tokenizer.json") {
				w.Header().Set("Etag", gitSHA(f.files["tokenizer.json"]))
				w.(http.Flusher).Flush() // before a length is known
				return true
			}
			return false
		}
		f.files["tokenizer.json"] = []byte(strings.Repeat("x", min(length, limit)))
		sent := 0
		f.body = func(w http.ResponseWriter, r *http.Request, name string, content []byte) bool {
			if name != "tokenizer.json" {
				return false
			}
			for sent < length {
				n, err := w.Write([]byte(strings.Repeat("x", min(1<<16, length-sent))))
				if err != nil {
					break
				}
				w.(http.Flusher).Flush()
				sent += n
			}
			return true
		}
		w := &watch{}
		o := w.options(t, f.env())
		o.unstated = limit
		_, err := Resolve(t.Context(), "org/name", o)
		if length < limit && err != nil {
			t.Errorf("%d bytes: %v", length, err)
		}
		if length > limit && (err == nil || !strings.Contains(err.Error(), "tokenizer.json: 127.0.0.1") || !strings.Contains(err.Error(), "sends more than 1048576 bytes")) {
			t.Errorf("%d bytes: %v", length, err)
		}
		if len(w.waits) > 0 || len(f.seen("GET /org/name/resolve/"+f.commit+"/tokenizer.json")) != 1 {
			t.Errorf("%d bytes: asked again, after %v", length, w.waits)
		}
		if sent > 64*limit { // The system's buffers may hold bytes that were sent and not read.
			t.Errorf("%d bytes of %d were sent", sent, length)
		}
	}
	// The client does not begin a small file of an impossible size.
	f := newFakeHub(t)
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodHead || !strings.HasSuffix(r.URL.Path, "/config.json") {
			return false
		}
		w.Header().Set("Etag", gitSHA(nil))
		w.Header().Set("X-Linked-Size", "1099511627776")
		return true
	}
	if _, _, err := f.env().resolve(t, "org/name"); err == nil || !strings.Contains(err.Error(), "config.json: 127.0.0.1") || !strings.Contains(err.Error(), "states 1099511627776 bytes") {
		t.Errorf("a config of a terabyte: %v", err)
	}
	if got := f.seen("GET /org/name/resolve"); len(got) > 0 {
		t.Errorf("a config of a terabyte: %q", got)
	}
}

// TestLongAnswers: a hub sends an endless list of files, and another one stalls.
func TestLongAnswers(t *testing.T) {
	for _, wait := range []bool{false, true} {
		f := newFakeHub(t)
		f.fault = func(w http.ResponseWriter, r *http.Request) bool {
			io.WriteString(w, `{"sha": "`)
			w.(http.Flusher).Flush()
			if wait {
				<-r.Context().Done()
				return true
			}
			for block := strings.Repeat("x", 1<<20); ; {
				if _, err := io.WriteString(w, block); err != nil {
					return true
				}
			}
		}
		o := (&watch{}).options(t, f.env())
		if wait {
			o.stall = time.Second
		}
		if _, err := Resolve(t.Context(), "org/name", o); err == nil || !strings.Contains(err.Error(), "the list of files from 127.0.0.1") || !wait && !strings.Contains(err.Error(), "more than 64 MiB") {
			t.Errorf("%v", err)
		}
	}
}

// TestNoHost: the client asks a host that does not exist only once.
func TestNoHost(t *testing.T) {
	w := &watch{}
	o := w.options(t, env{"HOME": t.TempDir(), "HF_HOME": t.TempDir(), "HF_ENDPOINT": "http://hub.invalid"})
	o.transport = roundTrip(func(*http.Request) (*http.Response, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "hub.invalid", IsNotFound: true}
	})
	if _, err := Resolve(t.Context(), "org/name", o); err == nil || !strings.Contains(err.Error(), "there is no host hub.invalid here: no network, or a wrong name; without a network, name a folder") || len(w.waits) > 0 {
		t.Errorf("%v, after %v", err, w.waits)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestHostile: names and commits that would lead out of the cache are refused.
func TestHostile(t *testing.T) {
	for _, name := range []string{"../../evil.safetensors", "/etc/passwd", "a/../../b", `..\evil`, "c:evil", "a//b", "./a", ""} {
		f := newFakeHub(t)
		f.files[name] = []byte("x")
		if _, _, err := f.env().resolve(t, "org/name"); err == nil || !strings.Contains(err.Error(), "is outside of the folder") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, commit := range []string{"", "..", "a/b", "../x", `a\b`} {
		f := newFakeHub(t)
		f.commit = commit
		if _, _, err := f.env().resolve(t, "org/name"); err == nil || !strings.Contains(err.Error(), "is not a commit") {
			t.Errorf("%q: %v", commit, err)
		}
	}
	for index, want := range map[string]string{
		`{"weight_map": {"a": "../../x.safetensors"}}`: "is outside of the folder",
		`{"weight_map": {"a": "gone.safetensors"}}`:    "which is not there",
		`{"weight_map": {}}`:                           "lists no weights",
		`[]`:                                           "model.safetensors.index.json: the text is a list",
	} {
		f := newFakeHub(t)
		delete(f.files, "model.safetensors")
		f.files["model.safetensors.index.json"] = []byte(index)
		if _, _, err := f.env().resolve(t, "org/name"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", index, err)
		}
	}
	f := newFakeHub(t)
	f.fault = func(w http.ResponseWriter, r *http.Request) bool { w.Write([]byte("<html>")); return true }
	if _, _, err := f.env().resolve(t, "org/name"); err == nil || !strings.Contains(err.Error(), "the list of files from 127.0.0.1") {
		t.Error(err)
	}
}

func TestNoModel(t *testing.T) {
	f := newFakeHub(t)
	delete(f.files, "model.safetensors")
	if _, _, err := f.env().resolve(t, "org/name"); err == nil || !strings.Contains(err.Error(), "only pytorch_model.bin: convert the weights to safetensors") {
		t.Error(err)
	}
	delete(f.files, "config.json")
	if _, _, err := f.env().resolve(t, "org/name"); err == nil || !strings.Contains(err.Error(), "there is no config.json") {
		t.Error(err)
	}
}

// TestTogether: callers at the same time fetch each file once.
func TestTogether(t *testing.T) {
	f := newFakeHub(t)
	e := f.env()
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			dir, err := Resolve(t.Context(), "org/name", Options{Getenv: func(k string) string { return e[k] }})
			if err != nil {
				t.Error(err)
				return
			}
			f.wantFile(filepath.Join(dir, "model.safetensors"), "model.safetensors")
		})
	}
	wg.Wait()
	if r := f.seen("cdn GET"); len(r) != 1 {
		t.Errorf("requests %q", r)
	}
}

func TestNames(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"here/model", "runs", "nested"} {
		os.MkdirAll(dir, 0o777)
	}
	for _, tt := range []struct {
		name string
		kind kind
		want string // the id, "" for a path
		err  string
	}{
		{"here/model", model, "", ""},
		{"runs/missing", model, "", ""}, // runs is a folder, so the name is a path.
		{"Qwen/Qwen2.5-Math-1.5B", model, "Qwen/Qwen2.5-Math-1.5B", ""},
		{"hf:runs/missing", model, "runs/missing", ""},
		{"nowhere", model, "", ""},
		{"/abs/path", model, "", ""},
		{"./rel", model, "", ""},
		{"../up", model, "", ""},
		{"a/b/c", model, "", ""},
		{"builtin:arithmetic", model, "", ""},
		{"", model, "", ""},
		{"a/b@", model, "", ""},
		{"a--b/c", model, "", ""},
		{"hf:gpt2", model, "", "write hf:ORG/NAME"},
		{"hf:a/b/c", model, "", "not a name on the hub"},
		{"hf:../b", model, "", "not a name on the hub"},
		{"hf:a/..", model, "", "not a name on the hub"},
		{"hf:a/b.git", model, "", "not a name on the hub"},
		{"hf:" + strings.Repeat("a", 60) + "/" + strings.Repeat("b", 60), model, "", "not a name on the hub"},
		{"org/data", dataset, "", ""},
		{"hf:org/data", dataset, "org/data", ""},
		{"hf:datasets/org/data", dataset, "org/data", ""},
		{"hf:org/data/a/b.parquet", dataset, "org/data", ""},
		{"hf:org/data/../b", dataset, "", "not a name on the hub"},
	} {
		r, ok, err := parseName(tt.name, tt.kind)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q: %v, want %q", tt.name, err, tt.err)
			}
			continue
		}
		if err != nil || ok != (tt.want != "") || ok && r.id != tt.want {
			t.Errorf("%q: %q, %v, %v", tt.name, r.id, ok, err)
		}
	}
	for _, name := range []string{"here/model", "nowhere"} {
		if dir, err := Resolve(t.Context(), name, Options{}); dir != name || err != nil {
			t.Errorf("%q: %q, %v", name, dir, err)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, tt := range []struct {
		env             env
		cache, endpoint string
		err             string
	}{
		{env{"HOME": "/h"}, "/h/.cache/huggingface/hub", "https://huggingface.co", ""},
		{env{"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub", "https://huggingface.co", ""},
		{env{"HOME": "/h", "HF_HOME": "/f", "XDG_CACHE_HOME": "/x"}, "/f/hub", "https://huggingface.co", ""},
		{env{"HOME": "/h", "HF_HOME": "~/f"}, "/h/f/hub", "https://huggingface.co", ""},
		{env{"HOME": "/h", "HF_HOME": "/f", "HF_HUB_CACHE": "$HOME/c"}, "/h/c", "https://huggingface.co", ""},
		{env{"HOME": "/h", "HUGGINGFACE_HUB_CACHE": "/o"}, "/o", "https://huggingface.co", ""},
		{env{"HOME": "/h", "HF_ENDPOINT": "https://mirror.example/hf/"}, "/h/.cache/huggingface/hub", "https://mirror.example/hf", ""},
		{env{"HOME": "/h", "HF_ENDPOINT": "mirror"}, "", "", "HF_ENDPOINT must be an address"},
		{env{"HOME": "/h", "HF_ENDPOINT": "https://me:pass@mirror"}, "", "", "without a user name"},
		{env{"HOME": "/h", "HF_TOKEN": "a b"}, "", "", "the token in HF_TOKEN has characters"},
	} {
		s, err := readSettings(Options{Getenv: func(k string) string { return tt.env[k] }})
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "pass@") || strings.Contains(err.Error(), "a b") {
				t.Errorf("%v: %v", tt.env, err)
			}
			continue
		}
		if err != nil || s.cache != filepath.FromSlash(tt.cache) || s.endpoint.String() != tt.endpoint {
			t.Errorf("%v: %s, %s, %v", tt.env, s.cache, s.endpoint, err)
		}
	}
}

func TestDataset(t *testing.T) {
	f := newFakeHub(t)
	f.kind, f.id = dataset, "org/data"
	f.files = map[string][]byte{
		"README.md":              []byte("not wanted"),
		".gitattributes":         []byte("not wanted"),
		"data/train.parquet":     []byte("PAR1 train"),
		"data/test.parquet":      []byte("PAR1 test"),
		"extra/more.ROWS":        []byte("{}\n"),
		"images/picture.png":     []byte("not wanted"),
		"images/names.csv":       []byte("not read"),
		"data/dataset_info.json": []byte("{}"),
	}
	e := f.env()
	isData := func(name string) bool { return slices.Contains([]string{".parquet", ".json", ".ROWS"}, path.Ext(name)) }
	get := func(name string) (string, error) {
		return ResolveData(t.Context(), name, isData, (&watch{}).options(t, e))
	}
	one, err := get("hf:org/data/data/test.parquet")
	if err != nil {
		t.Fatal(err)
	}
	f.wantFile(one, "data/test.parquet")
	root := filepath.Join(e["HF_HOME"], "hub", "datasets--org--data", "snapshots", f.commit)
	if files, _ := listFiles(root); len(files) != 1 {
		t.Errorf("files %q", files)
	}
	// Offline, files that are not in the cache are an error, and not taken for absent.
	e["HF_HUB_OFFLINE"] = "1"
	if path, err := get("hf:org/data/data/test.parquet"); err != nil || path != one {
		t.Errorf("%s, %v", path, err)
	}
	if _, err := get("hf:org/data"); !errors.Is(err, errOffline) || !strings.Contains(err.Error(), "lacks ") {
		t.Error(err)
	}
	e["HF_HUB_OFFLINE"] = ""
	if _, err := get("hf:org/data/data"); err != nil {
		t.Error(err)
	}
	if files, _ := listFiles(root); !slices.Equal(files, []string{"data/dataset_info.json", "data/test.parquet", "data/train.parquet"}) {
		t.Errorf("files %q", files)
	}
	if dir, err := get("hf:org/data@main"); err != nil || dir != root {
		t.Errorf("%s, %v", dir, err)
	}
	if files, _ := listFiles(root); len(files) != 4 {
		t.Errorf("files %q", files)
	}
	if _, err := get("hf:org/data/gone.csv"); err == nil || !strings.Contains(err.Error(), "there is no file gone.csv with rows") {
		t.Error(err)
	}
	// A revision with slashes is one part of the address and several of the path.
	o := (&watch{}).options(t, e)
	o.Revision = "refs/convert/parquet"
	if _, err := ResolveData(t.Context(), "hf:org/data", isData, o); err != nil {
		t.Error(err)
	}
	if !exists(filepath.Join(e["HF_HOME"], "hub", "datasets--org--data", "refs", "refs", "convert", "parquet")) {
		t.Error("no ref")
	}
	o.Revision = "../../x"
	if _, err := ResolveData(t.Context(), "hf:org/data", isData, o); err == nil {
		t.Error("a revision that leaves the folder")
	}
}

// TestFullDisk: a file that cannot be written is an error with the file's name.
func TestFullDisk(t *testing.T) {
	if !exists("/dev/full") {
		t.Skip("no /dev/full here")
	}
	f := newFakeHub(t)
	e := f.env()
	blobs := filepath.Join(e["HF_HOME"], "hub", "models--org--name", "blobs")
	os.MkdirAll(blobs, 0o777)
	if err := os.Symlink("/dev/full", filepath.Join(blobs, sha256Of(f.files["model.safetensors"])+".incomplete")); err != nil {
		t.Skip(err)
	}
	if _, w, err := e.resolve(t, "org/name"); err == nil || !strings.Contains(err.Error(), "no space left") || len(w.waits) > 0 {
		t.Errorf("%v", err)
	}
}
