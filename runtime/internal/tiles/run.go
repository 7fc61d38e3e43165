package tiles

// #cgo LDFLAGS: -lm
// #include "tiles.h"
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// operators names the operators of Step.
var operators = map[string]C.int{"Mul": C.tile_mul, "Add": C.tile_add, "Sub": C.tile_sub, "Div": C.tile_div, "Sqrt": C.tile_sqrt, "Sign": C.tile_sign}

// Run does the steps on arrays of one length, in the order of Inputs, with scalars in the
// order of Scalars. The results have the bits of ONNX Runtime's CPU kernels, which treat
// subnormal numbers as zero. It uses one thread; several may each run a part.
func (c *Code) Run(arrays [][]float32, scalars []float32) error {
	if len(arrays) != len(c.Inputs) || len(scalars) != len(c.Scalars) {
		return fmt.Errorf("tiles: %d arrays and %d scalars for inputs %q and %q", len(arrays), len(scalars), c.Inputs, c.Scalars)
	}
	var at [mostArrays]*C.float
	var pins runtime.Pinner
	defer pins.Unpin()
	for i, a := range arrays {
		if len(a) != len(arrays[0]) {
			return fmt.Errorf("tiles: %d elements of %q, %d of %q", len(a), c.Inputs[i], len(arrays[0]), c.Inputs[0])
		}
		if len(a) == 0 {
			return nil
		}
		pins.Pin(&a[0]) // Pin does nothing for memory outside of Go's heap
		at[i] = (*C.float)(unsafe.Pointer(&a[0]))
	}
	steps := c.cSteps()
	C.onering_tiles(unsafe.SliceData(steps), C.size_t(len(steps)), &at[0], C.size_t(len(arrays)), C.size_t(c.Arrays),
		(*C.float)(unsafe.SliceData(scalars)), C.size_t(len(arrays[0])))
	return nil
}

// cSteps returns the steps in C's form.
func (c *Code) cSteps() []C.tile_step {
	steps := make([]C.tile_step, len(c.Steps))
	for i, s := range c.Steps {
		steps[i] = C.tile_step{op: operators[s.Op], to: C.int(s.To), a: C.int(s.A.Index), b: C.int(s.B.Index), a_scalar: isScalar(s.A), b_scalar: isScalar(s.B)}
	}
	return steps
}

func isScalar(x operand) C.int {
	if x.Scalar {
		return 1
	}
	return 0
}

// OneLoop reports whether Run does the steps in one loop on this processor, with intermediate results in registers.
// That holds for the steps of AdamW on x86 with AVX2; steps of other Programs run one after the other.
func (c *Code) OneLoop() bool {
	steps := c.cSteps()
	return C.onering_tiles_one_loop(unsafe.SliceData(steps), C.size_t(len(steps)), C.size_t(len(c.Inputs))) != 0
}
