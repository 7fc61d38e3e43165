package runtime

import (
	"fmt"
	"slices"
)

// A scratch is a reusable buffer and the Value over its first elements. It
// grows as needed and makes a new Value only when the shape changes.
type scratch[T Element] struct {
	data  []T
	value *Value
	shape []int64
}

// of returns the elements and the Value of the given shape. What the buffer
// held before is lost when it grows.
func (s *scratch[T]) of(shape ...int64) ([]T, *Value, error) {
	n := int64(1)
	for _, d := range shape {
		n *= d
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

func (s *scratch[T]) close() {
	if s.value != nil {
		s.value.Close()
	}
	s.value, s.data, s.shape = nil, nil, nil
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
