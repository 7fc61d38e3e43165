package runtime_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/runtime"
	"onering/runtime/provision"
	"onering/runtime/runtimetest"
)

func TestEnv(t *testing.T) {
	e := runtimetest.Test(t)
	if !strings.HasPrefix(e.Version(), "1.") || !filepath.IsAbs(e.Library()) || e.Threads() < 1 {
		t.Errorf("version %q, library %q, %d threads", e.Version(), e.Library(), e.Threads())
	}
	p, err := e.ExecutionProviders()
	if err != nil || !slices.Contains(p, "CPUExecutionProvider") {
		t.Errorf("providers %v, %v", p, err)
	}
}

// library returns the options that name a library.
func library(path string) runtime.Options {
	return runtime.Options{Options: provision.Options{Library: path}}
}

func TestOpenErrors(t *testing.T) {
	e := runtimetest.Test(t)
	ctx := context.Background()
	_, err := runtime.Open(ctx, runtime.Options{Threads: -1})
	wantError(t, err, "-1 threads")
	_, err = runtime.Open(ctx, runtime.Options{Threads: e.Threads() + 1})
	wantError(t, err, "is open with")
	_, err = runtime.Open(ctx, library(filepath.Join(t.TempDir(), "none.so")))
	wantError(t, err, "none.so", "no such file")

	data, err := os.ReadFile(e.Library())
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), filepath.Base(e.Library()))
	if err := os.WriteFile(copied, data, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = runtime.Open(ctx, library(copied))
	wantError(t, err, "already runs on", "name one library only")

	// Another name of the same library is not an error.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(e.Library(), link); err != nil {
		t.Skip(err)
	}
	o := library(link)
	o.Threads = e.Threads()
	again, err := runtime.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(again.Close(), again.Close()); err != nil {
		t.Error(err)
	}
	if _, err := again.Load(add()); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("Load on a closed Env: %v", err)
	}
}

// childVariable tells the test binary that it is the child of inChild.
const childVariable = "ONERING_TEST_CHILD"

// inChild runs a test in a process of its own.
func inChild(t *testing.T, test string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), childVariable+"=1", "ONNXRUNTIME_LIB="+runtimetest.Test(t).Library())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+test) {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestReopen opens, closes and opens again with another number of threads. It runs in its
// own process, because the other tests' environment stays open.
func TestReopen(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		inChild(t, "TestReopen")
		return
	}
	if _, err := runtime.NewValue([]float32{1}, 1); err == nil {
		t.Error("a Value before any Open")
	}
	prefix := filepath.Join(t.TempDir(), "profile")
	for _, threads := range []int{1, 3, 2} {
		e, err := runtime.Open(context.Background(), runtime.Options{Threads: threads, NoSpin: threads == 2, Profile: prefix})
		if err != nil {
			t.Fatal(err)
		}
		if e.Threads() != threads {
			t.Errorf("%d threads", e.Threads())
		}
		z := make([]float32, 2)
		s := must(e.Load(add()))(t)
		if err := e.Close(); err != nil { // The Session keeps the environment open.
			t.Fatal(err)
		}
		b := must(s.NewBinding())(t)
		x := value(t, []float32{1, 2}, 2)
		if err := errors.Join(b.Input("x", x), b.Input("y", x), b.Output("z", value(t, z, 2)), b.Run()); err != nil {
			t.Fatal(err)
		}
		equal(t, z, []float32{2, 4})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if files, _ := filepath.Glob(prefix + "-add*"); len(files) == 0 {
		t.Error("no profile was written")
	}
}

func TestDiagnose(t *testing.T) {
	e := runtimetest.Test(t)
	r, err := library(e.Library()).Diagnose(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if r.Threads != e.Threads() || len(r.Problems) > 0 || r.Library == nil || r.Library.Version != e.Version() || r.Library.Path != e.Library() || len(r.Library.SHA256) != 64 {
		t.Errorf("%+v", r)
	}
	bad := filepath.Join(t.TempDir(), "bad.so")
	if err := os.WriteFile(bad, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err = library(bad).Diagnose(context.Background())
	if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "bad.so") || r.Library != nil {
		t.Errorf("problems %q, library %v, %v", r.Problems, r.Library, err)
	}
	if _, err := (runtime.Options{Device: "gpu"}).Diagnose(context.Background()); err == nil || !strings.Contains(err.Error(), `"gpu"`) {
		t.Errorf("a device that there is not: %v", err)
	}
}
