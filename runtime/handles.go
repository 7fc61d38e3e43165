package runtime

// #include "ort.h"
import "C"

import (
	"fmt"
	"unsafe"

	"onering/models"
)

// graphMoves is the Mover of a device whose provider has copies between the host
// and whole buffers only: graphs copy within it and clear it.
type graphMoves struct {
	env      *Env // that has the memory
	memory   *memory
	programs map[moveKind]*Binding
	sizes    []buffer // int64 [1], of buffers to clear
	from, to buffer   // int64 [n], the rows that CopyRuns reads and writes
}

// A moveKind is what Programs that copy and clear differ in.
type moveKind struct {
	buffers        int
	within, clears bool
}

// mostCopied is from how many buffers one run copies at most. What it copies is held
// once more meanwhile.
const mostCopied = 32

// load makes the sessions, which are those of the Env that has the memory. It returns the
// first.
func (g *graphMoves) load(e *Env) (*Binding, error) {
	g.env, g.programs = e, map[moveKind]*Binding{}
	g.from, g.to = hostBuffer(models.I64), hostBuffer(models.I64)
	return g.binding(moveKind{buffers: 1, clears: true})
}

// binding returns that of a Program.
func (g *graphMoves) binding(kind moveKind) (*Binding, error) {
	if b := g.programs[kind]; b != nil {
		return b, nil
	}
	p := clearProgram(kind.buffers)
	if !kind.clears {
		p = copyProgram(kind.buffers, kind.within)
	}
	b, err := loadBinding(g.env, p)
	if err == nil {
		g.programs[kind] = b
	}
	return b, err
}

func (g *graphMoves) close() {
	closeBuffers(&g.from, &g.to)
	for i := range g.sizes {
		g.sizes[i].close()
	}
	for _, b := range g.programs {
		closeSessions(b)
	}
	g.programs, g.sizes = nil, nil
}

// Zero implements Mover, in one run.
func (g *graphMoves) Zero(at []Place, bytes []int) error {
	binding, err := g.binding(moveKind{buffers: len(at), clears: true})
	if err != nil {
		return err
	}
	for len(g.sizes) < len(at) {
		g.sizes = append(g.sizes, hostBuffer(models.I64))
	}
	b := binder{b: binding}
	for i := range at {
		n := int64(bytes[i] / 4)
		v, err := newValue(g.memory, models.F32, at[i].At, bytes[i], []int64{n})
		if err != nil {
			return err
		}
		defer v.Close()
		copy(fill[int64](&b, numbered(portSize, i), &g.sizes[i], 1), []int64{n})
		b.out(numbered(portZeros, i), v, nil)
	}
	return b.run()
}

// CopyRuns implements Mover. All is counted in rows of a size that divides
// everything. The end of a buffer that no run reaches may be less than a row, and is
// left out.
func (g *graphMoves) CopyRuns(to, from []Place, runs []Runs) error {
	for len(to) > 0 {
		// Those whose rows have the same numbers are copied together.
		n := 1
		for n < min(len(to), mostCopied) && to[n].First == to[0].First && from[n].First == from[0].First && (to[n].Buffer == from[n].Buffer) == (to[0].Buffer == from[0].Buffer) {
			n++
		}
		if err := g.copyAlike(to[:n], from[:n], runs); err != nil {
			return err
		}
		to, from = to[n:], from[n:]
	}
	return nil
}

// copyAlike copies in one run.
func (g *graphMoves) copyAlike(to, from []Place, runs []Runs) error {
	row, n := divisor(to[0].First, from[0].First), 0
	for _, r := range runs {
		row = divisor(row, r.To, r.Stride, r.From, r.FromStride, r.Width)
	}
	if row%4 != 0 {
		return fmt.Errorf("copies in units of %d bytes", row)
	}
	for _, r := range runs {
		n += r.Count * r.Width / row
	}
	kind := moveKind{buffers: len(to), within: to[0].Buffer == from[0].Buffer}
	binding, err := g.binding(kind)
	if err != nil {
		return err
	}
	b := binder{b: binding}
	ids := fill[int64](&b, portFromIDs, &g.from, int64(n))
	places := fill[int64](&b, portToIDs, &g.to, int64(n), 1)
	if b.err != nil {
		return b.err
	}
	i := 0
	for _, r := range runs {
		r.Each(func(target, source int) {
			for k := range r.Width / row {
				ids[i], places[i] = int64((from[0].First+source)/row+k), int64((to[0].First+target)/row+k)
				i++
			}
		})
	}
	var tables []*Value
	defer func() { closeValues(tables...) }()
	table := func(p Place) *Value {
		v, err := g.table(p, row)
		if b.err == nil {
			b.err = err
		}
		if err == nil {
			tables = append(tables, v)
		}
		return v
	}
	for i := range to {
		if !kind.within {
			b.in(numbered(portFrom, i), table(from[i]), nil)
		}
		v := table(to[i])
		b.in(numbered(portTo, i), v, nil)
		b.out(numbered(portToOut, i), v, nil)
	}
	return b.run()
}

