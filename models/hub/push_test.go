package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// modelFolder writes a folder as onering saves it, with files that push leaves out.
func modelFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"config.json":              `{"model_type": "qwen2"}`,
		"tokenizer.json":           `{}`,
		"merges.txt":               "",
		"model.safetensors":        strings.Repeat("weights ", 312) + "end", // 2499 bytes: parts of 1000, 1000, 499
		"extra/copy.safetensors":   strings.Repeat("weights ", 312) + "end",
		"extra/small.safetensors":  "small",
		"state/state.json":         "not wanted",
		"state/SHA256SUMS":         "not wanted",
		".cache/huggingface/x":     "not wanted",
		".gitattributes":           "not wanted",
		"extra/.model.json.tmp-01": "not wanted",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var pushedNames = []string{"config.json", "extra/copy.safetensors", "extra/small.safetensors", "merges.txt", "model.safetensors", "tokenizer.json"}

// push pushes a folder with a fresh watch and wants that no message holds a secret.
func (e env) push(t *testing.T, dir, name string, change ...func(*PushOptions)) (outcome, *watch, error) {
	t.Helper()
	sources, err := Sources(dir)
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{}
	o := PushOptions{Options: w.options(t, e), Message: "a push"}
	for _, c := range change {
		c(&o)
	}
	out, err := Push(t.Context(), name, sources, o)
	for _, text := range append(w.notices, fmt.Sprint(err), fmt.Sprint(out)) {
		if strings.Contains(text, testToken) || strings.Contains(text, "sesame") {
			t.Errorf("a secret in %q", text)
		}
	}
	return out, w, err
}

// wantBranch wants the files of a folder, besides those named, on a branch.
func (h *pushHub) wantBranch(dir, id, branch string, besides ...string) {
	h.t.Helper()
	head := h.head(id, branch)
	names := append([]string{".gitattributes"}, pushedNames...)
	names = append(names, besides...)
	if len(head.files) != len(names) {
		h.t.Errorf("the branch has %d files, want %q", len(head.files), names)
	}
	for _, name := range pushedNames {
		want, err := os.ReadFile(filepath.Join(dir, name))
		got, ok := head.files[name]
		if err != nil || !ok || string(got.content) != string(want) || got.large != isLarge(name) {
			h.t.Errorf("%s: %d bytes, large %v, there %v; want %d, %v", name, len(got.content), got.large, ok, len(want), err)
		}
	}
}

func states(p outcome) map[string]string {
	out := map[string]string{}
	for _, f := range p.Files {
		out[f.Name] = f.State
	}
	return out
}

// TestPush makes a repository and pushes to it again.
func TestPush(t *testing.T) {
	h, dir := newPushHub(t), modelFolder(t)
	e := h.env()
	out, w, err := e.push(t, dir, "me/mine")
	if err != nil {
		t.Fatal(err)
	}
	h.wantBranch(dir, "me/mine", "main")
	head := h.head("me/mine", "main")
	if !out.Created || !out.Changed || out.Commit != head.id || out.URL != h.hub.URL+"/me/mine" || head.title != "a push" || h.repos["me/mine"].private {
		t.Errorf("%+v, title %q", out, head.title)
	}
	for _, f := range out.Files {
		if f.State != "sent" {
			t.Errorf("%+v", f)
		}
	}
	if p := w.last["extra/copy.safetensors"]; p != [2]int64{2499, 2499} {
		t.Errorf("progress %+v", p)
	}
	// The client sent the same content once, in three parts, and the small file as a whole.
	if r := h.seen("storage PUT"); len(r) != 4 {
		t.Errorf("requests %q", r)
	}

	// A second push has no file to send and nothing to commit.
	out, _, err = e.push(t, dir, "hf:me/mine")
	if err != nil || out.Changed || out.Created || out.Commit != head.id || states(out)["model.safetensors"] != "unchanged" {
		t.Errorf("again: %+v, %v", out, err)
	}
	if r := h.seen(""); len(r) != 2 || !strings.HasPrefix(r[1], "hub POST /api/models/me/mine/preupload/main") {
		t.Errorf("requests %q", r)
	}

	// One file differs.
	os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o666)
	out, _, err = e.push(t, dir, "me/mine")
	if want := "sent"; err != nil || states(out)["config.json"] != want || states(out)["model.safetensors"] != "unchanged" {
		t.Errorf("one file: %+v, %v", out, err)
	}
	h.wantBranch(dir, "me/mine", "main")
	h.seen("")

	// A new branch with the same content stores no file again.
	os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte("new weights"), 0o666)
	out, _, err = e.push(t, dir, "me/mine", func(o *PushOptions) { o.Revision = "try/2" })
	if err != nil || out.Branch != "try/2" || states(out)["model.safetensors"] != "sent" {
		t.Errorf("branch: %+v, %v", out, err)
	}
	h.wantBranch(dir, "me/mine", "try/2")
	out, _, err = e.push(t, dir, "me/mine")
	if err != nil || states(out)["model.safetensors"] != "stored" {
		t.Errorf("stored: %+v, %v", out, err)
	}
}

