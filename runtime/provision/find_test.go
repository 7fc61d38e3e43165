package provision

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// stub compiles a library that says it is ONNX Runtime of a version, but has no
// function table.
func stub(t *testing.T, version string) string {
	t.Helper()
	return compile(t, fmt.Sprintf(`#include <stdint.h>
static const char *version(void) { return %q; }
static const void *api(uint32_t n) { return 0; }
static const struct { const void *(*api)(uint32_t); const char *(*version)(void); } base = { api, version };
const void *OrtGetApiBase(void) { return &base; }
`, version))
}

func compile(t *testing.T, source string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("no C compiler that this test knows how to call on Windows")
	}
	cc := compiler(t)
	dir := t.TempDir()
	c, lib := filepath.Join(dir, "stub.c"), filepath.Join(dir, libraryName(runtime.GOOS))
	if err := os.WriteFile(c, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", lib, c).CombinedOutput(); err != nil {
		t.Fatalf("compiling: %v\n%s", err, out)
	}
	return lib
}

// compiler returns the C compiler. Tests that need one skip without it, since
// this package itself needs none.
func compiler(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "CC").Output()
	if err != nil {
		t.Fatalf("go env CC: %v", err)
	}
	cc := strings.TrimSpace(string(out))
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("this test compiles a library: %v", err)
	}
	return cc
}

func write(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNamedLibraryIsWrong checks that a library that the user names and that cannot be used is
// one error with the file and the origin of the name, and that no other library replaces it.
func TestNamedLibraryIsWrong(t *testing.T) {
	t.Setenv(LibraryVariable, "")
	t.Setenv(envCache, t.TempDir())
	dir := t.TempDir()
	good, err := os.ReadFile(stub(t, "1.99.0"))
	if err != nil {
		t.Fatal(err)
	}
	lib := func(name string, data []byte) string { return write(t, filepath.Join(dir, name), data) }
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	cases := []struct{ name, path, want string }{
		{"absent", filepath.Join(dir, "absent.so"), "no such file"},
		{"empty folder", t.TempDir(), "no " + libraryName(runtime.GOOS)},
		{"text", lib("text", []byte("not a library\n")), "is not a shared library"},
		{"empty", lib("empty", nil), "is not a shared library"},
		{"device", "/dev/null", "is not a file"},
		{"another library", compile(t, "int f(void) { return 1; }"), "does not export OrtGetApiBase"},
	}
	if runtime.GOOS == "linux" {
		cases = append(cases,
			struct{ name, path, want string }{"another processor", lib("foreign", retarget(good, other)), "but this program for " + runtime.GOARCH},
			struct{ name, path, want string }{"cut short", lib("short", good[:len(good)/2]), "short"},
			struct{ name, path, want string }{"a program", os.Args[0], "not"})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for how, set := range map[string]func() Options{
				"--library":     func() Options { return Options{Library: c.path} },
				LibraryVariable: func() Options { t.Setenv(LibraryVariable, c.path); return Options{} },
			} {
				at, err := Look(set(), Kind{})
				if err == nil {
					t.Fatalf("%s: accepted as %v", how, at)
				}
				for _, want := range []string{how, filepath.Base(c.path), c.want} {
					// A cut file may fail in any of its tables.
					if want == "short" && strings.Contains(err.Error(), "not a shared library") {
						continue
					}
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%s: %q does not say %q", how, err, want)
					}
				}
				t.Setenv(LibraryVariable, "")
			}
		})
	}
}

// retarget changes the processor that an ELF file states.
func retarget(file []byte, goarch string) []byte {
	file = append([]byte(nil), file...)
	machine := map[string]byte{"amd64": 62, "arm64": 183}[goarch]
	file[18], file[19] = machine, 0
	return file
}

