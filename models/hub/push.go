package hub

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// PushOptions are further options for Push. It ignores NoWeights, and Revision must be a
// branch.
type PushOptions struct {
	Options
	// Private makes a new repository private, and refuses an existing public one.
	Private bool
	// Message is the title of the commit.
	Message string
}

// An outcome tells what Push did.
type outcome struct {
	URL     string       `json:"url"`
	Branch  string       `json:"branch"`
	Commit  string       `json:"commit"`
	Created bool         `json:"created"` // the repository was made
	Changed bool         `json:"changed"` // the branch has a new commit
	Files   []pushedFile `json:"files"`
	Removed []string     `json:"removed,omitempty"` // weights of an earlier model that were removed
}

// A pushedFile is one file of a push. State is "sent"; "stored" if the hub had the bytes;
// "unchanged" if the branch has the file; "kept" if the branch has another file, which a
// default does not replace; or "ignored" by the repository's .gitignore.
type pushedFile struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	State string `json:"state"`
}

const (
	// groupSize is the largest number of files in one request, the limit of the Python client.
	groupSize = 256
	// maxRegular bounds the bytes of a commit besides large files: a hub takes files of
	// more than 10 MB as large ones.
	maxRegular = 256 << 20
)

// A push is one call of Push.
type push struct {
	*client
	ctx         context.Context
	repo        repo
	stateFolder string // the folder with the states of interrupted uploads
	options     PushOptions
	files       []*outgoing
	parent      string   // the commit that the new one follows
	parentFiles []string // the files of the parent commit
	outcome     outcome
}

// Push makes a branch of a model's repository, OWNER/NAME, hold the files. It makes a missing repository or branch.
// It does not send files that the branch has, or large ones that the hub stores already, and removes weights that
// only an earlier model used. All files appear in one commit, or the branch stays unchanged. After an interruption
// another Push sends only missing files and missing parts of large ones.
//
// The protocol is that of the Python client without Xet: preupload, Git LFS with multipart uploads, and a commit as
// lines of JSON.
func Push(ctx context.Context, name string, sources []Source, o PushOptions) (outcome, error) {
	p, err := newPush(ctx, name, o)
	if err != nil {
		return outcome{}, err
	}
	p.permission = "write"
	for _, f := range sources {
		p.files = append(p.files, &outgoing{Source: f})
	}
	p.outcome = outcome{URL: p.addressOf(p.repo.address()...).String(), Branch: p.repo.revision}
	for _, step := range []func() error{p.prepare, p.compare, p.sendLarge, p.commit} {
		if err := step(); err != nil {
			return p.outcome, err
		}
	}
	for _, f := range p.files {
		p.outcome.Files = append(p.outcome.Files, pushedFile{f.Name, f.Size, f.state()})
	}
	return p.outcome, nil
}

// CheckPush returns why a push would be refused: a name, a branch, a token that is missing or that the hub does not
// know, a repository that is public and should not be. It warns if the hub does not answer now.
func CheckPush(ctx context.Context, name string, o PushOptions) error {
	p, err := newPush(ctx, name, o)
	if err != nil {
		return err
	}
	var stop context.CancelFunc
	p.ctx, stop = context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	p.attempts, p.permission = 1, "write"
	err = p.readBranch()
	e, ok := errors.AsType[*fault](err)
	switch {
	case err == nil || ok && e.missing():
		return nil
	case ok && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden || e.Err == errPublic):
		return err
	}
	slog.Warn("the hub does not answer now; checkpoints will be pushed when it does", "to", name, "reason", err)
	return nil
}

// missing reports whether there is no such repository or branch, which a push makes.
func (e *fault) missing() bool {
	return e.Code == "RevisionNotFound" || e.Status == http.StatusNotFound || e.Status == http.StatusUnauthorized && e.Code == "RepoNotFound"
}

var errPublic = errors.New("public")

// newPush reads where a push goes, and with which token.
func newPush(ctx context.Context, name string, o PushOptions) (*push, error) {
	r, ok, err := parseName("hf:"+strings.TrimPrefix(name, "hf:"), model)
	if err != nil || !ok || strings.Contains(name, "@") {
		return nil, fmt.Errorf("hub: %q is not the name of a repository: write OWNER/NAME", name)
	}
	r.revision = cmp.Or(o.Revision, r.revision)
	if err := checkRevision(r.revision); err != nil {
		return nil, err
	}
	if isCommit(r.revision) {
		return nil, fmt.Errorf("hub: %s is a commit: name a branch", r.revision)
	}
	o.Options = o.Options.withDefaults()
	s, err := readSettings(o.Options)
	if err != nil {
		return nil, err
	}
	switch {
	case s.offline:
		return nil, &fault{Repo: r.id, Err: errOffline, Detail: "a push needs the hub: unset HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE and ONERING_OFFLINE"}
	case s.token == "":
		return nil, &fault{Repo: r.id, Err: errUnauthorized, Detail: "a push needs a token: set HF_TOKEN to one that may write to " + r.id}
	}
	return &push{client: newClient(s, o.Options), ctx: ctx, repo: r, stateFolder: filepath.Join(s.home, "onering", "push"), options: o}, nil
}

