// Package runtime runs models.Programs on ONNX Runtime.
//
// An Env is the library, loaded once in the process with one pool of threads
// and one memory arena for all sessions. A Session is one Program made ready to
// run, a Value a tensor over memory that the caller owns, a Binding the Values
// that a Session reads and writes. Nothing is copied on the way: a weight that
// several Sessions bind is one buffer, and an output may be bound onto an input
// that the Program says it updates.
//
// It is the only package of onering with cgo. Loading the library, its
// environment, logging and allocators are onnxruntime_go's; sessions, values
// and bindings go through ort.c, since the Go binding keeps its C pointers to
// itself and has no shared thread pool, no tensors without dimensions or
// elements, and no memory but the CPU's.
package runtime

// #cgo linux LDFLAGS: -ldl
// #include <stdlib.h>
// #include "ort.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"onering/runtime/provision"
)

// Options say which library to run on and how. The zero value is the default.
type Options struct {
	// Options say where the library is and how it is fetched. Notice is also told
	// why the device "auto" is the CPU.
	provision.Options
	// Device is what Sessions run on: "cpu", "cuda" or "cuda:N" for a GPU by
	// CUDA's number, or "auto": GPU 0 where there is one and all that it needs
	// is there, else the CPU, which Notice is then told with the reason. Empty
	// is "cpu". Tests have "stand-in", a device made of the host's memory.
	Device string
	// Threads is how many threads one Run may use, of a pool that all sessions
	// share; 0 is one for each CPU that Go may use.
	Threads int
	// NoSpin lets waiting threads sleep at once. On cores of its own a Run is
	// then slower, by a fifth where the kernels are short; on cores that other
	// processes use too it is faster, by up to a third.
	NoSpin bool
	// TF32 lets a GPU multiply float32 in TensorFloat-32, of 11 bits: for models
	// that compute in 16 bits, whose numbers it holds.
	TF32 bool
	// Profile, when set, makes every Session write a profile, a JSON trace for
	// chrome://tracing, to a file whose name starts with it.
	Profile string
}

func (o Options) threads() int {
	if o.Threads > 0 {
		return o.Threads
	}
	return goruntime.GOMAXPROCS(0)
}

// ErrClosed is wrapped by errors of calls on something that was closed.
var ErrClosed = errors.New("already closed")

// process is what the one loaded library has for the whole process. ONNX
// Runtime's environment is a singleton: so is this.
var process struct {
	sync.Mutex
	path       string // of the loaded library; it is never unloaded
	how        string // it was found
	version    string
	memoryInfo *C.OrtMemoryInfo // of the host's memory

	env     *C.OrtEnv
	options Options      // of env
	shared  map[int]bool // the GPUs whose arena env has
	refs    int          // Envs and Sessions open on env
}

// An Env is an open ONNX Runtime. It may be used from several goroutines.
type Env struct {
	options Options
	device  device
	memory  memory
	arenas  sync.Map // *models.Weights -> *arena
	closed  bool     // under process.Mutex
}

// Open finds the ONNX Runtime library, loads it and starts its threads. All Envs
// of a process share one library and one thread pool, so a second Open must want
// the same ones: another path or number of threads is an error. Close each Env.
func Open(ctx context.Context, o Options) (*Env, error) {
	process.Lock()
	defer process.Unlock()
	if o.Threads < 0 {
		return nil, fmt.Errorf("runtime: %d threads: want 0 (all CPUs) or more", o.Threads)
	}
	d, err := parseDevice(o.Device)
	if err != nil {
		return nil, err
	}
	if process.path == "" {
		var found provision.Location
		if d, found, err = choose(ctx, o, d, cuda); err != nil {
			return nil, err
		}
		if err := load(found); err != nil {
			return nil, err
		}
	} else if d, err = sameLibrary(ctx, o, d); err != nil {
		return nil, err
	}
	if process.refs == 0 {
		if err := start(o); err != nil {
			return nil, err
		}
	} else if o.Threads != 0 && o.threads() != process.options.threads() {
		return nil, fmt.Errorf("runtime: ONNX Runtime is open with %d threads in this process: close it before opening it with %d", process.options.threads(), o.threads())
	}
	process.refs++
	m, err := openMemory(o, d)
	if err != nil {
		return nil, errors.Join(err, releaseLocked())
	}
	return &Env{options: o, device: d, memory: m}, nil
}

