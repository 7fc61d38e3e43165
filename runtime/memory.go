package runtime

// #include "ort.h"
import "C"

import (
	goruntime "runtime"
	"sync/atomic"
	"unsafe"
)

// A memory is where the sessions of an Env find their tensors: the host's, or a
// device's. It is all that differs between devices: to run on another kind,
// implement it and let parseDevice and openMemory know it.
//
// Allocation. alloc reserves bytes, at least 1, of unknown content and returns
// their address. The address of byte n is at + n. free takes what alloc returned,
// after the last run that uses it has been waited for or ordered before.
//
// A device may have handles of buffers and no addresses. It then gives each
// allocation a range of numbers, which stand for addresses, and tensor finds the
// handle of one. A Value may begin only where a buffer does: at the start of an
// allocation, or where cut has said that one begins. cuts reports whether a device
// needs that.
//
// Alignment. alloc returns a multiple of 8 on the host, of 64 or more on a device.
// A Value may begin at any multiple of its element's size within an allocation.
//
// Aliasing. If aliases returns true, addresses are the host's: Go reads and writes
// them, upload and download copy nothing if both addresses are the same, and
// NewValue's tensors are in this memory too. If it returns false, Go code only
// passes addresses on.
//
// Copies. upload copies from the host and download to the host. Both are complete
// when they return, so the host's bytes may be changed or read at once. zero sets
// bytes to 0. copyRuns copies runs of width bytes within the memory: run i from
// from + i*fromStride to to + i*stride. Runs do not overlap.
//
// Synchronisation. All calls on one memory and all runs of its sessions take
// effect in the order in which they were made. zero, copyRuns and runs may return
// before they are complete. upload, download and wait return after everything
// before them is complete.
//
// Counting. A memory that does not alias counts the bytes that cross between it
// and the host, both those of upload and download and those of host values that
// its sessions read and write.
type memory interface {
	alloc(bytes int) (unsafe.Pointer, error)
	free(at unsafe.Pointer)
	aliases() bool
	upload(to, from unsafe.Pointer, bytes int) error
	download(to, from unsafe.Pointer, bytes int) error
	zero(at unsafe.Pointer, bytes int) error
	copyRuns(to unsafe.Pointer, stride int, from unsafe.Pointer, fromStride, width, runs int) error
	wait() error

	// cuts reports whether Values may begin only at the start of an allocation and
	// at the edges, in bytes from it, that cut was given before its first use.
	cuts() bool
	cut(at unsafe.Pointer, edges []int)
	// tensor returns what ONNX Runtime is given as the address of a tensor.
	tensor(at unsafe.Pointer, bytes int) (unsafe.Pointer, error)

	// count adds to what crossed returns: the bytes copied from the host and those
	// copied to the host.
	count(up, down int)
	crossed() (up, down int64)

	// info describes the memory to ONNX Runtime. provider adds the execution
	// provider of the device to the options of a session. runOptions are the options
	// of every run; nil means the default.
	info() *C.OrtMemoryInfo
	provider(o *C.OrtSessionOptions) error
	runOptions() *C.OrtRunOptions
	// do calls f, which runs a session, on the thread that the device needs.
	do(f func())
	// elementwise returns how many elements an element-wise Program, such as the
	// optimizer's, should process in one run.
	elementwise() int
	// addsInOrder reports whether ScatterND adds rows of the same index in the order
	// in which they come. Else the last bits of their sum change from run to run.
	addsInOrder() bool
	// String names the device, as Options.Device does.
	String() string
}

// addressed is what memories with addresses have in common: Values may begin anywhere.
type addressed struct{}

func (addressed) cuts() bool                { return false }
func (addressed) cut(unsafe.Pointer, []int) {}
func (addressed) tensor(at unsafe.Pointer, _ int) (unsafe.Pointer, error) {
	return at, nil
}