// TestPushWhole: a hub that wants whole files gets them so.
func TestPushWhole(t *testing.T) {
	h, dir := newPushHub(t), modelFolder(t)
	h.chunk = 0
	if _, _, err := h.env().push(t, dir, "me/mine"); err != nil {
		t.Fatal(err)
	}
	h.wantBranch(dir, "me/mine", "main")
	if r := h.seen("storage PUT"); len(r) != 2 {
		t.Errorf("requests %q", r)
	}
}

// TestPushAnother: a push removes files of another model that would be loaded in place of
// this one, and a default file replaces none.
func TestPushAnother(t *testing.T) {
	h, dir := newPushHub(t), modelFolder(t)
	h.repos["me/mine"] = &pushRepo{ignore: "merges.txt", branches: map[string][]pushCommit{"main": {{id: strings.Repeat("b", 40), files: map[string]pushed{
		"model.safetensors.index.json": {content: []byte("{}")}, "model-00001-of-00002.safetensors": {large: true, content: []byte("x")},
		"README.md": {content: []byte("theirs")}, "other.safetensors": {large: true, content: []byte("y")},
	}}}}}
	sources, err := Sources(dir)
	if err != nil {
		t.Fatal(err)
	}
	card, notes := Text("README.md", "ours"), Text("NOTES.md", "")
	card.Default, notes.Default = true, true
	o := PushOptions{Options: (&watch{}).options(t, h.env()), Message: "m"}
	out, err := Push(t.Context(), "me/mine", append(sources, card, notes), o)
	if err != nil {
		t.Fatal(err)
	}
	files := h.head("me/mine", "main").files
	if want := []string{"model-00001-of-00002.safetensors", "model.safetensors.index.json"}; !slices.Equal(slices.Sorted(slices.Values(out.Removed)), want) {
		t.Errorf("removed %q", out.Removed)
	}
	if _, ok := files["merges.txt"]; ok || string(files["README.md"].content) != "theirs" || files["other.safetensors"].content == nil || len(files) != 8 {
		t.Errorf("files %v", files)
	}
	if s := states(out); s["merges.txt"] != "ignored" || s["README.md"] != "kept" || s["NOTES.md"] != "sent" {
		t.Errorf("states %v", s)
	}
}

// faults are the ways in which a request fails: before and after the hub did what the
// request asks for.
var faults = map[string]func(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc){
	"error": func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		w.WriteHeader(http.StatusInternalServerError)
	},
	"limit": func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(429)
	},
	"cut off": func(http.ResponseWriter, *http.Request, http.HandlerFunc) { panic(http.ErrAbortHandler) },
	"cut off within": func(_ http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
		r.Body.Read(make([]byte, 10))
		panic(http.ErrAbortHandler)
	},
	"done, cut off": func(_ http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
		serve(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	},
	"done, error": func(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
		serve(httptest.NewRecorder(), r)
		w.WriteHeader(http.StatusBadGateway)
	},
	"done, half the answer": func(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
		whole := httptest.NewRecorder()
		serve(whole, r)
		for k, v := range whole.Header() {
			w.Header()[k] = v
		}
		w.Header().Set("Content-Length", fmt.Sprint(whole.Body.Len()+1))
		w.WriteHeader(whole.Code)
		w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
	},
}

