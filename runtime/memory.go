package runtime

// #include <stdlib.h>
// #include "ort.h"
import "C"

import (
	"fmt"
	goruntime "runtime"
	"unsafe"

	"onering/models"
)

// A memory is a device, or the host: where its tensors lie and how sessions run on it.
// Nothing else differs between devices.
type memory struct {
	storage
	Backend
	thread // the thread of all runs

	name string           // as Options.Device has it
	info *C.OrtMemoryInfo // the memory for ONNX Runtime; nil until the library is loaded
	runs *C.OrtRunOptions // options of runs that return before they are complete; nil if none does
	// borrowed describes the host's memory that unfinished runs hold; nil if none does.
	borrowed *C.OrtMemoryInfo
	// elementwise is how many elements an element-wise Program, such as the optimizer's,
	// should process in one run.
	elementwise int
	ran         func(*Binding) // called after each run of a stand-in; else nil
}

func (m *memory) String() string { return m.name }

// gpu reports whether the provider has its own kernels, which may be compiled anew for
// each size.
func (m *memory) gpu() bool { return m.Execution != "" }

// openMemory returns the memory of a device.
func openMemory(o Options, d device) (*memory, error) {
	if d.provider == (cpu{}) {
		return host, nil
	}
	b, err := d.provider.Open(o, d.number, process.path)
	if err != nil {
		return nil, err
	}
	m := &memory{storage: newStorage(d.String(), b.Driver), Backend: *b, name: d.String(), info: host.info, elementwise: elementwiseOnDevice}
	if m.gpu() {
		m.thread = newThread()
	}
	return m, m.open(o)
}

// open makes what sessions on the device need from ONNX Runtime.
func (m *memory) open(o Options) (err error) {
	if m.Kind != "" {
		if m.info, err = deviceMemory(m.Kind, m.ID); err != nil {
			return err
		}
	}
	if m.Borrowed != "" {
		if m.borrowed, err = deviceMemory(m.Borrowed, m.ID); err != nil {
			return err
		}
		// By default ONNX Runtime waits for the GPU after each run, which would leave it
		// idle between layers. The device keeps the order anyway.
		if err := check(C.onering_unsynchronized(&m.runs)); err != nil {
			return fmt.Errorf("runtime: run options: %w", err)
		}
	}
	if m.Arena && !process.has[m.name] {
		execution, kind := C.CString(m.Execution), C.CString(m.Kind)
		defer C.free(unsafe.Pointer(execution))
		defer C.free(unsafe.Pointer(kind))
		if err := check(C.onering_share(process.env, execution, kind, C.int(m.ID))); err == nil {
			process.has[m.name] = true
		} else if o.Notice != nil {
			o.Notice(fmt.Sprintf("on %s each session keeps memory of its own: %v", m, err))
		}
	}
	return nil
}

