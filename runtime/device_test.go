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
	// cgo needs a C compiler, so the machine has one.
	if out, err := exec.Command(strings.TrimSpace(string(cc)), "-shared", "-fPIC", "-Wl,-soname,"+name, "-o", path, c).CombinedOutput(); err != nil {
		t.Fatalf("compiling %s: %v\n%s", name, err, out)
	}
	return path
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
		"2.30.0": "too old", // an unknown interface
		"":       "too old",
		"1.99.0": "lacks version 24 of its C interface",
	} {
		err := load(stub(t, version))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("version %q: %v, want %q", version, err, want)
		}
	}
	if process.path != before {
		t.Errorf("a refused library stays in place: %q", process.path)
	}
}

// A machine is a provider of devices that the system may show and that may lack parts.
type machine struct {
	Provider
	name    string
	absent  error
	missing []string
}

func (m *machine) Name() string   { return m.name }
func (m *machine) Names() string  { return m.name + ":N" }
func (m *machine) Has(n int) bool { return n < 8 }
func (m *machine) Present() error { return m.absent }
func (m *machine) Library() provision.Kind {
	return provision.Kind{Name: "with " + m.name, With: []string{"part of " + m.name}}
}

func (m *machine) Report(_ context.Context, library string, _ int, told bool) Report {
	missing := slices.Clone(m.missing)
	if library == "" && !told {
		missing = append(missing, "there is no library with "+m.name)
	}
	return Report{Missing: missing}
}

// withProviders runs a test in which only these providers exist.
func withProviders(t *testing.T, all ...Provider) {
	was := providers
	providers = all
	t.Cleanup(func() { providers = was })
}

func TestParseDevice(t *testing.T) {
	withProviders(t, &machine{name: "fast"}, &machine{name: "slow"})
	for text, want := range map[string]string{"": "cpu", "cpu": "cpu", "auto": "auto", "fast": "fast:0", "fast:0": "fast:0", "fast:7": "fast:7", "slow:1": "slow:1"} {
		if d, err := parseDevice(text); err != nil || d.String() != want {
			t.Errorf("%q: %v, %v; want %s", text, d, err, want)
		}
		if text != "" && !IsDevice(text) {
			t.Errorf("%q is no device", text)
		}
	}
	for _, text := range []string{"FAST", "gpu", "fast:", "fast:-1", "fast:+1", "fast:01", "fast:x", "fast:0:1", "fast:8", "fast:99999999999999999999", "cpu:0", "auto:1", " cpu"} {
		if d, err := parseDevice(text); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q: want cpu, fast:N, slow:N, or auto", text)) || IsDevice(text) {
			t.Errorf("%q: %v, %v; want an error that names it", text, d, err)
		}
	}
}

