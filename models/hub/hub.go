// Package hub downloads models and data sets from a Hugging Face hub, and pushes
// models to it. Downloads go into the standard cache, which it shares with the
// Python client:
//
//	HUB/models--ORG--NAME/refs/main                   the commit of a branch or tag
//	HUB/models--ORG--NAME/snapshots/COMMIT/FILE  ->   ../../blobs/ETAG
//	HUB/models--ORG--NAME/blobs/ETAG                  a file; ETAG.incomplete during its download
//	HUB/models--ORG--NAME/onering/COMMIT.json         the names of all files of a commit; only onering reads it
//	HUB/.locks/models--ORG--NAME/ETAG.lock            held by the process that downloads the file
//
// A file enters the cache only after its checksum was compared (SHA-256, or
// git's SHA-1 for small files). A ref names a commit only when the snapshot is
// complete. An interrupted download continues where it stopped.
//
// The folders and the account follow the variables of the Python client:
// HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN or the file HF_HOME/token,
// HF_HUB_OFFLINE. The token is sent to the endpoint's host alone, never to a
// host to which it redirects, and appears in no message.
//
// Push sends files by the protocol of the Python client without Xet. Of an
// interrupted upload of a large file, HF_HOME/onering/push keeps the addresses of
// its parts and what was sent; they are signed, so only the user may read them.
//
// The client is our own because the kept one in Go, gomlx/go-huggingface
// (v0.3.1), compares no checksums, deletes interrupted downloads, retries
// nothing, refuses the redirects of mirrors, and knows neither HF_TOKEN nor
// offline use.
package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	network "onering/internal/remote"
)

// Options are the caller's choices; the zero value works.
type Options struct {
	// Revision is a branch, a tag or a commit. If it is empty, it is taken from
	// the name (ORG/NAME@REVISION), else it is main.
	Revision string
	// NoWeights leaves out the weights of a model.
	NoWeights bool
	// Offline uses only the cache, as HF_HUB_OFFLINE does.
	Offline bool
	// Progress, if not nil, is called while a file is downloaded or sent, with how many
	// of its bytes are done; total is 0 if unknown.
	Progress func(file string, done, total int64)
	// Notice, if not nil, receives messages for the user, such as that the cache is used
	// because the hub does not answer.
	Notice func(text string)
	// Getenv is os.Getenv if nil.
	Getenv func(string) string

	// Only tests set the fields below.
	transport http.RoundTripper
	wait      func(context.Context, time.Duration) error
	stall     time.Duration
	// unstated bounds a body of unknown size, in bytes.
	unstated int64
}

// withDefaults returns the options with defaults for missing functions.
func (o Options) withDefaults() Options {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	if o.wait == nil {
		o.wait = network.Sleep
	}
	return o
}

// Resolve returns the folder of a model. The name of a folder that exists is returned unchanged. ORG/NAME, with or
// without @REVISION, is a model on the hub, unless the working directory has a folder ORG: then it is a path. With
// "hf:" in front it is always a model on the hub. Other names are returned unchanged; the caller finds out that there
// is no such folder.
//
// Only needed files are downloaded: configs, the files of the tokenizer, and safetensors.
func Resolve(ctx context.Context, name string, o Options) (dir string, err error) {
	r, ok, err := parseName(name, model)
	if err != nil || !ok {
		return name, err
	}
	r.noWeights = o.NoWeights
	return fetch(ctx, r, o)
}

// Pin returns name with the commit to which path belongs, the folder to which name was resolved, so that the result
// always means the same files. A name that is not on the hub is returned unchanged.
func Pin(name, path string) string {
	_, rest, ok := strings.Cut(filepath.ToSlash(path), "/snapshots/")
	if !ok || name == path { // path is not in the cache, or name is a folder
		return name
	}
	commit, _, _ := strings.Cut(rest, "/")
	r, ok, err := parseName(name, model)
	if err != nil || !ok {
		if r, ok, err = parseName(name, dataset); err != nil || !ok {
			return name
		}
	}
	pinned := "hf:" + r.id + "@" + commit
	if r.path != "" {
		pinned += "/" + r.path
	}
	return pinned
}

// ResolveData returns the path of a data set: "hf:ORG/NAME" is a folder with its data
// files, which isData recognizes, "hf:ORG/NAME/PATH" a file or folder of it, both with or
// without @REVISION after NAME. Other names are returned unchanged.
func ResolveData(ctx context.Context, name string, isData func(name string) bool, o Options) (path string, err error) {
	r, ok, err := parseName(name, dataset)
	if err != nil || !ok {
		return name, err
	}
	r.isData = isData
	dir, err := fetch(ctx, r, o)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.FromSlash(r.path)), nil
}

// fetch downloads the missing files of a repository's snapshot into the cache, and returns the snapshot's folder.
func fetch(ctx context.Context, r repo, o Options) (dir string, err error) {
	o = o.withDefaults()
	r.revision = cmp.Or(o.Revision, r.revision)
	if err := checkRevision(r.revision); err != nil {
		return "", err
	}
	s, err := readSettings(o)
	if err != nil {
		return "", err
	}
	store := &store{root: s.cache, repo: r}
	cached, missing := store.cached()
	if s.offline {
		if cached == "" {
			return "", &fault{Repo: r.id, Err: errOffline, Detail: missing}
		}
		return cached, nil
	}
	if cached != "" && isCommit(r.revision) {
		return cached, nil // a commit never changes
	}
	c := newClient(s, o)
	if cached != "" {
		c.attempts = 1 // do not wait for a hub that does not answer: the cached one will do
	}
	description, err := c.describe(ctx, r)
	if err == nil {
		c.attempts = maxAttempts
		dir, err = store.fillSnapshot(ctx, c, description, o)
		return dir, withHelp(err)
	}
	if cached != "" && ctx.Err() == nil && unreachable(err) {
		o.Notice("the hub does not answer (" + err.Error() + "): using " + cached + " from the cache")
		return cached, nil
	}
	return "", withHelp(err)
}

// withHelp says what helps beside an error for want of a network.
func withHelp(err error) error {
	if errors.As(err, new(*net.OpError)) || errors.As(err, new(*net.DNSError)) {
		return fmt.Errorf("%w; without a network, name a folder or a file that has it (as model.path = DIR), or "+
			"download it on a machine with one and bring the cache (HF_HOME)", err)
	}
	return err
}
