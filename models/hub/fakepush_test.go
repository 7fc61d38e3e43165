package hub

import (
	"bufio"
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A pushHub imitates the part of the hub that takes pushes: repositories, their branches
// as lists of commits, and a storage on another host. It checks everything it receives:
// the token, sizes, checksums, the order of requests.
type pushHub struct {
	t            *testing.T
	hub, storage *httptest.Server

	mu       sync.Mutex
	repos    map[string]*pushRepo
	stored   map[string][]byte           // large files by SHA-256
	uploads  map[string]map[int][]byte   // parts by the name of their upload
	expired  map[string]bool             // names of uploads whose addresses have expired
	requests []string                    // "hub POST /api/..."
	chunk    int64                       // bytes of a part; 0 takes each file in one request
	mirror   func(address string) string // changes the addresses of actions
	fault    func(n int, w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) bool
}

type pushRepo struct {
	private  bool
	ignore   string // a name that .gitignore excludes
	branches map[string][]pushCommit
}

// A pushCommit is the state of a branch.
type pushCommit struct {
	id, title string
	files     map[string]pushed
}

type pushed struct {
	large   bool
	content []byte
}

func (f pushed) oid() string {
	if f.large {
		return sha256Of(f.content)
	}
	return gitSHA(f.content)
}

func newPushHub(t *testing.T) *pushHub {
	h := &pushHub{t: t, repos: map[string]*pushRepo{}, stored: map[string][]byte{}, uploads: map[string]map[int][]byte{}, expired: map[string]bool{}, chunk: 1000}
	h.mirror = func(address string) string { return address }
	h.hub = httptest.NewServer(h.counted("hub", h.serve))
	h.storage = httptest.NewServer(h.counted("storage", h.store))
	t.Cleanup(h.hub.Close)
	t.Cleanup(h.storage.Close)
	return h
}

func (h *pushHub) env() env {
	return env{"HOME": h.t.TempDir(), "HF_HOME": h.t.TempDir(), "HF_ENDPOINT": h.hub.URL, "HF_TOKEN": testToken}
}

// counted records a request and gives its number, from 0 on, to fault.
func (h *pushHub) counted(host string, serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		n := len(h.requests)
		h.requests = append(h.requests, host+" "+r.Method+" "+r.URL.EscapedPath())
		fault := h.fault
		h.mu.Unlock()
		locked := func(w http.ResponseWriter, r *http.Request) {
			// A request whose body is cut off must change nothing.
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			h.mu.Lock()
			defer h.mu.Unlock()
			serve(w, r)
		}
		if fault == nil || !fault(n, w, r, locked) {
			locked(w, r)
		}
	})
}

// seen returns the requests so far that contain a text, and forgets all.
func (h *pushHub) seen(text string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.DeleteFunc(h.requests, func(r string) bool { return !strings.Contains(r, text) })
	h.requests = nil
	return out
}

// head returns the state of a branch.
func (h *pushHub) head(id, branch string) pushCommit {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.repos[id]
	if r == nil || len(r.branches[branch]) == 0 {
		return pushCommit{}
	}
	return r.branches[branch][len(r.branches[branch])-1]
}

func (h *pushHub) bad(w http.ResponseWriter, format string, args ...any) {
	h.t.Errorf("the hub was sent: "+format, args...)
	w.WriteHeader(http.StatusBadRequest)
}

func say(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(value)
}

