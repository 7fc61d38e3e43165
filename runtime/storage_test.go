package runtime_test

import (
	"bytes"
	"errors"
	"fmt"
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
	if c.Grain > 0 && bytes%c.Grain != 0 {
		return nil, fmt.Errorf("%d is no multiple of %d", bytes, c.Grain)
	}
	c.held++
	return c.Host.Alloc(bytes)
}

func (c *counted) Free(unsafe.Pointer) { c.held-- }
func (c *counted) Close()              { c.closed++ }

// storage returns the storage of a device with addresses (grain 0) or handles.
func storage(grain int) (*runtime.Storage, *counted) {
	c := &counted{Host: runtimetest.Host{Grain: grain}, limit: 1 << 20}
	return runtime.NewStorage("test:0", c, c, grain), c
}

// TestDeviceIsMemory: after copies, clears and moves at any places, a storage has the
// same bytes as host memory after the same calls, and it counts the bytes that crossed.
func TestDeviceIsMemory(t *testing.T) {
	for _, grain := range []int{0, 4, 16} {
		d, c := storage(grain)
		r := rand.New(rand.NewPCG(uint64(grain), 1))
		for range 200 {
			n := 1 + r.IntN(200)
			edges := []int{0}
			for at := 1 + r.IntN(40); at < n; at += 1 + r.IntN(40) {
				edges = append(edges, at)
			}
			at, err := d.Alloc(n, edges)
			if err != nil {
				t.Fatal(err)
			}
			other, err := d.Alloc(1+r.IntN(5000), nil) // so that addresses have neighbours
			if err != nil {
				t.Fatal(err)
			}
			host, got := make([]byte, n), make([]byte, n)
			if err := d.Upload(at, unsafe.Pointer(&host[0]), n); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				change(t, r, d, at, host, edges)
			}
			up, down := d.Crossed()
			if err := d.Download(unsafe.Pointer(&got[0]), at, n); err != nil || !bytes.Equal(got, host) {
				t.Fatalf("grain %d: %v, %v, want %v", grain, got, err, host)
			}
			if nowUp, nowDown := d.Crossed(); nowUp != up || nowDown != down+int64(n) {
				t.Fatalf("grain %d: a download of %d counts %d up and %d down", grain, n, nowUp-up, nowDown-down)
			}
			d.Free(at)
			d.Free(other)
		}
		if d.Held() != 0 || c.held != 0 {
			t.Errorf("grain %d: %d allocations of %d buffers are left", grain, d.Held(), c.held)
		}
	}
}

