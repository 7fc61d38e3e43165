package runtime

import (
	"fmt"
	"slices"
	"unsafe"

	"onering/models"
)

// A buffer is memory for elements of one type that sessions read and write:
// activations, caches, and the numbers that Go hands to a Program or takes from
// it. It grows as needed and makes a new Value only when the shape changes.
//
// Go reaches the elements through elements, push and pulled. In a memory that
// aliases these are the sessions' own elements, and nothing is copied.
type buffer struct {
	memory   memory
	dtype    models.DType
	at       unsafe.Pointer // nil before the first use
	capacity int            // elements
	value    *Value         // over the first elements; nil before the first use
	mirror   []byte         // the host's side; nil while Go asks for no elements
}

// buffer returns an empty buffer in the memory of e.
func (e *Env) buffer(d models.DType) buffer { return buffer{memory: e.memory, dtype: d} }

// hostBuffer returns an empty buffer in the host's memory. Sessions on a device
// copy its elements at every run, without a push: right for a few numbers that
// change before each run.
func hostBuffer(d models.DType) buffer { return buffer{memory: host, dtype: d} }

// zeros returns a buffer of n zeros.
func zeros(m memory, d models.DType, n int) (buffer, error) {
	b := buffer{memory: m, dtype: d}
	err := b.allocate(n)
	if err == nil {
		err = b.memory.zero(b.at, b.bytes(n))
	}
	if err != nil {
		b.close()
		return buffer{}, fmt.Errorf("runtime: %.2f GB on %s: %w", 1e-9*float64(b.bytes(n)), m, err)
	}
	return b, nil
}

// allocate takes memory for n elements, whose content is unknown.
func (b *buffer) allocate(n int) (err error) {
	if b.at, err = b.memory.alloc(b.bytes(max(1, n))); err == nil {
		b.capacity = n
	}
	return err
}

// bytes is the size of n elements.
func (b *buffer) bytes(n int) int { return n * b.dtype.Size() }

// element is the address of element i.
func (b *buffer) element(i int) unsafe.Pointer { return unsafe.Add(b.at, b.bytes(i)) }

// of returns the Value of the given shape over the first elements. What the
// buffer held is lost when it grows.
func (b *buffer) of(shape ...int64) (*Value, error) {
	if b.value != nil && slices.Equal(b.value.shape, shape) {
		return b.value, nil
	}
	n := 1
	for _, d := range shape {
		n *= int(d)
	}
	if b.at == nil || b.capacity < n {
		b.close()
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

// view returns a Value over the elements from first on, which the caller closes.
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

// elements returns the host's side of the elements of the Value that of returned
// last: what push copies to the sessions' side and pulled copies from there.
func elements[T Element](b *buffer) []T {
	if dtypeOf[T]() != b.dtype {
		panic(fmt.Sprintf("runtime: elements of a buffer of %s taken as %s", b.dtype, dtypeOf[T]()))
	}
	b.mirror = mirror(b.memory, b.at, b.bytes(b.capacity), b.mirror)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b.mirror))), b.value.bytes/b.dtype.Size())
}

// sized is of and elements in one.
func sized[T Element](b *buffer, shape ...int64) ([]T, *Value, error) {
	v, err := b.of(shape...)
	if err != nil {
		return nil, nil, err
	}
	return elements[T](b), v, nil
}

// push copies the elements from the host's side to the sessions'.
func (b *buffer) push() error {
	return b.memory.upload(b.at, unsafe.Pointer(unsafe.SliceData(b.mirror)), b.value.bytes)
}

// pulled returns the elements after copying them from the sessions' side to the
// host's.
func pulled[T Element](b *buffer) ([]T, error) {
	data := elements[T](b)
	return data, b.memory.download(unsafe.Pointer(unsafe.SliceData(data)), b.at, b.value.bytes)
}

// filled gives a buffer of F32 a shape and makes all its elements x.
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

// copyRuns copies runs of width elements from another buffer of the same memory
// and type. Run i begins there at element fromAt + i*fromStride, here at
// at + i*stride.
func (b *buffer) copyRuns(at, stride int, from *buffer, fromAt, fromStride, width, runs int) error {
	return b.memory.copyRuns(b.element(at), b.bytes(stride), from.element(fromAt), b.bytes(fromStride), b.bytes(width), runs)
}

// close frees the memory; the buffer may be used again.
func (b *buffer) close() {
	if b.value != nil {
		b.value.Close()
	}
	if b.at != nil {
		b.memory.free(b.at)
	}
	*b = buffer{memory: b.memory, dtype: b.dtype}
}

func closeBuffers(buffers ...*buffer) {
	for _, b := range buffers {
		b.close()
	}
}