// serve is the hub.
func (h *pushHub) serve(w http.ResponseWriter, r *http.Request) {
	signed := r.URL.Path == "/api/complete_multipart" // An upload needs no token, as at the real hub: the address is enough.
	if got := r.Header.Get("Authorization"); !signed && got != "Bearer "+testToken {
		refuse(w, http.StatusUnauthorized, "", "Invalid username or password.")
		return
	}
	switch {
	case r.URL.Path == "/api/repos/create" && r.Method == http.MethodPost:
		h.create(w, r)
		return
	case r.URL.Path == "/api/validate-yaml" && r.Method == http.MethodPost:
		say(w, map[string]any{"warnings": []any{}, "errors": []any{}})
		return
	case signed && r.Method == http.MethodPost:
		h.complete(w, r)
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for i, p := range parts {
		parts[i], _ = url.PathUnescape(p)
	}
	lfs := len(parts) == 6 && strings.Join(parts[2:], "/") == "info/lfs/objects/batch"
	if lfs {
		parts = []string{"api", "models", parts[0], strings.TrimSuffix(parts[1], ".git"), "batch", ""}
	} else if len(parts) == 3 && parts[0] == "lfs-verify" {
		parts = []string{"api", "models", parts[1], parts[2], "verify", ""}
	}
	if len(parts) == 4 && r.Method == http.MethodGet {
		parts = append(parts, "revision", "main")
	}
	if len(parts) != 6 || parts[0] != "api" || parts[1] != "models" {
		h.bad(w, "%s %s", r.Method, r.URL)
		return
	}
	repo := h.repos[parts[2]+"/"+parts[3]]
	if repo == nil {
		refuse(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
		return
	}
	handler := map[string]func(http.ResponseWriter, *http.Request, *pushRepo, string){
		"GET revision": h.revision, "POST branch": h.branch, "POST preupload": h.preupload, "POST commit": h.commit,
		"POST batch": func(w http.ResponseWriter, r *http.Request, _ *pushRepo, _ string) {
			h.batch(w, r, parts[2]+"/"+parts[3])
		},
		"POST verify": func(w http.ResponseWriter, r *http.Request, _ *pushRepo, _ string) { h.verify(w, r) },
	}[r.Method+" "+parts[4]]
	if handler == nil {
		h.bad(w, "%s %s", r.Method, r.URL)
		return
	}
	handler(w, r, repo, parts[5])
}

// read reads a request of JSON.
func (h *pushHub) read(w http.ResponseWriter, r *http.Request, value any) bool {
	text, _ := io.ReadAll(r.Body)
	if r.ContentLength >= 0 && r.ContentLength != int64(len(text)) {
		h.bad(w, "a length of %d with %d bytes", r.ContentLength, len(text))
		return false
	}
	if err := json.Unmarshal(text, value); err != nil {
		h.bad(w, "%v: %.100s", err, text)
		return false
	}
	return true
}

func (h *pushHub) create(w http.ResponseWriter, r *http.Request) {
	var q struct{ Organization, Name, Type, Visibility string }
	if !h.read(w, r, &q) {
		return
	}
	if q.Organization == "" || q.Name == "" || q.Type != "model" && q.Type != "" {
		h.bad(w, "create %+v", q)
		return
	}
	if q.Organization == "theirs" {
		w.WriteHeader(http.StatusForbidden)
		say(w, map[string]string{"error": "You don't have the rights to create a model under the namespace \"theirs\""})
		return
	}
	id := q.Organization + "/" + q.Name
	if h.repos[id] != nil {
		w.WriteHeader(http.StatusConflict)
		say(w, map[string]string{"error": "You already created this model repo"})
		return
	}
	first := pushCommit{id: gitSHA([]byte(id)), title: "initial commit", files: map[string]pushed{".gitattributes": {content: []byte("*.safetensors filter=lfs\n")}}}
	h.repos[id] = &pushRepo{private: q.Visibility == "private", branches: map[string][]pushCommit{"main": {first}}}
	say(w, map[string]string{"url": h.hub.URL + "/" + id, "name": id})
}

func (h *pushHub) revision(w http.ResponseWriter, _ *http.Request, repo *pushRepo, revision string) {
	commits := repo.branches[revision]
	if commits == nil {
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id")
		return
	}
	head := commits[len(commits)-1]
	siblings := []any{}
	for name := range head.files {
		siblings = append(siblings, map[string]string{"rfilename": name})
	}
	say(w, map[string]any{"id": "x", "sha": head.id, "private": repo.private, "siblings": siblings})
}

func (h *pushHub) branch(w http.ResponseWriter, _ *http.Request, repo *pushRepo, name string) {
	if repo.branches[name] != nil {
		w.WriteHeader(http.StatusConflict)
		return
	}
	repo.branches[name] = slices.Clone(repo.branches["main"])
}

func (h *pushHub) preupload(w http.ResponseWriter, r *http.Request, repo *pushRepo, revision string) {
	commits := repo.branches[revision]
	if commits == nil {
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id")
		return
	}
	head := commits[len(commits)-1]
	var q struct {
		Files []struct {
			Path   string
			Sample []byte
			Size   *int64
		}
	}
	if !h.read(w, r, &q) {
		return
	}
	answers := []any{}
	for _, f := range q.Files {
		if f.Path == "" || f.Size == nil || int64(len(f.Sample)) != min(*f.Size, 512) || len(q.Files) > 256 {
			h.bad(w, "preupload of %q", f.Path)
			return
		}
		mode := "regular"
		if isLarge(f.Path) || *f.Size > 10_000_000 {
			mode = "lfs"
		}
		a := map[string]any{"path": f.Path, "uploadMode": mode, "shouldIgnore": f.Path == repo.ignore}
		if old, ok := head.files[f.Path]; ok {
			a["oid"] = old.oid()
		}
		answers = append(answers, a)
	}
	say(w, map[string]any{"files": answers})
}

func (h *pushHub) batch(w http.ResponseWriter, r *http.Request, id string) {
	const kind = "application/vnd.git-lfs+json"
	var q struct {
		Operation string
		Hash      string `json:"hash_algo"`
		Transfers []string
		Objects   []struct {
			OID  string
			Size int64
		}
	}
	if !h.read(w, r, &q) {
		return
	}
	if r.Header.Get("Accept") != kind || r.Header.Get("Content-Type") != kind || q.Operation != "upload" || q.Hash != "sha256" ||
		!slices.Contains(q.Transfers, "multipart") || len(q.Objects) == 0 || len(q.Objects) > 256 {
		h.bad(w, "batch %+v, header %v", q, r.Header)
		return
	}
	objects := []any{}
	for _, o := range q.Objects {
		object := map[string]any{"oid": o.OID, "size": o.Size}
		objects = append(objects, object)
		if _, ok := h.stored[o.OID]; ok {
			continue
		}
		if o.Size > 1e9 {
			object["error"] = map[string]any{"code": 422, "message": "too large for this account"}
			continue
		}
		name := fmt.Sprintf("%s-%d", o.OID, len(h.uploads))
		h.uploads[name] = map[int][]byte{}
		upload := map[string]any{"href": fmt.Sprintf("%s/%s/0?size=%d&Signature=sesame", h.storage.URL, name, o.Size)}
		if h.chunk > 0 && o.Size > h.chunk {
			header := map[string]string{"chunk_size": fmt.Sprint(h.chunk)}
			for from := int64(0); from < o.Size; from += h.chunk {
				n := from/h.chunk + 1
				header[fmt.Sprintf("%05d", n)] = fmt.Sprintf("%s/%s/%d?size=%d&Signature=sesame", h.storage.URL, name, n, min(h.chunk, o.Size-from))
			}
			upload = map[string]any{"href": h.mirror(h.hub.URL + "/api/complete_multipart?upload=" + name + "&Signature=sesame"), "header": header}
		}
		object["actions"] = map[string]any{"upload": upload, "verify": map[string]any{"href": h.mirror(h.hub.URL + "/lfs-verify/" + id)}}
	}
	w.Header().Set("Content-Type", kind)
	json.NewEncoder(w).Encode(map[string]any{"transfer": "multipart", "objects": objects})
}

// store is the storage, another host: it must never see the token.
func (h *pushHub) store(w http.ResponseWriter, r *http.Request) {
	content, _ := io.ReadAll(r.Body)
	name, number := path.Dir(r.URL.Path)[1:], path.Base(r.URL.Path)
	n, _ := strconv.Atoi(number)
	q := r.URL.Query()
	switch {
	case r.Header.Get("Authorization") != "":
		h.t.Error("the storage was given the token")
		w.WriteHeader(http.StatusBadRequest)
	case q.Get("Signature") != "sesame" || h.expired[name] || h.uploads[name] == nil:
		w.WriteHeader(http.StatusForbidden)
	case r.Method != http.MethodPut || fmt.Sprint(len(content)) != q.Get("size") || r.ContentLength != int64(len(content)):
		h.t.Errorf("the storage was sent %d bytes by %s, length %d, for %s", len(content), r.Method, r.ContentLength, r.URL)
		w.WriteHeader(http.StatusBadRequest)
	case n == 0:
		h.keep(w, name, content)
	default:
		h.uploads[name][n] = content
		w.Header().Set("ETag", etagOf(content))
	}
}

func etagOf(content []byte) string { return fmt.Sprintf("\"%x\"", md5.Sum(content)) }

// keep stores the content of an upload, whose name begins with its checksum.
func (h *pushHub) keep(w http.ResponseWriter, name string, content []byte) {
	oid, _, _ := strings.Cut(name, "-")
	if sha256Of(content) != oid {
		h.bad(w, "%d bytes whose checksum is not %s", len(content), oid)
		return
	}
	h.stored[oid] = content
	delete(h.uploads, name)
}

func (h *pushHub) complete(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("upload")
	var q struct {
		OID   string
		Parts []struct {
			Number int `json:"partNumber"`
			ETag   string
		}
	}
	if !h.read(w, r, &q) {
		return
	}
	parts := h.uploads[name]
	if parts == nil || h.expired[name] {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	var whole []byte
	for i, p := range q.Parts {
		if p.Number != i+1 || p.ETag != etagOf(parts[p.Number]) {
			h.bad(w, "part %d as %+v", i+1, p)
			return
		}
		whole = append(whole, parts[p.Number]...)
	}
	if len(q.Parts) != len(parts) || !strings.HasPrefix(name, q.OID+"-") {
		h.bad(w, "completion of %s with %d of %d parts", q.OID, len(q.Parts), len(parts))
		return
	}
	h.keep(w, name, whole)
	say(w, map[string]bool{"success": true})
}

func (h *pushHub) verify(w http.ResponseWriter, r *http.Request) {
	var q struct {
		OID  string
		Size int64
	}
	if h.read(w, r, &q) && (h.stored[q.OID] == nil || int64(len(h.stored[q.OID])) != q.Size) {
		h.bad(w, "verify %+v, which is not stored", q)
	}
}

func (h *pushHub) commit(w http.ResponseWriter, r *http.Request, repo *pushRepo, revision string) {
	commits := repo.branches[revision]
	if commits == nil {
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id")
		return
	}
	head := commits[len(commits)-1]
	next := pushCommit{files: map[string]pushed{}}
	for name, f := range head.files {
		next.files[name] = f
	}
	if r.Header.Get("Content-Type") != "application/x-ndjson" {
		h.bad(w, "a commit of type %q", r.Header.Get("Content-Type"))
		return
	}
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 64<<20)
	count := 0
	for ; lines.Scan(); count++ {
		var line struct {
			Key   string
			Value struct {
				Summary, Description, ParentCommit string
				Path, Content, Encoding, Algo, OID string
				Size                               int64
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || (line.Key == "header") != (count == 0) {
			h.bad(w, "line %d of a commit: %v: %.100s", count, err, lines.Bytes())
			return
		}
		v := line.Value
		switch line.Key {
		case "header":
			if next.title = v.Summary; v.ParentCommit != "" && v.ParentCommit != head.id {
				w.WriteHeader(http.StatusPreconditionFailed)
				say(w, map[string]string{"error": "A commit has happened since. Please refresh and try again."})
				return
			}
		case "file":
			content, err := base64.StdEncoding.DecodeString(v.Content)
			if err != nil || v.Encoding != "base64" {
				h.bad(w, "%s: %v", v.Path, err)
				return
			}
			next.files[v.Path] = pushed{content: content}
		case "lfsFile":
			content, ok := h.stored[v.OID]
			if !ok || v.Algo != "sha256" || v.Size != int64(len(content)) {
				h.bad(w, "%s is not stored: %+v", v.Path, v)
				return
			}
			next.files[v.Path] = pushed{large: true, content: content}
		case "deletedFile":
			if _, ok := next.files[v.Path]; !ok {
				h.bad(w, "the deletion of %s, which is not there", v.Path)
				return
			}
			delete(next.files, v.Path)
		default:
			h.bad(w, "a commit with %q", line.Key)
			return
		}
	}
	if count < 2 || next.title == "" {
		h.bad(w, "an empty commit")
		return
	}
	next.id = gitSHA(fmt.Append(nil, head.id, len(commits)))
	repo.branches[revision] = append(commits, next)
	say(w, map[string]any{"success": true, "commitOid": next.id, "commitUrl": h.hub.URL + "/" + strings.Join(strings.Split(r.URL.Path, "/")[3:5], "/") + "/commit/" + next.id, "hookOutput": ""})
}
