package runtime

// #include <stdlib.h>
// #include "cuda.h"
// #include "ort.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"onering/runtime/internal/buffers"
	"onering/runtime/provision"
)

// A cudaBuffers is the memory of one NVIDIA GPU, which has addresses. It and the CUDA
// provider use the same CUDA stream, which keeps their work in order.
type cudaBuffers struct {
	id     C.int
	stream unsafe.Pointer
	pinned *buffers.Pinned // nil where there is none
}

// openCUDA returns the memory of GPU id.
func openCUDA(o Options, id int) (*memory, error) {
	m, d, err := newCUDAMemory(provision.CUDARuntimeLibrary, id)
	if err != nil {
		return nil, err
	}
	if err := d.pin(); err != nil && o.Notice != nil {
		o.Notice(fmt.Sprintf("copies between %s and the host are slower than they could be, through memory that is not pinned: %v", m, err))
	}
	m.provider = func(s *C.OrtSessionOptions) error { return useCUDA(s, id, d.stream, o.TF32) }
	if err := m.describe("Cuda", id); err != nil {
		return nil, err
	}
	if m.borrowed, err = deviceMemory("CudaPinned", id); err != nil {
		return nil, err
	}
	// By default ONNX Runtime waits for the GPU after each run, which would leave it
	// idle between layers. The stream keeps the order without that.
	if err := check(C.onering_unsynchronized(&m.runs)); err != nil {
		return nil, fmt.Errorf("runtime: run options: %w", err)
	}
	if !process.shared[id] {
		// For the same reason as shareArena has on the CPU.
		if err := check(C.onering_share_cuda(process.env, C.int(id))); err == nil {
			process.shared[id] = true
		} else if o.Notice != nil {
			o.Notice(fmt.Sprintf("on %s each session keeps memory of its own: %v", m, err))
		}
	}
	return m, nil
}

// newCUDAMemory opens the CUDA runtime for GPU id. Sessions cannot run on it yet.
func newCUDAMemory(cudart string, id int) (*memory, *cudaBuffers, error) {
	m := &memory{name: fmt.Sprintf("cuda:%d", id), thread: newThread(), elementwise: elementwiseOnDevice}
	d := &cudaBuffers{id: C.int(id)}
	library := C.CString(cudart)
	defer C.free(unsafe.Pointer(library))
	var msg *C.char
	if C.onering_cuda_open(library, d.id, &d.stream, &msg) != 0 {
		defer C.free(unsafe.Pointer(msg))
		return nil, nil, fmt.Errorf("runtime: %s: %s", m, C.GoString(msg))
	}
	m.Memory = buffers.New(m.name, d, d, 0)
	return m, d, nil
}

// cudaError returns a code of the CUDA runtime as an error.
func cudaError(code C.int) error {
	if code == 0 {
		return nil
	}
	return errors.New(C.GoString(C.onering_cuda_text(code)))
}

func (d *cudaBuffers) Alloc(bytes int) (at unsafe.Pointer, err error) {
	err = cudaError(C.onering_cuda_alloc(d.id, C.size_t(bytes), &at))
	return at, err
}

func (d *cudaBuffers) Free(at unsafe.Pointer) { C.onering_cuda_free(d.id, at) }

// unpinned in the environment with any value but "" has copies go without pinned memory,
// for measuring what it brings.
const unpinned = "ONERING_UNPINNED"

// pin allocates the memory through which large copies go. It stays until the process
// ends, as the stream does.
func (d *cudaBuffers) pin() error {
	if os.Getenv(unpinned) != "" {
		return fmt.Errorf("%s is set", unpinned)
	}
	var at unsafe.Pointer
	switch code := C.onering_cuda_pinned(d.id, 2*buffers.PinnedPart, &at); {
	case code < 0:
		return errors.New("CUDA's runtime lacks the function cudaHostAlloc")
	case code > 0:
		return fmt.Errorf("allocating %d bytes: %w", 2*buffers.PinnedPart, cudaError(code))
	}
	d.pinned = buffers.NewPinned(at)
	return nil
}

func (d *cudaBuffers) Write(to buffers.Place, from []byte) error {
	const toDevice = 1
	start := func(at int, piece []byte) error {
		return d.start(unsafe.Add(to.Address(), at), unsafe.Pointer(unsafe.SliceData(piece)), len(piece), toDevice)
	}
	if d.pinned.Stages(len(from)) {
		return d.pinned.Up(from, start, d.Wait)
	}
	return errors.Join(start(0, from), d.Wait())
}

func (d *cudaBuffers) Read(to []byte, from buffers.Place) error {
	const toHost = 2
	start := func(piece []byte, at int) error {
		return d.start(unsafe.Pointer(unsafe.SliceData(piece)), unsafe.Add(from.Address(), at), len(piece), toHost)
	}
	if d.pinned.Stages(len(to)) {
		return d.pinned.Down(to, start, d.Wait)
	}
	return errors.Join(start(to, 0), d.Wait())
}

// start begins to copy.
func (d *cudaBuffers) start(to, from unsafe.Pointer, bytes int, kind C.int) error {
	return cudaError(C.onering_cuda_copy(d.id, to, from, C.size_t(bytes), kind, d.stream))
}

func (d *cudaBuffers) Zero(at []buffers.Place, bytes []int) error {
	for i, n := range bytes {
		if err := cudaError(C.onering_cuda_zero(d.id, at[i].Address(), C.size_t(n), d.stream)); err != nil {
			return err
		}
	}
	return nil
}

func (d *cudaBuffers) CopyRuns(to, from []buffers.Place, runs []buffers.Runs) error {
	for i := range to {
		for _, r := range runs {
			code := C.onering_cuda_copy_runs(d.id, unsafe.Add(to[i].Address(), r.To), C.size_t(r.Stride), unsafe.Add(from[i].Address(), r.From), C.size_t(r.FromStride), C.size_t(r.Width), C.size_t(r.Count), d.stream)
			if err := cudaError(code); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *cudaBuffers) Wait() error { return cudaError(C.onering_cuda_wait(d.id, d.stream)) }

// Close does nothing: the stream is the process's until it ends.
func (d *cudaBuffers) Close() {}
