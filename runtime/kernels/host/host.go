// Package host computes the operators of package kernels on the host's processor, in bfloat16 and,
// for decode steps and prompts, in float32: C for AVX-512 BF16, for AVX2 and for any processor, of which the
// processor and ONERING_KERNELS choose one. All have the same bits: sums are in an order that depends on nothing but the row
// and the column of a result, not on the other rows, nor on threads. So decoding, prompts and
// training compute the same log-probs to the last bit.
//
// Libraries were no way to this: oneDNN chooses a kernel by the shape, so a row alone differs
// from the same row among others, and brings threads of its own.
package host

// #cgo CFLAGS: -O2
// #cgo LDFLAGS: -lm
// #include <stdlib.h>
// #include "host.h"
import "C"

import (
	"fmt"
	"math"
	"os"
	"unsafe"

	"onering/runtime/kernels"
)

// Variable names the environment variable that chooses a kind of kernels: plain, avx2 or
// avx512.
const Variable = "ONERING_KERNELS"

// Device returns the host's operators.
func Device() *kernels.Device {
	return kernels.NewHost(unsafe.Pointer(&C.onering_host), func() int { return map[string]int{"avx512": math.MaxInt, "avx2": 8}[Kind()] })
}

// Choose chooses the kernels that the environment asks for, or the fastest that the processor
// has.
func Choose() error { return Use(os.Getenv(Variable)) }

// Use chooses a kind of kernels; "" is the fastest that the processor has.
func Use(kind string) error {
	name := C.CString(kind)
	defer C.free(unsafe.Pointer(name))
	if C.onering_host_kind(name) == 0 {
		return fmt.Errorf("%s=%q: this processor, or the compiler of this program, has no such kernels: want plain, avx2 or avx512, or leave it out", Variable, kind)
	}
	return nil
}

// Kind returns the chosen kind.
func Kind() string { return C.GoString(C.onering_host_name()) }
