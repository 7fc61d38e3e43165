package provision

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// shared compiles a shared library called name, linked with others in its folder.
func shared(t *testing.T, dir, name, source string, needs ...string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("a GPU is used on Linux only")
	}
	c := write(t, filepath.Join(t.TempDir(), "fake.c"), []byte(source))
	cc := compiler(t)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	args := []string{"-shared", "-fPIC", "-Wl,-soname," + name, "-Wl,--no-as-needed", "-o", path, c, "-L" + dir}
	for _, n := range needs {
		args = append(args, "-l:"+n)
	}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("compiling %s: %v\n%s", name, err, out)
	}
	return path
}

// A fakeLoader is a machine with some GPUs. As the system's loader does, it finds
// a library by its name once it was loaded by its path.
type fakeLoader struct {
	gpus    []string
	version int   // of CUDA, as GPUs returns it
	err     error // of opening the driver
	loaded  map[string]string
}

func (l *fakeLoader) GPUs() ([]string, int, error) { return l.gpus, l.version, l.err }

func (l *fakeLoader) Preload(name string) (string, error) {
	if path, ok := l.loaded[filepath.Base(name)]; ok {
		return path, nil
	}
	if !filepath.IsAbs(name) {
		return "", fmt.Errorf("%s: cannot open shared object file", name)
	}
	f, err := elf.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if l.loaded == nil {
		l.loaded = map[string]string{}
	}
	l.loaded[filepath.Base(name)] = name
	return name, nil
}

func (l *fakeLoader) Describe(context.Context, string) (string, []string, error) {
	return "1.99.0", []string{"CPUExecutionProvider"}, nil
}

func (l *fakeLoader) TryCUDA(context.Context, string, int) error { return nil }

// TryWebGPU refuses GPU 1.
func (l *fakeLoader) TryWebGPU(_ context.Context, _ string, gpu int) error {
	if gpu == 1 {
		return &UnusableGPUError{"webgpu:1", []string{WebGPUPluginSeesNone}}
	}
	return nil
}

func in(dir string) func(context.Context) []string {
	return func(context.Context) []string { return []string{dir} }
}

// fakeCUDA is a folder with a library and its provider, and one with some of
// the libraries that the provider is linked with.
func fakeCUDA(t *testing.T, major int, has ...string) (library, cuda string) {
	t.Helper()
	all, cuda, capi := t.TempDir(), t.TempDir(), t.TempDir()
	needs := []string{fmt.Sprintf("libcufakert.so.%d", major), fmt.Sprintf("libcufakeblas.so.%d", major)}
	for _, n := range needs {
		shared(t, all, n, "int x;")
	}
	shared(t, all, cudaProvider, "int x;", needs...)
	library = filepath.Join(capi, libraryName(runtime.GOOS))
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
	machine := &fakeLoader{gpus: []string{"First"}, version: 12080}
	search := CUDA{machine, in(dir)}
	r := search.Report(t.Context(), library)
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
	r = search.Report(t.Context(), library)
	if !slices.ContainsFunc(r.Missing, func(m string) bool { return strings.Contains(m, "libcufakeblas.so.13 cannot be loaded") }) {
		t.Errorf("missing %q", r.Missing)
	}

	shared(t, dir, "libcufakeblas.so.13", "int x;")
	shared(t, dir, cudnnLibrary, "int x;")
	machine.version = 13000
	if r = search.Report(t.Context(), library); len(r.Missing) > 0 {
		t.Errorf("all is there, yet missing: %q", r.Missing)
	}
	// Each was loaded by its path, so that the provider finds it by its name.
	for _, name := range []string{"libcufakert.so.13", "libcufakeblas.so.13", cudnnLibrary} {
		if got := machine.loaded[name]; got != filepath.Join(dir, name) || r.Libraries[name] != got {
			t.Errorf("%s is loaded from %q, reported at %q", name, got, r.Libraries[name])
		}
	}
	if err := search.Check(t.Context(), library, 1); err == nil || !strings.Contains(err.Error(), "there is no GPU 1: the driver shows 1") {
		t.Errorf("GPU 1: %v", err)
	}
	if err := search.Check(t.Context(), library, 0); err != nil {
		t.Error(err)
	}
	if r = search.Report(t.Context(), ""); len(r.Missing) < 1 || !strings.Contains(r.Missing[0], "there is no "+cudaProvider) {
		t.Errorf("without a library: %q", r.Missing)
	}
}

// TestForeseeCUDA: a library that can be fetched is not missing, what it needs is.
func TestForeseeCUDA(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a GPU is used on Linux only")
	}
	t.Setenv(envLibrary, "")
	t.Setenv("LD_LIBRARY_PATH", "")
	dir := t.TempDir()
	machine := &fakeLoader{gpus: []string{"First"}, version: 13000, loaded: map[string]string{}}
	search, o := CUDA{machine, in(dir)}, Options{Cache: t.TempDir()}
	if err := search.Foresee(t.Context(), o); err == nil || !strings.Contains(err.Error(), CUDARuntimeLibrary+" is missing") {
		t.Errorf("without CUDA's libraries: %v", err)
	}
	for _, l := range cudaLibraries {
		machine.loaded[l.name] = l.name
	}
	if err := search.Foresee(t.Context(), o); err != nil {
		t.Errorf("with all but ONNX Runtime: %v", err)
	}
	o.Offline = true
	if err := search.Foresee(t.Context(), o); err == nil || !strings.Contains(err.Error(), "there is no "+cudaProvider) {
		t.Errorf("offline: %v", err)
	}
}