// TestPushFaults: whichever request fails, in whichever way, the push succeeds
// with one commit.
func TestPushFaults(t *testing.T) {
	dir := modelFolder(t)
	whole := newPushHub(t)
	branch := func(o *PushOptions) { o.Revision = "b" }
	if _, _, err := whole.env().push(t, dir, "me/mine", branch); err != nil {
		t.Fatal(err)
	}
	requests := whole.seen("")
	if len(requests) != 15 {
		t.Fatalf("%d requests: %q", len(requests), requests)
	}
	for name, fault := range faults {
		for n, request := range requests {
			h := newPushHub(t)
			h.fault = func(at int, w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) bool {
				if at == n {
					fault(w, r, serve)
				}
				return at == n
			}
			out, w, err := h.env().push(t, dir, "me/mine", branch)
			// A request without a body over a connection that ended is made again
			// by net/http itself.
			if err != nil || strings.HasSuffix(name, "error") && len(w.waits) == 0 {
				t.Errorf("%s at %s: %v, waits %v", name, request, err, w.waits)
				continue
			}
			if name == "limit" && w.waits[0] != 7*time.Second {
				t.Errorf("%s: waits %v", request, w.waits)
			}
			h.wantBranch(dir, "me/mine", "b")
			if n := len(h.repos["me/mine"].branches["b"]); n != 2 || out.Commit != h.head("me/mine", "b").id {
				t.Errorf("%s at %s: %d commits, %+v", name, request, n, out)
			}
			h.hub.Close()
			h.storage.Close()
		}
	}
}

