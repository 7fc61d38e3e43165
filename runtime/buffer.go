package runtime

// #include "ort.h"
import "C"

import (
	"fmt"
	"math"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"unsafe"

	"onering/models"
)

// An Element is a Go type that tensors can hold. The 16-bit float types have none.
type Element interface {
	float32 | float64 | int64 | int32 | uint8 | bool
}

// A Value is a tensor that can be bound to sessions: an element type, a shape, and the address of elements that
// something else owns. It copies nothing: a Run reads and writes the owner's memory. Several Values may view the same
// memory, and a Value over a part of a slice views some of its rows.
//
// The owner is the caller's slice for NewValue, which is always in the host's memory.
// Within this package it is an arena or a buffer, in the host's memory or a device's.
//
// A Value keeps Go memory alive and in place until it is closed. Memory that is
// not Go's, such as a mapped file, must stay mapped until then.
type Value struct {
	ptr    *C.OrtValue
	memory *memory
	data   unsafe.Pointer // an address of memory
	bytes  int
	dtype  models.DType
	shape  []int64
	pin    goruntime.Pinner
}

// NewValue returns a Value of the given shape over data. The length of data must be
// the product of the shape. Without a shape the Value is a scalar of one element.
func NewValue[T Element](data []T, shape ...int64) (*Value, error) {
	var zero T
	return newValue(host, dtypeOf[T](), unsafe.Pointer(unsafe.SliceData(data)), len(data)*int(unsafe.Sizeof(zero)), shape)
}

// dtypeOf returns the tensor type of a Go type.
func dtypeOf[T Element]() models.DType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return models.F32
	case float64:
		return models.F64
	case int64:
		return models.I64
	case int32:
		return models.I32
	case uint8:
		return models.U8
	default:
		return models.Bool
	}
}

// newValue returns a Value of n bytes at an address of a memory.
func newValue(m *memory, d models.DType, data unsafe.Pointer, n int, shape []int64) (*Value, error) {
	if d == 0 {
		return nil, fmt.Errorf("runtime: a tensor cannot hold elements of type %s", d)
	}
	want, err := sizeOf(d, shape)
	if err != nil {
		return nil, err
	}
	if n != want {
		return nil, fmt.Errorf("runtime: a %s tensor of shape %v takes %d elements, not %d", d, shape, want/d.Size(), n/d.Size())
	}
	if uintptr(data)%uintptr(d.Size()) != 0 {
		return nil, fmt.Errorf("runtime: the memory of a %s tensor must start at a multiple of %d bytes", d, d.Size())
	}
	if m.info == nil {
		return nil, fmt.Errorf("runtime: a Value needs ONNX Runtime: call Open first")
	}
	if err := m.Within(data, n); err != nil {
		return nil, err
	}
	v := &Value{memory: m, data: data, bytes: n, dtype: d, shape: slices.Clone(shape)}
	if n > 0 {
		v.pin.Pin(data) // Pin does nothing for memory outside of Go's heap
	}
	if err := check(C.onering_value(m.info, data, C.size_t(n), (*C.int64_t)(unsafe.SliceData(v.shape)), C.size_t(len(shape)), C.int(d), &v.ptr)); err != nil {
		v.pin.Unpin()
		return nil, fmt.Errorf("runtime: making a %s tensor of shape %v: %w", d, shape, err)
	}
	// Go panics if memory is still pinned when its Pinner is collected.
	goruntime.SetFinalizer(v, (*Value).Close)
	return v, nil
}

// sizeOf returns the size of a tensor in bytes.
func sizeOf(d models.DType, shape []int64) (int, error) {
	n := int64(d.Size())
	for _, s := range shape {
		if s < 0 {
			return 0, fmt.Errorf("runtime: shape %v has a negative dimension", shape)
		}
		if s > 0 && n > math.MaxInt64/s {
			return 0, fmt.Errorf("runtime: shape %v is too large", shape)
		}
		n *= s
	}
	return int(n), nil
}

