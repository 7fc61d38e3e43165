//go:build linux

// Package onhost runs the kernels on the CPU, for tests: from the same source, with what
// host.h has in the place of CUDA.
package onhost

// #cgo CFLAGS: -O2
// #cgo linux LDFLAGS: -lm
// #include "onhost.h"
import "C"

import (
	"unsafe"

	"onering/runtime/cuda/kernels"
)

// Device returns the kernels as the CPU runs them, one launch after the other.
func Device() *kernels.Device { return kernels.New(unsafe.Pointer(&C.onering_host), nil) }
