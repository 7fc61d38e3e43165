package runtime

import (
	"fmt"
	"slices"
	"unsafe"
)

// A scratch is a reusable buffer and the Value over its first elements. It
// grows as needed and makes a new Value only when the shape changes.
//
// The zero scratch lies in the host's memory. One made by onDevice or aside
// lies in that of a device, where there is one: push and pull copy between it
// and the elements that of returns, and do nothing where they are one.
type scratch[T Element] struct {
	room      // of the value and, on a device, of the elements
	data []T  // on the host
	env  *Env // whose memory the value lies in; nil is the host's
	bare bool // none of it is wanted on the host
}

// onDevice is a scratch that no code but the graphs' reads or writes: on a device
// of returns no elements.
func onDevice[T Element](e *Env) scratch[T] {
	s := aside[T](e)
	s.bare = s.env != nil
	return s
}

// aside is a scratch on the device with a twin on the host.
func aside[T Element](e *Env) scratch[T] {
	if e.memory == nil {
		return scratch[T]{}
	}
	return scratch[T]{env: e}
}

// of returns the elements and the Value of the given shape. What the buffer
// held before is lost when it grows.
func (s *scratch[T]) of(shape ...int64) ([]T, *Value, error) {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	if s.env != nil {
		return s.ofDevice(n, shape)
	}
	if s.value != nil && slices.Equal(s.shape, shape) {
		return s.data[:n], s.value, nil
	}
	if int64(cap(s.data)) < n {
		s.close()
		s.data = make([]T, n+n/8)
	}
	v, err := NewValue(s.data[:n], shape...)
	if err != nil {
		return nil, nil, fmt.Errorf("runtime: a buffer of shape %v: %w", shape, err)
	}
	if s.value != nil {
		s.value.Close()
	}
	s.value, s.shape = v, append(s.shape[:0], shape...)
	return s.data[:n], v, nil
}

func (s *scratch[T]) ofDevice(n int64, shape []int64) ([]T, *Value, error) {
	v, err := s.room.of(s.env, dtypeOf[T](), shape...)
	if err != nil || s.bare {
		return nil, v, err
	}
	if int64(cap(s.data)) < n {
		s.data = make([]T, n+n/8)
	}
	return s.data[:n], v, nil
}

// elements counts those of the value.
func (s *scratch[T]) elements() int {
	n := 1
	for _, d := range s.shape {
		n *= int(d)
	}
	return n
}

// push copies the elements to the device.
func (s *scratch[T]) push() error {
	if s.env == nil {
		return nil
	}
	return upload(s.env, s.block.at, s.data[:s.elements()])
}

// pull copies the elements from the device.
func (s *scratch[T]) pull() error {
	if s.env == nil {
		return nil
	}
	return download(s.env, s.data[:s.elements()], s.block.at)
}

// fetch returns the elements wherever they lie, as they are now.
func (s *scratch[T]) fetch() ([]T, error) {
	if s.env == nil {
		return s.data[:s.elements()], nil
	}
	data := make([]T, s.elements())
	return data, download(s.env, data, s.block.at)
}

// zero clears the elements.
func (s *scratch[T]) zero() error {
	if s.env == nil {
		clear(s.data[:s.elements()])
		return nil
	}
	return s.env.memory.zero(s.block.at, s.elements()*int(unsafe.Sizeof(*new(T))))
}

func (s *scratch[T]) close() {
	s.room.close()
	s.data = nil
}

// A binder binds one value after another and remembers the first error, so
// that a dozen bindings read as a dozen lines.
type binder struct {
	b   *Binding
	err error
}

func (b *binder) in(name string, v *Value, err error) {
	if b.err == nil {
		b.err = err
	}
	if b.err == nil {
		b.err = b.b.Input(name, v)
	}
}

func (b *binder) out(name string, v *Value, err error) {
	if b.err == nil {
		b.err = err
	}
	if b.err == nil {
		b.err = b.b.Output(name, v)
	}
}

// run runs what is bound, or returns the first error of binding it.
func (b *binder) run() error {
	if b.err != nil {
		return b.err
	}
	return b.b.Run()
}
