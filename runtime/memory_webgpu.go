package runtime

// #include <stdlib.h>
// #include "ort.h"
import "C"

import (
	"errors"
	"fmt"
	"sort"
	"sync"
	"unsafe"

	"onering/models"
	"onering/models/moves"
)

// A webgpuMemory is the memory of a GPU that ONNX Runtime's WebGPU provider reaches.
// Its buffers have handles and no addresses, and ONNX Runtime's interface copies
// buffers from their beginning only. So every Value that begins inside an allocation
// has a buffer of its own there (cut), and graphs do the copies between other places
// (package moves).
type webgpuMemory struct {
	traffic
	webgpuBuffers
	take, put *Binding
	clear     *Binding
	size      buffer // int64 [1]
	from, to  buffer // int64 [n], the rows that copyRuns reads and writes
	rows      buffer // the rows on their way
}

// webgpuBuffers are the buffers of a device, by numbers that stand for addresses.
type webgpuBuffers struct {
	thread
	id         int
	memoryInfo *C.OrtMemoryInfo
	allocator  *C.OrtAllocator // of a session

	mu    sync.Mutex
	next  uintptr
	spans []*allocation // by address
}

// An allocation is of one or more buffers. Its addresses are numbers that no memory of the host has.
type allocation struct {
	at    uintptr
	bytes int
	parts []part // one after the other
}

// A part is a buffer of the device; handle is nil before its first use.
type part struct {
	from, bytes int
	handle      unsafe.Pointer
}

// firstAddress is beyond the addresses that processes have.
const firstAddress = 1 << 50

// bufferPad is how many bytes the sizes of copies are rounded up to.
const bufferPad = 16

func newWebGPUMemory(id int) (*webgpuMemory, error) {
	m := &webgpuMemory{webgpuBuffers: webgpuBuffers{id: id, thread: newThread(), next: firstAddress}}
	name := C.CString("WebGPU_Buffer")
	defer C.free(unsafe.Pointer(name))
	if err := check(C.onering_device_memory(name, 0, &m.memoryInfo)); err != nil {
		return nil, fmt.Errorf("runtime: describing the memory of %s: %w", m, err)
	}
	return m, nil
}

// open loads the graphs of the memory for e, whose memory it is.
func (m *webgpuMemory) open(e *Env) (err error) {
	for into, p := range map[**Binding]models.Program{&m.take: moves.Take(), &m.put: moves.Put(), &m.clear: moves.Clear()} {
		if *into, err = loadBinding(e, p); err != nil {
			m.close()
			return fmt.Errorf("runtime: %s: %w", m, err)
		}
	}
	m.size, m.from, m.to, m.rows = hostBuffer(models.I64), hostBuffer(models.I64), hostBuffer(models.I64), e.buffer(models.I32)
	if err := check(C.onering_allocator(m.clear.s.ptr, m.memoryInfo, &m.allocator)); err != nil {
		m.close()
		return fmt.Errorf("runtime: the memory of %s: %w", m, err)
	}
	return nil
}

// close frees all buffers and the graphs.
func (m *webgpuMemory) close() {
	closeBuffers(&m.size, &m.from, &m.to, &m.rows)
	for _, s := range m.spans {
		m.freeParts(s)
	}
	m.spans = nil
	if m.allocator != nil {
		C.onering_release_allocator(m.allocator)
		m.allocator = nil
	}
	closeSessions(m.take, m.put, m.clear)
	m.take, m.put, m.clear = nil, nil, nil
}

func (m *webgpuBuffers) alloc(bytes int) (unsafe.Pointer, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("%s: allocating %d bytes", m, bytes)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &allocation{at: m.next, bytes: bytes, parts: []part{{0, bytes, nil}}}
	m.next += uintptr(bytes+4095) / 4096 * 4096
	m.spans = append(m.spans, s)
	return unsafe.Add(nil, s.at), nil
}

func (m *webgpuBuffers) free(at unsafe.Pointer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := sort.Search(len(m.spans), func(i int) bool { return m.spans[i].at >= uintptr(at) })
	if i == len(m.spans) || m.spans[i].at != uintptr(at) {
		return // freed by close
	}
	m.freeParts(m.spans[i])
	m.spans = append(m.spans[:i], m.spans[i+1:]...)
}

func (m *webgpuBuffers) freeParts(s *allocation) {
	for _, p := range s.parts {
		if p.handle != nil && m.allocator != nil {
			m.do(func() { _ = check(C.onering_deallocate(m.allocator, p.handle)) }) // it has no error to give
		}
	}
}

func (m *webgpuBuffers) aliases() bool { return false }
func (m *webgpuBuffers) cuts() bool    { return true }

