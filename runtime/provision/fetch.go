package provision

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"onering/internal/files"
)

// A Build is the library of one source, for one platform.
type Build struct {
	version  string // version of ONNX Runtime
	ref      string // the package or archive, in the source's words
	Variant  string // "" for the CPU alone, else the addition, such as "cuda13"
	Platform string // pip's name of the platform; "" for other sources
	Member   string // the library's path in the package or archive
	Sum      string // SHA-256 of the library; "" if the source states the archive's
	Size     int64  // bytes to download, for the progress; 0 if unknown
	Beside   []Part // files that the library loads from its own folder
}

// A Part is a further file of a Build: its path in the archive and its SHA-256. Ref is
// its package, "" for the Build's own.
type Part struct{ Member, Sum, Ref string }

// path returns where the library of b lies in the cache.
func (b Build) path(cache, goos, goarch string) string {
	version := b.version
	if b.Variant != "" {
		version += "-" + b.Variant
	}
	return filepath.Join(cache, version+"-"+goos+"-"+goarch, libraryName(goos))
}

// A Source is a way to get the library. fetch writes the library to the path into, complete and checked, and its
// other files into the same folder. It may use the folder p.staging for temporary files.
type Source struct {
	name  string
	build func(goos, goarch string) (Build, bool)
	fetch func(ctx context.Context, p *provisioner, b Build, into string) error
}

// builds looks up a platform in a table of builds of one version. ref is the Ref of builds without one.
func builds(version, ref string, table map[string]Build) func(goos, goarch string) (Build, bool) {
	return func(goos, goarch string) (Build, bool) {
		b, ok := table[goos+"/"+goarch]
		b.version, b.ref = version, cmp.Or(b.ref, ref)
		return b, ok
	}
}

// sources are tried in this order. Package clients come first, since they use the user's proxies and mirrors.
var sources = []Source{pip, npm, module, github}

// errAbsent is returned by a source whose package client is not on this machine.
var errAbsent = errors.New("not installed")

// A provisioner fetches the library into the cache.
type provisioner struct {
	goos, goarch string
	cache        string
	kind         Kind
	staging      string // a folder inside the cache, removed at the end
	fetches      bool
	progress     func(step string, done, total int64)
	notice       func(string)
}

// newProvisioner makes a provisioner for this machine that fetches libraries of a kind; callbacks that o lacks
// do nothing.
func newProvisioner(o Options, k Kind) (*provisioner, error) {
	cache, err := cacheDir(o)
	if err != nil {
		return nil, err
	}
	p := &provisioner{goos: runtime.GOOS, goarch: runtime.GOARCH, cache: cache, kind: k, fetches: o.Fetches(), progress: o.Progress, notice: o.Notice}
	if p.progress == nil {
		p.progress = func(string, int64, int64) {}
	}
	if p.notice == nil {
		p.notice = func(string) {}
	}
	return p, nil
}

// provision downloads the library from the first source that has it. If several processes
// start together, one downloads and the others wait.
func (p *provisioner) provision(ctx context.Context) (Location, error) {
	if !p.fetches {
		return Location{}, p.missing(fmt.Errorf("fetching is switched off (offline, or %s is set)", envOffline))
	}
	if err := os.MkdirAll(p.cache, 0o755); err != nil {
		return Location{}, fmt.Errorf("provision: cache folder for the ONNX Runtime library: %w; set %s to one that can be written", err, envCache)
	}
	unlock, err := files.Lock(ctx, filepath.Join(p.cache, ".lock"), nil)
	if err != nil {
		return Location{}, fmt.Errorf("provision: waiting for another process that fetches the ONNX Runtime library: %w", err)
	}
	defer unlock()
	if path := cached(p.cache, p.goos, p.goarch, p.kind); path != "" { // another process has fetched it meanwhile
		return Location{path, "cache"}, nil
	}
	p.staging = filepath.Join(p.cache, ".staging")
	defer os.RemoveAll(p.staging)
	var failed []error
	for _, s := range p.kind.sources() {
		b, ok := s.build(p.goos, p.goarch)
		if !ok {
			failed = append(failed, fmt.Errorf("%s: has none for %s/%s", s.name, p.goos, p.goarch))
			continue
		}
		path, err := p.install(ctx, s, b)
		if err == nil {
			p.notice(fmt.Sprintf("ONNX Runtime %s (%s, %s) is now at %s", b.version, s.name, b.ref, path))
			return Location{path, s.name}, nil
		}
		if ctx.Err() != nil {
			return Location{}, fmt.Errorf("provision: fetching the ONNX Runtime library: %w", ctx.Err())
		}
		failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
	}
	return Location{}, p.missing(failed...)
}

// An origin says where a cached library came from. It is written beside the library.
type origin struct {
	Source  string            `json:"source"`
	Ref     string            `json:"ref"`
	Version string            `json:"version"`
	SHA256  string            `json:"sha256"`
	Beside  map[string]string `json:"beside,omitempty"` // SHA-256 of each file
}

const originName = "origin.json"

// install fetches b into an empty staging folder and moves that folder into the
// cache at the end, so that a library in the cache is always complete.
func (p *provisioner) install(ctx context.Context, s Source, b Build) (string, error) {
	if err := os.RemoveAll(p.staging); err != nil { // left by a process that died
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
	if from.SHA256, err = files.Sum(lib); err != nil {
		return "", err
	}
	for _, f := range b.Beside {
		if from.Beside == nil {
			from.Beside = map[string]string{}
		}
		name := filepath.Base(f.Member)
		if from.Beside[name], err = files.Sum(filepath.Join(ready, name)); err != nil {
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

// missing returns the error for a machine without a library. It says what was tried and what the user can do.
func (p *provisioner) missing(why ...error) error {
	if p.kind.Name != "" {
		return fmt.Errorf("provision: no ONNX Runtime library %s was found and none could be fetched:\n%w\nTo go on, "+
			"put the libraries of pip's %s into one folder and name it with --set runtime.library=FILE or %s",
			p.kind.Name, indented{errors.Join(why...)}, p.kind.Ref, LibraryVariable)
	}
	return fmt.Errorf(`provision: no ONNX Runtime library was found and none could be fetched:
%w
To go on, put %s of ONNX Runtime 1.%d or newer for %s/%s (tried: up to %s), from
%s, at
  %s
or name it with --set runtime.library=FILE or %s`,
		indented{errors.Join(why...)}, libraryName(p.goos), MinAPI, p.goos, p.goarch, pinned, releasePage,
		filepath.Join(p.cache, libraryName(p.goos)), LibraryVariable)
}

// indented prints each line of an error indented by two spaces.
type indented struct{ error }

func (e indented) Error() string {
	return "  " + strings.ReplaceAll(e.error.Error(), "\n", "\n  ")
}
func (e indented) Unwrap() error { return e.error }