// openMemory returns the memory of a device's sessions.
func openMemory(o Options, d device) (memory, error) {
	switch {
	case d.standIn:
		return newStandIn(), nil
	case !d.cuda:
		return host, nil
	}
	m, err := newCUDAMemory(provision.CUDARuntimeLibrary, d.id)
	if err != nil {
		return nil, err
	}
	if err := m.describe(); err != nil {
		return nil, err
	}
	if !process.shared[d.id] {
		// As on the CPU (see shareArena): what sessions need together is then what
		// the largest needs, not the sum.
		if err := check(C.onering_share_cuda(process.env, C.int(d.id))); err == nil {
			process.shared[d.id] = true
		} else if o.Notice != nil {
			o.Notice(fmt.Sprintf("on %s each session keeps memory of its own: %v", m, err))
		}
	}
	return m, nil
}

// Close lets go of e. The last one to be closed, with all its Sessions, stops
// the threads; the library stays loaded.
func (e *Env) Close() error {
	process.Lock()
	defer process.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	return releaseLocked()
}

// acquire takes a reference to the environment, to be given back by release.
func (e *Env) acquire() (*C.OrtEnv, error) {
	process.Lock()
	defer process.Unlock()
	if e.closed {
		return nil, fmt.Errorf("the Env is %w", ErrClosed)
	}
	process.refs++
	return process.env, nil
}

// Version returns the version of the loaded library, such as "1.31.1".
func (e *Env) Version() string { return process.version }

// Library returns the path of the loaded library.
func (e *Env) Library() string { return process.path }

// Found tells how the library was found, as provision.Location does.
func (e *Env) Found() string { return process.how }

// Device returns what Sessions run on: "cpu", or "cuda:0" and so on.
func (e *Env) Device() string { return e.device.String() }

// Threads returns how many threads one Run may use.
func (e *Env) Threads() int {
	process.Lock()
	defer process.Unlock()
	return process.options.threads()
}

// Providers returns the execution providers that were built into the library,
// such as "CPUExecutionProvider".
func (e *Env) Providers() ([]string, error) {
	var names **C.char
	var n C.int
	if err := check(C.onering_providers(&names, &n)); err != nil {
		return nil, fmt.Errorf("runtime: listing the execution providers: %w", err)
	}
	defer C.onering_release_providers(names, n)
	var out []string
	for _, p := range unsafe.Slice(names, int(n)) {
		out = append(out, C.GoString(p))
	}
	return out, nil
}

// load loads the library at path and checks its version. Under process.Mutex.
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
	// The version is compared before the table is asked for: ONNX Runtime
	// writes to stderr when it does not have it.
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

// sameLibrary refuses a library other than the loaded one, and a device that
// it does not run on.
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

// apiVersion is N of version 1.N.x.
func apiVersion(version string) (int, bool) {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return n, major == "1" && err == nil
}

// start makes the environment. Ours comes first, with the thread pool that all
// sessions share; onnxruntime_go's is then a reference to the same singleton.
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

// shareArena registers one CPU arena for all sessions. They run one after the
// other, so the scratch memory they need together is that of the largest, not
// the sum.
func shareArena() error {
	// Extend by what is asked for (1) rather than to the next power of two:
	// doubling would keep up to twice the memory that is used.
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

// Wait returns when all that was begun on the device is done, so that a clock may
// be read. On the CPU everything is done when its call returns.
func (e *Env) Wait() error { return e.memory.wait() }

// Crossed returns how many bytes went from the host to the device since Open,
// and how many came back. On the CPU nothing crosses.
func (e *Env) Crossed() (up, down int64) { return e.memory.crossed() }

// release gives back one reference to the environment.
func release() error {
	process.Lock()
	defer process.Unlock()
	return releaseLocked()
}

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

// check turns a status into an error with ONNX Runtime's own text.
func check(s *C.OrtStatus) error {
	if s == nil {
		return nil
	}
	defer C.onering_release_status(s)
	return errors.New(strings.TrimSpace(C.GoString(C.onering_message(s))))
}
