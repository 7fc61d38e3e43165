package runtime

// #include <stdlib.h>
// #include "ort.h"
import "C"

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"unsafe"

	"onering/models"
	"onering/runtime/kernels"
	hostkernels "onering/runtime/kernels/host"
)

// A memory is a device, or the host: where its tensors lie and how sessions run on it.
// Nothing else differs between devices. It may be used from several goroutines.
//
// Addresses. Alloc returns an address, and that of byte n is at + n. Go code only passes
// a device's addresses on. Addresses are a multiple of 8 on the host, of 64 or more on a
// device. Bytes copied by one call are of one allocation.
//
// Copies. Upload copies from the host and Download to the host. Both are complete when
// they return, so the host's bytes may be changed or read at once. Zero sets bytes to
// 0. CopyRuns copies runs within the memory, which do not overlap.
//
// Order. All calls on one memory, and all runs of sessions on it, take effect in the
// order in which they were made. Zero, CopyRuns and runs may return before they are
// complete. Upload, Download and Wait return after everything before them is complete.
type memory struct {
	Backend
	work         chan func()      // what the thread of all runs calls; nil if they use the caller's
	name         string           // as Options.Device has it
	info         *C.OrtMemoryInfo // the memory for ONNX Runtime; nil until the library is loaded
	asyncOptions *C.OrtRunOptions // options of runs that return before they are complete; nil if none does
	// borrowed describes the host's memory that unfinished runs hold; nil if none does.
	borrowed *C.OrtMemoryInfo
	// elementsAtOnce is how many elements an element-wise Program, such as the optimizer's,
	// should process in one run.
	elementsAtOnce int

	lost        atomic.Pointer[error] // the error that Check returns from then on
	up, down    atomic.Int64          // bytes that crossed
	mu          sync.Mutex
	closed      bool
	allocations []allocation // by address; none on the host, where the garbage collector frees
}

// An allocation is memory of a device.
type allocation struct {
	at    unsafe.Pointer
	bytes int
}

func (m *memory) String() string { return m.name }

// gpu reports whether the provider has its own kernels, which may be compiled anew for each size.
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
	m := newMemory(d.String(), *b)
	if m.gpu() {
		m.work = startThread()
	}
	return m, m.open(o)
}

func newMemory(name string, b Backend) *memory {
	return &memory{Backend: b, name: name, info: host.info, elementsAtOnce: elementwiseOnDevice}
}

// open makes what sessions on a GPU need from ONNX Runtime: descriptions of its memory, options of runs that do not
// wait, and once for all sessions an allocator that they share. Without the last they work, too, so Notice is
// told.
func (m *memory) open(o Options) (err error) {
	if !m.gpu() {
		return nil
	}
	if m.info, err = deviceMemory(m.Kind, m.ID); err != nil {
		return err
	}
	if m.borrowed, err = deviceMemory(m.Kind+"Pinned", m.ID); err != nil { // host memory that unfinished runs hold
		return err
	}
	// By default ONNX Runtime waits for the GPU after each run, which would leave it idle
	// between layers. The device keeps the order anyway.
	if err := check(C.onering_unsynchronized(&m.asyncOptions)); err != nil {
		return fmt.Errorf("runtime: run options: %w", err)
	}
	// Sessions share one allocator, as on the CPU; see shareArena.
	if !process.allocators[m.name] {
		execution, kind := C.CString(m.Execution), C.CString(m.Kind)
		defer C.free(unsafe.Pointer(execution))
		defer C.free(unsafe.Pointer(kind))
		if err := check(C.onering_share(process.env, execution, kind, C.int(m.ID))); err == nil {
			process.allocators[m.name] = true
		} else if o.Notice != nil {
			o.Notice(fmt.Sprintf("on %s each session keeps memory of its own: %v", m, err))
		}
	}
	return nil
}

