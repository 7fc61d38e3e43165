package cuda

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"onering/runtime"
)

// fakeCudart is a CUDA runtime with two GPUs. The memory of GPU 1 is the host's; it
// copies and clears only when a stream is waited for, which is as late as a real
// GPU may do so. Its first stream blocks and the others do not. GPU 7 is broken.
const fakeCudart = `#include <stdlib.h>
#include <string.h>
typedef struct { int done, n; struct { void *to; const void *from; size_t bytes; struct event *after; int count; } queue[64]; } line;
typedef struct event { line *of; int count; } event;
static line lines[3];
static event events[16];
static int device, streams, made;
static char *locked;
static size_t locked_bytes;
#define stream lines[0]
static void until(line *s, int count) {
	while (s->done < count) {
		int i = s->done++;
		if (s->queue[i].after) until(s->queue[i].after->of, s->queue[i].count);
		else if (s->queue[i].from) memcpy(s->queue[i].to, s->queue[i].from, s->queue[i].bytes);
		else memset(s->queue[i].to, 0, s->queue[i].bytes);
	}
}
static int push(void *s, void *to, const void *from, size_t bytes) {
	line *l = s;
	if (l < lines || l >= lines + streams || l->n == 64) return 1;
	l->queue[l->n].to = to, l->queue[l->n].from = from, l->queue[l->n++].bytes = bytes;
	return 0;
}
int cudaSetDevice(int d) { if (d != 1 && d != 7) return 101; device = d; return 0; }
int cudaStreamCreateWithFlags(void **s, unsigned flags) {
	if (device == 7) return 46;
	if (streams == 3 || flags != (streams > 0)) return 1;
	*s = &lines[streams++];
	return 0;
}
int cudaHostRegister(void *at, size_t bytes, unsigned flags) { if (locked || flags != 1 || bytes > 1 << 20) return 2; locked = at; locked_bytes = bytes; return 0; }
int cudaHostUnregister(void *at) { if (locked != at) return 1; locked = 0; return 0; }
int cudaEventCreateWithFlags(void **e, unsigned flags) { if (flags != 2 || made == 16) return 1; *e = &events[made++]; return 0; }
int cudaEventRecord(void *e, void *s) { ((event *)e)->of = s; ((event *)e)->count = ((line *)s)->n; return 0; }
int cudaStreamWaitEvent(void *s, void *e, unsigned flags) {
	event *at = e;
	if (!at->of) return flags;
	if (push(s, 0, 0, 0)) return 1;
	line *l = s;
	l->queue[l->n - 1].after = at, l->queue[l->n - 1].count = at->count;
	return flags;
}
int cudaMalloc(void **p, size_t bytes) { if (bytes > 20 << 20) return 2; *p = malloc(bytes); return 0; }
int cudaHostAlloc(void **p, size_t bytes, unsigned flags) { *p = malloc(bytes); return getenv("NO_PINNED") ? 2 : 0; }
int cudaFree(void *p) { free(p); return 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *s) {
	if (kind != 1 && kind != 2 || s == &lines[1] && kind != 1 || s == &lines[2] && kind != 2) return 1;
	const char *host = kind == 1 ? from : to;
	if (s != &stream && (!locked || host < locked || host + bytes > locked + locked_bytes)) return 1;
	return push(s, to, from, bytes);
}
int cudaMemsetAsync(void *at, int value, size_t bytes, void *s) { return s != &stream || value ? 1 : push(s, at, 0, bytes); }
int cudaMemcpy2DAsync(void *to, size_t stride, const void *from, size_t from_stride, size_t width, size_t runs, int kind, void *s) {
	if (s != &stream || kind != 3 || stride < width || from_stride < width) return 1;
	for (size_t i = 0; i < runs; i++) memcpy((char *)to + i * stride, (const char *)from + i * from_stride, width);
	return 0;
}
int cudaStreamSynchronize(void *s) {
	line *l = s;
	if (l < lines || l >= lines + streams) return 1;
	until(l, l->n);
	return 0;
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
	from, to := []float32{1, 2, 3, 4}, make([]float32, 4)
	if err := m.Write(buffer, words(from)); err != nil {
		t.Fatal(err)
	}
	clear(from) // A write is complete when it returns.
	if err := m.Zero(unsafe.Add(buffer, 8), 4); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(words(to), buffer); err != nil || !slices.Equal(to, []float32{1, 2, 0, 4}) {
		t.Errorf("%v, %v", to, err)
	}
	// Copy elements 0 and 2 to 1 and 3.
	if err := m.CopyRuns([]unsafe.Pointer{buffer}, []unsafe.Pointer{buffer}, []runtime.Runs{{To: 4, Stride: 8, FromStride: 8, Width: 4, Count: 2}}); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(words(to), buffer); err != nil || !slices.Equal(to, []float32{1, 1, 0, 0}) {
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

// TestStreams: copies that streams have begun are done when Settle returns, in the order
// of the marks, on separate streams and with locked memory.
func TestStreams(t *testing.T) {
	const n = 4
	m, err := openMemory(compile(t, t.TempDir(), "libcudart-fake.so.13", fakeCudart), 1)
	if err != nil {
		t.Fatal(err)
	}
	var streams runtime.Streams = m
	host := make([]float32, 3*n) // the bytes that go up, those that come down, and those that are not locked
	for i := range n {
		host[i] = float32(i + 1)
	}
	buffer, err := m.Alloc(4 * n)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free(buffer)
	try := func(what string, err error) {
		if t.Helper(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	const up, computed, never = 0, 1, 9
	try("lock", streams.Lock(words(host[:2*n])))
	if err := streams.Lock(words(host[2*n:])); err == nil || err.Error() != "out of memory" {
		t.Errorf("locking too much: %v", err)
	}
	if err := errors.Join(streams.Begin(runtime.StreamUp, buffer, words(host[2*n:])), streams.Settle()); err == nil {
		t.Error("memory that is not locked was copied")
	}
	try("a mark that notes nothing", streams.Follow(runtime.StreamUp, never))
	try("up", streams.Begin(runtime.StreamUp, buffer, words(host[:n])))
	try("mark", streams.Mark(runtime.StreamUp, up))
	try("follow", streams.Follow(runtime.StreamComputes, up))
	try("compute", m.Zero(unsafe.Add(buffer, 4), 4))
	try("mark", streams.Mark(runtime.StreamComputes, computed))
	try("follow", streams.Follow(runtime.StreamDown, computed))
	try("down", streams.Begin(runtime.StreamDown, buffer, words(host[n:2*n])))
	if host[n] != 0 {
		t.Error("a copy was made too early to show anything")
	}
	try("settle", streams.Settle())
	if !slices.Equal(host[n:2*n], []float32{1, 0, 3, 4}) {
		t.Errorf("down came %v", host[n:2*n])
	}
	streams.Unlock(words(host[:2*n]))
	try("lock again", streams.Lock(words(host)))
	streams.Unlock(words(host))
	t.Setenv(unpinned, "1")
	if err := streams.Lock(words(host)); err == nil || !strings.Contains(err.Error(), unpinned) {
		t.Errorf("switched off: %v", err)
	}
	without := strings.Replace(fakeCudart, "cudaHostRegister", "otherwise", 1)
	t.Setenv(unpinned, "")
	if m, err = openMemory(compile(t, t.TempDir(), "libcudart-fake.so.13", without), 1); err != nil {
		t.Fatal(err)
	}
	if err := m.Lock(words(host)); err == nil || !strings.Contains(err.Error(), "lacks cudaHostRegister") {
		t.Errorf("without the function: %v", err)
	}
}

// TestPinnedCopies: large copies go through pinned memory if there is any, and arrive equally
// without it.
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
			from, to := make([]uint32, bytes/4), make([]uint32, bytes/4)
			for i := range from {
				from[i] = uint32(i) * 2654435761
			}
			want := slices.Clone(from)
			if err := m.Write(buffer, words(from)); err != nil {
				t.Fatal(err)
			}
			clear(from)
			if err := m.Read(words(to), buffer); err != nil || !slices.Equal(to, want) {
				t.Errorf("%v, the same %v", err, slices.Equal(to, want))
			}
		})
	}
}
