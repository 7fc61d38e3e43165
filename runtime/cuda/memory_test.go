package cuda

import (
	"slices"
	"strings"
	"testing"
	"unsafe"

	"onering/runtime"
)

// fakeCudart is a CUDA runtime with two GPUs. The memory of GPU 1 is the host's; it
// copies and clears only when its stream is waited for, which is as late as a real
// GPU may do so. GPU 7 is broken.
const fakeCudart = `#include <stdlib.h>
#include <string.h>
static int device, stream, n;
static struct { void *to; const void *from; size_t bytes; } pending[8];
int cudaSetDevice(int d) { if (d != 1 && d != 7) return 101; device = d; return 0; }
int cudaStreamCreateWithFlags(void **s, unsigned flags) { if (device == 7) return 46; *s = &stream; return flags != 0; }
int cudaMalloc(void **p, size_t bytes) { if (bytes > 20 << 20) return 2; *p = malloc(bytes); return 0; }
int cudaHostAlloc(void **p, size_t bytes, unsigned flags) { *p = malloc(bytes); return getenv("NO_PINNED") ? 2 : 0; }
int cudaFree(void *p) { free(p); return 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *s) {
	if (s != &stream || (kind != 1 && kind != 2)) return 1;
	pending[n].to = to, pending[n].from = from, pending[n++].bytes = bytes;
	return 0;
}
int cudaMemsetAsync(void *at, int value, size_t bytes, void *s) {
	if (s != &stream || value) return 1;
	pending[n].to = at, pending[n].from = 0, pending[n++].bytes = bytes;
	return 0;
}
int cudaMemcpy2DAsync(void *to, size_t stride, const void *from, size_t from_stride, size_t width, size_t runs, int kind, void *s) {
	if (s != &stream || kind != 3 || stride < width || from_stride < width) return 1;
	for (size_t i = 0; i < runs; i++) memcpy((char *)to + i * stride, (const char *)from + i * from_stride, width);
	return 0;
}
int cudaStreamSynchronize(void *s) {
	for (int i = 0; i < n; i++)
		if (pending[i].from) memcpy(pending[i].to, pending[i].from, pending[i].bytes);
		else memset(pending[i].to, 0, pending[i].bytes);
	n = 0;
	return s != &stream;
}
const char *cudaGetErrorString(int code) { return code == 2 ? "out of memory" : code == 101 ? "invalid device ordinal" : "some other error"; }
`

// words are the bytes of numbers.
func words[T any](x []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(zero)))
}

func TestMemory(t *testing.T) {
	dir := t.TempDir()
	m, err := openMemory(compile(t, dir, "libcudart-fake.so.13", fakeCudart), 1)
	if err != nil {
		t.Fatal(err)
	}
	buffer, err := m.Alloc(16)
	if err != nil {
		t.Fatal(err)
	}
	at := func(first int) runtime.Place {
		return runtime.Place{Buffer: buffer, At: buffer, Bytes: 16, First: first}
	}
	from, to := []float32{1, 2, 3, 4}, make([]float32, 4)
	if err := m.Write(at(0), words(from)); err != nil {
		t.Fatal(err)
	}
	clear(from) // a write is complete when it returns
	if err := m.Zero([]runtime.Place{at(8)}, []int{4}); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(words(to), at(0)); err != nil || !slices.Equal(to, []float32{1, 2, 0, 4}) {
		t.Errorf("%v, %v", to, err)
	}
	// Copy elements 0 and 2 to 1 and 3.
	if err := m.CopyRuns([]runtime.Place{at(0)}, []runtime.Place{at(0)}, []runtime.Runs{{To: 4, Stride: 8, FromStride: 8, Width: 4, Count: 2}}); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(words(to), at(0)); err != nil || !slices.Equal(to, []float32{1, 1, 0, 0}) {
		t.Errorf("%v, %v", to, err)
	}
	m.Free(buffer)
	if _, err := m.Alloc(21 << 20); err == nil || err.Error() != "out of memory" {
		t.Errorf("too much memory: %v", err)
	}
	for _, c := range []struct {
		path string
		id   int
		want string
	}{
		{compile(t, dir, "libcudart-fake.so.13", fakeCudart), 5, "cuda:5: invalid device ordinal"},
		{compile(t, dir, "libcudart-fake.so.13", fakeCudart), 7, "cuda:7: some other error"},
		{compile(t, dir, "libempty.so", "int x;"), 0, "lacks the function cudaSetDevice"},
		{dir + "/none.so", 0, "none.so"},
	} {
		if _, err := openMemory(c.path, c.id); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("GPU %d of %s: %v, want %q", c.id, c.path, err, c.want)
		}
	}
}

// Large copies go through pinned memory, where there is any, and are the same without.
func TestPinnedCopies(t *testing.T) {
	const bytes = 20<<20 - 4
	without := strings.Replace(fakeCudart, "cudaHostAlloc", "otherwise", 1)
	for _, c := range []struct{ name, library, variable, want string }{
		{"with", fakeCudart, "", ""},
		{"without the function", without, "", "lacks the function cudaHostAlloc"},
		{"without memory", fakeCudart, "NO_PINNED", "allocating 16777216 bytes: out of memory"},
		{"switched off", fakeCudart, unpinned, "ONERING_UNPINNED is set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.variable != "" {
				t.Setenv(c.variable, "1")
			}
			m, err := openMemory(compile(t, t.TempDir(), "libcudart-fake.so.13", c.library), 1)
			if err != nil {
				t.Fatal(err)
			}
			err = m.pin()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || (err == nil) != (m.pinned != nil) {
				t.Fatalf("pinned %v, %v; want %q", m.pinned != nil, err, c.want)
			}
			buffer, err := m.Alloc(bytes)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Free(buffer)
			at := runtime.Place{Buffer: buffer, At: buffer, Bytes: bytes}
			from, to := make([]uint32, bytes/4), make([]uint32, bytes/4)
			for i := range from {
				from[i] = uint32(i) * 2654435761
			}
			want := slices.Clone(from)
			if err := m.Write(at, words(from)); err != nil {
				t.Fatal(err)
			}
			clear(from)
			if err := m.Read(words(to), at); err != nil || !slices.Equal(to, want) {
				t.Errorf("%v, the same %v", err, slices.Equal(to, want))
			}
		})
	}
}
