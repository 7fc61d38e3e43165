package cuda

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"onering/runtime/provision"
)

// compile compiles a shared library called name, linked with others in its folder.
func compile(t *testing.T, dir, name, source string, needs ...string) string {
	t.Helper()
	if goruntime.GOOS != "linux" {
		t.Skip("a GPU is used on Linux only")
	}
	c := filepath.Join(t.TempDir(), "fake.c")
	if err := os.WriteFile(c, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	cc, err := exec.Command("go", "env", "CC").Output() // cgo needs a C compiler, so the machine has one.
	if err != nil {
		t.Skip(err)
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

// A machine has some GPUs. As the system's loader does, it finds
// a library by its name once it was loaded by its path.
type machine struct {
	gpus    []string
	version int   // the version of CUDA, as driver returns it
	err     error // of opening the driver
	loaded  map[string]string
}

// provider returns a provider on the machine, with further libraries in a folder.
func (l *machine) provider(dir string) *provider {
	return &provider{driver: l.driver, preload: l.preload, dirs: func(context.Context) []string { return []string{dir} }}
}

func (l *machine) driver() ([]string, int, error) { return l.gpus, l.version, l.err }

func (l *machine) preload(name string) (string, error) {
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

// fakeCUDA is a folder with a library and its provider, and a folder with some of the
// libraries that the provider is linked with.
func fakeCUDA(t *testing.T, major int, has ...string) (library, cuda string) {
	t.Helper()
	cuda, capi := t.TempDir(), t.TempDir()
	needs := []string{fmt.Sprintf("libcufakert.so.%d", major), fmt.Sprintf("libcufakeblas.so.%d", major)}
	all := t.TempDir()
	for _, n := range needs {
		compile(t, all, n, "int x;")
	}
	provider, err := os.ReadFile(compile(t, all, file, "int x;", needs...))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(capi, file), provider, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, n := range has {
		compile(t, cuda, n, "int x;")
	}
	return filepath.Join(capi, "libonnxruntime.so"), cuda
}

// TestReport checks that exactly what is missing is named.
func TestReport(t *testing.T) {
	library, dir := fakeCUDA(t, 13, "libcufakert.so.13")
	m := &machine{gpus: []string{"First"}, version: 12080}
	search := m.provider(dir)
	r := search.Report(t.Context(), library, 0, false)
	libraries := func() map[string]string { return r.Facts["libraries"].(map[string]string) }
	want := []string{"supports CUDA up to 12.8, the provider needs 13.0", "libcufakeblas.so.13 is missing", "libcudnn.so.9 is missing: it comes with cuDNN 9"}
	if len(r.Missing) != len(want) {
		t.Errorf("missing %q", r.Missing)
	}
	for _, w := range want {
		if !slices.ContainsFunc(r.Missing, func(m string) bool { return strings.Contains(m, w) }) {
			t.Errorf("%q is not in %q", w, r.Missing)
		}
	}
	if got := libraries()["libcufakert.so.13"]; got != filepath.Join(dir, "libcufakert.so.13") {
		t.Errorf("libcufakert is at %q", got)
	}
	if len(r.Devices) != 1 || r.Facts["driver"] != "12.8" {
		t.Errorf("%+v", r)
	}

	// A file that exists but is not a library is not reported as missing.
	if err := os.WriteFile(filepath.Join(dir, "libcufakeblas.so.13"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	r = search.Report(t.Context(), library, 0, false)
	if !slices.ContainsFunc(r.Missing, func(m string) bool { return strings.Contains(m, "libcufakeblas.so.13 cannot be loaded") }) {
		t.Errorf("missing %q", r.Missing)
	}

	compile(t, dir, "libcufakeblas.so.13", "int x;")
	compile(t, dir, cudnnLibrary, "int x;")
	m.version = 13000
	if r = search.Report(t.Context(), library, 0, false); len(r.Missing) > 0 {
		t.Errorf("all is there, yet missing: %q", r.Missing)
	}
	// Each was loaded by its path, so that the provider finds it by its name.
	for _, name := range []string{"libcufakert.so.13", "libcufakeblas.so.13", cudnnLibrary} {
		if got := m.loaded[name]; got != filepath.Join(dir, name) || libraries()[name] != got {
			t.Errorf("%s is loaded from %q, reported at %q", name, got, libraries()[name])
		}
	}
	if r = search.Report(t.Context(), library, 1, false); len(r.Missing) != 1 || r.Missing[0] != "there is no GPU 1: the driver shows 1, numbered from 0" {
		t.Errorf("GPU 1: %q", r.Missing)
	}
	if r = search.Report(t.Context(), "", 0, false); len(r.Missing) < 1 || !strings.Contains(r.Missing[0], "there is no "+file) {
		t.Errorf("without a library: %q", r.Missing)
	}
	all := m.gpus
	for name, want := range map[string]string{"a driver that shows one": "cuda First  driver for CUDA up to 13.0", "none": "cuda no device"} {
		if m.gpus = all; name == "none" {
			m.gpus = nil
		}
		text := fmt.Sprint(search.Report(t.Context(), library, 0, false).Rows(false))
		if !strings.HasPrefix(strings.NewReplacer("[", "", "]", "").Replace(text), want) {
			t.Errorf("%s: doctor says %s", name, text)
		}
	}
}

// TestLibraryToCome: a library that can be fetched is not reported as missing, and the libraries
// that it needs are.
func TestLibraryToCome(t *testing.T) {
	m := &machine{gpus: []string{"First"}, version: 13000, loaded: map[string]string{}}
	search := m.provider(t.TempDir())
	if r := search.Report(t.Context(), "", 0, true); !slices.ContainsFunc(r.Missing, func(m string) bool { return strings.Contains(m, runtimeLibrary+" is missing") }) {
		t.Errorf("without CUDA's libraries: %q", r.Missing)
	}
	for _, l := range cudaLibraries {
		m.loaded[l.name] = l.name
	}
	if r := search.Report(t.Context(), "", 0, true); len(r.Missing) > 0 {
		t.Errorf("with all but ONNX Runtime: %q", r.Missing)
	}
	if r := search.Report(t.Context(), "", 0, false); len(r.Missing) != 1 || !strings.Contains(r.Missing[0], "there is no "+file) {
		t.Errorf("with nothing to come: %q", r.Missing)
	}
}

// TestDrivers: the report says in a sentence what a machine lacks, and is shorter where
// the user did not ask for a GPU.
func TestDrivers(t *testing.T) {
	for _, c := range []struct {
		machine    machine
		why, short string
	}{
		{machine{version: 13000}, "the NVIDIA driver shows no GPU: see CUDA_VISIBLE_DEVICES", "the NVIDIA driver shows no GPU"},
		{machine{err: errors.New("none.so")}, "no GPU can be reached: none.so: install the NVIDIA driver", "no GPU can be reached: none.so"},
		{machine{gpus: []string{"First"}, version: 12000}, "the NVIDIA driver supports CUDA up to 12.0, the provider needs 13.0: update it to 580 or newer", "<nil>"},
	} {
		search := c.machine.provider("")
		if err := search.Present(); fmt.Sprint(err) != c.short {
			t.Errorf("%v, want %q", err, c.short)
		}
		r := search.Report(t.Context(), "", 0, true)
		if !strings.HasPrefix(r.Missing[0], c.why) {
			t.Errorf("%q, want %q", r.Missing, c.why)
		}
		err := &provision.UnusableGPUError{Device: "cuda:0", Missing: r.Missing}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if len(line) > 240 {
				t.Errorf("a line of %d characters: %s", len(line), line)
			}
		}
	}
}

// TestPip fetches the real package with pip.
func TestPip(t *testing.T) {
	if os.Getenv("ONERING_TEST_NETWORK") == "" {
		t.Skip("set ONERING_TEST_NETWORK=1 to download some 250 MB")
	}
	k := (&provider{}).Library()
	at, err := provision.Find(t.Context(), provision.Options{Cache: t.TempDir()}, k)
	if err != nil || k.Lacks(at.Path) != "" {
		t.Fatal(at, err, k.Lacks(at.Path))
	}
	names, err := needs(provision.Beside(at.Path, file))
	var want []string
	for _, l := range cudaLibraries {
		want = append(want, l.name)
	}
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("the provider needs %v, %v; cudaLibraries has %v", names, err, want)
	}
}

// fakeDriver is a driver's library with n GPUs, for a CUDA version; init is
// what cuInit returns.
func fakeDriver(t *testing.T, n, version, init int) string {
	t.Helper()
	return compile(t, t.TempDir(), "libcuda-fake.so.1", fmt.Sprintf(`#include <string.h>
static int held;
int cuInit(unsigned f) { return %d; }
int cuDriverGetVersion(int *v) { *v = %d; return 0; }
int cuDeviceGetCount(int *n) { *n = %d; return 0; }
int cuDeviceGet(int *d, int i) { *d = 10 + i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strcpy(s, d == 10 ? "First" : "Other"); return 0; }
int cuDeviceTotalMem_v2(size_t *b, int d) { *b = 3ull << 29; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = &d; return held++; }
int cuDevicePrimaryCtxRelease_v2(int d) { held--; return 0; }
int cuCtxPushCurrent_v2(void *c) { return c ? 0 : 1; }
int cuCtxPopCurrent_v2(void **c) { return 0; }
int cuMemGetInfo_v2(size_t *left, size_t *all) { *left = held == 1 ? 1 << 30 : 0; *all = 3ull << 29; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 9 : 1; return 0; }
`, init, version, n))
}

func TestDriver(t *testing.T) {
	gpus, version, err := describe(fakeDriver(t, 2, 13010, 0))
	if err != nil || version != 13010 || len(gpus) != 2 {
		t.Fatalf("%v, %d, %v", gpus, version, err)
	}
	if got, want := strings.Join(gpus, "; "), "First, 1.5 GiB, compute capability 9.1; Other, 1.5 GiB, compute capability 9.1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// The context is free again, so it can be taken a second time.
	library := fakeDriver(t, 2, 13010, 0)
	for range 2 {
		if model, free := room(library, 1); model != "Other" || free != 1<<30 {
			t.Errorf("%q with %d bytes free", model, free)
		}
	}
	for _, path := range []string{fakeDriver(t, 2, 13000, 100), filepath.Join(t.TempDir(), "none.so"), compile(t, t.TempDir(), "libbare.so", "int cuInit;")} {
		if _, free := room(path, 0); free != 0 {
			t.Errorf("%s: %d bytes free", path, free)
		}
	}
	if gpus, version, err := describe(fakeDriver(t, 2, 13000, 100)); err != nil || len(gpus) != 0 || version != 13000 {
		t.Errorf("no device: %v, %d, %v", gpus, version, err)
	}
	for path, want := range map[string]string{
		fakeDriver(t, 1, 13000, 999):                          "cuInit failed with code 999",
		filepath.Join(t.TempDir(), "none.so"):                 "none.so",
		compile(t, t.TempDir(), "libother.so", "int cuInit;"): "lacks the function cuDriverGetVersion",
	} {
		if _, _, err := describe(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestPreload: after a library was loaded by its path, it is found by its name.
func TestPreload(t *testing.T) {
	path := compile(t, t.TempDir(), "libcufakepreload.so.1", "int x;")
	if _, err := preload("libcufakepreload.so.1"); err == nil {
		t.Fatal("found by name before it was loaded")
	}
	for _, name := range []string{path, "libcufakepreload.so.1"} {
		if got, err := preload(name); err != nil || got != path {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