// TestAutoIsTheCPU: if no device can be used, auto is the CPU and says why in one line,
// which names the obstacle of the first device and the other devices present.
func TestAutoIsTheCPU(t *testing.T) {
	lib := stub(t, "1.99.0")
	t.Setenv("ONNXRUNTIME_LIB", lib)
	fast := &machine{name: "fast", absent: errors.New("no driver\nat all")}
	slow := &machine{name: "slow", absent: errors.New("none")}
	withProviders(t, fast, slow)
	var notices []string
	var o Options
	o.Notice = func(s string) { notices = append(notices, s) }
	auto := func(t *testing.T, want string) {
		t.Helper()
		o.Device, notices = "auto", nil
		d, at, err := choose(t.Context(), o, device{})
		if err != nil || d.String() != "cpu" || at.Path != lib {
			t.Errorf("%v, %v, %v", d, at, err)
		}
		if len(notices) != 1 || !strings.HasPrefix(notices[0], "running on the CPU: "+want) || strings.Contains(notices[0], "\n") {
			t.Errorf("notices %q, want %q", notices, want)
		}
		// The foreseen device is the chosen one, with the words of the notice.
		if d, why, err := o.Foresee(t.Context()); err != nil || d != "cpu" || !slices.Contains(notices, "running on the CPU: "+why) {
			t.Errorf("%v foreseen since %q: %v", d, why, err)
		}
	}
	auto(t, "no driver")
	slow.absent = nil // The device can be reached, and is then a reason too.
	auto(t, "no driver; the library that ONNXRUNTIME_LIB names: part of slow does not lie beside ")
	if _, _, err := choose(t.Context(), o, device{provider: fast}); err == nil || len(notices) != 1 {
		t.Errorf("the device that was asked for has no library: %v, notices %q", err, notices)
	}
	o.Device = "fast:3"
	if d, why, err := o.Foresee(t.Context()); err != nil || d != "fast:3" || why != "" {
		t.Errorf("fast:3: %v foreseen since %q: %v", d, why, err)
	}
	t.Setenv("ONNXRUNTIME_LIB", "")
	t.Setenv("LD_LIBRARY_PATH", "")
	o.Device, o.Cache = "auto", t.TempDir()
	if d, why, err := o.Foresee(t.Context()); err != nil || d != "slow:0" || why != "" {
		t.Errorf("without a library yet: %v foreseen since %q: %v", d, why, err)
	}
	t.Setenv("ONERING_OFFLINE", "1")
	if d, why, _ := o.Foresee(t.Context()); d != "cpu" || why != "no driver; slow:0 cannot be used: there is no library with slow" {
		t.Errorf("without a library to come: %v foreseen since %q", d, why)
	}
}

// TestFind: a library is downloaded for a device only if nothing else is missing, and one
// error names everything missing.
func TestFind(t *testing.T) {
	for _, variable := range []string{"ONNXRUNTIME_LIB", "LD_LIBRARY_PATH"} {
		t.Setenv(variable, "")
	}
	t.Setenv("ONERING_OFFLINE", "1")
	m := &machine{name: "fast"}
	withProviders(t, m)
	o := provision.Options{Cache: t.TempDir()}
	if _, err := (device{provider: m}).find(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no ONNX Runtime library with fast was found and none could be fetched") {
		t.Errorf("a library would have been fetched: %v", err)
	}
	m.missing = []string{"the fan stands still"}
	var unusable *provision.UnusableGPUError
	if _, err := (device{m, 1}).find(t.Context(), o); !errors.As(err, &unusable) || len(unusable.Missing) != 2 || unusable.Device != "fast:1" {
		t.Errorf("with something else missing: %v", err)
	}
}

// TestDiagnoseDevices: missing parts of a run's device are problems. If a named library cannot
// be used, that is the only problem.
func TestDiagnoseDevices(t *testing.T) {
	for _, variable := range []string{"ONNXRUNTIME_LIB", "LD_LIBRARY_PATH"} {
		t.Setenv(variable, "")
	}
	withProviders(t, &machine{name: "fast"}, &machine{name: "slow", missing: []string{"power"}})
	var o Options
	o.Device, o.Cache = "fast", t.TempDir()
	r, err := o.Diagnose(t.Context())
	if err != nil || len(r.Problems) != 2 || !strings.HasPrefix(r.Problems[0], "no ONNX Runtime library with fast yet") || r.Problems[1] != "there is no library with fast" || r.Device.Name != "fast:0" {
		t.Errorf("%+v, %v", r, err)
	}
	if len(r.Providers) != 2 || !r.Providers[0].Asked || r.Providers[1].Asked || !slices.Equal(r.Providers[1].Missing, []string{"power", "there is no library with slow"}) {
		t.Errorf("providers %+v", r.Providers)
	}
	o.Library = filepath.Join(t.TempDir(), "none.so")
	if r, err = o.Diagnose(t.Context()); err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], o.Library) {
		t.Errorf("with a name of no library: %q, %v", r.Problems, err)
	}
	o.Device = "slow:1"
	if r, err = o.Diagnose(t.Context()); err != nil || len(r.Problems) != 2 || r.Problems[1] != "power" {
		t.Errorf("with a name of no library, and something else missing: %q, %v", r.Problems, err)
	}
}
