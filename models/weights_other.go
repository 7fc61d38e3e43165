//go:build !unix

package models

import "unsafe"

// allocate uses the Go heap, with the first of n elements on a 64-byte boundary. The
// collector does not scan it, as it has no pointers.
func allocate(n int) ([]float32, func() error, error) {
	data := make([]float32, n+align)
	skip := 0
	for uintptr(unsafe.Pointer(&data[skip]))%(4*align) != 0 {
		skip++
	}
	return data[skip : skip+n : skip+n], func() error { return nil }, nil
}

// forget does nothing: the Go heap frees the memory itself.
func forget([]float32) {}

func noHuge([]float32) {}
