package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
)

func TestParseDevice(t *testing.T) {
	for text, want := range map[string]string{"": "cpu", "cpu": "cpu", "auto": "auto", "cuda": "cuda:0", "cuda:0": "cuda:0", "cuda:7": "cuda:7"} {
		if d, err := parseDevice(text); err != nil || d.String() != want {
			t.Errorf("%q: %v, %v; want %s", text, d, err, want)
		}
	}
	for _, text := range []string{"CUDA", "gpu", "cuda:", "cuda:-1", "cuda:+1", "cuda:x", "cuda:0:1", "cuda:99999", "cpu:0", "auto:1", " cpu"} {
		if d, err := parseDevice(text); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", text)) {
			t.Errorf("%q: %v, %v; want an error that names it", text, d, err)
		}
	}
}

// shared compiles a shared library called name, linked with others in its folder.
func shared(t *testing.T, dir, name, source string, needs ...string) string {
	t.Helper()
	if goruntime.GOOS != "linux" {
		t.Skip("a GPU is used on Linux only")
	}
	c := write(t, filepath.Join(t.TempDir(), "fake.c"), []byte(source))
	cc, err := exec.Command("go", "env", "CC").Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	args := []string{"-shared", "-fPIC", "-Wl,-soname," + name, "-Wl,--no-as-needed", "-o", path, c, "-L" + dir}
	for _, n := range needs {
		args = append(args, "-l:"+n)
	}
	if out, err := exec.Command(strings.TrimSpace(string(cc)), args...).CombinedOutput(); err != nil {
		t.Fatalf("compiling %s: %v\n%s", name, err, out)
	}
	return path
}

// fakeDriver is a driver's library with n GPUs, for a CUDA version; init is
// what cuInit returns.
func fakeDriver(t *testing.T, n, version, init int) string {
	t.Helper()
	return shared(t, t.TempDir(), "libcuda-fake.so.1", fmt.Sprintf(`#include <string.h>
int cuInit(unsigned f) { return %d; }
int cuDriverGetVersion(int *v) { *v = %d; return 0; }
int cuDeviceGetCount(int *n) { *n = %d; return 0; }
int cuDeviceGet(int *d, int i) { *d = 10 + i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strcpy(s, d == 10 ? "First" : "Other"); return 0; }
int cuDeviceTotalMem_v2(size_t *b, int d) { *b = 3ull << 29; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 9 : 1; return 0; }
`, init, version, n))
}

