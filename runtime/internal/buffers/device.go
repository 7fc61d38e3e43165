package buffers

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// A Device is the Memory of a device. It may be used from several goroutines.
type Device struct {
	watch
	mover    Mover
	grain    int // 0 if buffers have addresses
	up, down atomic.Int64
	Copies   atomic.Int64 // of what Crossed returns, for tests
	table    table
}

// A watch finds out that a device is lost.
type watch struct {
	name   string
	driver Driver
	lost   atomic.Pointer[error] // what Check returns from then on
}

// Check does what Memory says.
func (w *watch) Check(err error) error {
	if lost := w.lost.Load(); lost != nil {
		return *lost
	}
	if err == nil || w.driver.Wait() == nil {
		return err
	}
	lost := fmt.Errorf("%s: %w; resume a run from its newest checkpoint (--resume) and start anything else again, here once the device is back or with another --device: %w", w.name, ErrLost, err)
	w.lost.CompareAndSwap(nil, &lost)
	return *w.lost.Load()
}

func (w *watch) errorf(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", w.name, doing, err)
}

// do calls f, unless the device is lost.
func (w *watch) do(f func() error) error {
	err := w.Check(nil)
	if err == nil {
		err = w.Check(f())
	}
	return err
}

// New returns the memory of a device, which errors call name. grain is 0 if the driver
// has addresses, and else how many bytes its sizes are multiples of.
func New(name string, driver Driver, mover Mover, grain int) *Device {
	return &Device{watch: watch{name: name, driver: driver}, mover: mover, grain: grain, table: table{name: name, handles: grain > 0, next: firstAddress}}
}

func (d *Device) Aliases() bool { return false }
func (d *Device) Cuts() bool    { return d.grain > 0 }

func (d *Device) Count(up, down int) {
	d.Copies.Add(1)
	d.up.Add(int64(up))
	d.down.Add(int64(down))
}

func (d *Device) Crossed() (up, down int64) { return d.up.Load(), d.down.Load() }

// Held returns how many allocations there are.
func (d *Device) Held() int { return d.table.len() }

func (d *Device) Alloc(bytes int, edges []int) (unsafe.Pointer, error) {
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
func (d *Device) fill(a *allocation, edges []int) error {
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

// Free panics if nothing is allocated at the address, unless Close has freed all.
func (d *Device) Free(at unsafe.Pointer) {
	if a := d.table.remove(at); a != nil {
		d.release(a)
	}
}

func (d *Device) release(a *allocation) {
	for _, p := range a.parts {
		d.driver.Free(p.buffer)
	}
}

func (d *Device) Close() {
	all, first := d.table.close()
	for _, a := range all {
		d.release(a)
	}
	if first {
		d.driver.Close()
	}
}

func (d *Device) Tensor(at unsafe.Pointer, bytes int) (unsafe.Pointer, error) {
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

// Place returns where a tensor of so many bytes lies.
func (d *Device) Place(at unsafe.Pointer, bytes int) (Place, error) { return d.table.within(at, bytes) }

// each calls f for each buffer that some bytes are in: n bytes at p, of which done
// were before.
func (d *Device) each(doing string, at unsafe.Pointer, bytes int, f func(p Place, done, n int) error) error {
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

func (d *Device) Upload(to, from unsafe.Pointer, bytes int) error {
	return d.do(func() error {
		return d.each("copying to it", to, bytes, func(p Place, done, n int) error {
			d.Count(n, 0)
			return d.write(p, unsafe.Slice((*byte)(unsafe.Add(from, done)), n))
		})
	})
}

// write copies to a buffer. What a driver with handles does not reach is staged: the
// whole buffer is read, changed and written.
func (d *Device) write(p Place, from []byte) error {
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

func (d *Device) Download(to, from unsafe.Pointer, bytes int) error {
	return d.do(func() error {
		return d.each("copying from it", from, bytes, func(p Place, done, n int) error {
			d.Count(0, n)
			return d.read(unsafe.Slice((*byte)(unsafe.Add(to, done)), n), p)
		})
	})
}

// read copies from a buffer, in a driver with handles from its beginning on.
func (d *Device) read(to []byte, p Place) error {
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

func (d *Device) Zero(at unsafe.Pointer, bytes int) error {
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

func (d *Device) CopyRuns(to, from []unsafe.Pointer, runs ...Runs) error {
	var some []Runs
	ends := [2]int{} // of what is written and read
	for _, r := range runs {
		if r.Width == 0 || r.Count == 0 {
			continue
		}
		if r.Count == 1 {
			r.Stride, r.FromStride = r.Width, r.Width // which a single run does not need
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

func (d *Device) Wait() error {
	return d.do(func() error { return d.errorf("computing", d.driver.Wait()) })
}
