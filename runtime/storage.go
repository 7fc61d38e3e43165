package runtime

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A deviceStorage is the storage of a device: it keeps the allocations, checks that copies
// stay within one, counts bytes between host and device, and detects that a device is
// lost. It may be used from several goroutines.
type deviceStorage struct {
	name     string
	driver   Driver
	lost     atomic.Pointer[error] // the error that Check returns from then on
	up, down atomic.Int64
	copies   atomic.Int64 // number of copies that Crossed counts, for tests
	table    table
}

// Check implements storage.
func (d *deviceStorage) Check(err error) error {
	if lost := d.lost.Load(); lost != nil {
		return *lost
	}
	if err == nil || d.driver.Wait() == nil {
		return err
	}
	lost := fmt.Errorf("%s: %w; resume a run from its newest checkpoint (--resume) and start anything else again, here once the device is back or with another --device: %w", d.name, ErrLost, err)
	d.lost.CompareAndSwap(nil, &lost)
	return *d.lost.Load()
}

// do calls f, unless the device is lost. An error of f says what it was doing.
func (d *deviceStorage) do(doing string, f func() error) error {
	if err := d.Check(nil); err != nil {
		return err
	}
	err := f()
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", d.name, doing, err)
	}
	return d.Check(err)
}

// newStorage returns the storage of a device; errors use name.
func newStorage(name string, driver Driver) *deviceStorage {
	return &deviceStorage{name: name, driver: driver, table: table{name: name}}
}

func (d *deviceStorage) Aliases() bool { return false }

func (d *deviceStorage) Count(up, down int) {
	d.copies.Add(1)
	d.up.Add(int64(up))
	d.down.Add(int64(down))
}

func (d *deviceStorage) Crossed() (up, down int64) { return d.up.Load(), d.down.Load() }

func (d *deviceStorage) Alloc(bytes int) (at unsafe.Pointer, err error) {
	err = d.do(fmt.Sprintf("allocating %d bytes", bytes), func() (err error) {
		if bytes <= 0 {
			return errors.New("want at least 1")
		}
		at, err = d.driver.Alloc(bytes)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := d.table.add(allocation{at, bytes}); err != nil {
		d.driver.Free(at)
		return nil, err
	}
	return at, nil
}

// Free panics if no allocation begins at the address, unless Close has freed all.
func (d *deviceStorage) Free(at unsafe.Pointer) {
	if d.table.remove(at) {
		d.driver.Free(at)
	}
}

func (d *deviceStorage) Close() {
	all, first := d.table.close()
	for _, a := range all {
		d.driver.Free(a.at)
	}
	if first {
		d.driver.Close()
	}
}

func (d *deviceStorage) Upload(to, from unsafe.Pointer, bytes int) error {
	return d.copy("copying to it", to, bytes, func() error {
		d.Count(bytes, 0)
		return d.driver.Write(to, unsafe.Slice((*byte)(from), bytes))
	})
}

func (d *deviceStorage) Download(to, from unsafe.Pointer, bytes int) error {
	return d.copy("copying from it", from, bytes, func() error {
		d.Count(0, bytes)
		return d.driver.Read(unsafe.Slice((*byte)(to), bytes), from)
	})
}

func (d *deviceStorage) Zero(at unsafe.Pointer, bytes int) error {
	return d.copy("clearing its memory", at, bytes, func() error { return d.driver.Zero(at, bytes) })
}

// copy calls f if bytes, of which there may be none, lie in one allocation.
func (d *deviceStorage) copy(doing string, at unsafe.Pointer, bytes int, f func() error) error {
	if bytes == 0 {
		return d.Check(nil)
	}
	if err := d.table.within(at, bytes); err != nil {
		return err
	}
	return d.do(doing, f)
}

func (d *deviceStorage) Within(at unsafe.Pointer, bytes int) error {
	if bytes == 0 {
		return nil
	}
	return d.table.within(at, bytes)
}

func (d *deviceStorage) CopyRuns(to, from []unsafe.Pointer, runs ...Runs) error {
	var some []Runs
	ends := [2]int{} // ends of the ranges that are written and read
	for _, r := range runs {
		if r.Width == 0 || r.Count == 0 {
			continue
		}
		if r.Count == 1 {
			r.Stride, r.FromStride = r.Width, r.Width // a single run does not need this
		}
		some = append(some, r)
		ends[0], ends[1] = max(ends[0], r.To+(r.Count-1)*r.Stride+r.Width), max(ends[1], r.From+(r.Count-1)*r.FromStride+r.Width)
	}
	if len(some) == 0 {
		return nil
	}
	for i := range to {
		if err := errors.Join(d.table.within(to[i], ends[0]), d.table.within(from[i], ends[1])); err != nil {
			return err
		}
	}
	return d.do("copying within it", func() error { return d.driver.CopyRuns(to, from, some) })
}

func (d *deviceStorage) Wait() error { return d.do("computing", d.driver.Wait) }

// An allocation is memory of a device that its Driver allocated.
type allocation struct {
	at    unsafe.Pointer
	bytes int
}

// A table finds allocations by their addresses.
type table struct {
	name string // name of the device

	mu          sync.Mutex
	closed      bool
	allocations []allocation // by address
}

// add adds an allocation.
func (t *table) add(a allocation) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return fmt.Errorf("%s: its memory is closed", t.name)
	}
	t.allocations = slices.Insert(t.allocations, t.upTo(a.at), a)
	return nil
}

// upTo returns how many allocations begin at an address or before it.
func (t *table) upTo(at unsafe.Pointer) int {
	return sort.Search(len(t.allocations), func(i int) bool { return uintptr(t.allocations[i].at) > uintptr(at) })
}

// remove removes the allocation that begins at an address. It returns false if close has
// done so, and panics if there never was one.
func (t *table) remove(at unsafe.Pointer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	i := t.upTo(at) - 1
	if i < 0 || t.allocations[i].at != at {
		panic(fmt.Sprintf("%s: nothing was allocated at %#x, which is freed", t.name, uintptr(at)))
	}
	t.allocations = slices.Delete(t.allocations, i, i+1)
	return true
}

// close removes all allocations, and lets none be added. first is false if it was called
// before.
func (t *table) close() (all []allocation, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, first = t.allocations, !t.closed
	t.allocations, t.closed = nil, true
	return all, first
}

// within returns an error if bytes do not lie in one allocation.
func (t *table) within(at unsafe.Pointer, bytes int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := t.upTo(at) - 1; i >= 0 {
		a := t.allocations[i]
		if first := int(uintptr(at) - uintptr(a.at)); first < a.bytes {
			if first+bytes > a.bytes {
				return fmt.Errorf("%s: %d bytes at byte %d of an allocation of %d", t.name, bytes, first, a.bytes)
			}
			return nil
		}
	}
	return fmt.Errorf("%s: nothing is allocated at %#x", t.name, uintptr(at))
}
