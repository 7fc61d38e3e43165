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

// A deviceStorage is the storage of a device: it keeps the allocations, finds the buffer
// at an address, checks and stages copies, counts bytes between host and device, and
// detects that a device is lost. It may be used from several goroutines.
type deviceStorage struct {
	name     string
	driver   Driver
	mover    Mover
	grain    int                   // 0 if buffers have addresses
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

func (d *deviceStorage) errorf(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", d.name, doing, err)
}

// do calls f, unless the device is lost.
func (d *deviceStorage) do(f func() error) error {
	err := d.Check(nil)
	if err == nil {
		err = d.Check(f())
	}
	return err
}

// newStorage returns the storage of a device; errors use name. grain is 0 if the driver
// has addresses; else sizes are multiples of grain bytes.
func newStorage(name string, driver Driver, mover Mover, grain int) *deviceStorage {
	return &deviceStorage{name: name, driver: driver, mover: mover, grain: grain, table: table{name: name, handles: grain > 0, next: firstAddress}}
}

func (d *deviceStorage) Aliases() bool { return false }
func (d *deviceStorage) Cuts() bool    { return d.grain > 0 }

func (d *deviceStorage) Count(up, down int) {
	d.copies.Add(1)
	d.up.Add(int64(up))
	d.down.Add(int64(down))
}

func (d *deviceStorage) Crossed() (up, down int64) { return d.up.Load(), d.down.Load() }

func (d *deviceStorage) Alloc(bytes int, edges []int) (unsafe.Pointer, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("%s: allocating %d bytes", d.name, bytes)
	}
	if len(edges) == 0 || !d.Cuts() {
		edges = []int{0}
	}
	a := &allocation{bytes: bytes}
	err := d.do(func() error { return d.fill(a, edges) })
	if err == nil {
		err = d.table.add(a)
	}
	if err != nil {
		d.release(a)
		return nil, err
	}
	return a.at, nil
}

// fill makes the buffers of an allocation.
func (d *deviceStorage) fill(a *allocation, edges []int) error {
	if edges[0] != 0 {
		return fmt.Errorf("%s: the first of %d edges is %d", d.name, len(edges), edges[0])
	}
	for i, from := range edges {
		to := a.bytes
		if i+1 < len(edges) {
			to = edges[i+1]
		}
		bytes := to - from
		if bytes <= 0 {
			return fmt.Errorf("%s: a buffer from byte %d to %d of %d", d.name, from, to, a.bytes)
		}
		if d.grain > 0 {
			bytes = (bytes + d.grain - 1) / d.grain * d.grain
		}
		buffer, err := d.driver.Alloc(bytes)
		if err != nil {
			return fmt.Errorf("%s: allocating %d bytes: %w", d.name, bytes, err)
		}
		a.parts = append(a.parts, part{from, to - from, buffer})
	}
	return nil
}

// Free panics if no allocation begins at the address, unless Close has freed all.
func (d *deviceStorage) Free(at unsafe.Pointer) {
	if a := d.table.remove(at); a != nil {
		d.release(a)
	}
}

func (d *deviceStorage) release(a *allocation) {
	for _, p := range a.parts {
		d.driver.Free(p.buffer)
	}
}

func (d *deviceStorage) Close() {
	all, first := d.table.close()
	for _, a := range all {
		d.release(a)
	}
	if first {
		d.driver.Close()
	}
}

func (d *deviceStorage) Tensor(at unsafe.Pointer, bytes int) (unsafe.Pointer, error) {
	if bytes == 0 {
		return at, nil
	}
	p, err := d.table.within(at, bytes)
	switch {
	case err != nil:
		return nil, err
	case d.Cuts() && p.First != 0:
		return nil, fmt.Errorf("%s: a tensor begins at byte %d of a buffer", d.name, p.First)
	}
	return p.Address(), nil
}

// each calls f for each buffer that has some of the bytes: n bytes at p, after done
// earlier bytes.
func (d *deviceStorage) each(doing string, at unsafe.Pointer, bytes int, f func(p Place, done, n int) error) error {
	for done := 0; done < bytes; {
		p, left, err := d.table.place(unsafe.Add(at, done))
		if err != nil {
			return err
		}
		n := min(bytes-done, left)
		if n < bytes-done && !d.Cuts() {
			return fmt.Errorf("%s: %d bytes at %d of a buffer of %d", d.name, bytes, p.First, p.Bytes)
		}
		if err := f(p, done, n); err != nil {
			return d.errorf(doing, err)
		}
		done += n
	}
	return nil
}