// A thread runs functions on one thread of the system. Go's code moves between
// threads, and the providers of devices keep state by thread: CUDA's has handles of
// cuBLAS and the kernels that cuDNN compiled for each thread anew.
type thread struct{ work chan func() }

func newThread() thread {
	t := thread{make(chan func())}
	go func() {
		goruntime.LockOSThread()
		for f := range t.work {
			f()
		}
	}()
	return t
}

// do calls f on the thread and returns when f has.
func (t thread) do(f func()) {
	done := make(chan struct{})
	t.work <- func() { f(); close(done) }
	<-done
}

// traffic counts the bytes that cross between the host and a device.
type traffic struct{ up, down atomic.Int64 }

func (t *traffic) count(up, down int) {
	t.up.Add(int64(up))
	t.down.Add(int64(down))
}

func (t *traffic) crossed() (up, down int64) { return t.up.Load(), t.down.Load() }

// newBytes returns n zero bytes, aligned for elements of any type.
func newBytes(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

// mirror returns bytes of the host that stand for those at an address. In a memory
// that aliases they are the same bytes. Else they are to be copied by upload and
// download, and are those of spare if it is large enough.
func mirror(m memory, at unsafe.Pointer, bytes int, spare []byte) []byte {
	switch {
	case m.aliases():
		return unsafe.Slice((*byte)(at), bytes)
	case cap(spare) >= bytes:
		return spare[:bytes]
	}
	return newBytes(bytes)
}

// host is the host's memory, which all Envs on the CPU share.
var host = &hostMemory{}

// A hostMemory is the Go heap, where sessions on the CPU read and write.
type hostMemory struct {
	traffic
	addressed
}

func (*hostMemory) alloc(bytes int) (unsafe.Pointer, error) {
	return unsafe.Pointer(unsafe.SliceData(newBytes(bytes))), nil
}

// free does nothing: the garbage collector frees the memory.
func (*hostMemory) free(unsafe.Pointer) {}

func (*hostMemory) aliases() bool { return true }

func (*hostMemory) upload(to, from unsafe.Pointer, bytes int) error {
	if to != from {
		copy(unsafe.Slice((*byte)(to), bytes), unsafe.Slice((*byte)(from), bytes))
	}
	return nil
}

func (m *hostMemory) download(to, from unsafe.Pointer, bytes int) error {
	return m.upload(to, from, bytes)
}

// zero has several threads clear gradients: the first time, the system gives each page
// when it is written.
func (*hostMemory) zero(at unsafe.Pointer, bytes int) error {
	const part = 16 << 20
	all := unsafe.Slice((*byte)(at), bytes)
	atOnce(goruntime.GOMAXPROCS(0), (bytes+part-1)/part, func(i int) { clear(all[i*part : min((i+1)*part, bytes)]) })
	return nil
}

func (m *hostMemory) copyRuns(to unsafe.Pointer, stride int, from unsafe.Pointer, fromStride, width, runs int) error {
	for i := range runs {
		m.upload(unsafe.Add(to, i*stride), unsafe.Add(from, i*fromStride), width)
	}
	return nil
}

func (*hostMemory) wait() error                         { return nil }
func (*hostMemory) info() *C.OrtMemoryInfo              { return process.memoryInfo }
func (*hostMemory) provider(*C.OrtSessionOptions) error { return nil }
func (*hostMemory) runOptions() *C.OrtRunOptions        { return nil }
func (*hostMemory) do(f func())                         { f() }
func (*hostMemory) addsInOrder() bool                   { return true }
func (*hostMemory) elementwise() int                    { return elementwiseOnHost }
func (*hostMemory) String() string                      { return "cpu" }

// The results of elementwise.
const (
	// elementwiseOnHost is so small that an operator finds the results of the one
	// before it in the processor's cache.
	elementwiseOnHost = 1 << 18
	// elementwiseOnDevice is so large that starting the kernels takes little of the
	// time. It is bounded because the results between two operators take memory.
	elementwiseOnDevice = 1 << 24
)
