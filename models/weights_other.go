//go:build !unix

package models

import "unsafe"

// allocate falls back to the Go heap, which has no pointers to look for there,
// with the first of n elements on a 64-byte boundary.
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
