// Package runtime runs models.Programs on ONNX Runtime.
//
// An Env is the library, loaded once in the process, with one pool of threads and
// one allocator for all sessions. A Ring holds the weights of a model, and three types use
// it: a Decoder samples, a Learner computes log-probs and gradients, an Optimizer updates.
//
// # Where bytes lie
//
// Two things own bytes: an arena those that live as long as the model, a buffer those of
// runs. Everything else is a view of them or a way to them.
//
//	Env ── memory         a device: Alloc, Free, Upload, Download, Zero, CopyRuns
//	         └─ Backend   what its provider gives: a Driver (the heap on the CPU), Kernels,
//	                      and how sessions run there
//
//	models.Weights ── arena     one for weights, for gradients and for each moment
//	  Layout: names,  ├─ blocks   the float32 elements, where each is: host, device, or, in a
//	  shapes, places  │           gap, another rank
//	                  └─ copy     what Programs read of the layers in fewer bits
//
//	arena, buffer ── Value ── Binding ── Session
//	  own bytes      view     inputs and   a loaded Program
//	                          outputs
//
// A place is where a tensor lies in a Layout: an offset, a size and a shape. Weights,
// gradients and each moment of an optimizer are models.Weights with one Layout, so a place
// names the same parameter in all of them. A piece is a range of elements of a Layout.
//
// A Weights is the host's side. Its arena says where sessions find each element: a block is a piece that is adjacent
// in one memory. On the CPU that is the memory of the Weights; on a device it is another one, and the host's elements
// are then those of the last Download. Env.arenas finds the arena of a Weights for Upload, Download and Forget.
//
// Elements in blocks are the masters: float32, read and written by updates. All ranks and all Programs have those of
// vectors, and of the embedding and the head unless the copy has these, too. Where Programs read matrices from the
// copy, their masters may lie on the host (Offload), on the rank that updates them alone (Divide; division says which
// rank owns which piece), or nowhere, as with a frozen base in fewer bits, whose type is the copy's. On the CPU,
// without an adapter, a block has the lower halves of masters, of which the copy is the upper ones (tiles.Halves). So
// the type that Programs read is the arena's business, and that of their ports.
//
// A buffer is memory of one type that grows: activations, the state of the sequences that a
// Decoder decodes, the ids and masks that Go fills, the log-probs that it reads. Its hostCopy
// is the host's side; push and pulled copy between the two, on the CPU nothing.
//
// A Value is an address with a type and a shape, as ONNX Runtime takes it. It owns nothing: many Values may view one
// block, a fused projection and its parts for example. A Binding holds the Values that a Session reads and writes.
// Nothing is copied: a weight that several Sessions bind is in memory once, and an output may be bound to the memory
// of an input that the Program updates.
//
// staging moves a part of an update to a device and back where the host keeps its arrays.
// link moves pieces between the devices of ranks.
//
// Read on in this order: memory.go, buffer.go, arena.go, ring.go, binding.go; then
// decoder.go, pass.go and optimizer.go, which use them.
//
// # cgo
//
// This package and its sub-packages are the only ones of onering with cgo. onnxruntime_go loads the library and makes
// its environment, logging and allocators. Sessions, values and bindings go through ort.c, because onnxruntime_go
// does not share its C pointers and has no thread pool for several sessions, no tensors without dimensions or
// elements, and no memory but the CPU's.
package runtime

// #cgo linux LDFLAGS: -ldl
// #include <stdlib.h>
// #include "ort.h"
// #include "rest.h"
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

	"onering/models"
	hostkernels "onering/runtime/kernels/host"
	"onering/runtime/provision"
)

// Options say which library to use and how. The zero value is the default.
type Options struct {
	// Options say where the library is and how it is downloaded. Notice also receives the
	// reason why the device "auto" is the CPU.
	provision.Options
	// Device is what Sessions run on: "cpu", a device of a registered Provider, or
	// "auto", which is device 0 of the first Provider that can be used, or else the CPU,
	// with the reason sent to Notice. Devices lists the names. Empty means "cpu".
	Device string
	// Threads is how many threads one Run may use, from a pool that all sessions
	// share. 0 means one for each CPU that Go may use.
	Threads int
	// NoSpin lets waiting threads sleep at once. If no other process uses the cores, a Run of short kernels is then
	// slower by up to a fifth. If other processes use them, it is faster by up to a third.
	NoSpin bool
	// TF32 lets a GPU multiply float32 in TensorFloat-32, which has 11 bits of
	// precision. That is enough for models that compute in 16 bits.
	TF32 bool
	// Profile, if not empty, makes every Session write a profile to a file whose
	// name starts with it: a JSON trace for chrome://tracing.
	Profile string
	// KeepSessions keeps ONNX Runtime's compiled graphs until the Env is closed, for later Sessions of the same
	// graph. Close the Sessions first. It is for a process that opens a small model many times, since opening
	// sessions takes longer than a short run.
	KeepSessions bool
}