// Close releases the tensor; its elements stay with their owner. Bindings refuse to
// run until another Value is bound in its place. Closing twice is fine.
func (v *Value) Close() {
	if v.ptr == nil {
		return
	}
	C.onering_release_value(v.ptr)
	v.ptr, v.data = nil, nil
	v.pin.Unpin()
	goruntime.SetFinalizer(v, nil)
}

// closeValues closes those Values that are not nil.
func closeValues(values ...*Value) {
	for _, v := range values {
		if v != nil {
			v.Close()
		}
	}
}

// A buffer is memory for elements of one type that sessions read and write: activations, caches, the inputs that Go
// fills and the outputs that Go reads. It grows as needed, and makes a new Value only when the shape changes.
//
// Go code uses elements, push and pulled to reach the content. In the host's memory they
// access the sessions' own elements and copy nothing.
type buffer struct {
	memory   *memory
	dtype    models.DType
	at       unsafe.Pointer // nil before the first use
	capacity int            // number of elements
	value    *Value         // a Value over the first elements; nil before the first use
	hostCopy []byte         // the elements for Go code, see hostBytes; nil until elements is called
}

// buffer returns an empty buffer in the memory of e.
func (e *Env) buffer(d models.DType) buffer { return buffer{memory: e.memory, dtype: d} }

// hostBuffer returns an empty buffer in the host's memory. A run on a device copies it
// there first, unless it is small and unchanged. Use it for a few numbers.
func hostBuffer(d models.DType) buffer { return buffer{memory: host, dtype: d} }

// allocateZeros makes memory for n elements, all zero.
func (b *buffer) allocateZeros(n int) error {
	err := b.allocate(n)
	if err == nil && !b.memory.Cleared {
		err = b.memory.Zero(b.at, b.bytes(n))
	}
	if err != nil {
		b.close()
		return fmt.Errorf("runtime: %.2f GB on %s: %w", 1e-9*float64(b.bytes(n)), b.memory, err)
	}
	return nil
}

// allocate makes memory for n elements with unknown content.
func (b *buffer) allocate(n int) (err error) {
	if b.at, err = b.memory.Alloc(b.bytes(max(1, n))); err == nil {
		b.capacity = n
	}
	return err
}

// bytes returns the size of n elements.
func (b *buffer) bytes(n int) int { return n * b.dtype.Size() }

// element returns the address of element i.
func (b *buffer) element(i int) unsafe.Pointer { return unsafe.Add(b.at, b.bytes(i)) }

// resize returns the Value of the given shape over the first elements. The buffer grows by an eighth more than is
// asked for if it is too small, and then loses its content; its earlier Value is closed unless it had the shape.
func (b *buffer) resize(shape ...int64) (*Value, error) {
	if b.value != nil && slices.Equal(b.value.shape, shape) {
		return b.value, nil
	}
	n := 1
	for _, d := range shape {
		n *= int(d)
	}
	if b.at == nil || b.capacity < n {
		outgrownBytes := b.bytes(b.capacity)
		b.close()
		if b.memory.IsHost() {
			collect(outgrownBytes) // it runs Go's collector once buffers have outgrown many
		}
		if err := b.allocate(n + n/8); err != nil {
			return nil, fmt.Errorf("runtime: a buffer of shape %v on %s: %w", shape, b.memory, err)
		}
	}
	v, err := b.view(0, shape...)
	if err != nil {
		return nil, fmt.Errorf("runtime: a buffer of shape %v on %s: %w", shape, b.memory, err)
	}
	if b.value != nil {
		b.value.Close()
	}
	b.value = v
	return v, nil
}

// outgrown is how many bytes of the host's memory buffers have left for larger ones since the collector ran for them.
var outgrown atomic.Int64

