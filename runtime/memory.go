package runtime

// #include <stdlib.h>
// #include "cuda.h"
import "C"

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"onering/models"
)

// A memory is a device's own: what lies there is reached through copies only.
// Sessions on the CPU have none (nil): they read and write the host's memory,
// and nothing is ever copied. All that is done to one memory, and the runs of
// its sessions, happens in the order of the calls; only download and wait wait.
type memory interface {
	alloc(bytes int) (unsafe.Pointer, error)
	free(at unsafe.Pointer)
	upload(to, from unsafe.Pointer, bytes int) error
	download(to, from unsafe.Pointer, bytes int) error
	zero(at unsafe.Pointer, bytes int) error
	// copyRuns copies runs of width bytes that lie a stride apart.
	copyRuns(to unsafe.Pointer, stride int, from unsafe.Pointer, fromStride, width, runs int) error
	wait() error
}

// traffic counts the bytes that cross between host and device, of copies and of
// host values that runs are bound to.
type traffic struct{ up, down atomic.Int64 }

// Crossed returns how many bytes went from the host to the device since Open,
// and how many came back. On the CPU nothing crosses.
func (e *Env) Crossed() (up, down int64) { return e.traffic.up.Load(), e.traffic.down.Load() }

// upload copies a host slice to the device.
func upload[T Element](e *Env, to unsafe.Pointer, from []T) error {
	n := len(from) * int(unsafe.Sizeof(*new(T)))
	if n == 0 {
		return nil
	}
	e.traffic.up.Add(int64(n))
	return e.memory.upload(to, unsafe.Pointer(&from[0]), n)
}

// download fills a host slice from the device, after all that is under way.
func download[T Element](e *Env, to []T, from unsafe.Pointer) error {
	n := len(to) * int(unsafe.Sizeof(*new(T)))
	if n == 0 {
		return nil
	}
	e.traffic.down.Add(int64(n))
	return e.memory.download(unsafe.Pointer(&to[0]), from, n)
}

// deviceValue is a Value over device memory that the caller owns.
func deviceValue(e *Env, d models.DType, at unsafe.Pointer, shape ...int64) (*Value, error) {
	n, err := size(d, shape)
	if err != nil {
		return nil, err
	}
	v, err := newValueIn(e.info, d, at, n, shape)
	if err != nil {
		return nil, err
	}
	v.device = true
	return v, nil
}

// An arena is the elements of a models.Weights where sessions find them: on the
// CPU those very elements, on a device others there, and the host's then hold
// what was last downloaded.
type arena struct {
	env  *Env
	host *models.Weights
	at   unsafe.Pointer // nil on the CPU
	copy *rounded       // nil where graphs read float32 alone
}