// TestFindCUDA takes a GPU only if everything it needs is there, and says what is
// not.
func TestFindCUDA(t *testing.T) {
	t.Setenv(envOffline, "1")
	t.Setenv("LD_LIBRARY_PATH", "")
	library, dir := fakeCUDA(t, 14, "libcufakert.so.14", "libcufakeblas.so.14", cudnnLibrary)
	t.Setenv(envLibrary, library)
	o := Options{Cache: t.TempDir()}
	machine := &fakeLoader{gpus: []string{"First"}, version: 13000}
	search := CUDA{machine, in(dir)}
	if at, err := search.FindIfPresent(t.Context(), o); err != nil || at.Path != library {
		t.Errorf("everything is there: %v, %v", at, err)
	}
	if err := search.Foresee(t.Context(), o); err != nil {
		t.Errorf("foreseen: %v", err)
	}
	for _, c := range []struct {
		machine    fakeLoader
		why, short string
	}{
		{fakeLoader{version: 13000}, "the NVIDIA driver shows no GPU: see CUDA_VISIBLE_DEVICES", "the NVIDIA driver shows no GPU"},
		{fakeLoader{err: errors.New("none.so")}, "no GPU can be reached: none.so: install the NVIDIA driver", "no GPU can be reached: none.so"},
		{fakeLoader{gpus: []string{"First"}, version: 12000}, "update it to 580 or newer", "provision: cuda:0 cannot be used: the NVIDIA driver supports CUDA up to 12.0, the provider needs 13.0: update it to 580 or newer\nwithout a GPU: --device cpu, or device = \"cpu\" in [runtime]"},
	} {
		search.Loader = &c.machine
		if _, err := search.FindIfPresent(t.Context(), o); err == nil || err.Error() != c.short {
			t.Errorf("%v, want %q", err, c.short)
		}
		if err := search.Foresee(t.Context(), o); err == nil || err.Error() != c.short {
			t.Errorf("foreseen: %v, want %q", err, c.short)
		}
		var unusable *UnusableGPUError
		if _, err := search.Find(t.Context(), o, 0); !errors.As(err, &unusable) || !strings.HasPrefix(err.Error(), "provision: cuda:0 cannot be used: ") || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%v, want %q", err, c.why)
		}
		for line := range strings.SplitSeq(fmt.Sprint(unusable), "\n") {
			if len(line) > 240 {
				t.Errorf("a line of %d characters: %s", len(line), line)
			}
		}
	}
	// A library without a provider cannot be used on a GPU, but on the CPU it can.
	plain := stub(t, "1.99.0")
	t.Setenv(envLibrary, plain)
	search.Loader = machine
	if _, err := search.Find(t.Context(), o, 0); err == nil || !strings.Contains(err.Error(), cudaProvider+" does not lie beside") {
		t.Errorf("%v", err)
	}
	if at, err := Find(t.Context(), o); err != nil || at.Path != plain {
		t.Errorf("the CPU with a plain library: %v, %v", at, err)
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
		parts = append(parts, part{member: "onnxruntime/capi/" + name, sum: hex.EncodeToString(sum[:])})
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
		return kind{with: cudaKind.with, name: cudaKind.name, ref: cudaRef, sources: []source{wheelSource(cudaRef, pinned, map[string]wheelBuild{runtime.GOOS + "/" + runtime.GOARCH: {
			build{variant: "cuda13", member: parts[0].member, sum: parts[0].sum, beside: beside}, "any"}})}}
	}
	cache := t.TempDir()
	p := provisionerOf(t, cache)
	p.kind = of([]part{parts[1], {member: parts[2].member, sum: strings.Repeat("0", 64)}})
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
	if !strings.Contains(at.Path, "1.31.1-cuda13-"+runtime.GOOS) || cudaKind.lacks(at.Path) != "" {
		t.Errorf("%s lacks %q", at.Path, cudaKind.lacks(at.Path))
	}
	if found := cached(p.cache, p.goos, p.goarch, cudaKind); runtime.GOARCH == "amd64" && found != at.Path {
		t.Errorf("found %q again, not %q", found, at.Path)
	}
	if found := cached(p.cache, p.goos, p.goarch, cpuKind); found != "" {
		t.Errorf("taken for the CPU's: %q", found)
	}
	// A change of what lies beside the library is noticed too.
	write(t, filepath.Join(filepath.Dir(at.Path), cudaProvider), []byte("other"))
	if _, err := describeLibrary(t.Context(), at, &fakeLoader{}); err == nil || !strings.Contains(err.Error(), cudaProvider) {
		t.Errorf("a changed provider: %v", err)
	}
}