// TestInspectEveryPrefix cuts a library at many places: no part may be accepted unless
// all loaded sections are complete, and no part may end the process.
func TestInspectEveryPrefix(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("cuts an ELF file")
	}
	file, err := os.ReadFile(stub(t, "1.99.0"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cut.so")
	for n := 0; n < len(file); n += 1 + len(file)/199 {
		write(t, path, file[:n])
		if err := inspect(path, runtime.GOOS, runtime.GOARCH); err == nil {
			t.Errorf("accepted %d of %d bytes", n, len(file))
		}
	}
}

func TestLookupOrder(t *testing.T) {
	t.Setenv(LibraryVariable, "")
	t.Setenv(envCache, t.TempDir())
	t.Setenv("LD_LIBRARY_PATH", "")
	lib := stub(t, "1.99.0")
	place := func(path string) string {
		t.Helper()
		data, err := os.ReadFile(lib)
		if err != nil {
			t.Fatal(err)
		}
		return write(t, path, data)
	}
	expect := func(o Options, path, how string) {
		t.Helper()
		at, err := Look(o, Kind{})
		if err != nil || at.Path != path || at.Found != how {
			t.Errorf("look: %+v, %v; want %s by %s", at, err, path, how)
		}
	}
	cache, err := cacheDir(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" {
		system := t.TempDir()
		t.Setenv("LD_LIBRARY_PATH", system)
		place(filepath.Join(system, "libonnxruntime.so.1.20.0"))
		if at, err := Look(Options{}, Kind{}); err != nil || at.Found == "system" && strings.HasPrefix(at.Path, system) {
			t.Errorf("an old system library is taken: %+v, %v", at, err)
		}
		place(filepath.Join(system, "libonnxruntime.so.1.9.1"))
		newer := place(filepath.Join(system, "libonnxruntime.so.1.30.2"))
		expect(Options{}, newer, "system")
	}
	b, _ := npm.build(runtime.GOOS, runtime.GOARCH)
	second := place(b.path(cache, runtime.GOOS, runtime.GOARCH))
	expect(Options{}, second, "cache")
	b, _ = pip.build(runtime.GOOS, runtime.GOARCH)
	first := place(b.path(cache, runtime.GOOS, runtime.GOARCH))
	expect(Options{}, first, "cache")
	byHand := place(filepath.Join(cache, libraryName(runtime.GOOS)))
	expect(Options{}, byHand, "cache")
	t.Setenv(LibraryVariable, lib)
	expect(Options{}, lib, LibraryVariable)
	folder := t.TempDir()
	inFolder := place(filepath.Join(folder, libraryName(runtime.GOOS)))
	expect(Options{Library: folder}, inFolder, "--library")
}

// TestPythonDirs: a program that pip has installed finds the pinned library of its environment,
// and no other version.
func TestPythonDirs(t *testing.T) {
	root := t.TempDir()
	program := write(t, filepath.Join(root, "bin", "onering"), nil)
	capi := filepath.Join(root, "lib", "python3.12", "site-packages", "onnxruntime", "capi")
	write(t, filepath.Join(capi, "libonnxruntime.so."+pinned), nil)
	write(t, filepath.Join(root, "lib", "python3.12", "site-packages", "onnxruntime-1.2.3.dist-info", "METADATA"), nil)
	if got := pythonDirs(program); len(got) != 0 {
		t.Errorf("another version is found: %q", got)
	}
	write(t, filepath.Join(root, "lib", "python3.12", "site-packages", "onnxruntime-"+pinned+".dist-info", "METADATA"), nil)
	if got := pythonDirs(program); len(got) != 1 || got[0] != capi {
		t.Errorf("%q, want %q", got, capi)
	}
}

// TestModuleVersion: the library comes from the module version in go.mod.
func TestModuleVersion(t *testing.T) {
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := modulePath + " " + moduleVersion + "\n"; !strings.Contains(string(text), want) {
		t.Errorf("go.mod does not have %s", want)
	}
}

// TestModuleLibraries checks the pinned libraries of the Go module for every platform
// that has one: their digests, and that Inspect recognizes each.
func TestModuleLibraries(t *testing.T) {
	for key := range moduleBuilds {
		goos, goarch, _ := strings.Cut(key, "/")
		b, _ := module.build(goos, goarch)
		into := filepath.Join(t.TempDir(), libraryName(goos))
		if err := module.fetch(t.Context(), &provisioner{goos: goos, goarch: goarch}, b, into); err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		if err := inspect(into, goos, goarch); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		wrong := map[string]string{"amd64": "arm64", "arm64": "amd64"}[goarch]
		if err := inspect(into, goos, wrong); err == nil {
			t.Errorf("%s: also taken for %s", key, wrong)
		}
	}
}

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"", "libonnxruntime.so.1", true},
		{"libonnxruntime.so.1.9.0", "libonnxruntime.so.1.31.1", true},
		{"libonnxruntime.so.1.31.1", "libonnxruntime.so.1.31.1", false},
		{"libonnxruntime.1.31.1.dylib", "libonnxruntime.1.4.0.dylib", false},
	} {
		if got := older(c.a, c.b); got != c.want {
			t.Errorf("older(%q, %q) = %v", c.a, c.b, got)
		}
	}
}

// TestMissingIsOneMessage checks the message on a machine without library, client and
// network.
func TestMissingIsOneMessage(t *testing.T) {
	t.Setenv(LibraryVariable, "")
	t.Setenv(envOffline, "1")
	cache := t.TempDir()
	if at, _ := Look(Options{Cache: cache}, Kind{}); at.Path != "" {
		t.Skipf("this system has an ONNX Runtime of its own: %s", at.Path)
	}
	_, err := Find(t.Context(), Options{Cache: cache}, Kind{})
	if err == nil {
		t.Fatal("found one")
	}
	for _, want := range []string{envOffline, LibraryVariable, "runtime.library", releasePage, filepath.Join(cache, "onnxruntime", libraryName(runtime.GOOS))} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
	if _, err := os.Stat(filepath.Join(cache, "onnxruntime")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("offline, yet the cache was made: %v", err)
	}
}

// TestCachedEarlier: a library that an earlier onering fetched is used, the newest of several, unless
// its interface is too old.
func TestCachedEarlier(t *testing.T) {
	cache, platform := t.TempDir(), "-"+runtime.GOOS+"-"+runtime.GOARCH
	for _, tt := range []struct{ fetched, want string }{
		{"1.9.0", ""}, {"1.25.1-cuda13", ""}, {"1.26.2", "1.26.2"}, {"1.31.1", "1.31.1"}, {"1.30.9", "1.31.1"}, {pinned, pinned}, {"1.99.0", pinned},
	} {
		dir := filepath.Join(cache, tt.fetched+platform)
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, libraryName(runtime.GOOS)), nil)
		want := ""
		if tt.want != "" {
			want = filepath.Join(cache, tt.want+platform, libraryName(runtime.GOOS))
		}
		if got := cached(cache, runtime.GOOS, runtime.GOARCH, Kind{}); got != want {
			t.Errorf("with %s in the cache it is %q, want %q", tt.fetched, got, want)
		}
	}
}
