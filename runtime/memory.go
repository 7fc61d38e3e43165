package runtime

// #include <stdlib.h>
// #include "ort.h"
import "C"

import (
	"fmt"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"onering/models/moves"
	"onering/runtime/internal/buffers"
)

// A memory is where the sessions of an Env find their tensors, the host's or a
// device's, and how they run on it. It is all that differs between devices: to run on
// another kind, write a buffers.Driver and a function that opens its memory, and let
// parseDevice and openMemory know them.
type memory struct {
	buffers.Memory
	thread // on which all runs are

	name string           // as Options.Device has it
	info *C.OrtMemoryInfo // describes the memory to ONNX Runtime; nil until the library is loaded
	runs *C.OrtRunOptions // of runs that return before they are complete; nil if none does
	// borrowed describes the host's memory that unfinished runs hold; nil if none does.
	borrowed *C.OrtMemoryInfo
	moves    *graphMoves      // nil if the device itself moves its bytes
	load     func(*Env) error // opens what takes sessions; nil if nothing does
	// provider adds the device's execution provider to the options of a session; nil
	// means the CPU.
	provider func(*C.OrtSessionOptions) error
	// elementwise is how many elements an element-wise Program, such as the optimizer's,
	// should process in one run.
	elementwise int
	// largest is how many bytes a buffer has at most that a kernel takes whole; 0 is no limit.
	largest int64
	// addsInOrder reports whether ScatterND adds rows of the same index in the order in
	// which they come. Else the last bits of their sum change from run to run.
	addsInOrder bool
	ran         func(*Binding) // called after each run; nil but on a stand-in
}

func (m *memory) String() string { return m.name }

// close frees what is still allocated.
func (m *memory) close() {
	m.Memory.Close()
	if m.moves != nil {
		m.moves.close()
	}
}

// describe sets info to memory of a device, by ONNX Runtime's name for its kind.
func (m *memory) describe(kind string, id int) (err error) {
	m.info, err = deviceMemory(kind, id)
	return err
}

// deviceMemory describes memory of a device to ONNX Runtime, by its name for the kind.
func deviceMemory(kind string, id int) (info *C.OrtMemoryInfo, err error) {
	name := C.CString(kind)
	defer C.free(unsafe.Pointer(name))
	if err := check(C.onering_device_memory(name, C.int(id), &info)); err != nil {
		return nil, fmt.Errorf("runtime: describing the memory %s of device %d: %w", kind, id, err)
	}
	return info, nil
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

// do calls f on the thread and returns when f has. The zero thread is the caller's.
func (t thread) do(f func()) {
	if t.work == nil {
		f()
		return
	}
	done := make(chan struct{})
	t.work <- func() { f(); close(done) }
	<-done
}

// newBytes returns n zero bytes, aligned for elements of any type.
func newBytes(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

// mirror returns bytes of the host that stand for those at an address. In a memory
// that aliases they are the same bytes. Else they are to be copied by upload and
// download, and are those of spare if it is large enough.
func mirror(m *memory, at unsafe.Pointer, bytes int, spare []byte) []byte {
	switch {
	case m.Aliases():
		return unsafe.Slice((*byte)(at), bytes)
	case cap(spare) >= bytes:
		return spare[:bytes]
	}
	return newBytes(bytes)
}

// host is the host's memory, which all Envs on the CPU share.
var host = &memory{Memory: heap{}, name: "cpu", elementwise: elementwiseOnHost, addsInOrder: true}

// A heap is Go's, where sessions on the CPU read and write.
type heap struct{}

func (heap) Alloc(bytes int, _ []int) (unsafe.Pointer, error) {
	return unsafe.Pointer(unsafe.SliceData(newBytes(bytes))), nil
}

// Free does nothing: the garbage collector frees the memory.
func (heap) Free(unsafe.Pointer) {}

func (heap) Aliases() bool                                           { return true }
func (heap) Cuts() bool                                              { return false }
func (heap) Tensor(at unsafe.Pointer, _ int) (unsafe.Pointer, error) { return at, nil }
func (heap) Count(up, down int)                                      {}
func (heap) Crossed() (up, down int64)                               { return 0, 0 }
func (heap) Wait() error                                             { return nil }
func (heap) Check(err error) error                                   { return err }
func (heap) Close()                                                  {}

func (heap) Upload(to, from unsafe.Pointer, bytes int) error {
	if to != from {
		copy(unsafe.Slice((*byte)(to), bytes), unsafe.Slice((*byte)(from), bytes))
	}
	return nil
}

func (h heap) Download(to, from unsafe.Pointer, bytes int) error { return h.Upload(to, from, bytes) }

// Zero has several threads clear gradients: the first time, the system gives each page
// when it is written.
func (heap) Zero(at unsafe.Pointer, bytes int) error {
	const part = 16 << 20
	all := unsafe.Slice((*byte)(at), bytes)
	atOnce(goruntime.GOMAXPROCS(0), (bytes+part-1)/part, func(i int) { clear(all[i*part : min((i+1)*part, bytes)]) })
	return nil
}

func (h heap) CopyRuns(to, from []unsafe.Pointer, runs ...buffers.Runs) error {
	for i := range to {
		for _, r := range runs {
			r.Each(func(a, b int) { h.Upload(unsafe.Add(to[i], a), unsafe.Add(from[i], b), r.Width) })
		}
	}
	return nil
}

// atOnce calls run with each number below n, on so many threads at once.
func atOnce(threads, n int, run func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	work := func() {
		for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
			run(int(i))
		}
	}
	for range min(threads, n) - 1 {
		group.Go(work)
	}
	work()
	group.Wait()
}

// openStandIn returns a device for tests, whose sessions run on the CPU. With a grain
// it has handles and no addresses, and graphs move its bytes, as with WebGPU.
// After so many calls it is lost, if lost is above 0.
func openStandIn(name string, grain, lost int) *memory {
	m := &memory{name: name, info: host.info, elementwise: elementwiseOnDevice, addsInOrder: true}
	driver := buffers.StandIn{Grain: grain}
	if lost > 0 {
		driver.Calls = new(atomic.Int64)
		driver.Calls.Store(int64(lost))
	}
	if grain == 0 {
		m.Memory = buffers.New(name, driver, driver, grain)
		return m
	}
	m.moves = &graphMoves{memory: m}
	device := buffers.New(name, driver, m.moves, grain)
	m.Memory, m.load = device, m.moves.load
	m.ran = func(b *Binding) {
		if strings.HasPrefix(b.s.name, moves.Prefix) {
			return // their kernels write nothing else: TestMemoriesCut
		}
		for _, v := range b.bound[output] {
			if v == nil || v.memory != m || v.bytes == 0 {
				continue
			}
			if p, err := device.Place(v.data, v.bytes); err == nil {
				driver.Spill(p, v.bytes)
			}
		}
	}
	return m
}

// The sizes of memory.elementwise.
const (
	// elementwiseOnHost is so small that an operator finds the results of the one
	// before it in the processor's cache.
	elementwiseOnHost = 1 << 18
	// elementwiseOnDevice is so large that starting the kernels takes little of the
	// time. It is bounded because the results between two operators take memory.
	elementwiseOnDevice = 1 << 24
)