// provide adds the provider to the options of a session.
func (m *memory) provide(o *C.OrtSessionOptions) error {
	if m.Append == nil {
		return nil
	}
	return m.Append(unsafe.Pointer(C.onering_functions()), unsafe.Pointer(o))
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

// A storage is the host's memory or a device's.
//
// Addresses. Alloc returns an address, and that of byte n is at + n. Go code only passes
// a device's addresses on. Addresses are a multiple of 8 on the host, of 64 or more on a
// device. Bytes copied by one call are of one allocation.
//
// Copies. Upload copies from the host and Download to the host. Both are complete when
// they return, so the host's bytes may be changed or read at once. Zero sets bytes to
// 0. CopyRuns copies runs of width bytes within the memory: run i from
// from + i*fromStride to to + i*stride. Runs do not overlap.
//
// Order. All calls on one storage, and all runs of sessions on it, take effect in the
// order in which they were made. Zero, CopyRuns and runs may return before they are
// complete. Upload, Download and Wait return after everything before them is complete.
type storage interface {
	// Alloc reserves bytes, at least 1, of unknown content.
	Alloc(bytes int) (unsafe.Pointer, error)
	// Free takes a result of Alloc, after the caller has waited for the last run that
	// uses it, or ordered the call behind that run.
	Free(at unsafe.Pointer)
	Upload(to, from unsafe.Pointer, bytes int) error
	Download(to, from unsafe.Pointer, bytes int) error
	Zero(at unsafe.Pointer, bytes int) error
	CopyRuns(to, from []unsafe.Pointer, runs ...Runs) error
	Wait() error
	// Check returns err, or if something failed and the device no longer answers, an
	// error that wraps ErrLost. After that, Check and all other calls return this error.
	Check(err error) error

	// Within returns an error if bytes from at on do not lie in one allocation. A tensor
	// may begin there at any multiple of its element's size.
	Within(at unsafe.Pointer, bytes int) error
	// Aliases reports whether addresses are the host's: Go code reads and writes them,
	// and Upload and Download copy nothing if both addresses are the same.
	Aliases() bool

	// Count adds the bytes of one copy from the host or to the host to the counts of
	// Crossed. Upload and Download count theirs; the caller counts those of the host's
	// values that sessions read and write. The host's memory counts nothing.
	Count(up, down int)
	Crossed() (up, down int64)
	// Close frees everything that is still allocated.
	Close()
}

// A thread runs functions on one thread of the system. Go's code moves between threads,
// and the providers of devices keep state by thread: CUDA's has cuBLAS handles and
// cuDNN's compiled kernels for each thread.
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

// do calls f on the thread and returns after f. The zero thread is the caller's thread.
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

// mirror returns bytes of the host that stand for those at an address. In the host's
// memory they are the same bytes. Otherwise upload and download copy them, and spare is
// used if it is large enough.
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
var host = &memory{storage: heap{}, Backend: Backend{InOrder: true}, name: "cpu", elementwise: elementwiseOnHost}

// A heap is Go's heap, where sessions on the CPU read and write.
type heap struct{}

func (heap) Alloc(bytes int) (unsafe.Pointer, error) {
	return unsafe.Pointer(unsafe.SliceData(newBytes(bytes))), nil
}

// Free does nothing: the garbage collector frees the memory.
func (heap) Free(unsafe.Pointer) {}

func (heap) Aliases() bool                    { return true }
func (heap) Within(unsafe.Pointer, int) error { return nil }
func (heap) Count(up, down int)               {}
func (heap) Crossed() (up, down int64)        { return 0, 0 }
func (heap) Wait() error                      { return nil }
func (heap) Check(err error) error            { return err }
func (heap) Close()                           {}

func (heap) Upload(to, from unsafe.Pointer, bytes int) error {
	if to != from {
		copy(unsafe.Slice((*byte)(to), bytes), unsafe.Slice((*byte)(from), bytes))
	}
	return nil
}

func (h heap) Download(to, from unsafe.Pointer, bytes int) error { return h.Upload(to, from, bytes) }

// Zero clears gradients with several threads: in the first call, the system provides each
// page as it is written.
func (heap) Zero(at unsafe.Pointer, bytes int) error {
	const part = 16 << 20
	all := unsafe.Slice((*byte)(at), bytes)
	models.AtOnce(goruntime.GOMAXPROCS(0), (bytes+part-1)/part, func(i int) { clear(all[i*part : min((i+1)*part, bytes)]) })
	return nil
}

func (h heap) CopyRuns(to, from []unsafe.Pointer, runs ...Runs) error {
	for i := range to {
		for _, r := range runs {
			r.Each(func(a, b int) { h.Upload(unsafe.Add(to[i], a), unsafe.Add(from[i], b), r.Width) })
		}
	}
	return nil
}

// Values of memory.elementwise.
const (
	// elementwiseOnHost is so small that an operator finds the results of the previous
	// operator in the processor's cache.
	elementwiseOnHost = 1 << 18
	// elementwiseOnDevice is so large that starting the kernels takes little of the
	// time. It is bounded because the results between two operators take memory.
	elementwiseOnDevice = 1 << 24
)