func (m *webgpuBuffers) cut(at unsafe.Pointer, edges []int) {
	s, _, err := m.find(at)
	if err != nil || len(s.parts) != 1 || s.parts[0].handle != nil {
		panic(fmt.Sprintf("runtime: cut of memory that is in use: %v", err))
	}
	s.parts = nil
	for i, from := range edges {
		to := s.bytes
		if i+1 < len(edges) {
			to = edges[i+1]
		}
		s.parts = append(s.parts, part{from, to - from, nil})
	}
}

// find returns the allocation that an address is in, and the address's place there.
func (m *webgpuBuffers) find(at unsafe.Pointer) (*allocation, int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := sort.Search(len(m.spans), func(i int) bool { return m.spans[i].at > uintptr(at) })
	if i > 0 {
		if s := m.spans[i-1]; uintptr(at) < s.at+uintptr(s.bytes) {
			return s, int(uintptr(at) - s.at), nil
		}
	}
	return nil, 0, fmt.Errorf("runtime: %s: no allocation is at %#x", m, uintptr(at))
}

// part returns the buffer that has a number of bytes at an address, and where they
// begin in it.
func (m *webgpuBuffers) part(at unsafe.Pointer, bytes int) (*part, int, error) {
	s, place, err := m.find(at)
	if err != nil {
		return nil, 0, err
	}
	p := &s.parts[sort.Search(len(s.parts), func(i int) bool { return s.parts[i].from > place })-1]
	if place+bytes > p.from+p.bytes {
		return nil, 0, fmt.Errorf("runtime: %s: %d bytes at %d of an allocation are in more than one buffer", m, bytes, place)
	}
	if p.handle == nil {
		m.do(func() {
			err = check(C.onering_allocate(m.allocator, C.size_t((p.bytes+bufferPad-1)/bufferPad*bufferPad), &p.handle))
		})
		if err != nil {
			return nil, 0, fmt.Errorf("%s: allocating %d bytes: %w", m, p.bytes, err)
		}
	}
	return p, place - p.from, nil
}

func (m *webgpuBuffers) tensor(at unsafe.Pointer, bytes int) (unsafe.Pointer, error) {
	if bytes == 0 {
		return at, nil
	}
	p, first, err := m.part(at, bytes)
	if err == nil && first != 0 {
		err = fmt.Errorf("runtime: %s: a tensor begins at byte %d of a buffer", m, first)
	}
	if err != nil {
		return nil, err
	}
	return p.handle, nil
}

// eachPart calls f for each buffer that the bytes at an address are in.
func (m *webgpuBuffers) eachPart(at unsafe.Pointer, bytes int, f func(p *part, first, done, n int) error) error {
	for done := 0; done < bytes; {
		s, place, err := m.find(unsafe.Add(at, done))
		if err != nil {
			return err
		}
		i := sort.Search(len(s.parts), func(i int) bool { return s.parts[i].from > place }) - 1
		n := min(bytes-done, s.parts[i].from+s.parts[i].bytes-place)
		p, first, err := m.part(unsafe.Add(at, done), n)
		if err == nil {
			err = f(p, first, done, n)
		}
		if err != nil {
			return err
		}
		done += n
	}
	return nil
}

// copyBuffer copies between the host and the first n bytes of a buffer.
func (m *webgpuBuffers) copyBuffer(p *part, host unsafe.Pointer, n int, up bool) (err error) {
	m.do(func() {
		shape, bytes := C.int64_t(n), C.size_t(n)
		var values [2]*C.OrtValue // the device's, the host's
		for i, at := range []unsafe.Pointer{p.handle, host} {
			info := []*C.OrtMemoryInfo{m.memoryInfo, process.memoryInfo}[i]
			if err = check(C.onering_value(info, at, bytes, &shape, 1, onnxTypes[models.U8], &values[i])); err != nil {
				return
			}
			defer C.onering_release_value(values[i])
		}
		from, to := values[0], values[1]
		if up {
			from, to = to, from
		}
		err = check(C.onering_copy(process.env, from, to))
	})
	if err != nil {
		return fmt.Errorf("%s: copying %d bytes: %w", m, n, err)
	}
	return nil
}

func (m *webgpuMemory) upload(to, from unsafe.Pointer, bytes int) error {
	m.count(bytes, 0)
	return m.eachPart(to, bytes, func(p *part, first, done, n int) error {
		source := unsafe.Add(from, done)
		if first == 0 && (n == p.bytes || n%bufferPad == 0) {
			return m.copyBuffer(p, source, n, true)
		}
		// A part of a buffer: its bytes before and after stay.
		whole := newBytes(p.bytes)
		if err := m.copyBuffer(p, unsafe.Pointer(&whole[0]), p.bytes, false); err != nil {
			return err
		}
		copy(whole[first:], unsafe.Slice((*byte)(source), n))
		return m.copyBuffer(p, unsafe.Pointer(&whole[0]), p.bytes, true)
	})
}

