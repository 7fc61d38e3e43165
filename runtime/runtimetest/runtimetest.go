// Package runtimetest opens ONNX Runtime for tests.
package runtimetest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"onering/runtime"
	"onering/runtime/nccl"
	"onering/runtime/provision"
)

// skipVariable is the environment variable that makes tests which need ONNX Runtime skip.
// Without it, tests fail on a machine where the library cannot be found or downloaded, so
// that a suite that passes has run them.
const skipVariable = "ONERING_SKIP_RUNTIME"

var open = sync.OnceValues(func() (*runtime.Env, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	o := runtime.Options{Device: Device, KeepSessions: true, NoSpin: true}
	o.Notice = func(s string) { os.Stderr.WriteString(s + "\n") }
	return runtime.Open(ctx, o)
})

// Test returns the Env that all tests of a process share; it stays open. The library is
// found or downloaded as for any user. With the build tag cuda the Env is on a GPU, and a
// machine without a usable one skips tests.
func Test(t testing.TB) *runtime.Env {
	t.Helper()
	if os.Getenv(skipVariable) != "" {
		t.Skipf("%s is set: this test needs ONNX Runtime", skipVariable)
	}
	e, err := open()
	if _, ok := errors.AsType[*provision.UnusableGPUError](err); ok {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// NCCL compiles a library with NCCL's functions for the host's memory, by which ranks on
// stand-ins send to each other, and names it in the environment. root leads from the
// test's folder to the repository, and flags are those of the source.
func NCCL(t testing.TB, root string, flags ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libnccl.so.2")
	args := append(flags, "-shared", "-fPIC", "-o", path, filepath.Join(root, "runtime/nccl/testdata/fake.c"))
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Skipf("cc cannot compile a library: %v\n%s", err, out)
	}
	t.Setenv(nccl.Variable, path)
}
