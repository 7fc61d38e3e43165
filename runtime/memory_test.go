package runtime

import (
	"os"
	"slices"
	"testing"
	"unsafe"

	"onering/models"
)

// TestMemories checks the contract of memory on those that need no device.
func TestMemories(t *testing.T) {
	for _, m := range append([]memory{host, newStandIn()}, deviceMemories(t)...) {
		t.Run(m.String(), func(t *testing.T) {
			at, err := m.alloc(16)
			if err != nil {
				t.Fatal(err)
			}
			from, to := []float32{1, 2, 3, 4}, make([]float32, 4)
			read := func() []float32 {
				if err := m.download(unsafe.Pointer(&to[0]), at, 16); err != nil {
					t.Fatal(err)
				}
				return to
			}
			if err := m.upload(at, unsafe.Pointer(&from[0]), 16); err != nil {
				t.Fatal(err)
			}
			clear(from) // the upload is complete
			if got := read(); !slices.Equal(got, []float32{1, 2, 3, 4}) {
				t.Errorf("uploaded 1 to 4, downloaded %v", got)
			}
			if err := m.zero(unsafe.Add(at, 8), 4); err != nil {
				t.Fatal(err)
			}
			// Copy elements 0 and 2 to 1 and 3.
			if err := m.copyRuns(unsafe.Add(at, 4), 8, at, 8, 4, 2); err != nil {
				t.Fatal(err)
			}
			if got := read(); !slices.Equal(got, []float32{1, 1, 0, 0}) {
				t.Errorf("after clearing and copying: %v", got)
			}
			if err := m.wait(); err != nil {
				t.Error(err)
			}
			up, down := m.crossed()
			if m.cuts() {
				up = min(up, 16) // graphs copy and clear, and take the places of rows from the host
			}
			if want := int64(16); m.aliases() && up+down != 0 || !m.aliases() && (up != want || down != 2*want) {
				t.Errorf("%d bytes crossed and %d came back", up, down)
			}
			m.free(at)
		})
	}
}

// TestMirrors: in a memory that aliases, the mirror of an address is the address
// itself. In others it is host memory that is used again.
func TestMirrors(t *testing.T) {
	m := newStandIn()
	for _, m := range []memory{host, m} {
		at, err := m.alloc(64)
		if err != nil {
			t.Fatal(err)
		}
		first := mirror(m, at, 64, nil)
		if same := unsafe.Pointer(&first[0]) == at; same != m.aliases() {
			t.Errorf("%s: the host's side is the address: %t", m, same)
		}
		if second := mirror(m, at, 32, first); &second[0] != &first[0] || len(second) != 32 {
			t.Errorf("%s: a smaller part has other memory", m)
		}
		m.free(at)
	}
	if len(m.allocations) > 0 {
		t.Errorf("%d allocations are left", len(m.allocations))
	}
}

// TestBuffersReuse: the same shape again allocates nothing, and a smaller shape uses
// the same memory. Asking for elements of another type is a bug and panics.
func TestBuffersReuse(t *testing.T) {
	if os.Getenv("ONERING_SKIP_RUNTIME") != "" {
		t.Skip("this test needs ONNX Runtime")
	}
	e, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
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
	defer func() {
		if recover() == nil {
			t.Error("int64 elements of a buffer of float32 were returned")
		}
	}()
	elements[int64](&b)
}