func (m *webgpuMemory) download(to, from unsafe.Pointer, bytes int) error {
	m.count(0, bytes)
	return m.eachPart(from, bytes, func(p *part, first, done, n int) error {
		into := unsafe.Slice((*byte)(unsafe.Add(to, done)), n)
		if first == 0 {
			return m.copyBuffer(p, unsafe.Pointer(&into[0]), n, false)
		}
		whole := newBytes(first + n)
		err := m.copyBuffer(p, unsafe.Pointer(&whole[0]), first+n, false)
		copy(into, whole[first:])
		return err
	})
}

func (m *webgpuMemory) zero(at unsafe.Pointer, bytes int) error {
	return m.eachPart(at, bytes, func(p *part, first, done, n int) error {
		if first != 0 || n%4 != 0 {
			zeros := newBytes(n)
			return m.upload(unsafe.Add(at, done), unsafe.Pointer(&zeros[0]), n)
		}
		v, err := newValue(m, models.F32, unsafe.Add(at, done), n, []int64{int64(n / 4)})
		if err != nil {
			return err
		}
		defer v.Close()
		b := binder{b: m.clear}
		copy(fill[int64](&b, moves.Size, &m.size, 1), []int64{int64(n / 4)})
		b.out(moves.Zeros, v, nil)
		return b.run()
	})
}

func (m *webgpuMemory) copyRuns(to unsafe.Pointer, stride int, from unsafe.Pointer, fromStride, width, runs int) error {
	if width == 0 || runs == 0 {
		return nil
	}
	if runs == 1 {
		stride, fromStride = 0, 0
	}
	target, toFirst, err := m.part(to, (runs-1)*stride+width)
	if err != nil {
		return err
	}
	source, fromFirst, err := m.part(from, (runs-1)*fromStride+width)
	if err != nil {
		return err
	}
	// All is counted in rows of a size that divides everything.
	unit := common(width, stride, fromStride, toFirst, fromFirst)
	if unit%4 != 0 {
		return fmt.Errorf("%s: copies of %d bytes", m, unit)
	}
	n, u := int64(width/unit*runs), int64(unit/4)
	take, put := binder{b: m.take}, binder{b: m.put}
	ids := fill[int64](&take, moves.FromIDs, &m.from, n)
	places := fill[int64](&put, moves.ToIDs, &m.to, n, 1)
	if err := errors.Join(take.err, put.err); err != nil {
		return err
	}
	for i := range ids {
		run, row := i/(width/unit), i%(width/unit)
		ids[i] = int64((fromFirst+run*fromStride)/unit + row)
		places[i] = int64((toFirst+run*stride)/unit + row)
	}
	for _, x := range []struct {
		bind  func(string, *Value, error)
		port  string
		bytes int
		at    unsafe.Pointer
	}{
		{take.in, moves.From, source.bytes, unsafe.Add(from, -fromFirst)},
		{put.in, moves.To, target.bytes, unsafe.Add(to, -toFirst)},
	} {
		rows := x.bytes / unit // the end that no run reaches is left out
		v, err := newValue(m, models.I32, x.at, rows*unit, []int64{int64(rows), u})
		if err != nil {
			return err
		}
		defer v.Close()
		x.bind(x.port, v, nil)
		if x.port == moves.To {
			put.out(moves.ToOut, v, nil)
		}
	}
	rows, err := m.rows.of(n, u)
	take.out(moves.Rows, rows, err)
	if err := take.run(); err != nil {
		return err
	}
	put.in(moves.Rows, rows, nil)
	return put.run()
}

// common is the greatest common divisor.
func common(x ...int) int {
	a := 0
	for _, b := range x {
		for b != 0 {
			a, b = b, a%b
		}
	}
	return a
}

// wait returns at once: what the host reads is copied by download or a run, which wait
// for what was queued before.
func (m *webgpuBuffers) wait() error { return nil }

func (m *webgpuBuffers) info() *C.OrtMemoryInfo       { return m.memoryInfo }
func (m *webgpuBuffers) runOptions() *C.OrtRunOptions { return nil }

// provider adds WebGPU to the options of a session.
func (m *webgpuBuffers) provider(o *C.OrtSessionOptions) error {
	options := map[string]string{
		// Indices are int64. The provider's kernels read their low 32 bits.
		"enableInt64":     "1",
		"powerPreference": [...]string{"high-performance", "low-power"}[m.id],
	}
	return useProvider(o, "WebGPU", options)
}

func (m *webgpuBuffers) elementwise() int  { return elementwiseOnDevice }
func (m *webgpuBuffers) addsInOrder() bool { return false }
func (m *webgpuBuffers) String() string    { return fmt.Sprintf("webgpu:%d", m.id) }
