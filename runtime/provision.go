package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
)

// A build is the library of one source, for one platform.
type build struct {
	version string // of ONNX Runtime
	variant string // "" for the CPU alone, else what it is built with, such as "cuda13"
	ref     string // how the source names what it fetches
	member  string // the library's path inside of it
	sum     string // SHA-256 of the library; "" where the source states that of the archive
	size    int64  // bytes to download, for the progress; 0 where it is not known
	beside  []part // files that the library loads from its own folder
}

// A part is one more file of a build.
type part struct{ member, sum string }

// path is where the library of b lies in the cache.
func (b build) path(cache, goos, goarch string) string {
	version := b.version
	if b.variant != "" {
		version += "-" + b.variant
	}
	return filepath.Join(cache, version+"-"+goos+"-"+goarch, libraryName(goos))
}

// A source is a way to get the library. fetch puts it at into, complete and
// checked, and the files beside it into the same folder; it may use the folder
// p.staging.
type source struct {
	name  string
	build func(goos, goarch string) (build, bool)
	fetch func(ctx context.Context, p *provisioner, b build, into string) error
}

// sources in the order in which they are tried. A package client comes first,
// since it knows the user's proxies and mirrors.
var sources = []source{pip, npm, module, github}

// cudaSources have the library with its CUDA provider.
var cudaSources = []source{pipCUDA}

// errAbsent is returned by a source whose client is not on this machine.
var errAbsent = errors.New("not installed")

// Progress tells how far the fetching of the library is.
type Progress struct {
	// Step says what is done, such as "onnxruntime 1.31.1 with pip".
	Step string
	// Done and Total are bytes; Total is 0 while it is not known.
	Done, Total int64
}

// A provisioner fetches the library into the cache.
type provisioner struct {
	goos, goarch string
	cache        string
	kind         kind
	staging      string // a folder inside the cache, removed at the end
	offline      bool
	progress     func(Progress)
	notice       func(string)
}

func newProvisioner(o Options, k kind) (*provisioner, error) {
	cache, err := cacheDir(o)
	if err != nil {
		return nil, err
	}
	p := &provisioner{goos: goruntime.GOOS, goarch: goruntime.GOARCH, cache: cache, kind: k, offline: o.Offline || os.Getenv(envOffline) != "", progress: o.Progress, notice: o.Notice}
	if p.progress == nil {
		p.progress = func(Progress) {}
	}
	if p.notice == nil {
		p.notice = func(string) {}
	}
	return p, nil
}

// provision fetches the library from the first source that can. Processes that
// start together wait for the one that fetches.
func (p *provisioner) provision(ctx context.Context) (place, error) {
	if p.offline {
		return place{}, p.missing(fmt.Errorf("fetching is switched off (offline, or %s is set)", envOffline))
	}
	if err := os.MkdirAll(p.cache, 0o755); err != nil {
		return place{}, fmt.Errorf("runtime: cache folder for the ONNX Runtime library: %w; set %s to one that can be written", err, envCache)
	}
	unlock, err := lock(ctx, filepath.Join(p.cache, ".lock"))
	if err != nil {
		return place{}, fmt.Errorf("runtime: waiting for another process that fetches the ONNX Runtime library: %w", err)
	}
	defer unlock()
	if path := cached(p.cache, p.goos, p.goarch, p.kind); path != "" {
		return place{path, "cache"}, nil
	}
	p.staging = filepath.Join(p.cache, ".staging")
	defer os.RemoveAll(p.staging)
	var failed []error
	for _, s := range p.kind.sources {
		b, ok := s.build(p.goos, p.goarch)
		if !ok {
			failed = append(failed, fmt.Errorf("%s: has none for %s/%s", s.name, p.goos, p.goarch))
			continue
		}
		path, err := p.install(ctx, s, b)
		if err == nil {
			p.notice(fmt.Sprintf("ONNX Runtime %s (%s, %s) is now at %s", b.version, s.name, b.ref, path))
			return place{path, s.name}, nil
		}
		if ctx.Err() != nil {
			return place{}, fmt.Errorf("runtime: fetching the ONNX Runtime library: %w", ctx.Err())
		}
		failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
	}
	return place{}, p.missing(failed...)
}

// An origin says where a cached library came from; it is written beside it.
type origin struct {
	Source  string            `json:"source"`
	Ref     string            `json:"ref"`
	Version string            `json:"version"`
	SHA256  string            `json:"sha256"`
	Beside  map[string]string `json:"beside,omitempty"` // file -> its SHA-256
}

const originName = "origin.json"

// install fetches b into a fresh staging folder and moves the whole of it into
// place, so that a library in the cache is always complete.
func (p *provisioner) install(ctx context.Context, s source, b build) (string, error) {
	if err := os.RemoveAll(p.staging); err != nil { // of a process that died
		return "", err
	}
	ready := filepath.Join(p.staging, "ready")
	if err := os.MkdirAll(ready, 0o755); err != nil {
		return "", err
	}
	path := b.path(p.cache, p.goos, p.goarch)
	lib := filepath.Join(ready, filepath.Base(path))
	if err := s.fetch(ctx, p, b, lib); err != nil {
		return "", err
	}
	if err := inspect(lib, p.goos, p.goarch); err != nil {
		return "", err
	}
	from := origin{Source: s.name, Ref: b.ref, Version: b.version}
	var err error
	if from.SHA256, err = fileSum(lib); err != nil {
		return "", err
	}
	for _, f := range b.beside {
		if from.Beside == nil {
			from.Beside = map[string]string{}
		}
		name := filepath.Base(f.member)
		if from.Beside[name], err = fileSum(filepath.Join(ready, name)); err != nil {
			return "", err
		}
	}
	text, err := json.MarshalIndent(from, "", "  ")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(ready, originName), append(text, '\n'), 0o644); err != nil {
		return "", err
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		return "", err
	}
	return path, os.Rename(ready, filepath.Dir(path))
}

// missing is the error of a machine without a library, with the way out.
func (p *provisioner) missing(why ...error) error {
	if len(p.kind.with) > 0 {
		return fmt.Errorf("runtime: no ONNX Runtime library with CUDA was found and none could be fetched:\n%w\nTo go on, put the libraries of pip's %s into one folder and name it with --library or %s",
			indented{errors.Join(why...)}, cudaRef, envLibrary)
	}
	return fmt.Errorf(`runtime: no ONNX Runtime library was found and none could be fetched:
%w
To go on, put %s of ONNX Runtime 1.%d or newer for %s/%s (tried: up to %s), from
%s, at
  %s
or name it with --library or %s`,
		indented{errors.Join(why...)}, libraryName(p.goos), minAPI, p.goos, p.goarch, pinned, releasePage,
		filepath.Join(p.cache, libraryName(p.goos)), envLibrary)
}

// indented shows each line of an error below the one before.
type indented struct{ error }

func (e indented) Error() string {
	return "  " + strings.ReplaceAll(e.error.Error(), "\n", "\n  ")
}
func (e indented) Unwrap() error { return e.error }

// fileSum is the SHA-256 of a file in hexadecimal.
func fileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