// threads is Threads with its default.
func (o Options) threads() int {
	if o.Threads > 0 {
		return o.Threads
	}
	return goruntime.GOMAXPROCS(0)
}

// errClosed is wrapped by the errors of calls on closed objects.
var errClosed = errors.New("already closed")

// ErrLost is wrapped by the errors of a device that no longer answers: its driver was
// reset, or the device is gone. Its memory is lost too.
var ErrLost = errors.New("the device is lost: its driver was reset, or it is gone")

// An Env is an open ONNX Runtime. It may be used from several goroutines.
type Env struct {
	options Options
	device  device
	memory  *memory
	*opened
	noPool bool // sessions run on the thread that calls them; see withoutPool
}

// opened is the part of an Env that those of withoutPool share.
type opened struct {
	arenas  sync.Map // from *models.Weights to *arena
	resting resting
	kept    keptSessions
	closed  bool // guarded by process.Mutex
}

// Open finds the ONNX Runtime library, loads it and starts its threads. All Envs of a process share one library and
// one thread pool: it is an error to ask for another path or number of threads while an Env is open. Close each Env.
func Open(ctx context.Context, o Options) (*Env, error) {
	process.Lock()
	defer process.Unlock()
	if o.Threads < 0 {
		return nil, fmt.Errorf("runtime: %d threads: want 0 (all CPUs) or more", o.Threads)
	}
	d, err := parseDevice(o.Device)
	if err == nil {
		err = hostkernels.Choose()
	}
	if err != nil {
		return nil, err
	}
	if process.path == "" {
		var found provision.Location
		if d, found, err = choose(ctx, o, d); err != nil {
			return nil, err
		}
		if err := load(found.Path); err != nil {
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
		return nil, fmt.Errorf("runtime: ONNX Runtime is open with %d threads in this process: close it before opening it with %d",
			process.options.threads(), o.threads())
	}
	process.refs++
	m, err := openMemory(o, d)
	if err != nil {
		return nil, errors.Join(err, releaseLocked())
	}
	return &Env{options: o, device: d, memory: m, opened: &opened{}}, nil
}

// withoutPool returns an Env whose sessions run on the thread that calls them, without the shared pool
// and each with an allocator of its own, so that several can run at the same time. Closing e closes it.
func (e *Env) withoutPool() *Env {
	return &Env{options: e.options, device: e.device, memory: e.memory, opened: e.opened, noPool: true}
}

// A resting has the session that puts the pool's threads of one Env to sleep.
type resting struct {
	session *Session // nil before the first rest
	size    *Value
	names   [2]*C.char // names of the input and the output
}

// rests counts the Rest calls that have begun and not ended. The first sends the threads to sleep and the last wakes
// them: a thread that sleeps for one rest could not begin or end another. The lock also guards every resting.
var rests struct {
	sync.Mutex
	n       int
	running *resting // the session that the threads run; nil if they are awake
	c       *C.rest
}

// Rest lets the threads of the pool sleep until wake is called and all other rests have
// ended. Idle threads look for work for about 40 ms, which takes time from sessions without
// the pool. Sessions of the pool may still run, each on the calling thread.
func (e *Env) Rest() (wake func(), err error) {
	threads := e.Threads()
	if threads == 1 || e.options.NoSpin || !e.memory.IsHost() {
		return func() {}, nil
	}
	rests.Lock()
	defer rests.Unlock()
	if rests.running == nil {
		if err := e.resting.begin(e, threads-1); err != nil { // the pool has one less: a session's caller is one, too
			return nil, fmt.Errorf("runtime: sending the threads of ONNX Runtime's pool to sleep: %w", err)
		}
	}
	rests.n++
	return sync.OnceFunc(func() {
		rests.Lock()
		defer rests.Unlock()
		if rests.n--; rests.n == 0 {
			awaken()
		}
	}), nil
}

// begin sends n threads to sleep.
func (r *resting) begin(e *Env, n int) error {
	if err := r.open(e); err != nil {
		return err
	}
	rests.running = r
	err := check(C.onering_rest(r.session.ptr, (**C.char)(&r.names[0]), r.size.ptr, C.int(n), &rests.c))
	if err != nil {
		awaken()
	}
	return err
}

// awaken wakes the threads, if they sleep.
func awaken() {
	if rests.running != nil {
		C.onering_wake(rests.c)
		rests.running, rests.c = nil, nil
	}
}

// open loads the Program whose session the threads run while they sleep, and makes its input, if there are none yet.
func (r *resting) open(e *Env) error {
	if r.session != nil {
		return nil
	}
	size, err := NewValue([]int64{1}, 1)
	if err != nil {
		return err
	}
	session, err := e.Load(clearProgram())
	if err != nil {
		size.Close()
		return err
	}
	r.session, r.size = session, size
	r.names = [2]*C.char{C.CString(portSize), C.CString(portZeros)}
	return nil
}

// close wakes the threads if they run the session.
func (r *resting) close() error {
	rests.Lock()
	defer rests.Unlock()
	if rests.running == r {
		awaken()
	}
	if r.session == nil {
		return nil
	}
	err := r.session.Close()
	r.size.Close()
	for _, name := range r.names {
		C.free(unsafe.Pointer(name))
	}
	r.session = nil
	return err
}

// Close closes e. The threads stop when all Envs and Sessions of the process are closed; the library stays loaded.
func (e *Env) Close() error {
	err := e.resting.close()
	e.kept.close(e)
	e.memory.Close()
	process.Lock()
	defer process.Unlock()
	if e.closed {
		return err
	}
	e.closed = true
	return errors.Join(err, releaseLocked())
}

// Version returns the version of the loaded library, such as "1.31.1".
func (e *Env) Version() string { return process.version }

// Library returns the path of the loaded library.
func (e *Env) Library() string { return process.path }

// Device returns what Sessions run on: "cpu", or "cuda:0" and so on.
func (e *Env) Device() string { return e.device.String() }

// Provider names the provider for whose kernels graphs on the device of e are made.
func (e *Env) Provider() models.Provider { return e.device.provider.Graphs() }

// Threads returns how many threads one Run may use.
func (e *Env) Threads() int {
	process.Lock()
	defer process.Unlock()
	return process.options.threads()
}

// executionProviders returns the names of the providers built into the library, such as "CPUExecutionProvider".
func (e *Env) executionProviders() ([]string, error) {
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

// Wait returns when the device has completed all work. Call it before reading a clock. On
// the CPU every call is complete when it returns.
func (e *Env) Wait() error { return e.memory.Wait() }

// Crossed returns how many bytes were copied from the host to the device since
// Open, and how many to the host. On the CPU it returns zeros.
func (e *Env) Crossed() (up, down int64) { return e.memory.Crossed() }

// process is the state of the loaded library, which all Envs share: ONNX Runtime allows one environment in a process.
var process struct {
	sync.Mutex
	path    string // path of the loaded library, which is never unloaded
	version string

	env        *C.OrtEnv       // nil while no Env is open
	options    Options         // the options with which env was made
	allocators map[string]bool // the devices for which env has an allocator
	refs       int             // number of open Envs and Sessions
}

// acquire takes a reference to the environment, which it returns; release, or the Close of the Session that has it, drops it.
func (e *Env) acquire() (*C.OrtEnv, error) {
	process.Lock()
	defer process.Unlock()
	if e.closed {
		return nil, fmt.Errorf("the Env is %w", errClosed)
	}
	process.refs++
	return process.env, nil
}

// load loads a library, checks its version, and sets what process and the host's memory know of it. The caller holds
// process.Mutex.
func load(path string) error {
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	var msg *C.char
	base := C.onering_open(cpath, &msg)
	if base == nil {
		defer C.free(unsafe.Pointer(msg))
		return fmt.Errorf("runtime: loading %q: %s", path, C.GoString(msg))
	}
	version := C.GoString(C.onering_version(base))
	// Check the version first: if asked for an unknown table, ONNX Runtime writes to stderr.
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
	process.path, process.version, host.info = path, version, info
	return nil
}

// sameLibrary returns an error if o names a library other than the loaded one, or a
// device that the loaded one cannot use. It returns the device, with auto resolved.
func sameLibrary(ctx context.Context, o Options, d device) (device, error) {
	if o.Library != "" {
		want, err := provision.Look(o.Options, provision.Kind{})
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
	return o.resolve(d, func(d device) error { return d.check(ctx, process.path, reportLibrary) })
}

// apiVersion returns N of a version 1.N.x.
func apiVersion(version string) (int, bool) {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return n, major == "1" && err == nil
}

// start makes the environment with the thread pool that all sessions share. It must be
// made before onnxruntime_go makes its environment, which is then the same one.
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
	o.Threads = o.threads()
	process.env, process.options, process.allocators = env, o, map[string]bool{}
	return nil
}

// shareArena registers one CPU allocator for all sessions. Sessions run one after the
// other, so they need the temporary memory of the largest session instead of the sum.
func shareArena() error {
	// Extend by the requested size (1). By default allocators double, which could hold twice the memory in use.
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

// release drops a reference to the environment.
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

// check turns a status into an error with ONNX Runtime's text.
func check(s *C.OrtStatus) error {
	if s == nil {
		return nil
	}
	defer C.onering_release_status(s)
	return errors.New(strings.TrimSpace(C.GoString(C.onering_message(s))))
}