// provide adds the provider to the options of a session; on the host, our operators where the Program has some.
func (m *memory) provide(o *C.OrtSessionOptions, p models.Program) error {
	if m.Append == nil || m == host && !kernels.In(p) {
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

// IsHost reports whether addresses are the host's: Go code reads and writes them, and
// Upload and Download copy nothing if both addresses are the same.
func (m *memory) IsHost() bool { return m == host }

// Check returns err, or if something failed and the device no longer answers, an error
// that wraps ErrLost. After that, Check and all other calls return this error.
func (m *memory) Check(err error) error {
	if lost := m.lost.Load(); lost != nil {
		return *lost
	}
	if err == nil || m.Driver.Wait() == nil {
		return err
	}
	lost := fmt.Errorf("%s: %w; resume a run from its newest checkpoint (--resume) and start anything else again, "+
		"here once the device is back or with another --device: %w", m, ErrLost, err)
	m.lost.CompareAndSwap(nil, &lost)
	return *m.lost.Load()
}

// try calls f, unless the device is lost. An error of f says what it was doing.
func (m *memory) try(doing string, f func() error) error {
	if err := m.Check(nil); err != nil {
		return err
	}
	err := f()
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", m, doing, err)
	}
	return m.Check(err)
}

// Count adds the bytes of one copy from the host or to the host to the counts of Crossed. Upload and Download count
// theirs; the caller counts those of the host's values that sessions read and write. Nothing crosses on the host.
func (m *memory) Count(up, down int) {
	if m.IsHost() {
		return
	}
	m.up.Add(int64(up))
	m.down.Add(int64(down))
}

// Crossed returns how many bytes were copied to a device and from it.
func (m *memory) Crossed() (up, down int64) { return m.up.Load(), m.down.Load() }

// Alloc reserves bytes, at least 1, of unknown content.
func (m *memory) Alloc(bytes int) (at unsafe.Pointer, err error) {
	err = m.try(fmt.Sprintf("allocating %d bytes", bytes), func() (err error) {
		if bytes <= 0 {
			return errors.New("want at least 1")
		}
		at, err = m.Driver.Alloc(bytes)
		return err
	})
	if err != nil {
		return nil, err
	}
	if m.IsHost() {
		return at, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		m.Driver.Free(at)
		return nil, fmt.Errorf("%s: its memory is closed", m)
	}
	m.allocations = slices.Insert(m.allocations, m.upTo(at), allocation{at, bytes})
	return at, nil
}

// upTo returns how many allocations begin at an address or before it.
func (m *memory) upTo(at unsafe.Pointer) int {
	return sort.Search(len(m.allocations), func(i int) bool { return uintptr(m.allocations[i].at) > uintptr(at) })
}

// Free takes a result of Alloc, after the caller has waited for the last run that uses it, or ordered the call behind
// that run. It panics if no allocation begins at the address, unless Close has freed all.
func (m *memory) Free(at unsafe.Pointer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.IsHost() {
		return
	}
	i := m.upTo(at) - 1
	if i < 0 || m.allocations[i].at != at {
		panic(fmt.Sprintf("%s: nothing was allocated at %#x, which is freed", m, uintptr(at)))
	}
	m.allocations = slices.Delete(m.allocations, i, i+1)
	m.Driver.Free(at)
}

// Close frees everything that is still allocated on a device.
func (m *memory) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.IsHost() {
		return
	}
	for _, a := range m.allocations {
		m.Driver.Free(a.at)
	}
	m.allocations, m.closed = nil, true
	m.Driver.Close()
}

// Within returns an error if bytes from at on do not lie in one allocation; bytes may be 0. The host's
// memory is not checked. A tensor may begin there at any multiple of its element's size.
func (m *memory) Within(at unsafe.Pointer, bytes int) error {
	if bytes == 0 || m.IsHost() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.upTo(at) - 1; i >= 0 {
		a := m.allocations[i]
		if first := int(uintptr(at) - uintptr(a.at)); first < a.bytes {
			if first+bytes > a.bytes {
				return fmt.Errorf("%s: %d bytes at byte %d of an allocation of %d", m, bytes, first, a.bytes)
			}
			return nil
		}
	}
	return fmt.Errorf("%s: nothing is allocated at %#x", m, uintptr(at))
}

// tryWithin is try if bytes lie in one allocation; it does nothing for none.
func (m *memory) tryWithin(doing string, at unsafe.Pointer, bytes int, f func() error) error {
	if bytes == 0 {
		return m.Check(nil)
	}
	if err := m.Within(at, bytes); err != nil {
		return err
	}
	return m.try(doing, f)
}

// Upload copies bytes at from of the host to the memory, at to, and counts them, but not on the host,
// where an address copied to itself costs nothing.
func (m *memory) Upload(to, from unsafe.Pointer, bytes int) error {
	if m.IsHost() && to == from {
		return nil
	}
	return m.tryWithin("copying to it", to, bytes, func() error {
		m.Count(bytes, 0)
		return m.Driver.Write(to, unsafe.Slice((*byte)(from), bytes))
	})
}

// Download copies bytes at from in the memory to the host, at to, and counts them, but not on the host,
// where an address copied to itself costs nothing.
func (m *memory) Download(to, from unsafe.Pointer, bytes int) error {
	if m.IsHost() && to == from {
		return nil
	}
	return m.tryWithin("copying from it", from, bytes, func() error {
		m.Count(0, bytes)
		return m.Driver.Read(unsafe.Slice((*byte)(to), bytes), from)
	})
}

func (m *memory) Zero(at unsafe.Pointer, bytes int) error {
	return m.tryWithin("clearing its memory", at, bytes, func() error { return m.Driver.Zero(at, bytes) })
}

