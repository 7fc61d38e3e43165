package runtime_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"
)

// counted is a Driver that counts its buffers and fails to make the buffer after limit.
type counted struct {
	runtimetest.Host
	held, limit, closed int
}

func (c *counted) Alloc(bytes int) (unsafe.Pointer, error) {
	if c.held == c.limit {
		return nil, errors.New("out of memory")
	}
	c.held++
	return c.Host.Alloc(bytes)
}

func (c *counted) Free(unsafe.Pointer) { c.held-- }
func (c *counted) Close()              { c.closed++ }

// storage returns the memory of a device.
func storage() (*runtime.Memory, *counted) {
	c := &counted{limit: 1 << 20}
	return runtime.NewMemory("test:0", c), c
}

// TestDeviceIsMemory: after copies, clears and moves at any places, a device has the
// same bytes as host memory after the same calls, and it counts the bytes that crossed.
func TestDeviceIsMemory(t *testing.T) {
	d, c := storage()
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		n := 1 + r.IntN(200)
		at, err := d.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		other, err := d.Alloc(1 + r.IntN(5000)) // so that addresses have neighbours
		if err != nil {
			t.Fatal(err)
		}
		host, got := make([]byte, n), make([]byte, n)
		if err := d.Upload(at, unsafe.Pointer(&host[0]), n); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			change(t, r, d, at, host)
		}
		up, down := d.Crossed()
		if err := d.Download(unsafe.Pointer(&got[0]), at, n); err != nil || !bytes.Equal(got, host) {
			t.Fatalf("%v, %v, want %v", got, err, host)
		}
		if nowUp, nowDown := d.Crossed(); nowUp != up || nowDown != down+int64(n) {
			t.Fatalf("a download of %d counts %d up and %d down", n, nowUp-up, nowDown-down)
		}
		d.Free(at)
		d.Free(other)
	}
	if d.Held() != 0 || c.held != 0 {
		t.Errorf("%d allocations of %d buffers are left", d.Held(), c.held)
	}
}

// change makes one change to a device's bytes and the same change to the host's.
func change(t *testing.T, r *rand.Rand, d *runtime.Memory, at unsafe.Pointer, host []byte) {
	t.Helper()
	from := r.IntN(len(host))
	n := 1 + r.IntN(len(host)-from)
	var err error
	switch r.IntN(3) {
	case 0:
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		err = d.Upload(unsafe.Add(at, from), unsafe.Pointer(&data[0]), n)
		copy(host[from:], data)
		clear(data) // the upload is complete
	case 1:
		err = d.Zero(unsafe.Add(at, from), n)
		clear(host[from : from+n])
	case 2: // Runs do not overlap.
		half := len(host) / 2
		if half == 0 {
			return
		}
		width := 1 + r.IntN(half)
		stride := width + r.IntN(half)
		runs := 1 + (half-width)/stride
		// two pieces, the first of which may be empty
		first, buffer := r.IntN(runs), []unsafe.Pointer{at}
		err = d.CopyRuns(buffer, buffer, runtime.Runs{half, stride, 0, stride, width, first},
			runtime.Runs{half + first*stride, stride, first * stride, stride, width, runs - first})
		for k := range runs {
			copy(host[half+k*stride:][:width], host[k*stride:])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDeviceRefuses: a device touches no bytes outside of an allocation, and a failure
// leaves no buffers behind.
func TestDeviceRefuses(t *testing.T) {
	d, c := storage()
	at, err := d.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	var spare [200]byte
	p := unsafe.Pointer(&spare[0])
	for name, err := range map[string]error{
		"an upload beyond the end":    d.Upload(at, p, 101),
		"a download beyond the end":   d.Download(p, unsafe.Add(at, 50), 51),
		"clearing beyond the end":     d.Zero(unsafe.Add(at, 99), 2),
		"clearing what is not there":  d.Zero(unsafe.Add(at, 100), 1),
		"runs beyond the end":         d.CopyRuns([]unsafe.Pointer{at}, []unsafe.Pointer{unsafe.Add(at, 60)}, runtime.Runs{Stride: 50, FromStride: 30, Width: 10, Count: 3}),
		"a tensor beyond the end":     d.Within(at, 101),
		"a tensor that is not there":  d.Within(p, 1),
		"no bytes":                    second(d.Alloc(0)),
		"a negative number of bytes":  second(d.Alloc(-1)),
		"a download from elsewhere":   d.Download(p, unsafe.Add(at, -1), 1),
		"a download of host's memory": d.Download(p, p, 1),
	} {
		if err == nil || !strings.Contains(err.Error(), "test:0: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	held := c.held
	c.limit = held + 1
	if _, err := d.Alloc(1 << 20); err != nil {
		t.Error(err)
	}
	if _, err := d.Alloc(100); err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("without memory: %v", err)
	}
	if c.held != held+1 {
		t.Errorf("%d buffers, want %d", c.held, held+1)
	}
	d.Close()
	d.Close()
	d.Free(at) // which Close has freed
	if _, err := d.Alloc(1); err == nil || c.held != 0 || c.closed != 1 {
		t.Errorf("after Close: %v, %d buffers, closed %d times", err, c.held, c.closed)
	}
}

// TestDeviceFreesOnce: only allocated storage can be freed, and only once.
func TestDeviceFreesOnce(t *testing.T) {
	d, _ := storage()
	at, err := d.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []unsafe.Pointer{unsafe.Add(at, 8), nil, at} {
		if wrong == at {
			d.Free(at)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("freed %p, allocated %p", wrong, at)
				}
			}()
			d.Free(wrong)
		}()
	}
}

func second[T any](_ T, err error) error { return err }

// A device that no longer answers is detected by its first failure, and gets no further
// calls; a device that fails at one call only continues.
func TestDeviceLost(t *testing.T) {
	left := new(atomic.Int64)
	left.Store(100)
	driver := &counted{Host: runtimetest.Host{Calls: left}, limit: 1}
	d := runtime.NewMemory("test:0", driver)
	at, err := d.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Alloc(64); err == nil || errors.Is(err, runtime.ErrLost) || d.Wait() != nil {
		t.Errorf("a full memory: %v", err)
	}
	var spare [64]byte
	p := unsafe.Pointer(&spare[0])
	left.Store(0)
	lost := d.Upload(at, p, 64)
	calls := left.Load()
	for name, err := range map[string]error{
		"an upload": lost, "a download": d.Download(p, at, 64), "clearing": d.Zero(at, 64), "waiting": d.Wait(), "an allocation": second(d.Alloc(64)),
		"runs": d.CopyRuns([]unsafe.Pointer{at}, []unsafe.Pointer{at}, runtime.Runs{To: 32, Width: 16, Count: 1}), "a run": d.Check(nil), "a run that failed": d.Check(errors.New("as well")),
	} {
		if !errors.Is(err, runtime.ErrLost) || !strings.Contains(err.Error(), "test:0: ") || !strings.Contains(err.Error(), "was reset") || !strings.Contains(err.Error(), "--resume") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left.Load() != calls {
		t.Errorf("the device was asked %d times after it was lost", calls-left.Load())
	}
	d.Free(at)
	d.Close()
}
