package runtime

// #include "ort.h"
import "C"

import (
	"sync/atomic"
	"unsafe"
)

// A memory is where the sessions of an Env find their tensors: the host's, or a
// device's. It is all that differs between devices: to run on another kind,
// implement it and let parseDevice and openMemory know it.
//
// Addresses. alloc reserves bytes (more than 0) of unknown content. What it
// returns is an address that grows with the bytes: at + n is the address of
// byte n, and a Value may begin at any multiple of its element's size, within an
// allocation. alloc aligns to at least 64 bytes on a device and 8 on the host.
// free takes what alloc returned, once no Value over it is bound to a session
// that still runs.
//
// Aliasing. Where aliases is true, an address is one of the host's memory: Go
// reads and writes it, upload and download copy nothing when both addresses are
// the same, and NewValue's tensors lie in this memory too. Where it is false, Go
// never touches an address, only passes it on.
//
// Copies. upload copies from the host, download to the host. Both have finished
// when they return: the host's bytes may be changed or read at once. zero clears.
// copyRuns copies runs of width bytes within the memory; run i begins at
// to + i*stride and from + i*fromStride, and no two runs overlap.
//
// Order. Everything that is done to one memory, and every run of a session on
// it, takes effect in the order of the calls. zero, copyRuns and runs may still
// be under way when they return; upload and download wait for all that came
// before, and so does wait.
//
// Counting. A memory apart from the host's counts the bytes that cross, both of
// copies and of host values that its sessions read and write.
type memory interface {
	alloc(bytes int) (unsafe.Pointer, error)
	free(at unsafe.Pointer)
	aliases() bool
	upload(to, from unsafe.Pointer, bytes int) error
	download(to, from unsafe.Pointer, bytes int) error
	zero(at unsafe.Pointer, bytes int) error
	copyRuns(to unsafe.Pointer, stride int, from unsafe.Pointer, fromStride, width, runs int) error
	wait() error

	// count adds to what crossed returns: the bytes that went from the host to
	// this memory, and those that came back.
	count(up, down int)
	crossed() (up, down int64)

	// info describes the memory to ONNX Runtime, provider makes sessions run on it,
	// and runOptions are those of all their runs; nil is the default.
	info() *C.OrtMemoryInfo
	provider(o *C.OrtSessionOptions) error
	runOptions() *C.OrtRunOptions
	// elementwise is how many elements a Program that treats each alone should
	// take in one run.
	elementwise() int
	// String names the device, as Options.Device does.
	String() string
}

// traffic counts the bytes that cross between the host and a device.
type traffic struct{ up, down atomic.Int64 }

func (t *traffic) count(up, down int) {
	t.up.Add(int64(up))
	t.down.Add(int64(down))
}

func (t *traffic) crossed() (up, down int64) { return t.up.Load(), t.down.Load() }

// newBytes returns zeros aligned for elements of any type.
func newBytes(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

// mirror returns the host's side of bytes at an address: the very bytes where
// the memory aliases, else others to upload from and download to, which are
// those of spare if it has room.
func mirror(m memory, at unsafe.Pointer, bytes int, spare []byte) []byte {
	switch {
	case m.aliases():
		return unsafe.Slice((*byte)(at), bytes)
	case cap(spare) >= bytes:
		return spare[:bytes]
	}
	return newBytes(bytes)
}

// host is the host's own memory, of all Envs on the CPU.
var host = &hostMemory{}

// A hostMemory is the Go heap: sessions on the CPU read and write what Go does.
type hostMemory struct{ traffic }

func (*hostMemory) alloc(bytes int) (unsafe.Pointer, error) {
	return unsafe.Pointer(unsafe.SliceData(newBytes(bytes))), nil
}

// free leaves it to the garbage collector.
func (*hostMemory) free(unsafe.Pointer) {}

func (*hostMemory) aliases() bool { return true }

func (*hostMemory) upload(to, from unsafe.Pointer, bytes int) error {
	if to != from {
		copy(unsafe.Slice((*byte)(to), bytes), unsafe.Slice((*byte)(from), bytes))
	}
	return nil
}

func (m *hostMemory) download(to, from unsafe.Pointer, bytes int) error {
	return m.upload(to, from, bytes)
}

func (*hostMemory) zero(at unsafe.Pointer, bytes int) error {
	clear(unsafe.Slice((*byte)(at), bytes))
	return nil
}

func (m *hostMemory) copyRuns(to unsafe.Pointer, stride int, from unsafe.Pointer, fromStride, width, runs int) error {
	for i := range runs {
		m.upload(unsafe.Add(to, i*stride), unsafe.Add(from, i*fromStride), width)
	}
	return nil
}

func (*hostMemory) wait() error                         { return nil }
func (*hostMemory) info() *C.OrtMemoryInfo              { return process.memoryInfo }
func (*hostMemory) provider(*C.OrtSessionOptions) error { return nil }
func (*hostMemory) runOptions() *C.OrtRunOptions        { return nil }
func (*hostMemory) elementwise() int                    { return elementwiseOnHost }
func (*hostMemory) String() string                      { return "cpu" }

// What elementwise returns.
const (
	// elementwiseOnHost is small enough that what one operator writes is still in
	// the processor's cache when the next one reads it.
	elementwiseOnHost = 1 << 18
	// elementwiseOnDevice is large enough for launches to be few; it bounds what
	// lies between two operators.
	elementwiseOnDevice = 1 << 24
)