// CopyRuns copies runs from each address to the address of the same number, by one call of the Driver, after a check
// that the allocations have them all. It leaves out empty runs.
func (m *memory) CopyRuns(to, from []unsafe.Pointer, runs ...Runs) error {
	var nonEmpty []Runs
	endOfWrites, endOfReads := 0, 0 // ends of the ranges
	for _, r := range runs {
		if r.Width == 0 || r.Count == 0 {
			continue
		}
		if r.Count == 1 {
			r.Stride, r.FromStride = r.Width, r.Width // unused, but a Driver wants at least the width
		}
		nonEmpty = append(nonEmpty, r)
		endOfWrites, endOfReads = max(endOfWrites, r.To+(r.Count-1)*r.Stride+r.Width), max(endOfReads, r.From+(r.Count-1)*r.FromStride+r.Width)
	}
	for i := range to {
		if err := errors.Join(m.Within(to[i], endOfWrites), m.Within(from[i], endOfReads)); err != nil {
			return err
		}
	}
	if len(nonEmpty) == 0 {
		return nil
	}
	return m.try("copying within it", func() error { return m.Driver.CopyRuns(to, from, nonEmpty) })
}

// Wait returns when everything before it is complete.
func (m *memory) Wait() error { return m.try("computing", m.Driver.Wait) }

// startThread starts the thread of all runs. Go's code moves between threads of the system, and the providers of
// devices keep state by thread: CUDA's has cuBLAS handles and cuDNN's compiled kernels for each thread.
func startThread() chan func() {
	work := make(chan func())
	go func() {
		goruntime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
}

// do calls f on the thread of all runs and returns after f.
func (m *memory) do(f func()) {
	if m.work == nil {
		f()
		return
	}
	done := make(chan struct{})
	m.work <- func() { f(); close(done) }
	<-done
}

// newBytes returns n zero bytes, aligned for elements of any type.
func newBytes(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

// hostBytes returns bytes of the host that stand for those at an address. In the host's
// memory they are the same bytes. Otherwise the caller copies between the two by Upload and Download; they are
// spare's, which may be nil, if it is large enough, else new ones.
func hostBytes(m *memory, at unsafe.Pointer, bytes int, spare []byte) []byte {
	switch {
	case m.IsHost():
		return unsafe.Slice((*byte)(at), bytes)
	case cap(spare) >= bytes:
		return spare[:bytes]
	}
	return newBytes(bytes)
}

// host is the host's memory, which all Envs on the CPU share.
var host = &memory{Backend: Backend{Driver: Heap{}, InOrder: true, Cleared: true, Kernels: processor, Append: processor.AddTo},
	name: "cpu", elementsAtOnce: elementwiseOnHost}

// processor has the operators of our own that the host computes.
var processor = hostkernels.Device()

// A Heap is the Driver of Go's heap, where sessions on the CPU read and write. Its garbage collector frees.
type Heap struct{}

func (Heap) Alloc(bytes int) (unsafe.Pointer, error) {
	return unsafe.Pointer(unsafe.SliceData(newBytes(bytes))), nil
}

func (Heap) Free(unsafe.Pointer) {}
func (Heap) Wait() error         { return nil }
func (Heap) Close()              {}

func (Heap) Write(to unsafe.Pointer, from []byte) error {
	copy(unsafe.Slice((*byte)(to), len(from)), from)
	return nil
}

func (Heap) Read(to []byte, from unsafe.Pointer) error {
	copy(to, unsafe.Slice((*byte)(from), len(to)))
	return nil
}

// Zero clears gradients with several threads: in the first call, the system provides each page as it is written.
func (Heap) Zero(at unsafe.Pointer, bytes int) error {
	const part = 16 << 20
	all := unsafe.Slice((*byte)(at), bytes)
	models.AtOnce(goruntime.GOMAXPROCS(0), (bytes+part-1)/part, func(i int) { clear(all[i*part : min((i+1)*part, bytes)]) })
	return nil
}

func (Heap) CopyRuns(to, from []unsafe.Pointer, runs []Runs) error {
	for i := range to {
		for _, r := range runs {
			for run := range r.Count {
				a, b := unsafe.Add(to[i], r.To+run*r.Stride), unsafe.Add(from[i], r.From+run*r.FromStride)
				copy(unsafe.Slice((*byte)(a), r.Width), unsafe.Slice((*byte)(b), r.Width))
			}
		}
	}
	return nil
}

// Values of memory.elementsAtOnce.
const (
	// elementwiseOnHost is so small that an operator finds the results of the previous
	// operator in the processor's cache.
	elementwiseOnHost = 1 << 18
	// elementwiseOnDevice is so large that starting the kernels takes little of the
	// time. It is bounded because the results between two operators take memory.
	elementwiseOnDevice = 1 << 24
)