// withJSON returns a call that sends a value as JSON.
func withJSON(k call, value any) call {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // texts and numbers can always be encoded
	}
	k.method = http.MethodPost
	k.body = func() (io.Reader, int64) { return bytes.NewReader(text), int64(len(text)) }
	if k.header == nil {
		k.header = http.Header{"Content-Type": {"application/json"}}
	}
	return k
}

// wrongAnswer is the error about an answer that makes no sense.
func (p *push) wrongAnswer(format string, args ...any) error {
	return &fault{Repo: p.repo.id, Err: errors.New("wrong answer"), Detail: p.withoutToken(p.endpoint.Host + " " + fmt.Sprintf(format, args...))}
}

// prepare makes a missing repository and a missing branch, and reads the branch's commit and files.
func (p *push) prepare() error {
	err := p.readBranch()
	var e *fault
	if errors.As(err, &e) && e.missing() && e.Code != "RevisionNotFound" { // there is no repository
		if err = p.create(); err == nil {
			err = p.readBranch()
		}
	}
	if errors.As(err, &e) && e.Code == "RevisionNotFound" { // the branch begins at main
		revision := p.repo.revision
		var made bool // not told: Created is the repository's
		if err = p.postNew("the new branch "+revision, call{address: p.apiAddress(p.repo, "branch", revision)}, struct{}{}, &made); err == nil {
			err = p.readBranch()
		}
	}
	return err
}

// readBranch asks for the state of the branch.
func (p *push) readBranch() error {
	i, err := p.describe(p.ctx, p.repo)
	if err != nil {
		return err
	}
	if p.options.Private && !i.private {
		return &fault{Repo: p.repo.id, Err: errPublic,
			Detail: "the repository is not private, and nothing was sent: make it private in its settings, or push without --private"}
	}
	p.parent, p.parentFiles = i.commit, i.files
	return nil
}

// create makes the repository. It accepts one that exists by now.
func (p *push) create() error {
	owner, name, _ := strings.Cut(p.repo.id, "/")
	value := map[string]string{"organization": owner, "name": name, "type": "model"}
	if p.options.Private {
		value["visibility"] = "private"
	}
	return p.postNew("the new repository", call{address: p.addressOf("api", "repos", "create")}, value, &p.outcome.Created)
}

// postNew posts a value to make something, and sets made if it did not exist. That it exists already is no error.
func (p *push) postNew(what string, k call, value any, made *bool) error {
	k = withJSON(k, value)
	k.readAnswer = func(resp *http.Response) error {
		if resp.StatusCode == http.StatusConflict { // it exists, unless the text says otherwise
			text, err := readBody(resp, 64<<10)
			if err == nil && bytes.Contains(text, []byte("conflicting operation")) {
				err = errors.New("the hub is busy with another request of this account")
			}
			return err
		}
		if resp.StatusCode >= 400 {
			return permanent{p.refusal(p.repo, what, resp)}
		}
		*made = true
		return nil
	}
	return p.callToEnd(p.ctx, p.repo, what, k)
}

