package runtime

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"unsafe"
)

// Storage is the storage of a device.
type Storage = deviceStorage

var NewStorage = newStorage

// Held returns how many allocations there are.
func (d *Storage) Held() int {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	return len(d.table.allocations)
}

// OpenStandIn opens another Env beside e, on a stand-in for a device: "stand-in-cuda" has
// addresses, and "stand-in-webgpu" has buffers, as WebGPU has.
func OpenStandIn(t testing.TB, e *Env, name string) *Env {
	t.Helper()
	on, err := Open(context.Background(), Options{Threads: e.Threads(), Device: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := on.leftOnDevice(); n > 0 {
			t.Errorf("%d allocations of the device's memory were not freed", n)
		}
		if err := on.Close(); err != nil {
			t.Error(err)
		}
	})
	return on
}

// Dirty fills with NaN the memory of the next allocations on a device that reuses memory,
// so that a test detects reads beyond a tensor, or of unwritten memory.
func Dirty(t testing.TB, e *Env) {
	t.Helper()
	for bytes := 16; bytes <= 64<<10; bytes *= 2 {
		var held []unsafe.Pointer
		for range 64 {
			at, err := e.memory.Alloc(bytes, nil)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, at)
			nan := slices.Repeat([]float32{float32(math.NaN())}, bytes/4)
			if err := e.memory.Upload(at, unsafe.Pointer(unsafe.SliceData(nan)), bytes); err != nil {
				t.Fatal(err)
			}
		}
		for _, at := range held {
			e.memory.Free(at)
		}
	}
}

// Calls returns a function that counts, since its last call, the work given to the device
// of e: runs of sessions, and copies between host and device.
func Calls(t testing.TB, e *Env) func() (runs, copies int) {
	m := e.memory
	device, ran, now := m.storage.(*deviceStorage), m.ran, 0
	t.Cleanup(func() { m.ran = ran })
	m.ran = func(b *Binding) {
		if now++; ran != nil {
			ran(b)
		}
	}
	before := device.copies.Load()
	return func() (runs, copies int) {
		runs, copies = now, int(device.copies.Load()-before)
		now, before = 0, device.copies.Load()
		return runs, copies
	}
}

// A full memory fails after so many allocations.
type full struct {
	storage
	left int
}

func (f *full) Alloc(bytes int, edges []int) (unsafe.Pointer, error) {
	if f.left--; f.left < 0 {
		return nil, errors.New("the memory is full")
	}
	return f.storage.Alloc(bytes, edges)
}

// Full lets allocations of e fail after so many more, until empty is called.
func Full(e *Env, allocations int) (empty func()) {
	was := e.memory.storage
	e.memory.storage = &full{was, allocations}
	return func() { e.memory.storage = was }
}

// Unordered makes the ScatterND of the stand-in add in any order, as a GPU's does.
func Unordered(e *Env) { e.memory.InOrder = false }

// Slices returns how many slices GradNorm sums.
func (o *Optimizer) Slices() int { return len(o.ring.shares.owner) }

// Packed returns how many rows of how many places attention sees in the pass, in
// how many blocks, and how many response tokens there are.
func (p *Pass) Packed() (batch, longest, blocks, rows int) {
	return int(p.packed.rows.value.shape[0]), p.longest, p.blocks, p.rows
}

// Passes returns how many slices of the vocabulary the head has.
func (l *Learner) Passes() int { return len(l.head.slices) }

// Capacity returns how many tokens a row of the cache has room for.
func (d *Decoder) Capacity() int { return d.cache.parts[0].capacity }

// Largest limits the buffers that kernels of e take to so many bytes.
func Largest(t testing.TB, e *Env, bytes int64) {
	was := e.memory.largest
	e.memory.largest = bytes
	t.Cleanup(func() { e.memory.largest = was })
}

// CacheBytes returns how large the keys of the cache's first layer are.
func (d *Decoder) CacheBytes() int64 {
	k := &d.cache.parts[0].layers[0].k
	return int64(k.bytes(k.capacity))
}

// Copies returns functions that copy so many bytes to the memory of e and back. The bytes
// are freed when the test ends.
func Copies(t testing.TB, e *Env, bytes int) (up, down func() error) {
	t.Helper()
	at, err := e.memory.Alloc(bytes, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.memory.Free(at) })
	host := unsafe.Pointer(unsafe.SliceData(newBytes(bytes)))
	return func() error { return e.memory.Upload(at, host, bytes) }, func() error { return e.memory.Download(host, at, bytes) }
}
