package runtime

// #include <stdlib.h>
// #include "ort.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"onering/runtime/provision"
)

// process is the state of the loaded library, which all Envs share: ONNX Runtime
// allows one environment in a process.
var process struct {
	sync.Mutex
	path       string // of the loaded library; it is never unloaded
	how        string // how the library was found
	version    string
	memoryInfo *C.OrtMemoryInfo // of the host's memory

	env     *C.OrtEnv    // nil while no Env is open
	options Options      // those that env was made with
	shared  map[int]bool // the GPUs for which env has an allocator
	refs    int          // open Envs and Sessions
}

// acquire takes a reference to the environment. release gives it back.
func (e *Env) acquire() (*C.OrtEnv, error) {
	process.Lock()
	defer process.Unlock()
	if e.closed {
		return nil, fmt.Errorf("the Env is %w", ErrClosed)
	}
	process.refs++
	return process.env, nil
}

// load loads a library and checks its version. The caller holds process.Mutex.
func load(at provision.Location) error {
	path := at.Path
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	var msg *C.char
	base := C.onering_open(cpath, &msg)
	if base == nil {
		defer C.free(unsafe.Pointer(msg))
		return fmt.Errorf("runtime: loading %q: %s", path, C.GoString(msg))
	}
	version := C.GoString(C.onering_version(base))
	// Check the version first: asked for a table that it does not have, ONNX
	// Runtime writes to stderr.
	if n, ok := apiVersion(version); !ok || n < provision.MinAPI {
		return fmt.Errorf("runtime: %q is ONNX Runtime %s, which is too old: onering needs 1.%d or newer", path, version, provision.MinAPI)
	}
	if C.onering_api(base, provision.MinAPI) == 0 {
		return fmt.Errorf("runtime: %q is ONNX Runtime %s but lacks version %d of its C interface", path, version, provision.MinAPI)
	}
	var info *C.OrtMemoryInfo
	if err := check(C.onering_cpu_memory(&info)); err != nil {
		return fmt.Errorf("runtime: %q: describing CPU memory: %w", path, err)
	}
	process.path, process.how, process.version, process.memoryInfo = path, at.Found, version, info
	return nil
}

// sameLibrary returns an error if o names another library than the loaded one, or
// a device that it cannot use. It returns the device, with auto resolved.
func sameLibrary(ctx context.Context, o Options, d device) (device, error) {
	if o.Library != "" {
		want, err := provision.Look(o.Options)
		if err != nil {
			return d, err
		}
		a, err := os.Stat(want.Path)
		if err != nil {
			return d, fmt.Errorf("runtime: %w", err)
		}
		if b, err := os.Stat(process.path); err != nil || !os.SameFile(a, b) {
			return d, fmt.Errorf("runtime: this process already runs on %q and cannot load %q too: name one library only", process.path, want.Path)
		}
	}
	if !d.auto && !d.cuda {
		return d, nil
	}
	err := cuda.Check(ctx, process.path, d.id)
	if d.auto {
		if err != nil {
			o.onCPU(err)
		}
		return device{cuda: err == nil}, nil
	}
	return d, err
}

// apiVersion returns N of a version 1.N.x.
func apiVersion(version string) (int, bool) {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return n, major == "1" && err == nil
}

// start makes the environment with the thread pool that all sessions share. It
// must be made before that of onnxruntime_go, which is then the same one.
func start(o Options) error {
	spin := C.int(1)
	if o.NoSpin {
		spin = 0
	}
	var env *C.OrtEnv
	if err := check(C.onering_env(C.int(o.threads()), spin, &env)); err != nil {
		return fmt.Errorf("runtime: starting ONNX Runtime %s with %d threads: %w", process.version, o.threads(), err)
	}
	ort.SetSharedLibraryPath(process.path)
	err := ort.InitializeEnvironment(ort.WithLogLevelFatal())
	if err == nil {
		if err = errors.Join(ort.DisableTelemetry(), shareArena()); err != nil {
			ort.DestroyEnvironment()
		}
	}
	if err != nil {
		C.onering_release_env(env)
		return fmt.Errorf("runtime: starting ONNX Runtime %s: %w", process.version, err)
	}
	process.env, process.options, process.shared = env, o, make(map[int]bool)
	return nil
}

// shareArena registers one CPU allocator for all sessions. They run one after the
// other, so together they then need the temporary memory of the largest session
// instead of the sum.
func shareArena() error {
	// Extend by as much as is asked for (1). By default allocators double, which
	// would keep up to twice the memory in use.
	cfg, err := ort.NewArenaCfg(0, 1, -1, -1)
	if err != nil {
		return err
	}
	defer cfg.Destroy()
	memory, err := ort.GetMemoryInfo()
	if err != nil {
		return err
	}
	return ort.CreateAndRegisterAllocator(memory, cfg)
}

// release gives back one reference to the environment.
func release() error {
	process.Lock()
	defer process.Unlock()
	return releaseLocked()
}

// releaseLocked is release for callers that hold process.Mutex.
func releaseLocked() error {
	process.refs--
	if process.refs > 0 {
		return nil
	}
	err := ort.DestroyEnvironment()
	C.onering_release_env(process.env)
	process.env = nil
	return err
}

// check returns a status as an error with ONNX Runtime's text.
func check(s *C.OrtStatus) error {
	if s == nil {
		return nil
	}
	defer C.onering_release_status(s)
	return errors.New(strings.TrimSpace(C.GoString(C.onering_message(s))))
}
