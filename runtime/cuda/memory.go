package cuda

// #cgo linux LDFLAGS: -ldl
// #include <stdlib.h>
// #include "cuda.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"onering/runtime"
)

// A memory is the memory of one GPU. It and the CUDA provider use the same CUDA stream, which orders their work.
type memory struct {
	id     C.int
	stream unsafe.Pointer
	pinned *pinned           // nil if there is none
	copies [2]unsafe.Pointer // the streams StreamUp and StreamDown, which the first Lock makes
	events []unsafe.Pointer  // events for the marks
	// find finds the NCCL library.
	find func(context.Context) (path string, err error)
}

// Open opens a GPU: its memory with a stream, pinned memory for copies if there is any, the provider's settings and our kernels.
func (c *provider) Open(o runtime.Options, number int, _ string) (*runtime.Backend, error) {
	m, err := openMemory(runtimeLibrary, number)
	if err != nil {
		return nil, err
	}
	m.find = func(ctx context.Context) (string, error) {
		return c.find(ncclLibrary, func() []string { return c.dirs(ctx) })
	}
	if err := m.pin(); err != nil && o.Notice != nil {
		o.Notice(fmt.Sprintf("copies between cuda:%d and the host are slower than they could be, through memory that is not pinned: %v", number, err))
	}
	settings := providerSettings(number, o.TF32)
	b := &runtime.Backend{
		Driver: m, NCCL: m.link, Kind: "Cuda", ID: number, Execution: "CUDAExecutionProvider",
		Append: func(functions, options unsafe.Pointer) error { return m.use(functions, options, settings) },
	}
	addKernels(b, m, number, o.Notice)
	return b, nil
}

// providerSettings returns the settings of the CUDA provider for a GPU.
func providerSettings(id int, tf32 bool) map[string]string {
	settings := map[string]string{
		"device_id": strconv.Itoa(id),
		// Allocators grow by the requested size. By default they double, which could hold twice the memory in use.
		"arena_extend_strategy": "kSameAsRequested",
		// TF32 has 11 bits of precision. Without it log-probs and gradients can be compared with the CPU's.
		"use_tf32":                  "0",
		"do_copy_in_default_stream": "1", // all work on one stream
		"cudnn_conv_algo_search":    "DEFAULT",
	}
	if tf32 {
		settings["use_tf32"] = "1"
	}
	return settings
}

// use adds the CUDA provider to the options of a session. Nodes for which it has no kernel run on the CPU.
func (m *memory) use(functions, options unsafe.Pointer, settings map[string]string) error {
	var keys, values []*C.char
	for k, v := range settings {
		keys, values = append(keys, C.CString(k)), append(values, C.CString(v))
	}
	defer func() {
		for i := range keys {
			C.free(unsafe.Pointer(keys[i]))
			C.free(unsafe.Pointer(values[i]))
		}
	}()
	return said(C.onering_cuda_use((*unsafe.Pointer)(functions), options, &keys[0], &values[0], C.size_t(len(keys)), m.stream))
}

// said turns a message of C into an error, and frees it.
func said(message *C.char) error {
	if message == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(message))
	return errors.New(strings.TrimSpace(C.GoString(message)))
}

// openMemory opens the CUDA runtime for a GPU.
func openMemory(cudart string, id int) (*memory, error) {
	m := &memory{id: C.int(id)}
	library := C.CString(cudart)
	defer C.free(unsafe.Pointer(library))
	var msg *C.char
	if C.onering_cuda_open(library, m.id, &m.stream, &msg) != 0 {
		return nil, fmt.Errorf("runtime: cuda:%d: %w", id, said(msg))
	}
	return m, nil
}

// cudaError returns a code of the CUDA runtime as an error.
func cudaError(code C.int) error {
	if code == 0 {
		return nil
	}
	return errors.New(C.GoString(C.onering_cuda_text(code)))
}

func (m *memory) Alloc(bytes int) (at unsafe.Pointer, err error) {
	err = cudaError(C.onering_cuda_alloc(m.id, C.size_t(bytes), &at))
	return at, err
}

func (m *memory) Free(at unsafe.Pointer) { C.onering_cuda_free(m.id, at) }

// unpinned, if set in the environment, disables pinned memory for copies, to measure what it gains.
const unpinned = "ONERING_UNPINNED"

// The directions of copies, as CUDA numbers them.
const (
	toDevice = 1
	toHost   = 2
)

// pin allocates the memory through which large copies go. Like the stream, it exists until the process ends.
func (m *memory) pin() error {
	if os.Getenv(unpinned) != "" {
		return fmt.Errorf("%s is set", unpinned)
	}
	var at unsafe.Pointer
	switch code := C.onering_cuda_pinned(m.id, 2*pinnedPart, &at); {
	case code < 0:
		return errors.New("CUDA's runtime lacks the function cudaHostAlloc")
	case code > 0:
		return fmt.Errorf("allocating %d bytes: %w", 2*pinnedPart, cudaError(code))
	}
	m.pinned = newPinned(at)
	return nil
}

func (m *memory) Write(to unsafe.Pointer, from []byte) error {
	start := func(at int, piece []byte) error {
		return m.start(unsafe.Add(to, at), unsafe.Pointer(unsafe.SliceData(piece)), len(piece), toDevice, m.stream)
	}
	if m.pinned.stages(len(from)) {
		return m.pinned.up(from, start, m.Wait)
	}
	return errors.Join(start(0, from), m.Wait())
}

func (m *memory) Read(to []byte, from unsafe.Pointer) error {
	start := func(piece []byte, at int) error {
		return m.start(unsafe.Pointer(unsafe.SliceData(piece)), unsafe.Add(from, at), len(piece), toHost, m.stream)
	}
	if m.pinned.stages(len(to)) {
		return m.pinned.down(to, start, m.Wait)
	}
	return errors.Join(start(to, 0), m.Wait())
}

// start begins a copy on a stream.
func (m *memory) start(to, from unsafe.Pointer, bytes int, kind C.int, stream unsafe.Pointer) error {
	return cudaError(C.onering_cuda_copy(m.id, to, from, C.size_t(bytes), kind, stream))
}

func (m *memory) Zero(at unsafe.Pointer, bytes int) error {
	return cudaError(C.onering_cuda_zero(m.id, at, C.size_t(bytes), m.stream))
}

// CopyRuns implements runtime.Driver: it copies each array's runs of bytes, on the device.
func (m *memory) CopyRuns(to, from []unsafe.Pointer, runs []runtime.Runs) error {
	for i := range to {
		for _, r := range runs {
			code := C.onering_cuda_copy_runs(m.id, unsafe.Add(to[i], r.To), C.size_t(r.Stride), unsafe.Add(from[i], r.From),
				C.size_t(r.FromStride), C.size_t(r.Width), C.size_t(r.Count), m.stream)
			if err := cudaError(code); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *memory) Wait() error { return cudaError(C.onering_cuda_wait(m.id, m.stream)) }

// Close does nothing: the stream exists until the process ends.
func (m *memory) Close() {}
