package runtime

import (
	"context"
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

func TestParseDevice(t *testing.T) {
	for text, want := range map[string]string{"": "cpu", "cpu": "cpu", "auto": "auto", "cuda": "cuda:0", "cuda:0": "cuda:0", "cuda:7": "cuda:7", "webgpu": "webgpu:0", "webgpu:0": "webgpu:0", "webgpu:1": "webgpu:1"} {
		if d, err := parseDevice(text); err != nil || d.String() != want {
			t.Errorf("%q: %v, %v; want %s", text, d, err, want)
		}
	}
	for _, text := range []string{"CUDA", "gpu", "cuda:", "cuda:-1", "cuda:+1", "cuda:x", "cuda:0:1", "cuda:99999", "cpu:0", "webgpu:2", "webgpu:", "auto:1", " cpu"} {
		if d, err := parseDevice(text); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", text)) {
			t.Errorf("%q: %v, %v; want an error that names it", text, d, err)
		}
	}
}

// shared compiles a shared library called name into the folder dir.
func shared(t *testing.T, dir, name, source string) string {
	t.Helper()
	if goruntime.GOOS != "linux" {
		t.Skip("this test calls the C compiler as on Linux")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	cc, err := exec.Command("go", "env", "CC").Output()
	if err != nil {
		t.Fatal(err)
	}
	c, path := filepath.Join(t.TempDir(), "fake.c"), filepath.Join(dir, name)
	if err := os.WriteFile(c, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	// cgo needs a C compiler, so there is one.
	if out, err := exec.Command(strings.TrimSpace(string(cc)), "-shared", "-fPIC", "-Wl,-soname,"+name, "-o", path, c).CombinedOutput(); err != nil {
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
	if got, want := strings.Join(gpus, "; "), "First, 1.5 GiB, compute capability 9.1; Other, 1.5 GiB, compute capability 9.1"; got != want {
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

// TestPreload: a library that is loaded by its path is found by its name from
// then on.
func TestPreload(t *testing.T) {
	path := shared(t, t.TempDir(), "libcufakepreload.so.1", "int x;")
	if _, err := preload("libcufakepreload.so.1"); err == nil {
		t.Fatal("found by name before it was loaded")
	}
	for _, name := range []string{path, "libcufakepreload.so.1"} {
		if got, err := preload(name); err != nil || got != path {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// stub compiles a library that says it is ONNX Runtime of a version, but has no
// function table.
func stub(t *testing.T, version string) string {
	t.Helper()
	return shared(t, t.TempDir(), "libonnxruntime.so", fmt.Sprintf(`#include <stdint.h>
static const char *version(void) { return %q; }
static const void *api(uint32_t n) { return 0; }
static const struct { const void *(*api)(uint32_t); const char *(*version)(void); } base = { api, version };
const void *OrtGetApiBase(void) { return &base; }
`, version))
}

// TestLoadRefusesVersions loads stubs. A refused library must leave the process
// free to load another.
func TestLoadRefusesVersions(t *testing.T) {
	before := process.path
	for version, want := range map[string]string{
		"1.10.0": "is ONNX Runtime 1.10.0, which is too old: onering needs 1.24 or newer",
		"2.30.0": "too old", // an interface that is not known
		"":       "too old",
		"1.99.0": "lacks version 24 of its C interface",
	} {
		err := load(provision.Location{Path: stub(t, version), Found: "test"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("version %q: %v, want %q", version, err, want)
		}
	}
	if process.path != before {
		t.Errorf("a refused library stays in place: %q", process.path)
	}
}

// noGPU is a machine without an NVIDIA driver.
type noGPU struct{ loader }

func (noGPU) GPUs() ([]string, int, error) { return nil, 0, errors.New("no driver\nat all") }

// TestAutoIsTheCPU: without a GPU auto is the CPU, and says why in one line.
func TestAutoIsTheCPU(t *testing.T) {
	lib := stub(t, "1.99.0")
	t.Setenv("ONNXRUNTIME_LIB", lib)
	var notices []string
	var o Options
	o.Notice = func(s string) { notices = append(notices, s) }
	c := provision.CUDA{Loader: noGPU{}}
	w := provision.WebGPU{Adapters: func() ([]provision.Adapter, error) { return []provision.Adapter{{Name: "slow", Software: true}}, nil }}
	d, at, err := choose(context.Background(), o, device{auto: true}, c, w)
	if err != nil || d != (device{}) || at.Path != lib {
		t.Errorf("%v, %v, %v", d, at, err)
	}
	if len(notices) != 1 || notices[0] != "running on the CPU: no GPU can be reached: no driver" {
		t.Errorf("notices %q", notices)
	}
	if d, at, err := choose(context.Background(), o, device{standIn: true}, c, w); err != nil || !d.standIn || at.Path != lib {
		t.Errorf("%v, %v, %v", d, at, err)
	}
	if _, _, err := choose(context.Background(), o, device{cuda: true}, c, w); err == nil || len(notices) != 1 {
		t.Errorf("cuda:0 without a driver: %v, notices %q", err, notices)
	}

	// An adapter that cannot be used is a reason too.
	w.Adapters = func() ([]provision.Adapter, error) { return []provision.Adapter{{Name: "fast"}}, nil }
	if d, at, err := choose(context.Background(), o, device{auto: true}, c, w); err != nil || d != (device{}) || at.Path != lib {
		t.Errorf("with an adapter: %v, %v, %v", d, at, err)
	}
	if len(notices) != 2 || !strings.HasPrefix(notices[1], notices[0]+"; the library that ONNXRUNTIME_LIB names: WebGpuExecutionProvider is not in ") || strings.Contains(notices[1], "\n") {
		t.Errorf("with an adapter: notices %q", notices[1:])
	}

	// What is foreseen is what is chosen, in the words of the notice.
	for _, adapters := range [][]provision.Adapter{{{Name: "slow", Software: true}}, {{Name: "fast"}}} {
		w.Adapters = func() ([]provision.Adapter, error) { return adapters, nil }
		if d, why := foresee(context.Background(), o, device{auto: true}, c, w); d != (device{}) || !slices.Contains(notices, "running on the CPU: "+why) {
			t.Errorf("%v: %v foreseen since %q", adapters, d, why)
		}
	}
	if d, why := foresee(context.Background(), o, device{cuda: true, id: 3}, c, w); d != (device{cuda: true, id: 3}) || why != "" {
		t.Errorf("cuda:3: %v foreseen since %q", d, why)
	}
	t.Setenv("ONNXRUNTIME_LIB", "")
	t.Setenv("LD_LIBRARY_PATH", "")
	o.Cache = t.TempDir()
	if d, why := foresee(context.Background(), o, device{auto: true}, c, w); d != (device{webgpu: true}) || why != "" {
		t.Errorf("with an adapter and no library yet: %v foreseen since %q", d, why)
	}
	t.Setenv("ONERING_OFFLINE", "1")
	if d, why := foresee(context.Background(), o, device{auto: true}, c, w); d != (device{}) || !strings.Contains(why, "there is no ONNX Runtime library with WebGPU") {
		t.Errorf("with an adapter and no library to come: %v foreseen since %q", d, why)
	}
}