// TestPushStops: a request that always fails stops the push with an error that names the
// request, and the next push continues from there.
func TestPushStops(t *testing.T) {
	dir := modelFolder(t)
	for _, tt := range []struct{ request, want string }{
		{"hub GET /api/models", "the list of files"},
		{"hub POST /api/repos/create", "the new repository"},
		{"hub POST /api/models/me/mine/preupload", "how to send the files"},
		{"hub POST /me/mine.git/info/lfs/objects/batch", "where to send the large files"},
		{"storage PUT", "copy.safetensors"},
		{"hub POST /api/complete_multipart", "putting extra/copy.safetensors together"},
		{"hub POST /lfs-verify", "the check of extra/copy.safetensors"},
		{"hub POST /api/models/me/mine/commit", "the commit"},
	} {
		h := newPushHub(t)
		e := h.env()
		failing := true
		h.fault = func(_ int, w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			fails := failing && strings.HasPrefix(h.requests[len(h.requests)-1], tt.request)
			if fails {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return fails
		}
		_, w, err := e.push(t, dir, "me/mine")
		if err == nil || !strings.Contains(err.Error(), tt.want) || len(w.waits) != maxAttempts-1 {
			t.Errorf("%s: %v after %d waits", tt.request, err, len(w.waits))
		}
		if n := len(h.head("me/mine", "main").files); n > 1 {
			t.Errorf("%s: %d files of a push that failed", tt.request, n)
		}
		failing = false
		if _, _, err := e.push(t, dir, "me/mine"); err != nil {
			t.Errorf("%s: again: %v", tt.request, err)
		}
		h.wantBranch(dir, "me/mine", "main")
	}
}

// TestPushKilled kills a process at each request to the storage in turn. The next process
// sends no part again that the hub has stored.
func TestPushKilled(t *testing.T) {
	if folder := os.Getenv("ONERING_TEST_PUSH"); folder != "" {
		sources, err := Sources(folder)
		if err == nil {
			_, err = Push(t.Context(), "me/mine", sources, PushOptions{Message: "m"})
		}
		t.Fatalf("not killed: %v", err)
	}
	dir := modelFolder(t)
	for killed := range 5 { // three parts, the completion, the small file
		h := newPushHub(t)
		e := h.env()
		cmd := exec.Command(os.Args[0], "-test.run", "^TestPushKilled$")
		cmd.Env = append(os.Environ(), "ONERING_TEST_PUSH="+dir)
		for k, v := range e {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		taken := 0
		h.fault = func(_ int, w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) bool {
			if r.Method != http.MethodPut && r.URL.Path != "/api/complete_multipart" {
				return false
			}
			if taken++; taken <= killed {
				return false
			}
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			return true
		}
		text, err := cmd.CombinedOutput()
		if err == nil || strings.Contains(string(text), "not killed") {
			t.Fatalf("%v: %s", err, text)
		}
		h.fault = nil
		h.seen("")
		if _, _, err := e.push(t, dir, "me/mine"); err != nil {
			t.Fatal(err)
		}
		h.wantBranch(dir, "me/mine", "main")
		want := 4 - min(killed, 3)
		if killed == 4 {
			want = 1 // the small file; the other file is stored
		}
		if r := h.seen("storage PUT"); len(r) != want {
			t.Errorf("killed at %d: %d more uploads, want %d: %q", killed, len(r), want, r)
		}
		if left, _ := filepath.Glob(filepath.Join(e["HF_HOME"], "onering", "push", "*.json")); len(left) != 0 {
			t.Errorf("left %q", left)
		}
		if info, err := os.Stat(filepath.Join(e["HF_HOME"], "onering", "push")); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the folder of signed addresses: %v, %v", info.Mode(), err)
		}
	}
}

// TestPushExpired: the client asks again for addresses that have expired.
func TestPushExpired(t *testing.T) {
	h, dir := newPushHub(t), modelFolder(t)
	puts := 0
	h.fault = func(_ int, _ http.ResponseWriter, r *http.Request, _ http.HandlerFunc) bool {
		if r.Method == http.MethodPut {
			if puts++; puts == 2 {
				h.mu.Lock()
				for name := range h.uploads {
					h.expired[name] = true
				}
				h.mu.Unlock()
			}
		}
		return false
	}
	if _, _, err := h.env().push(t, dir, "me/mine"); err != nil {
		t.Fatal(err)
	}
	h.wantBranch(dir, "me/mine", "main")

	// Addresses that always expire end the push.
	h = newPushHub(t)
	h.fault = func(_ int, w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) bool {
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusForbidden)
		}
		return r.Method == http.MethodPut
	}
	_, _, err := h.env().push(t, dir, "me/mine")
	if err == nil || !strings.Contains(err.Error(), "answers 403") {
		t.Error(err)
	}
	if r := h.seen("storage PUT"); len(r) != maxUploads {
		t.Errorf("requests %q", r)
	}
}

// TestPushBetween: a push keeps a commit that another client made between two of its steps.
func TestPushBetween(t *testing.T) {
	h, dir := newPushHub(t), modelFolder(t)
	h.fault = func(_ int, _ http.ResponseWriter, r *http.Request, _ http.HandlerFunc) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		if repo := h.repos["me/mine"]; repo != nil && strings.Contains(r.URL.Path, "/commit/") && len(repo.branches["main"]) == 1 {
			repo.branches["main"] = append(repo.branches["main"], pushCommit{id: strings.Repeat("e", 40), files: map[string]pushed{".gitattributes": {}, "other.txt": {}}})
		}
		return false
	}
	if _, _, err := h.env().push(t, dir, "me/mine"); err != nil {
		t.Fatal(err)
	}
	h.wantBranch(dir, "me/mine", "main", "other.txt")
}

