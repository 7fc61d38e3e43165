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
	m, err := newCUDAMemory(provision.CUDARuntimeLibrary, d.id, o.TF32)
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

// Wait returns when all that was begun on the device is done, so that a clock may
// be read. On the CPU everything is done when its call returns.
func (e *Env) Wait() error { return e.memory.wait() }

// Crossed returns how many bytes went from the host to the device since Open,
// and how many came back. On the CPU nothing crosses.
func (e *Env) Crossed() (up, down int64) { return e.memory.crossed() }
