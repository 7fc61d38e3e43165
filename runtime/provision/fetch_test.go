package provision

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onering/internal/files"
)

// envNetwork makes tests fetch the real packages with the real clients.
const envNetwork = "ONERING_TEST_NETWORK"

func provisionerOf(t *testing.T, cache string, sources ...Source) *provisioner {
	t.Helper()
	t.Setenv(envOffline, "")
	p, err := newProvisioner(Options{Cache: cache}, Kind{Sources: sources})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fromFile is a source that copies a file, slowly.
func fromFile(name, file string, fetches *atomic.Int32) Source {
	return Source{
		name:  name,
		build: func(string, string) (Build, bool) { return Build{version: "1.99.0", ref: "stub@1.99.0"}, true },
		fetch: func(_ context.Context, p *provisioner, b Build, into string) error {
			fetches.Add(1)
			time.Sleep(20 * time.Millisecond)
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()
			return writeLibrary(f, into, b.Sum)
		},
	}
}

// TestProvisionOnce starts many provisioners on one cache: one fetches.
func TestProvisionOnce(t *testing.T) {
	var fetches, notices atomic.Int32
	cache := t.TempDir()
	s := fromFile("stub", stub(t, "1.99.0"), &fetches)
	var wg sync.WaitGroup
	for range 8 {
		p := provisionerOf(t, cache, s)
		p.notice = func(string) { notices.Add(1) }
		wg.Go(func() {
			at, err := p.provision(t.Context())
			if err != nil {
				t.Error(err)
			} else if err := inspect(at.Path, p.goos, p.goarch); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if fetches.Load() != 1 || notices.Load() != 1 {
		t.Errorf("%d fetches and %d notices, want one of each", fetches.Load(), notices.Load())
	}
}

// TestProvisionFallsThrough lets sources fail in turn; the files of a failed source must
// be gone, and the last library is complete with its origin.
func TestProvisionFallsThrough(t *testing.T) {
	var fetches atomic.Int32
	good := stub(t, "1.99.0")
	text := write(t, filepath.Join(t.TempDir(), "text"), []byte("not a library"))
	wrongSum := fromFile("wrong digest", good, &fetches)
	wrongSum.build = func(string, string) (Build, bool) {
		return Build{version: "1.99.0", Sum: strings.Repeat("0", 64)}, true
	}
	absent := fromFile("absent", good, &fetches)
	absent.build = func(string, string) (Build, bool) { return Build{}, false }
	cache := t.TempDir()
	bad := []Source{absent, fromFile("no file", filepath.Join(t.TempDir(), "none"), &fetches), fromFile("text", text, &fetches), wrongSum}

	_, err := provisionerOf(t, cache, bad...).provision(t.Context())
	if err == nil {
		t.Fatal("accepted a bad library")
	}
	for _, want := range []string{"absent: has none for", "no file: ", "text: ", "is not a shared library", "wrong digest: ", "not the expected 0000"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
	onlyLock(t, cache)

	at, err := provisionerOf(t, cache, append(bad, fromFile("good", good, &fetches))...).provision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var from origin
	data, err := os.ReadFile(filepath.Join(filepath.Dir(at.Path), originName))
	if err == nil {
		err = json.Unmarshal(data, &from)
	}
	sum, _ := files.Sum(good)
	if want := (origin{Source: "good", Ref: "stub@1.99.0", Version: "1.99.0", SHA256: sum}); err != nil || !reflect.DeepEqual(from, want) {
		t.Errorf("origin %+v, %v; want %+v", from, err, want)
	}
}

// onlyLock fails where more than the lock file is left in the cache.
func onlyLock(t *testing.T, cache string) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(cache, "onnxruntime"))
	if err != nil || len(files) != 1 || files[0].Name() != ".lock" {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

func TestProvisionCancelled(t *testing.T) {
	cache := t.TempDir()
	p := provisionerOf(t, cache, Source{"endless", func(string, string) (Build, bool) { return Build{version: "1"}, true },
		func(ctx context.Context, p *provisioner, b Build, into string) error {
			write(t, into, []byte("half"))
			<-ctx.Done()
			return ctx.Err()
		}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.provision(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's error", err)
	}
	onlyLock(t, cache)

	// A process that waits for another stops waiting when its context ends.
	unlock, err := files.Lock(t.Context(), filepath.Join(cache, "onnxruntime", ".lock"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.provision(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's error", err)
	}
}

// tgz makes an archive of files, given as names and contents in turn.
func tgz(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}
		if link, ok := strings.CutPrefix(files[i+1], "-> "); ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, link, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte(files[i+1])); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipOf(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		f, err := w.Create(files[i])
		if err == nil {
			_, err = f.Write([]byte(files[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestExtract writes only the one member, however many an archive holds.
func TestExtract(t *testing.T) {
	hash := sha256.Sum256([]byte("content"))
	sum := hex.EncodeToString(hash[:])
	hostile := []string{"../escaped", "x", "/absolute", "x", "dir/../../escaped", "x", "lib/a.so", "content"}
	cases := []struct {
		name, archive string
		data          []byte
		sum, want     string
	}{
		{"zip", "a.whl", zipOf(t, hostile...), sum, ""},
		{"tar", "a.tgz", tgz(t, hostile...), sum, ""},
		{"tar with dots", "a.tgz", tgz(t, "./lib/a.so", "content"), sum, ""},
		{"no digest", "a.tgz", tgz(t, "lib/a.so", "content"), "", ""},
		{"zip, wrong content", "a.whl", zipOf(t, "lib/a.so", "Content"), sum, "not the expected"},
		{"tar, wrong content", "a.tgz", tgz(t, "lib/a.so", "Content"), sum, "not the expected"},
		{"zip, absent", "a.zip", zipOf(t, "lib/b.so", "content"), sum, "not in the archive"},
		{"tar, absent", "a.tgz", tgz(t, "lib/b.so", "content"), sum, "not in the archive"},
		{"tar, a link", "a.tgz", tgz(t, "lib/a.so", "-> ../../secret"), sum, "not in the archive"},
		{"zip, cut", "a.zip", zipOf(t, hostile...)[:40], sum, "zip"},
		{"tar, cut", "a.tgz", tgz(t, hostile...)[:40], sum, "EOF"},
		{"tar, empty", "a.tgz", nil, sum, "EOF"},
		{"tar, text", "a.tgz", []byte("not an archive, but long enough"), sum, "gzip"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "in")
			archive := write(t, filepath.Join(dir, c.archive), c.data)
			into := filepath.Join(dir, "out.so")
			err := extract(archive, "lib/a.so", into, c.sum)
			files, _ := filepath.Glob(filepath.Join(dir, "..", "*"))
			inside, _ := filepath.Glob(filepath.Join(dir, "*"))
			if len(files) != 1 {
				t.Errorf("written outside: %v", files)
			}
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.archive) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				if len(inside) != 1 {
					t.Errorf("left behind: %v", inside)
				}
				return
			}
			if data, _ := os.ReadFile(into); err != nil || string(data) != "content" || len(inside) != 2 {
				t.Errorf("%q, %v, files %v", data, err, inside)
			}
		})
	}
}

// A fakeRelease serves a release with one archive.
type fakeRelease struct {
	archive []byte
	digest  string // stated
	name    string
}

func (r *fakeRelease) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.URL.Path == "/archive" {
		w.Write(r.archive)
		return
	}
	fmt.Fprintf(w, `{"assets":[{"name":"other","digest":"sha256:00"},{"name":%q,"size":%d,"digest":%q,"browser_download_url":"http://%s/archive"}]}`, r.name, len(r.archive), r.digest, q.Host)
}

func TestGitHub(t *testing.T) {
	b, ok := github.build(runtime.GOOS, runtime.GOARCH)
	if !ok {
		t.Skipf("no release for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	lib, err := os.ReadFile(stub(t, "1.99.0"))
	if err != nil {
		t.Fatal(err)
	}
	r := &fakeRelease{name: b.ref, archive: tgz(t, b.Member, string(lib))}
	if filepath.Ext(b.ref) == ".zip" {
		r.archive = zipOf(t, b.Member, string(lib))
	}
	hash := sha256.Sum256(r.archive)
	good := "sha256:" + hex.EncodeToString(hash[:])
	server := httptest.NewServer(r)
	defer server.Close()
	defer func(was string) { releaseAPI = was }(releaseAPI)
	releaseAPI = server.URL

	cache := t.TempDir()
	try := func(cache, digest string) error {
		r.digest = digest
		p := provisionerOf(t, cache, github)
		var last, size int64
		p.progress = func(_ string, now, total int64) {
			if now < last {
				t.Errorf("progress went back: %d, %d", last, now)
			}
			last, size = now, total
		}
		at, err := p.provision(t.Context())
		if err == nil && (last != size || size != int64(len(r.archive))) {
			t.Errorf("the last progress is %d of %d, of %d bytes", last, size, len(r.archive))
		}
		if err == nil {
			os.RemoveAll(filepath.Dir(at.Path))
		}
		return err
	}
	other := "sha256:" + strings.Repeat("a", 64)
	for _, c := range []struct{ cache, digest, want string }{
		{t.TempDir(), "", "states no SHA-256"},
		{t.TempDir(), "md5:00", "states no SHA-256"},
		{t.TempDir(), other, "what was downloaded has " + good},
		{cache, good, ""},
		{cache, good, ""},
		{cache, other, "before it was " + good},
	} {
		err := try(c.cache, c.digest)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("digest %q: %v, want %q", c.digest, err, c.want)
		}
	}
	r.name = "another"
	if err := try(t.TempDir(), good); err == nil || !strings.Contains(err.Error(), "the release has no "+b.ref) {
		t.Errorf("no such file: %v", err)
	}
	server.Close()
	if err := try(t.TempDir(), good); err == nil || !strings.Contains(err.Error(), "GitHub: ") {
		t.Errorf("no server: %v", err)
	}
}

// TestClientFails runs package clients that fail as pip and npm do.
func TestClientFails(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the clients of this test are shell scripts")
	}
	bin := t.TempDir()
	script := func(name, text string) {
		write(t, filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"))
		if err := os.Chmod(filepath.Join(bin, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	p := provisionerOf(t, t.TempDir(), pip, npm)
	expect := func(want ...string) {
		t.Helper()
		_, err := p.provision(t.Context())
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q is not in:\n%v", w, err)
			}
		}
	}
	expect("pip: not installed", "npm: not installed")
	script("python3", "echo 'No module named pip' >&2; exit 1")
	expect("pip: not installed")
	script("pip", `[ "$1" = --version ] && exit 0
echo "WARNING: Retrying"; echo "ERROR: No matching distribution found for onnxruntime" >&2; echo "hint: try harder"; exit 1`)
	script("npm", `echo "npm error code E404"; echo "npm error A complete log"; exit 1`)
	expect("pip: exit status 1: ERROR: No matching distribution", "npm: exit status 1: npm error code E404")
	script("pip", "exit 0")
	script("npm", "echo > onnxruntime-node-1.tgz; exit 0")
	expect("pip: it left 0 wheels", "npm: onnxruntime-node-1.tgz")
}

// TestPackages fetches the library of every platform with the real clients.
func TestPackages(t *testing.T) {
	if os.Getenv(envNetwork) == "" {
		t.Skipf("set %s=1 to download some 450 MB", envNetwork)
	}
	for _, s := range []Source{pip, npm} {
		for _, platform := range []string{"linux/amd64", "linux/arm64", "darwin/arm64", "windows/amd64", "windows/arm64"} {
			t.Run(s.name+"/"+platform, func(t *testing.T) {
				p := provisionerOf(t, t.TempDir(), s)
				p.goos, p.goarch, _ = strings.Cut(platform, "/")
				var last, size int64
				p.progress = func(_ string, done, total int64) { last, size = done, total }
				if _, err := p.provision(t.Context()); err != nil {
					t.Fatal(err)
				}
				if last != size {
					t.Errorf("the last progress is %d of %d", last, size)
				}
			})
		}
	}
}

// TestPipBeside fetches a small wheel of three libraries with a pip of this test,
// checks each, and finds it again in the cache.
func TestPipBeside(t *testing.T) {
	t.Setenv(LibraryVariable, "")
	const second, ref = "libonnxruntime_providers_second.so", "onnxruntime-gpu==" + pinned
	library := stub(t, "1.99.0")
	files := []string{"libonnxruntime.so.1.31.1", "libonnxruntime_providers_shared.so", second}
	var members []string
	var parts []Part
	for i, name := range files {
		data := []byte(name)
		if i == 0 {
			var err error
			if data, err = os.ReadFile(library); err != nil {
				t.Fatal(err)
			}
		}
		sum := sha256.Sum256(data)
		members = append(members, "onnxruntime/capi/"+name, string(data))
		parts = append(parts, Part{Member: "onnxruntime/capi/" + name, Sum: hex.EncodeToString(sum[:])})
	}
	wheel := write(t, filepath.Join(t.TempDir(), "wheel"), zipOf(t, members...))
	// The client puts the wheel where --dest says, as pip does.
	bin := t.TempDir()
	write(t, filepath.Join(bin, "pip"), []byte(`#!/bin/sh
[ "$1" = --version ] && exit 0
for a; do case $a in --dest=*) cp "`+wheel+`" "${a#--dest=}/onnxruntime_gpu-1.31.1-cp312.whl";; esac; done
`))
	if err := os.Chmod(filepath.Join(bin, "pip"), 0o755); err != nil {
		t.Fatal(err)
	}
	cp, err := exec.LookPath("cp")
	if err != nil {
		t.Skip("this test's client needs cp")
	}
	if err := os.Symlink(cp, filepath.Join(bin, "cp")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	of := func(beside []Part) Kind {
		return Kind{With: files[1:], Name: "with more", Ref: ref, Sources: []Source{Wheels(ref, pinned, map[string]Build{runtime.GOOS + "/" + runtime.GOARCH: {
			Platform: "any", Variant: "more", Member: parts[0].Member, Sum: parts[0].Sum, Beside: beside}})}}
	}
	cache := t.TempDir()
	p := provisionerOf(t, cache)
	p.kind = of([]Part{parts[1], {Member: parts[2].Member, Sum: strings.Repeat("0", 64)}})
	if _, err := p.provision(t.Context()); err == nil || !regexp.MustCompile(`onnxruntime_gpu-.*providers_second.so: its SHA-256 is `).MatchString(err.Error()) || !strings.Contains(err.Error(), ref) {
		t.Errorf("a changed provider: %v", err)
	}
	onlyLock(t, cache)
	p = provisionerOf(t, cache)
	p.kind = of(parts[1:])
	at, err := p.provision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(at.Path, pinned+"-more-"+runtime.GOOS) || p.kind.Lacks(at.Path) != "" {
		t.Errorf("%s lacks %q", at.Path, p.kind.Lacks(at.Path))
	}
	if found := cached(p.cache, p.goos, p.goarch, p.kind); found != at.Path {
		t.Errorf("found %q again, not %q", found, at.Path)
	}
	if found := cached(p.cache, p.goos, p.goarch, Kind{}); found != "" {
		t.Errorf("taken for the CPU's: %q", found)
	}
	// A changed file beside the library is also noticed.
	write(t, filepath.Join(filepath.Dir(at.Path), second), []byte("other"))
	if err := at.Verify(); err == nil || !strings.Contains(err.Error(), second) {
		t.Errorf("a changed provider: %v", err)
	}
}

// TestVerify: if a byte of a fetched library has changed, the library is not used.
func TestVerify(t *testing.T) {
	p := provisionerOf(t, t.TempDir(), fromFile("stub", stub(t, "1.99.0"), new(atomic.Int32)))
	at, err := p.provision(t.Context())
	if err == nil {
		err = at.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(at.Path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(at.Path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := at.Verify(); err == nil || !strings.Contains(err.Error(), "has changed since it was fetched: remove its folder") {
		t.Errorf("a flipped bit: %v", err)
	}
	named := filepath.Join(t.TempDir(), filepath.Base(at.Path))
	if err := os.WriteFile(named, text, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (Location{Path: named}).Verify(); err != nil {
		t.Errorf("a library that was not fetched: %v", err)
	}
}
