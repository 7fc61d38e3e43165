package runtime

// #include "ort.h"
import "C"

import (
	"fmt"
	"math"
	goruntime "runtime"
	"slices"
	"unsafe"

	"onering/models"
)

// An Element is a Go type that tensors can hold. Halves (F16, BF16) have no Go
// type: see NewTensor.
type Element interface {
	float32 | float64 | int64 | int32 | uint8 | bool
}

// A Value is a tensor over memory that the caller owns. It copies nothing: what
// is written to the memory is what the next Run reads, and a Run writes there.
// Several Values may view the same memory, and a sub-slice is a view of rows.
//
// A Value keeps Go memory alive and in place until it is closed. Memory that is
// not Go's, such as a mapped file, must stay mapped until then.
type Value struct {
	ptr   *C.OrtValue
	data  unsafe.Pointer
	bytes int
	dtype models.DType
	shape []int64
	pin   goruntime.Pinner

	device bool // data is a device's
}

// elements are ONNX's numbers for element types (TensorProto.DataType).
var elements = map[models.DType]C.int{
	models.F32: 1, models.U8: 2, models.I32: 6, models.I64: 7, models.Bool: 9,
	models.F16: 10, models.F64: 11, models.BF16: 16,
}

// NewValue returns a Value of the given shape over data, whose length must be
// the product of shape; no shape at all is a scalar, one element.
func NewValue[T Element](data []T, shape ...int64) (*Value, error) {
	var zero T
	return newValue(dtypeOf[T](), unsafe.Pointer(unsafe.SliceData(data)), len(data)*int(unsafe.Sizeof(zero)), shape)
}

// NewTensor is NewValue for memory that is bytes, such as a mapped file or
// halves: data holds the elements in the machine's byte order.
func NewTensor(d models.DType, data []byte, shape ...int64) (*Value, error) {
	return newValue(d, unsafe.Pointer(unsafe.SliceData(data)), len(data), shape)
}

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

func newValue(d models.DType, data unsafe.Pointer, n int, shape []int64) (*Value, error) {
	if _, ok := elements[d]; !ok {
		return nil, fmt.Errorf("runtime: a tensor cannot hold elements of type %s", d)
	}
	want, err := size(d, shape)
	if err != nil {
		return nil, err
	}
	if n != want {
		return nil, fmt.Errorf("runtime: a %s tensor of shape %v takes %d elements, not %d", d, shape, want/d.Size(), n/d.Size())
	}
	if uintptr(data)%uintptr(d.Size()) != 0 {
		return nil, fmt.Errorf("runtime: the memory of a %s tensor must start at a multiple of %d bytes", d, d.Size())
	}
	if process.memory == nil {
		return nil, fmt.Errorf("runtime: a Value needs ONNX Runtime: call Open first")
	}
	return newValueIn(process.memory, d, data, n, shape)
}

// newValueIn is a Value of n bytes in a memory, all checked.
func newValueIn(memory *C.OrtMemoryInfo, d models.DType, data unsafe.Pointer, n int, shape []int64) (*Value, error) {
	v := &Value{data: data, bytes: n, dtype: d, shape: slices.Clone(shape)}
	if n > 0 {
		v.pin.Pin(data) // does nothing for memory that is not Go's
	}
	err := check(C.onering_value(memory, data, C.size_t(n), (*C.int64_t)(unsafe.SliceData(v.shape)), C.size_t(len(shape)), elements[d], &v.ptr))
	if err != nil {
		v.pin.Unpin()
		return nil, fmt.Errorf("runtime: making a %s tensor of shape %v: %w", d, shape, err)
	}
	// A forgotten Value would leave its memory pinned, which Go reports by a panic.
	goruntime.SetFinalizer(v, (*Value).Close)
	return v, nil
}

// size is the bytes of a tensor.
func size(d models.DType, shape []int64) (int, error) {
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

// DType returns the type of v's elements.
func (v *Value) DType() models.DType { return v.dtype }

// Shape returns v's dimensions; it must not be changed.
func (v *Value) Shape() []int64 { return v.shape }

// Close lets go of v's memory. Bindings that v is bound to refuse to run until
// something else is bound in its place. Closing twice is fine.
func (v *Value) Close() {
	if v.ptr == nil {
		return
	}
	C.onering_release_value(v.ptr)
	v.ptr, v.data = nil, nil
	v.pin.Unpin()
	goruntime.SetFinalizer(v, nil)
}
