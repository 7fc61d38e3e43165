// Package runtime runs models.Programs on ONNX Runtime.
//
// An Env is the library, loaded once in the process, with one pool of threads and
// one allocator for all sessions. A Session is a loaded Program, a Value is a
// tensor over memory that something else owns, and a Binding holds the Values that
// a Session reads and writes. Nothing is copied: a weight that several Sessions
// bind is in memory once, and an output may be bound to the memory of an input
// that the Program updates.
//
// On these stand three users of a model's weights, which a Ring holds: a Decoder
// samples, a Learner computes log-probs and gradients, an Optimizer updates. Their
// memory is in arenas and buffers (arena.go, buffer.go), on the CPU or on a device
// (memory.go).
//
// It is the only package of onering with cgo. onnxruntime_go loads the library and
// makes its environment, logging and allocators. Sessions, values and bindings go
// through ort.c, because onnxruntime_go does not share its C pointers and has no
// thread pool for several sessions, no tensors without dimensions or elements, and
// no memory but the CPU's.
package runtime

// #cgo linux LDFLAGS: -ldl
// #include "ort.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"unsafe"

	"onering/runtime/provision"
)

// Options say which library to run on and how. The zero value is the default.
type Options struct {
	// Options say where the library is and how it is fetched. Notice is also told
	// why the device "auto" is the CPU.
	provision.Options
	// Device is what Sessions run on: "cpu"; "cuda" or "cuda:N" for a GPU by
	// CUDA's number; or "auto", which is GPU 0 if it can be used and else the CPU,
	// with the reason told to Notice. Empty means "cpu". Tests also have
	// "stand-in", a device made of the host's memory.
	Device string
	// Threads is how many threads one Run may use, from a pool that all sessions
	// share. 0 means one for each CPU that Go may use.
	Threads int
	// NoSpin lets waiting threads sleep at once. If no other process uses the
	// cores, a Run of short kernels is then slower by up to a fifth. If others do,
	// it is faster by up to a third.
	NoSpin bool
	// TF32 lets a GPU multiply float32 in TensorFloat-32, which has 11 bits of
	// precision. That is enough for models that compute in 16 bits.
	TF32 bool
	// Profile, if not empty, makes every Session write a profile to a file whose
	// name starts with it: a JSON trace for chrome://tracing.
	Profile string
}

// threads is Threads with its default.
func (o Options) threads() int {
	if o.Threads > 0 {
		return o.Threads
	}
	return goruntime.GOMAXPROCS(0)
}

// ErrClosed is wrapped by the errors of calls on something that was closed.
var ErrClosed = errors.New("already closed")

// An Env is an open ONNX Runtime. It may be used from several goroutines.
type Env struct {
	options Options
	device  device
	memory  memory
	arenas  sync.Map // *models.Weights -> *arena
	closed  bool     // under process.Mutex
}

// Open finds the ONNX Runtime library, loads it and starts its threads. All Envs
// of a process share one library and one thread pool: it is an error to ask for
// another path or number of threads while an Env is open. Close each Env.
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

// openMemory returns the memory of a device.
func openMemory(o Options, d device) (memory, error) {
	switch {
	case d.standIn:
		return newStandIn(), nil
	case !d.cuda:
		return host, nil
	}
	m, err := newCUDAMemory(provision.CUDARuntimeLibrary, d.id, o.TF32)
	if err != nil {
		return nil, err
	}
	if err := m.describe(); err != nil {
		return nil, err
	}
	if !process.shared[d.id] {
		// For the same reason as shareArena has on the CPU.
		if err := check(C.onering_share_cuda(process.env, C.int(d.id))); err == nil {
			process.shared[d.id] = true
		} else if o.Notice != nil {
			o.Notice(fmt.Sprintf("on %s each session keeps memory of its own: %v", m, err))
		}
	}
	return m, nil
}

// Close closes e. The threads stop when all Envs and Sessions of the process are
// closed; the library stays loaded.
func (e *Env) Close() error {
	process.Lock()
	defer process.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	return releaseLocked()
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

// Providers returns the names of the execution providers that were built into the
// library, such as "CPUExecutionProvider".
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

// Wait returns when the device has completed everything. Call it before reading a
// clock. On the CPU every call is complete when it returns.
func (e *Env) Wait() error { return e.memory.wait() }

// Crossed returns how many bytes were copied from the host to the device since
// Open, and how many to the host. On the CPU it returns zeros.
func (e *Env) Crossed() (up, down int64) { return e.memory.crossed() }
