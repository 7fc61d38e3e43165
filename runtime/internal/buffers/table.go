package buffers

import (
	"fmt"
	"slices"
	"sort"
	"sync"
	"unsafe"
)

// An allocation is one buffer, or if buffers are handles one from each edge on.
type allocation struct {
	at    unsafe.Pointer
	bytes int
	parts []part
}

// A part is a buffer, which has the bytes of an allocation from a place on.
type part struct {
	from, bytes int
	buffer      unsafe.Pointer
}

// A table finds allocations by their addresses.
type table struct {
	name    string // of the device
	handles bool   // addresses are numbers that the table gives

	mu          sync.Mutex
	closed      bool
	next        uintptr
	allocations []*allocation // by address
}

// The numbers that stand for the addresses of handles begin beyond those that
// processes have. Between two allocations are pageBytes or more that are of none.
const (
	firstAddress = 1 << 50
	pageBytes    = 4096
)

// add gives an allocation its address.
func (t *table) add(a *allocation) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return fmt.Errorf("%s: its memory is closed", t.name)
	}
	a.at = a.parts[0].buffer
	if t.handles {
		a.at = unsafe.Add(nil, t.next)
		t.next += uintptr(a.bytes/pageBytes+2) * pageBytes
	}
	t.allocations = slices.Insert(t.allocations, t.upTo(a.at), a)
	return nil
}

// upTo returns how many allocations begin at an address or before it.
func (t *table) upTo(at unsafe.Pointer) int {
	return sort.Search(len(t.allocations), func(i int) bool { return uintptr(t.allocations[i].at) > uintptr(at) })
}

// remove takes out the allocation that begins at an address. It returns nil if close
// has, and panics if there never was one.
func (t *table) remove(at unsafe.Pointer) *allocation {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	i := t.upTo(at) - 1
	if i < 0 || t.allocations[i].at != at {
		panic(fmt.Sprintf("%s: nothing was allocated at %#x, which is freed", t.name, uintptr(at)))
	}
	a := t.allocations[i]
	t.allocations = slices.Delete(t.allocations, i, i+1)
	return a
}

// close takes out all allocations, and lets none be added. first is false if it was
// called before.
func (t *table) close() (all []*allocation, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, first = t.allocations, !t.closed
	t.allocations, t.closed = nil, true
	return all, first
}

func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.allocations)
}

// place returns where an address is, and how many bytes its buffer has from there on.
func (t *table) place(at unsafe.Pointer) (p Place, left int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := t.upTo(at) - 1; i >= 0 {
		a := t.allocations[i]
		if place := int(uintptr(at) - uintptr(a.at)); place < a.bytes {
			p := a.parts[sort.Search(len(a.parts), func(i int) bool { return a.parts[i].from > place })-1]
			return Place{p.buffer, unsafe.Add(a.at, p.from), p.bytes, place - p.from}, p.from + p.bytes - place, nil
		}
	}
	return Place{}, 0, fmt.Errorf("%s: nothing is allocated at %#x", t.name, uintptr(at))
}

// within is place for bytes that must be in one buffer.
func (t *table) within(at unsafe.Pointer, bytes int) (Place, error) {
	p, left, err := t.place(at)
	if err == nil && bytes > left {
		err = fmt.Errorf("%s: %d bytes at %d of a buffer of %d", t.name, bytes, p.First, p.Bytes)
	}
	return p, err
}