// hold takes w's elements to the device of e; fresh ones are zero and need no
// copy. From then on Upload and Download know w.
func (e *Env) hold(w *models.Weights, fresh bool) (*arena, error) {
	a := &arena{env: e, host: w}
	e.arenas.Store(w, a)
	if e.memory == nil {
		return a, nil
	}
	var err error
	if a.at, err = e.memory.alloc(a.bytes()); err != nil {
		a.close()
		return nil, fmt.Errorf("runtime: %.2f GB on %s: %w", float64(a.bytes())*1e-9, e.Device(), err)
	}
	if fresh {
		err = a.zero()
	} else {
		err = a.upload()
	}
	if err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// held is the arena of w: what hold made of it, else w itself.
func (e *Env) held(w *models.Weights) *arena {
	if a, ok := e.arenas.Load(w); ok {
		return a.(*arena)
	}
	return &arena{env: e, host: w}
}

// Download makes w, the weights of a Ring, the gradients of a Learner or the
// moments of an Optimizer, what they are on the device. On the CPU they are that
// already.
func (e *Env) Download(w ...*models.Weights) error {
	for _, w := range w {
		if err := e.held(w).download(); err != nil {
			return fmt.Errorf("runtime: copying from the device: %w", err)
		}
	}
	return nil
}

// Upload takes w to the device where a Ring, a Learner or an Optimizer has it
// there. On the CPU there is nothing to do.
func (e *Env) Upload(w ...*models.Weights) error {
	for _, w := range w {
		if err := e.held(w).upload(); err != nil {
			return fmt.Errorf("runtime: copying to the device: %w", err)
		}
	}
	return nil
}

// Forget gives back the host's memory of w where a Ring, a Learner or an Optimizer
// has it on a device: until the next Download the host's elements are not known.
// On the CPU there is nothing to do.
func (e *Env) Forget(w ...*models.Weights) {
	for _, w := range w {
		if e.held(w).at != nil {
			w.Forget()
		}
	}
}

func (a *arena) bytes() int { return 4 * a.host.Layout.Size }

// value views elements from and up to to.
func (a *arena) value(from, to int, shape ...int64) (*Value, error) {
	if a.at == nil {
		return NewValue(a.host.Data[from:to], shape...)
	}
	return deviceValue(a.env, models.F32, unsafe.Add(a.at, 4*from), shape...)
}

// values views every tensor of the layout, by its name and by its fused name.
func (a *arena) values() (map[string]*Value, error) {
	return valuesOf(a.host.Layout, 0, a.host.Layout.Size, func(p models.Place) (*Value, error) {
		return a.value(p.Offset, p.Offset+p.Size, int64s(p.Shape)...)
	})
}

// valuesOf makes a value of each tensor that lies within from and to, by its
// name and by its fused name.
func valuesOf(l *models.Layout, from, to int, value func(models.Place) (*Value, error)) (map[string]*Value, error) {
	values := make(map[string]*Value)
	names := append([]string{}, l.Names()...)
	for _, f := range l.Fused() {
		names = append(names, f.Name)
	}
	for _, name := range names {
		p, ok := l.Find(name)
		if !ok {
			closeValues(values)
			return nil, fmt.Errorf("runtime: the layout has no tensor %q", name)
		}
		if values[name] != nil || p.Offset < from || p.Offset+p.Size > to {
			continue
		}
		v, err := value(p)
		if err != nil {
			closeValues(values)
			return nil, fmt.Errorf("runtime: tensor %q: %w", name, err)
		}
		values[name] = v
	}
	return values, nil
}

// upload makes the device's elements those of the host, and the copy too.
func (a *arena) upload() error {
	if a.at != nil {
		if err := upload(a.env, a.at, a.host.Data); err != nil {
			return err
		}
	}
	if a.copy == nil {
		return nil
	}
	return a.copy.refresh(a.host)
}

// download makes the host's elements those of the device.
func (a *arena) download() error {
	if a.at == nil {
		return nil
	}
	return download(a.env, a.host.Data, a.at)
}

func (a *arena) zero() error {
	if a.at == nil {
		clear(a.host.Data)
		return nil
	}
	return a.env.memory.zero(a.at, a.bytes())
}

func (a *arena) close() {
	if a == nil {
		return
	}
	if a.copy != nil {
		a.copy.close()
		a.copy = nil
	}
	if a.env != nil {
		a.env.arenas.Delete(a.host)
	}
	if a.at != nil {
		a.env.memory.free(a.at)
		a.at = nil
	}
}

// A cudaMemory is one GPU's, used through one stream that the CUDA provider
// shares.
type cudaMemory struct {
	id     C.int
	stream unsafe.Pointer
}

// newCUDAMemory opens the CUDA runtime for GPU id.
func newCUDAMemory(cudart string, id int) (*cudaMemory, error) {
	m := &cudaMemory{id: C.int(id)}
	name := C.CString(cudart)
	defer C.free(unsafe.Pointer(name))
	var msg *C.char
	if C.onering_cuda_open(name, m.id, &m.stream, &msg) != 0 {
		defer C.free(unsafe.Pointer(msg))
		return nil, fmt.Errorf("runtime: cuda:%d: %s", id, C.GoString(msg))
	}
	return m, nil
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

func (m *cudaMemory) upload(to, from unsafe.Pointer, bytes int) error {
	// The copy is complete, not only begun: from may be written anew at once.
	if err := m.check("copying to it", C.onering_cuda_copy(m.id, to, from, C.size_t(bytes), 1, m.stream)); err != nil {
		return err
	}
	return m.wait()
}

func (m *cudaMemory) download(to, from unsafe.Pointer, bytes int) error {
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