func TestCUDADriver(t *testing.T) {
	gpus, version, err := cudaDriver(fakeDriver(t, 2, 13010, 0))
	if err != nil || version != 13010 || len(gpus) != 2 {
		t.Fatalf("%v, %d, %v", gpus, version, err)
	}
	if got, want := gpus[0].String()+"; "+gpus[1].name, "First, 1.5 GiB, compute capability 9.1; Other"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if gpus, version, err := cudaDriver(fakeDriver(t, 2, 13000, 100)); err != nil || len(gpus) != 0 || version != 13000 {
		t.Errorf("no device: %v, %d, %v", gpus, version, err)
	}
	for path, want := range map[string]string{
		fakeDriver(t, 1, 13000, 999):                         "cuInit failed with code 999",
		filepath.Join(t.TempDir(), "none.so"):                "none.so",
		shared(t, t.TempDir(), "libother.so", "int cuInit;"): "lacks the function cuDriverGetVersion",
	} {
		if _, _, err := cudaDriver(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// fakeCUDA is a folder with a library and its provider, and one with some of
// the libraries that the provider is linked with.
func fakeCUDA(t *testing.T, major int, has ...string) (library, cuda string) {
	t.Helper()
	all, cuda, capi := t.TempDir(), t.TempDir(), t.TempDir()
	// Names of their own: what a process has loaded stays.
	needs := []string{fmt.Sprintf("libcufakert.so.%d", major), fmt.Sprintf("libcufakeblas.so.%d", major)}
	for _, n := range needs {
		shared(t, all, n, "int x;")
	}
	shared(t, all, cudaProvider, "int x;", needs...)
	library = filepath.Join(capi, libraryName(goruntime.GOOS))
	for from, to := range map[string]string{stub(t, "1.99.0"): library, filepath.Join(all, cudaProvider): filepath.Join(capi, cudaProvider), filepath.Join(all, needs[0]): filepath.Join(capi, "libonnxruntime_providers_shared.so")} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(t, to, data)
	}
	for _, n := range has {
		shared(t, cuda, n, "int x;")
	}
	return library, cuda
}

// TestCUDAReport checks that exactly what is missing is named.
func TestCUDAReport(t *testing.T) {
	library, dir := fakeCUDA(t, 13, "libcufakert.so.13")
	// cuDNN by its own name could be that of this machine.
	load := func(name string) (string, error) {
		if name == cudnnLibrary {
			return "", errors.New("not here")
		}
		return preload(name)
	}
	search := cudaSearch{driver: fakeDriver(t, 1, 12080, 0), dirs: func() []string { return []string{dir} }, load: load}
	r := search.report(library)
	want := []string{"supports CUDA up to 12.8, the provider needs 13.0", "libcufakeblas.so.13 is missing", "libcudnn.so.9 is missing: it comes with cuDNN 9"}
	if len(r.Missing) != len(want) {
		t.Errorf("missing %q", r.Missing)
	}
	for _, w := range want {
		if !slices.ContainsFunc(r.Missing, func(m string) bool { return strings.Contains(m, w) }) {
			t.Errorf("%q is not in %q", w, r.Missing)
		}
	}
	if got := r.Libraries["libcufakert.so.13"]; got != filepath.Join(dir, "libcufakert.so.13") {
		t.Errorf("libcufakert is at %q", got)
	}
	if len(r.Devices) != 1 || r.Driver != "12.8" {
		t.Errorf("%+v", r)
	}

	// A file that is there but is no library is not called missing.
	write(t, filepath.Join(dir, "libcufakeblas.so.13"), []byte("text"))
	r = search.report(library)
	if !slices.ContainsFunc(r.Missing, func(m string) bool { return strings.Contains(m, "libcufakeblas.so.13 cannot be loaded") }) {
		t.Errorf("missing %q", r.Missing)
	}

	shared(t, dir, "libcufakeblas.so.13", "int x;")
	shared(t, dir, cudnnLibrary, "int x;")
	search.driver = fakeDriver(t, 1, 13000, 0)
	if r = search.report(library); len(r.Missing) > 0 {
		t.Errorf("all is there, yet missing: %q", r.Missing)
	}
	// What was found is now in place: the provider loads by itself.
	if _, err := preload(filepath.Join(filepath.Dir(library), cudaProvider)); err != nil {
		t.Error(err)
	}
	if err := search.usable(library, 1); err == nil || !strings.Contains(err.Error(), "there is no GPU 1: the driver shows 1") {
		t.Errorf("GPU 1: %v", err)
	}
	if err := search.usable(library, 0); err != nil {
		t.Error(err)
	}
	if r = search.report(""); len(r.Missing) < 1 || !strings.Contains(r.Missing[0], "there is no "+cudaProvider) {
		t.Errorf("without a library: %q", r.Missing)
	}
}

// TestChoose takes a GPU only where all is there, and says why not.
func TestChoose(t *testing.T) {
	t.Setenv(envOffline, "1")
	t.Setenv("LD_LIBRARY_PATH", "")
	library, dir := fakeCUDA(t, 14, "libcufakert.so.14", "libcufakeblas.so.14", cudnnLibrary)
	t.Setenv(envLibrary, library)
	var notices []string
	o := Options{Cache: t.TempDir(), Notice: func(s string) { notices = append(notices, s) }}
	search := cudaSearch{driver: fakeDriver(t, 1, 13000, 0), dirs: func() []string { return []string{dir} }, load: preload}

	d, at, err := choose(t.Context(), o, device{auto: true}, search)
	if err != nil || d != (device{cuda: true}) || at.path != library || len(notices) > 0 {
		t.Errorf("all is there: %v, %v, %v, notices %q", d, at, err, notices)
	}
	for _, c := range []struct{ driver, why string }{
		{fakeDriver(t, 0, 13000, 0), "the NVIDIA driver shows no GPU"},
		{filepath.Join(dir, "none.so"), "no GPU can be reached"},
		{fakeDriver(t, 1, 12000, 0), "update it to 580 or newer"},
	} {
		notices, search.driver = nil, c.driver
		d, at, err := choose(t.Context(), o, device{auto: true}, search)
		if err != nil || d != (device{}) || at.path != library {
			t.Errorf("%s: %v, %v, %v", c.why, d, at, err)
		}
		if len(notices) != 1 || !strings.Contains(notices[0], c.why) || strings.Contains(notices[0], "\n") || !strings.HasPrefix(notices[0], "running on the CPU: ") {
			t.Errorf("notices %q, want one line with %q", notices, c.why)
		}
		if _, _, err := choose(t.Context(), o, device{cuda: true}, search); err == nil || !strings.HasPrefix(err.Error(), "runtime: cuda:0 cannot be used: ") {
			t.Errorf("cuda:0 that is not there: %v", err)
		}
	}
	// A library without a provider is not one for a GPU.
	plain := stub(t, "1.99.0")
	t.Setenv(envLibrary, plain)
	search.driver = fakeDriver(t, 1, 13000, 0)
	if _, _, err := choose(t.Context(), o, device{cuda: true}, search); err == nil || !strings.Contains(err.Error(), cudaProvider+" does not lie beside") {
		t.Errorf("%v", err)
	}
	if d, at, err := choose(t.Context(), o, device{}, search); err != nil || d.cuda || at.path != plain {
		t.Errorf("the CPU with a plain library: %v, %v, %v", d, at, err)
	}
}

// TestPipCUDA fetches a small wheel of three libraries with a pip of this test,
// checks each, and finds it again in the cache.
func TestPipCUDA(t *testing.T) {
	t.Setenv(envLibrary, "")
	library, _ := fakeCUDA(t, 15)
	files := []string{"libonnxruntime.so.1.31.1", "libonnxruntime_providers_shared.so", cudaProvider}
	var members []string
	var parts []part
	for i, name := range files {
		from := filepath.Join(filepath.Dir(library), name)
		if i == 0 {
			from = library
		}
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		members = append(members, "onnxruntime/capi/"+name, string(data))
		parts = append(parts, part{"onnxruntime/capi/" + name, hex.EncodeToString(sum[:])})
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
	of := func(beside []part) kind {
		return kind{with: cudaKind.with, sources: []source{wheelSource(cudaRef, map[string]wheelBuild{goruntime.GOOS + "/" + goruntime.GOARCH: {
			build{variant: "cuda13", member: parts[0].member, sum: parts[0].sum, beside: beside}, "any"}})}}
	}
	cache := t.TempDir()
	p := provisionerOf(t, cache)
	p.kind = of([]part{parts[1], {parts[2].member, strings.Repeat("0", 64)}})
	if _, err := p.provision(t.Context()); err == nil || !regexp.MustCompile(`onnxruntime_gpu-.*providers_cuda.so: its SHA-256 is `).MatchString(err.Error()) || !strings.Contains(err.Error(), cudaRef) {
		t.Errorf("a changed provider: %v", err)
	}
	onlyLock(t, cache)
	p = provisionerOf(t, cache)
	p.kind = of(parts[1:])
	at, err := p.provision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(at.path, "1.31.1-cuda13-"+goruntime.GOOS) || cudaKind.lacks(at.path) != "" {
		t.Errorf("%s lacks %q", at.path, cudaKind.lacks(at.path))
	}
	if found := cached(p.cache, p.goos, p.goarch, cudaKind); goruntime.GOARCH == "amd64" && found != at.path {
		t.Errorf("found %q again, not %q", found, at.path)
	}
	if found := cached(p.cache, p.goos, p.goarch, cpuKind); found != "" {
		t.Errorf("taken for the CPU's: %q", found)
	}
	// A change of what lies beside the library is noticed too.
	write(t, filepath.Join(filepath.Dir(at.path), cudaProvider), []byte("other"))
	if _, err := describeLibrary(t.Context(), Options{}, at); err == nil || !strings.Contains(err.Error(), cudaProvider) {
		t.Errorf("a changed provider: %v", err)
	}
}