func (d *deviceStorage) Upload(to, from unsafe.Pointer, bytes int) error {
	return d.do(func() error {
		return d.each("copying to it", to, bytes, func(p Place, done, n int) error {
			d.Count(n, 0)
			return d.write(p, unsafe.Slice((*byte)(unsafe.Add(from, done)), n))
		})
	})
}

// write copies to a buffer. A place that a driver with handles cannot address is staged:
// the whole buffer is read, changed and written.
func (d *deviceStorage) write(p Place, from []byte) error {
	if !d.Cuts() || p.First == 0 && (len(from) == p.Bytes || len(from)%d.grain == 0) {
		return d.driver.Write(p, from)
	}
	start := p
	start.First = 0
	whole := make([]byte, p.Bytes)
	if err := d.driver.Read(whole, start); err != nil {
		return err
	}
	copy(whole[p.First:], from)
	return d.driver.Write(start, whole)
}

func (d *deviceStorage) Download(to, from unsafe.Pointer, bytes int) error {
	return d.do(func() error {
		return d.each("copying from it", from, bytes, func(p Place, done, n int) error {
			d.Count(0, n)
			return d.read(unsafe.Slice((*byte)(unsafe.Add(to, done)), n), p)
		})
	})
}

// read copies from a buffer; with handles it reads from the buffer's beginning.
func (d *deviceStorage) read(to []byte, p Place) error {
	if !d.Cuts() || p.First == 0 {
		return d.driver.Read(to, p)
	}
	start := p
	start.First = 0
	whole := make([]byte, p.First+len(to))
	err := d.driver.Read(whole, start)
	copy(to, whole[p.First:])
	return err
}

func (d *deviceStorage) Zero(at unsafe.Pointer, bytes int) error {
	const doing = "clearing its memory"
	var places []Place
	var sizes []int
	return d.do(func() error {
		err := d.each(doing, at, bytes, func(p Place, _, n int) error {
			if d.Cuts() && (p.First != 0 || n%4 != 0) {
				d.Count(n, 0)
				return d.write(p, make([]byte, n))
			}
			places, sizes = append(places, p), append(sizes, n)
			return nil
		})
		if err != nil || len(places) == 0 {
			return err
		}
		return d.errorf(doing, d.mover.Zero(places, sizes))
	})
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
	targets, sources := make([]Place, len(to)), make([]Place, len(from))
	for i := range to {
		var err, sourceErr error
		targets[i], err = d.table.within(to[i], ends[0])
		sources[i], sourceErr = d.table.within(from[i], ends[1])
		if err := errors.Join(err, sourceErr); err != nil {
			return err
		}
	}
	return d.do(func() error { return d.errorf("copying within it", d.mover.CopyRuns(targets, sources, some)) })
}

func (d *deviceStorage) Wait() error {
	return d.do(func() error { return d.errorf("computing", d.driver.Wait()) })
}

// An allocation is one buffer or, if buffers are handles, one for each edge.
type allocation struct {
	at    unsafe.Pointer
	bytes int
	parts []part
}

// A part is a buffer with the bytes of an allocation from an offset on.
type part struct {
	from, bytes int
	buffer      unsafe.Pointer
}

// A table finds allocations by their addresses.
type table struct {
	name    string // name of the device
	handles bool   // addresses are numbers that the table assigns

	mu          sync.Mutex
	closed      bool
	next        uintptr
	allocations []*allocation // by address
}

// The numbers that serve as addresses of handles begin beyond real addresses. Between two
// allocations at least pageBytes are unused.
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

// remove removes the allocation that begins at an address. It returns nil if close has
// done so, and panics if there never was one.
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

// close removes all allocations, and lets none be added. first is false if it was called
// before.
func (t *table) close() (all []*allocation, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, first = t.allocations, !t.closed
	t.allocations, t.closed = nil, true
	return all, first
}

// place returns the place of an address, and how many bytes its buffer has from there on.
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

// within is place for bytes that must lie in one buffer.
func (t *table) within(at unsafe.Pointer, bytes int) (Place, error) {
	p, left, err := t.place(at)
	if err == nil && bytes > left {
		err = fmt.Errorf("%s: %d bytes at %d of a buffer of %d", t.name, bytes, p.First, p.Bytes)
	}
	return p, err
}
