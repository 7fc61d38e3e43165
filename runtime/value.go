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

// An Element is a Go type that tensors can hold. The 16-bit float types have none.
type Element interface {
	float32 | float64 | int64 | int32 | uint8 | bool
}

// A Value is a tensor that can be bound to sessions: an element type, a shape, and
// the address of elements that something else owns. It copies nothing: a Run reads
// and writes the owner's memory. Several Values may view the same memory, and a
// Value over a part of a slice views some of its rows.
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
	at, err := m.Tensor(data, n)
	if err != nil {
		return nil, err
	}
	v := &Value{memory: m, data: data, bytes: n, dtype: d, shape: slices.Clone(shape)}
	if n > 0 {
		v.pin.Pin(data) // does nothing for memory that is not Go's
	}
	if err := check(C.onering_value(m.info, at, C.size_t(n), (*C.int64_t)(unsafe.SliceData(v.shape)), C.size_t(len(shape)), C.int(d), &v.ptr)); err != nil {
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
