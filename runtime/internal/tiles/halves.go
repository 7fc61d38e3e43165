package tiles

// #include "tiles.h"
import "C"

import "unsafe"

// Halves are float32 numbers in two parts of 16 bits: in High the number rounded to bfloat16, to the nearest and of
// two equally near ones to the even one, and in Low the lower half of its bits, which tells whether it was rounded
// up. A number halfway between two bfloat16 that rounds up is stored as the next one away from zero, since its halves
// would be those of another; what Join returns, Split stores exactly.
type Halves struct{ High, Low []uint16 }

// HalvesAt returns n numbers whose halves lie at two addresses.
func HalvesAt(high, low unsafe.Pointer, n int) Halves {
	return Halves{unsafe.Slice((*uint16)(high), n), unsafe.Slice((*uint16)(low), n)}
}

// Split stores as many numbers as there are.
func (h Halves) Split(x []float32) {
	if len(x) > 0 {
		C.onering_split((*C.uint16_t)(&h.High[:len(x)][0]), (*C.uint16_t)(&h.Low[:len(x)][0]), (*C.float)(&x[0]), C.size_t(len(x)))
	}
}

// Join sets x to as many of the numbers.
func (h Halves) Join(x []float32) {
	if len(x) > 0 {
		C.onering_join((*C.float)(&x[0]), (*C.uint16_t)(&h.High[:len(x)][0]), (*C.uint16_t)(&h.Low[:len(x)][0]), C.size_t(len(x)))
	}
}
