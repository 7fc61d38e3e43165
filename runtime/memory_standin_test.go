package runtime

import (
	"context"
	"errors"
	"testing"
	"unsafe"
)

// Memory is the memory of a device.
type Memory = memory

// NewMemory returns the memory of a device.
func NewMemory(name string, d Driver) *Memory { return newMemory(name, Backend{Driver: d}) }

// Held returns how many allocations there are.
func (m *Memory) Held() int { return len(m.allocations) }

// OpenStandIn opens another Env beside e, on a stand-in for a device.
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

// A full memory fails after so many allocations.
type full struct {
	Driver
	left int
}

func (f *full) Alloc(bytes int) (unsafe.Pointer, error) {
	if f.left--; f.left < 0 {
		return nil, errors.New("the memory is full")
	}
	return f.Driver.Alloc(bytes)
}

// Full lets allocations of e fail after so many more, until empty is called.
func Full(e *Env, allocations int) (empty func()) {
	was := e.memory.Driver
	e.memory.Driver = &full{was, allocations}
	return func() { e.memory.Driver = was }
}

// Unordered makes the ScatterND of the stand-in add in any order, as a GPU's does.
func Unordered(e *Env) { e.memory.InOrder = false }

// Slices returns how many slices GradNorm sums.
func (o *Optimizer) Slices() int { return len(o.ring.division.owner) }

// Packed returns how many rows of how many places attention sees in the pass, in
// how many blocks, and how many response tokens there are.
func (p *Pass) Packed() (batch, longest, blocks, rows int) {
	return int(p.packed.tokenAt.value.shape[0]), p.rowLength, p.queryBlocks, p.scored
}

// Passes returns how many slices of the vocabulary the head has.
func (l *Learner) Passes() int { return len(l.head.slices) }

// Capacity returns how many tokens a row of the cache has room for.
func (d *Decoder) Capacity() int { return d.cache.capacity }

// Copies returns functions that copy so many bytes to the memory of e and back. The bytes
// are freed when the test ends.
func Copies(t testing.TB, e *Env, bytes int) (up, down func() error) {
	t.Helper()
	at, err := e.memory.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.memory.Free(at) })
	host := unsafe.Pointer(unsafe.SliceData(newBytes(bytes)))
	return func() error { return e.memory.Upload(at, host, bytes) }, func() error { return e.memory.Download(host, at, bytes) }
}
