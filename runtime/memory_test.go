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
	if d, ok := e.memory.storage.(*deviceStorage); ok {
		return d.Held()
	}
	return 0
}

// TestMemories checks the contract of storage on the host and on devices with
// addresses and with handles, where graphs move bytes.
func TestMemories(t *testing.T) {
	for _, device := range devices {
		t.Run(device, func(t *testing.T) {
			m := openOn(t, device).memory
			at, err := m.Alloc(16, nil)
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
			want := int64(16)
			if m.Cuts() {
				want += 4 + 4*8 // the zeros inside a buffer, and the rows that a graph takes and puts
			}
			if m.Aliases() && up+down != 0 || !m.Aliases() && (up != want || down != 2*16) {
				t.Errorf("%d bytes crossed and %d came back, want %d and 32", up, down, want)
			}
		})
	}
}

// TestMemoriesCut: an allocation that is cut has a buffer from each edge on, where the
// device has handles, and copies go over the edges.
func TestMemoriesCut(t *testing.T) {
	for _, device := range devices {
		t.Run(device, func(t *testing.T) {
			m := openOn(t, device).memory
			at, err := m.Alloc(40, []int{0, 12, 16})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Free(at)
			from := []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
			to := make([]float32, 10)
			holds := func(want ...float32) {
				t.Helper()
				if err := m.Download(unsafe.Pointer(&to[0]), at, 40); err != nil || !slices.Equal(to, want) {
					t.Errorf("%v, %v, want %v", to, err, want)
				}
			}
			if err := m.Upload(at, unsafe.Pointer(&from[0]), 40); err != nil {
				t.Fatal(err)
			}
			holds(from...)
			// Parts of two buffers: the rest stays.
			if err := m.Upload(unsafe.Add(at, 8), unsafe.Pointer(&from[7]), 12); err != nil {
				t.Fatal(err)
			}
			holds(1, 2, 8, 9, 10, 6, 7, 8, 9, 10)
			if err := m.Zero(unsafe.Add(at, 4), 16); err != nil {
				t.Fatal(err)
			}
			holds(1, 0, 0, 0, 0, 6, 7, 8, 9, 10)
			if err := m.CopyRuns([]unsafe.Pointer{unsafe.Add(at, 16)}, []unsafe.Pointer{unsafe.Add(at, 28)}, Runs{Width: 8, Count: 1}); err != nil {
				t.Fatal(err)
			}
			holds(1, 0, 0, 0, 8, 9, 7, 8, 9, 10)
			for place, bytes := range map[int]int{4: 8, 0: 16} { // a range inside a buffer, and a range over two buffers
				v, err := newValue(m, models.F32, unsafe.Add(at, place), bytes, []int64{int64(bytes / 4)})
				if err == nil {
					v.Close()
				}
				if (err != nil) != m.Cuts() {
					t.Errorf("a Value of %d bytes at %d: %v", bytes, place, err)
				}
			}
		})
	}
}

// TestMirrors: in a memory that aliases, the mirror of an address is the address
// itself. In others it is host memory that is used again.
func TestMirrors(t *testing.T) {
	for _, m := range []*memory{host, openOn(t, "stand-in-cuda").memory} {
		at, err := m.Alloc(64, nil)
		if err != nil {
			t.Fatal(err)
		}
		first := mirror(m, at, 64, nil)
		if same := unsafe.Pointer(&first[0]) == at; same != m.Aliases() {
			t.Errorf("%s: the host's side is the address: %t", m, same)
		}
		if second := mirror(m, at, 32, first); &second[0] != &first[0] || len(second) != 32 {
			t.Errorf("%s: a smaller part has other memory", m)
		}
		m.Free(at)
	}
}

// TestBuffersReuse: the same shape again allocates nothing, and a smaller shape uses
// the same memory. Room to grow makes no buffer larger than a kernel takes. Asking for elements of another type is a bug and panics.
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
		if again, err := b.of(shape...); err != nil || again != v {
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
	for most, want := range map[int64]int{0: 900, 900 * 4: 900, 899 * 4: 800} {
		m := openOn(t, "stand-in-cuda").memory
		m.largest = most
		b := buffer{memory: m, dtype: models.F32}
		if _, err := b.of(800); err != nil || b.capacity != want {
			t.Errorf("where a kernel takes %d bytes, a buffer of 800 numbers has room for %d, want %d: %v", most, b.capacity, want, err)
		}
		b.close()
	}
	defer func() {
		if recover() == nil {
			t.Error("int64 elements of a buffer of float32 were returned")
		}
	}()
	elements[int64](&b)
}