// change makes one change to a device's bytes and the same change to the host's.
func change(t *testing.T, r *rand.Rand, d *runtime.Storage, at unsafe.Pointer, host []byte, edges []int) {
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
	case 2: // Runs stay in one buffer, and do not overlap.
		edges = append(edges, len(host))
		i := r.IntN(len(edges) - 1)
		half := (edges[i+1] - edges[i]) / 2
		if half == 0 {
			return
		}
		width := 1 + r.IntN(half)
		stride := width + r.IntN(half)
		runs := 1 + (half-width)/stride
		// two pieces, the first of which may be empty
		first, buffer := r.IntN(runs), []unsafe.Pointer{unsafe.Add(at, edges[i])}
		err = d.CopyRuns(buffer, buffer, runtime.Runs{half, stride, 0, stride, width, first},
			runtime.Runs{half + first*stride, stride, first * stride, stride, width, runs - first})
		for k := range runs {
			copy(host[edges[i]+half+k*stride:][:width], host[edges[i]+k*stride:])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDeviceRefuses: a device touches no bytes outside of an allocation, and a failure
// leaves no buffers behind.
func TestDeviceRefuses(t *testing.T) {
	for _, grain := range []int{0, 16} {
		d, c := storage(grain)
		at, err := d.Alloc(100, []int{0, 20})
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
			"a tensor beyond the end":     second(d.Tensor(at, 101)),
			"a tensor that is not there":  second(d.Tensor(p, 1)),
			"no bytes":                    second(d.Alloc(0, nil)),
			"a negative number of bytes":  second(d.Alloc(-1, nil)),
			"a download from elsewhere":   d.Download(p, unsafe.Add(at, -1), 1),
			"a download of host's memory": d.Download(p, p, 1),
		} {
			if err == nil || !strings.Contains(err.Error(), "test:0: ") {
				t.Errorf("grain %d: %s: %v", grain, name, err)
			}
		}
		if grain > 0 {
			for _, edges := range [][]int{{1}, {0, 100}, {0, 4, 4}, {0, 8, 4}} {
				if _, err := d.Alloc(100, edges); err == nil {
					t.Errorf("cut at %d", edges)
				}
			}
			if _, err := d.Tensor(unsafe.Add(at, 4), 4); err == nil {
				t.Error("a tensor begins within a buffer")
			}
		}
		held := c.held
		c.limit = held + 1
		if _, err := d.Alloc(1<<20, nil); err != nil {
			t.Error(err)
		}
		if _, err := d.Alloc(100, []int{0, 50}); err == nil || !strings.Contains(err.Error(), "out of memory") {
			t.Errorf("grain %d: without memory: %v", grain, err)
		}
		if c.held != held+1 {
			t.Errorf("grain %d: %d buffers, want %d", grain, c.held, held+1)
		}
		d.Close()
		d.Close()
		d.Free(at) // which Close has freed
		if _, err := d.Alloc(1, nil); err == nil || c.held != 0 || c.closed != 1 {
			t.Errorf("grain %d: after Close: %v, %d buffers, closed %d times", grain, err, c.held, c.closed)
		}
	}
}

// TestDeviceFreesOnce: only allocated storage can be freed, and only once.
func TestDeviceFreesOnce(t *testing.T) {
	for _, grain := range []int{0, 16} {
		d, _ := storage(grain)
		at, err := d.Alloc(100, nil)
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
						t.Errorf("grain %d: freed %p, allocated %p", grain, wrong, at)
					}
				}()
				d.Free(wrong)
			}()
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A device that no longer answers is detected by its first failure, and gets no further
// calls; a device that fails at one call only continues.
func TestDeviceLost(t *testing.T) {
	for _, grain := range []int{0, 16} {
		left := new(atomic.Int64)
		left.Store(100)
		driver := &counted{Host: runtimetest.Host{Grain: grain, Calls: left}, limit: 1}
		d := runtime.NewStorage("test:0", driver, driver, grain)
		at, err := d.Alloc(64, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Alloc(64, nil); err == nil || errors.Is(err, runtime.ErrLost) || d.Wait() != nil {
			t.Errorf("grain %d: a full memory: %v", grain, err)
		}
		var spare [64]byte
		p := unsafe.Pointer(&spare[0])
		left.Store(0)
		lost := d.Upload(at, p, 64)
		calls := left.Load()
		for name, err := range map[string]error{
			"an upload": lost, "a download": d.Download(p, at, 64), "clearing": d.Zero(at, 64), "waiting": d.Wait(), "an allocation": second(d.Alloc(64, nil)),
			"runs": d.CopyRuns([]unsafe.Pointer{at}, []unsafe.Pointer{at}, runtime.Runs{To: 32, Width: 16, Count: 1}), "a run": d.Check(nil), "a run that failed": d.Check(errors.New("as well")),
		} {
			if !errors.Is(err, runtime.ErrLost) || !strings.Contains(err.Error(), "test:0: ") || !strings.Contains(err.Error(), "was reset") || !strings.Contains(err.Error(), "--resume") {
				t.Errorf("grain %d: %s: %v", grain, name, err)
			}
		}
		if left.Load() != calls {
			t.Errorf("grain %d: the device was asked %d times after it was lost", grain, calls-left.Load())
		}
		d.Free(at)
		d.Close()
	}
}