// compare asks how to send each file and which ones the branch has, and sets in p.files what to do with each.
func (p *push) compare() error {
	type file struct {
		Path   string `json:"path"`
		Sample []byte `json:"sample"`
		Size   int64  `json:"size"`
	}
	regularBytes := int64(0) // bytes of small files so far
	for group := range slices.Chunk(p.files, groupSize) {
		var request struct {
			Files []file `json:"files"`
		}
		var answer struct {
			Files []remoteFile `json:"files"`
		}
		for _, f := range group {
			sample, err := f.sample()
			if err != nil {
				return err
			}
			request.Files = append(request.Files, file{f.Name, sample, f.Size})
		}
		k := withJSON(call{address: p.apiAddress(p.repo, "preupload", p.repo.revision)}, request)
		if err := p.askJSON(p.ctx, p.repo, "how to send the files", k, &answer); err != nil {
			return err
		}
		for _, f := range group {
			i := slices.IndexFunc(answer.Files, func(r remoteFile) bool { return r.Path == f.Name })
			if i < 0 {
				return p.wrongAnswer("does not say how to send %s", f.Name)
			}
			if err := p.decideHow(f, answer.Files[i], &regularBytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// A remoteFile is the hub's answer about a file to send.
type remoteFile struct {
	Path   string `json:"path"`
	Mode   string `json:"uploadMode"`
	Ignore bool   `json:"shouldIgnore"`
	OID    string `json:"oid"` // checksum of the file on the branch
}

// decideHow reads a file and decides from the hub's answer about it whether and how to send it. regularBytes grows by
// the bytes of a file that goes into the commit itself.
func (p *push) decideHow(f *outgoing, r remoteFile, regularBytes *int64) error {
	if r.Mode != "lfs" && r.Mode != "regular" {
		return p.wrongAnswer("wants %s sent in a way that onering does not know: %.40q", f.Name, r.Mode)
	}
	f.ignored, f.keepsOther = r.Ignore, f.Default && r.OID != "" // a default file does not replace one of the branch
	large := r.Mode == "lfs" && f.Size > 0                       // the storage for large files takes no empty files
	if !large {
		if *regularBytes += f.Size; *regularBytes > maxRegular {
			return p.wrongAnswer("wants more than %d MiB within the commit, up to %s: track such files with Git LFS in the repository's .gitattributes",
				maxRegular>>20, f.Name)
		}
	}
	if f.oid == "" || large != f.large { // not read yet, or with the checksum of the other kind
		f.large = large
		if err := f.read(p.ctx); err != nil {
			return err
		}
	}
	f.onBranch = strings.EqualFold(r.OID, f.oid)
	return nil
}

// weightFile matches the files with the weights of a model.
var weightFile = regexp.MustCompile(`^model(-[0-9]{5}-of-[0-9]{5})?\.safetensors$|^model\.safetensors\.index\.json$`)

// commit makes the branch hold the files. Where the answer is lost, it looks
// whether the commit happened before it commits again.
func (p *push) commit() error {
	text, changed, err := p.commitLines()
	if err != nil || !changed {
		p.outcome.Commit = p.parent
		return err
	}
	k := call{
		method: http.MethodPost, address: p.apiAddress(p.repo, "commit", p.repo.revision),
		header:         http.Header{"Content-Type": {"application/x-ndjson"}},
		body:           func() (io.Reader, int64) { return bytes.NewReader(text), int64(len(text)) }, // k.beforeRepeat changes text
		repeatStatuses: []int{http.StatusConflict, http.StatusPreconditionFailed},                    // another commit came first
	}
	k.beforeRepeat = func() (bool, error) { // true ends the call: the branch has what is pushed already
		err := p.readBranch()
		if err == nil {
			err = p.compare()
		}
		if err == nil {
			text, changed, err = p.commitLines()
		}
		return err == nil && !changed, err
	}
	var answer struct {
		OID string `json:"commitOid"`
	}
	if err := p.askJSON(p.ctx, p.repo, "the commit", k, &answer); err != nil {
		return err
	}
	if !changed { // an earlier attempt, whose answer was lost, made the commit
		answer.OID = p.parent
	}
	if !isCommit(answer.OID) {
		return p.wrongAnswer("answers the commit with %.80q, which is not a commit", answer.OID)
	}
	p.outcome.Commit, p.outcome.Changed = answer.OID, true
	return nil
}

// commitLines returns the commit as lines of JSON, and whether it changes anything: it adds the pending files, large ones by
// their checksum, and deletes weights of an earlier model. A file that has changed since it was read is an error.
func (p *push) commitLines() (text []byte, changed bool, err error) {
	var b bytes.Buffer
	add := func(key string, value any) {
		if err == nil {
			err = json.NewEncoder(&b).Encode(map[string]any{"key": key, "value": value})
		}
	}
	add("header", map[string]string{"summary": p.options.Message, "description": "", "parentCommit": p.parent})
	names := map[string]bool{}
	for _, f := range p.files {
		names[f.Name] = true
		switch {
		case !f.pending():
			continue
		case f.large:
			add("lfsFile", map[string]any{"path": f.Name, "algo": "sha256", "oid": f.oid, "size": f.Size})
		default:
			f.delivered = "sent"
			add("file", map[string]any{"path": f.Name, "encoding": "base64", "content": f.content})
		}
		changed = true
		if same := f.unchanged(); same != nil {
			return nil, false, same
		}
	}
	var stale []string
	for _, name := range p.parentFiles {
		if weightFile.MatchString(name) && !names[name] {
			stale, changed = append(stale, name), true
			add("deletedFile", map[string]string{"path": name})
		}
	}
	if changed { // else an earlier attempt, whose answer was lost, has removed some and set Removed
		p.outcome.Removed = stale
	}
	return b.Bytes(), changed, err
}