// TestPushRefused checks which pushes are refused, and the error of each.
func TestPushRefused(t *testing.T) {
	dir := modelFolder(t)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another host was sent %s %s", r.Method, r.URL)
	}))
	t.Cleanup(elsewhere.Close)
	redirect := func(part string, status int) func(int, http.ResponseWriter, *http.Request, http.HandlerFunc) bool {
		return func(_ int, w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) bool {
			hit := strings.Contains(r.URL.Path, part)
			if hit {
				http.Redirect(w, r, elsewhere.URL+"/x", status)
			}
			return hit
		}
	}
	answer := func(part, text string) func(int, http.ResponseWriter, *http.Request, http.HandlerFunc) bool {
		return func(_ int, w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) bool {
			hit := strings.Contains(r.URL.Path, part)
			if hit {
				fmt.Fprint(w, text)
			}
			return hit
		}
	}
	large := sha256Of([]byte(strings.Repeat("weights ", 312) + "end"))
	object := func(text string) func(int, http.ResponseWriter, *http.Request, http.HandlerFunc) bool {
		return answer("/batch", fmt.Sprintf(`{"objects": [{"oid": %q, %s}, {"oid": %q}]}`, large, text, sha256Of([]byte("small"))))
	}
	for name, tt := range map[string]struct {
		to     string
		change func(*PushOptions)
		env    env
		fault  func(int, http.ResponseWriter, *http.Request, http.HandlerFunc) bool
		want   string
	}{
		"no owner":        {to: "mine", want: `"mine" is not the name of a repository: write OWNER/NAME`},
		"a revision":      {to: "me/mine@x", want: "write OWNER/NAME"},
		"a commit":        {change: func(o *PushOptions) { o.Revision = strings.Repeat("a", 40) }, want: "name a branch"},
		"a path":          {change: func(o *PushOptions) { o.Revision = "../x" }, want: "is not a branch"},
		"offline":         {env: env{"HF_HUB_OFFLINE": "1"}, want: "a push needs the hub: unset"},
		"no token":        {env: env{"HF_TOKEN": ""}, want: "set HF_TOKEN to one that may write to me/mine"},
		"a wrong token":   {env: env{"HF_TOKEN": "hf_other"}, want: "the token in HF_TOKEN may not write it, or is not valid"},
		"another's name":  {to: "theirs/mine", want: "You don't have the rights to create a model"},
		"public":          {to: "me/public", change: func(o *PushOptions) { o.Private = true }, want: "the repository is not private"},
		"another host":    {fault: redirect("/preupload/", http.StatusTemporaryRedirect), want: "a redirect of an upload to another host"},
		"another store":   {fault: redirect("-0/1", http.StatusTemporaryRedirect), want: "a redirect of an upload to another host"},
		"a lost body":     {fault: redirect("/repos/create", http.StatusFound), want: "a redirect"},
		"not JSON":        {fault: answer("/preupload/", "<html>"), want: "how to send the files"},
		"a file less":     {fault: answer("/preupload/", `{"files": []}`), want: "does not say how to send config.json"},
		"a strange way":   {fault: answer("/preupload/", `{"files": [{"path": "config.json", "uploadMode": "post"}]}`), want: `in a way that onering does not know: "post"`},
		"no object":       {fault: answer("/batch", `{"objects": []}`), want: "does not say where to send extra/copy.safetensors"},
		"an error":        {fault: object(`"error": {"code": 422, "message": "too large for this account"}`), want: "does not take extra/copy.safetensors: too large for this account"},
		"no address":      {fault: object(`"actions": {}`), want: "gives no address for extra/copy.safetensors"},
		"no web":          {fault: object(`"actions": {"upload": {"href": "file:///etc/passwd"}}`), want: "is not one of the web"},
		"parts of 0":      {fault: object(`"actions": {"upload": {"href": "http://x", "header": {"chunk_size": "0"}}}`), want: "in parts of"},
		"parts too few":   {fault: object(`"actions": {"upload": {"href": "http://x", "header": {"chunk_size": 1000, "1": "http://x", "3": "http://x"}}}`), want: "gives 2 addresses for the parts of extra/copy.safetensors, which are 3"},
		"no ETag":         {fault: answer("-0/1", ""), want: "without an ETag"},
		"no commit":       {fault: answer("/commit/", `{"commitOid": "x"}`), want: "which is not a commit"},
		"a large listing": {fault: answer("/revision/", `{"sha": "`+strings.Repeat("a", 40)+`", "siblings": [{"rfilename": "../x"}]}`), want: "outside of the folder"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newPushHub(t)
			h.repos["me/public"] = &pushRepo{branches: map[string][]pushCommit{"main": {{id: strings.Repeat("b", 40)}}}}
			h.fault = tt.fault
			e := h.env()
			for k, v := range tt.env {
				e[k] = v
			}
			to := tt.to
			if to == "" {
				to = "me/mine"
			}
			if tt.change == nil {
				tt.change = func(*PushOptions) {}
			}
			if _, _, err := e.push(t, dir, to, tt.change); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if n := len(h.head(to, "main").files); n > 1 {
				t.Errorf("%d files of a push that failed", n)
			}
		})
	}
}

