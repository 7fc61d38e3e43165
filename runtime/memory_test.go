package runtime

import (
	"errors"
	"os"
	"slices"
	"testing"
	"unsafe"

	"onering/models"
	"onering/runtime/provision"
)

// openOn opens an Env on a device, or skips. When the test ends its memory must be empty.
func openOn(t *testing.T, name string) *Env {
	t.Helper()
	if os.Getenv("ONERING_SKIP_RUNTIME") != "" {
		t.Skip("this test needs ONNX Runtime")
	}
	e, err := Open(t.Context(), Options{Device: name})
	var unusable *provision.UnusableGPUError
	if errors.As(err, &unusable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := e.leftOnDevice(); n > 0 {
			t.Errorf("%d allocations of the device's memory were not freed", n)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// leftOnDevice returns how many allocations a device has.
func (e *Env) leftOnDevice() int {
	return len(e.memory.allocations)
}

// TestMemories checks the contract of a memory on the host and on devices.
func TestMemories(t *testing.T) {
	for _, device := range devices {
		t.Run(device, func(t *testing.T) {
			m := openOn(t, device).memory
			at, err := m.Alloc(16)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Free(at)
			from, to := []float32{1, 2, 3, 4}, make([]float32, 4)
			read := func() []float32 {
				if err := m.Download(unsafe.Pointer(&to[0]), at, 16); err != nil {
					t.Fatal(err)
				}
				return to
			}
			if err := m.Upload(at, unsafe.Pointer(&from[0]), 16); err != nil {
				t.Fatal(err)
			}
			clear(from) // the upload is complete
			if got := read(); !slices.Equal(got, []float32{1, 2, 3, 4}) {
				t.Errorf("uploaded 1 to 4, downloaded %v", got)
			}
			if err := m.Zero(unsafe.Add(at, 8), 4); err != nil {
				t.Fatal(err)
			}
			// Copy elements 0 and 2 to 1 and 3.
			if err := m.CopyRuns([]unsafe.Pointer{at}, []unsafe.Pointer{at}, Runs{To: 4, Stride: 8, FromStride: 8, Width: 4, Count: 2}); err != nil {
				t.Fatal(err)
			}
			if got := read(); !slices.Equal(got, []float32{1, 1, 0, 0}) {
				t.Errorf("after clearing and copying: %v", got)
			}
			if err := m.Wait(); err != nil {
				t.Error(err)
			}
			up, down := m.Crossed()
			if m.IsHost() && up+down != 0 || !m.IsHost() && (up != 16 || down != 2*16) {
				t.Errorf("%d bytes crossed and %d came back, want 16 and 32", up, down)
			}
		})
	}
}

// TestMirrors: in a memory that aliases, the mirror of an address is the address
// itself. In others it is host memory that is used again.
func TestMirrors(t *testing.T) {
	for _, m := range []*memory{host, openOn(t, "stand-in-cuda").memory} {
		at, err := m.Alloc(64)
		if err != nil {
			t.Fatal(err)
		}
		first := hostBytes(m, at, 64, nil)
		if same := unsafe.Pointer(&first[0]) == at; same != m.IsHost() {
			t.Errorf("%s: the host's side is the address: %t", m, same)
		}
		if second := hostBytes(m, at, 32, first); &second[0] != &first[0] || len(second) != 32 {
			t.Errorf("%s: a smaller part has other memory", m)
		}
		m.Free(at)
	}
}

// TestBuffersReuse: the same shape again allocates nothing, and a smaller shape uses
// the same memory. Asking for elements of another type is a bug and panics.
func TestBuffersReuse(t *testing.T) {
	openOn(t, "cpu")
	b := hostBuffer(models.F32)
	defer b.close()
	big, v, err := sized[float32](&b, 4, 8)
	if err != nil {
		t.Fatal(err)
	}
	shape := []int64{4, 8}
	if n := testing.AllocsPerRun(10, func() {
		if again, err := b.resize(shape...); err != nil || again != v {
			t.Errorf("%v, %v", again, err)
		}
		elements[float32](&b)
		if err := b.push(); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%g allocations for the same shape again", n)
	}
	small, _, err := sized[float32](&b, 3)
	if err != nil || len(small) != 3 || &small[0] != &big[0] {
		t.Errorf("a smaller shape: %d elements, %v", len(small), err)
	}
	defer func() {
		if recover() == nil {
			t.Error("int64 elements of a buffer of float32 were returned")
		}
	}()
	elements[int64](&b)
}