// collect counts bytes that a buffer has outgrown, and has Go collect them once they are many:
// by itself the collector waits until there are as many as those of all buffers.
func collect(bytes int) {
	const many = 64 << 20
	if outgrown.Add(int64(bytes)) > many {
		outgrown.Store(0)
		goruntime.GC()
	}
}

// view returns a Value that begins at element first. The caller closes it.
func (b *buffer) view(first int, shape ...int64) (*Value, error) {
	n, err := sizeOf(b.dtype, shape)
	if err == nil && b.bytes(first)+n > b.bytes(b.capacity) {
		err = fmt.Errorf("runtime: a tensor of shape %v at %d of %d elements", shape, first, b.capacity)
	}
	if err != nil {
		return nil, err
	}
	return newValue(b.memory, b.dtype, b.element(first), n, shape)
}

// elements returns the host's copy of the elements of the Value that resize returned
// last. Call push after changing it, and pulled to read what sessions wrote.
func elements[T Element](b *buffer) []T {
	if dtypeOf[T]() != b.dtype {
		panic(fmt.Sprintf("runtime: elements of a buffer of %s taken as %s", b.dtype, dtypeOf[T]()))
	}
	b.hostCopy = hostBytes(b.memory, b.at, b.bytes(b.capacity), b.hostCopy)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b.hostCopy))), b.value.bytes/b.dtype.Size())
}

// sized calls resize and elements.
func sized[T Element](b *buffer, shape ...int64) ([]T, *Value, error) {
	v, err := b.resize(shape...)
	if err != nil {
		return nil, nil, err
	}
	return elements[T](b), v, nil
}

// push copies the elements from the host to the sessions.
func (b *buffer) push() error {
	return b.memory.Upload(b.at, unsafe.Pointer(unsafe.SliceData(b.hostCopy)), b.value.bytes)
}

// pulled copies the elements from the sessions to the host and returns them.
func pulled[T Element](b *buffer) ([]T, error) {
	data := elements[T](b)
	return data, b.memory.Download(unsafe.Pointer(unsafe.SliceData(data)), b.at, b.value.bytes)
}

// filled gives a float32 buffer a shape and sets every element to x.
func (b *buffer) filled(x float32, shape ...int64) error {
	data, _, err := sized[float32](b, shape...)
	if err != nil {
		return err
	}
	for i := range data {
		data[i] = x
	}
	return b.push()
}

// copyRuns copies the same runs, counted in elements, from each buffer of from to the one of to with the same number;
// all are of one memory and type.
func copyRuns(to, from []*buffer, runs ...Runs) error {
	if len(to) == 0 {
		return nil
	}
	size := to[0].dtype.Size()
	bytes := make([]Runs, len(runs))
	for i, r := range runs {
		bytes[i] = Runs{To: r.To * size, Stride: r.Stride * size, From: r.From * size, FromStride: r.FromStride * size, Width: r.Width * size, Count: r.Count}
	}
	targets, sources := make([]unsafe.Pointer, len(to)), make([]unsafe.Pointer, len(to))
	for i := range to {
		targets[i], sources[i] = to[i].at, from[i].at
	}
	return to[0].memory.CopyRuns(targets, sources, bytes...)
}

// copyRuns copies runs of elements from another buffer of the same memory and type.
func (b *buffer) copyRuns(from *buffer, runs ...Runs) error {
	return copyRuns([]*buffer{b}, []*buffer{from}, runs...)
}

// close frees the memory. The buffer is then empty and may be used again.
func (b *buffer) close() {
	if b.value != nil {
		b.value.Close()
	}
	if b.at != nil {
		b.memory.Free(b.at)
	}
	*b = buffer{memory: b.memory, dtype: b.dtype}
}

func closeBuffers(buffers ...*buffer) {
	for _, b := range buffers {
		b.close()
	}
}

func closeAll(buffers []buffer) {
	for i := range buffers {
		buffers[i].close()
	}
}
