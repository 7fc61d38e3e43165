package runtime

// #include <stdlib.h>
// #include "cuda.h"
// #include "ort.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// A cudaMemory is the memory of one NVIDIA GPU. It and the CUDA provider use the
// same CUDA stream, which keeps their work in order.
type cudaMemory struct {
	traffic
	id         C.int
	tf32       bool // see Options.TF32
	stream     unsafe.Pointer
	memoryInfo *C.OrtMemoryInfo
	options    *C.OrtRunOptions
	thread
	addressed
}

// newCUDAMemory opens the CUDA runtime for GPU id. To run sessions on it, call
// describe first.
func newCUDAMemory(cudart string, id int, tf32 bool) (*cudaMemory, error) {
	m := &cudaMemory{id: C.int(id), tf32: tf32, thread: newThread()}
	name := C.CString(cudart)
	defer C.free(unsafe.Pointer(name))
	var msg *C.char
	if C.onering_cuda_open(name, m.id, &m.stream, &msg) != 0 {
		defer C.free(unsafe.Pointer(msg))
		return nil, fmt.Errorf("runtime: cuda:%d: %s", id, C.GoString(msg))
	}
	return m, nil
}

// describe prepares what ONNX Runtime needs to run sessions on the memory.
func (m *cudaMemory) describe() error {
	name := C.CString("Cuda")
	defer C.free(unsafe.Pointer(name))
	if err := check(C.onering_device_memory(name, m.id, &m.memoryInfo)); err != nil {
		return fmt.Errorf("runtime: describing the memory of %s: %w", m, err)
	}
	// By default ONNX Runtime waits for the GPU after each run, which would leave it
	// idle between layers. The stream keeps the order without that.
	if err := check(C.onering_unsynchronized(&m.options)); err != nil {
		return fmt.Errorf("runtime: run options: %w", err)
	}
	return nil
}

func (m *cudaMemory) check(doing string, code C.int) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("cuda:%d: %s: %s", m.id, doing, C.GoString(C.onering_cuda_text(code)))
}

func (m *cudaMemory) alloc(bytes int) (at unsafe.Pointer, err error) {
	err = m.check(fmt.Sprintf("allocating %d bytes", bytes), C.onering_cuda_alloc(m.id, C.size_t(bytes), &at))
	return at, err
}

func (m *cudaMemory) free(at unsafe.Pointer) { C.onering_cuda_free(m.id, at) }
func (m *cudaMemory) aliases() bool          { return false }

func (m *cudaMemory) upload(to, from unsafe.Pointer, bytes int) error {
	m.count(bytes, 0)
	if err := m.check("copying to it", C.onering_cuda_copy(m.id, to, from, C.size_t(bytes), 1, m.stream)); err != nil {
		return err
	}
	return m.wait()
}

func (m *cudaMemory) download(to, from unsafe.Pointer, bytes int) error {
	m.count(0, bytes)
	if err := m.check("copying from it", C.onering_cuda_copy(m.id, to, from, C.size_t(bytes), 2, m.stream)); err != nil {
		return err
	}
	return m.wait()
}

func (m *cudaMemory) zero(at unsafe.Pointer, bytes int) error {
	return m.check("clearing its memory", C.onering_cuda_zero(m.id, at, C.size_t(bytes), m.stream))
}

func (m *cudaMemory) copyRuns(to unsafe.Pointer, stride int, from unsafe.Pointer, fromStride, width, runs int) error {
	if width == 0 || runs == 0 {
		return nil
	}
	if runs == 1 {
		stride, fromStride = width, width // CUDA refuses strides below the width
	}
	return m.check("copying within it", C.onering_cuda_copy_runs(m.id, to, C.size_t(stride), from, C.size_t(fromStride), C.size_t(width), C.size_t(runs), m.stream))
}

func (m *cudaMemory) wait() error {
	return m.check("computing", C.onering_cuda_wait(m.id, m.stream))
}

func (m *cudaMemory) info() *C.OrtMemoryInfo       { return m.memoryInfo }
func (m *cudaMemory) runOptions() *C.OrtRunOptions { return m.options }

func (m *cudaMemory) provider(o *C.OrtSessionOptions) error {
	return useCUDA(o, int(m.id), m.stream, m.tf32)
}

func (m *cudaMemory) addsInOrder() bool { return false }

func (m *cudaMemory) elementwise() int { return elementwiseOnDevice }
func (m *cudaMemory) String() string   { return fmt.Sprintf("cuda:%d", m.id) }