// table returns the whole rows of a place's buffer, a matrix of int32.
func (g *graphMoves) table(p Place, row int) (*Value, error) {
	n := p.Bytes / row
	return newValue(g.memory, models.I32, p.At, n*row, []int64{int64(n), int64(row / 4)})
}

// divisor is the greatest that all have in common.
func divisor(x ...int) int {
	a := 0
	for _, b := range x {
		for b != 0 {
			a, b = b, a%b
		}
	}
	return a
}

// ortBuffers is the Driver of a device whose buffers have handles: ONNX Runtime allocates
// them, and copies between the host and their beginning.
type ortBuffers struct {
	memory    *memory
	allocator *C.OrtAllocator // of a session
	fence     Place           // a buffer that nothing writes
}

// open takes the allocator that a session has.
func (d *ortBuffers) open(s *Session) error {
	err := check(C.onering_allocator(s.ptr, d.memory.info, &d.allocator))
	if err == nil {
		d.fence.Buffer, err = d.Alloc(d.memory.Grain)
	}
	return err
}

func (d *ortBuffers) Alloc(bytes int) (buffer unsafe.Pointer, err error) {
	d.memory.do(func() { err = check(C.onering_allocate(d.allocator, C.size_t(bytes), &buffer)) })
	return buffer, err
}

func (d *ortBuffers) Free(buffer unsafe.Pointer) {
	d.memory.do(func() { _ = check(C.onering_deallocate(d.allocator, buffer)) }) // it has no error to give
}

func (d *ortBuffers) Write(to Place, from []byte) error {
	return d.copy(to.Buffer, from, func(device, host *C.OrtValue) *C.OrtStatus { return C.onering_copy(process.env, host, device) })
}

func (d *ortBuffers) Read(to []byte, from Place) error {
	return d.copy(from.Buffer, to, func(device, host *C.OrtValue) *C.OrtStatus { return C.onering_copy(process.env, device, host) })
}

// copy calls f with tensors of bytes that are the beginning of a buffer and the host's.
func (d *ortBuffers) copy(buffer unsafe.Pointer, data []byte, f func(device, host *C.OrtValue) *C.OrtStatus) (err error) {
	d.memory.do(func() {
		var device, local *C.OrtValue
		if device, err = rawTensor(d.memory.info, buffer, len(data)); err != nil {
			return
		}
		defer C.onering_release_value(device)
		if local, err = rawTensor(host.info, unsafe.Pointer(unsafe.SliceData(data)), len(data)); err != nil {
			return
		}
		defer C.onering_release_value(local)
		err = check(f(device, local))
	})
	return err
}

// rawTensor returns a tensor of bytes, which the caller releases.
func rawTensor(info *C.OrtMemoryInfo, at unsafe.Pointer, bytes int) (v *C.OrtValue, err error) {
	shape := C.int64_t(bytes)
	return v, check(C.onering_value(info, at, C.size_t(bytes), &shape, 1, C.int(models.U8), &v))
}

// Wait reads from a buffer, which waits for what was queued before.
func (d *ortBuffers) Wait() error { return d.Read(make([]byte, d.memory.Grain), d.fence) }

func (d *ortBuffers) Close() {
	if d.allocator != nil {
		if d.fence.Buffer != nil {
			d.Free(d.fence.Buffer)
		}
		C.onering_release_allocator(d.allocator)
		d.allocator = nil
	}
}