// TestPushFiles pushes links that leave the folder and files that change meanwhile.
func TestPushFiles(t *testing.T) {
	dir := modelFolder(t)
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "hostname.json")); err != nil {
		t.Skip(err)
	}
	if _, err := Sources(dir); err == nil || !strings.Contains(err.Error(), "leads out of the folder") {
		t.Error(err)
	}
	os.Remove(filepath.Join(dir, "hostname.json"))
	if _, err := Sources(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}

	h := newPushHub(t)
	h.fault = func(_ int, _ http.ResponseWriter, r *http.Request, _ http.HandlerFunc) bool {
		if strings.HasPrefix(r.URL.Path, "/lfs-verify") {
			os.WriteFile(filepath.Join(dir, "extra", "small.safetensors"), []byte("other"), 0o666)
			os.Chtimes(filepath.Join(dir, "extra", "small.safetensors"), time.Now(), time.Now().Add(time.Hour))
		}
		return false
	}
	h.t = &testing.T{} // The hub finds a wrong checksum, which is not the client's fault.
	_, _, err := env{"HOME": t.TempDir(), "HF_HOME": t.TempDir(), "HF_ENDPOINT": h.hub.URL, "HF_TOKEN": testToken}.push(t, dir, "me/mine")
	if err == nil || len(h.head("me/mine", "main").files) > 1 {
		t.Errorf("%v", err)
	}
}

// TestPushEnds: a cancelled push stops at once.
func TestPushEnds(t *testing.T) {
	h, dir := newPushHub(t), modelFolder(t)
	ctx, cancel := context.WithCancel(t.Context())
	h.fault = func(_ int, w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) bool {
		if r.Method == http.MethodPut {
			cancel()
		}
		return false
	}
	sources, _ := Sources(dir)
	o := PushOptions{Options: (&watch{}).options(t, h.env()), Message: "m"}
	if _, err := Push(ctx, "me/mine", sources, o); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestPushPython: the Python client can push to the imitation, so the imitation is like
// the hub for the requests of both clients. Without Xet it speaks the same
// protocol.
func TestPushPython(t *testing.T) {
	python := os.Getenv("ONERING_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import huggingface_hub").Run(); err != nil {
		t.Skipf("%s lacks huggingface_hub (ONERING_PYTHON names another): %v", python, err)
	}
	h, dir := newPushHub(t), modelFolder(t)
	e := h.env()
	const script = `
import sys
from huggingface_hub import HfApi
api = HfApi()
api.create_repo("me/mine", private=True, exist_ok=True)
api.create_branch("me/mine", branch="b", exist_ok=True)
info = api.upload_folder(repo_id="me/mine", folder_path=sys.argv[1], revision="b", commit_message="a push", ignore_patterns=["state/*", ".*", "*/.*"])
print(info.oid)
`
	cmd := exec.Command(python, "-c", script, dir)
	cmd.Env = append(os.Environ(), "HF_HUB_DISABLE_XET=1", "HF_HUB_DISABLE_TELEMETRY=1", "HF_HUB_DISABLE_PROGRESS_BARS=1")
	for k, v := range e {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	text, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, exit.Stderr)
	}
	if err != nil || strings.TrimSpace(string(text)) != h.head("me/mine", "b").id || !h.repos["me/mine"].private {
		t.Fatalf("%v: %s", err, text)
	}
	h.wantBranch(dir, "me/mine", "b")
	theirs := h.seen("")
	// Our push of the same files has nothing to do.
	out, _, err := e.push(t, dir, "me/mine", func(o *PushOptions) { o.Revision, o.Private = "b", true })
	if err != nil || out.Changed {
		t.Errorf("%+v, %v", out, err)
	}
	list, _ := json.Marshal(theirs)
	t.Logf("requests of the Python client: %s", list)
}
