package models

import (
	"encoding/binary"
	"math"
	"slices"
)

// F16ToFloat32 converts an IEEE 754 half exactly; it keeps the bits of a NaN.
func F16ToFloat32(h uint16) float32 {
	sign, b := uint32(h&0x8000)<<16, uint32(h&0x7FFF)<<13
	if h&0x7C00 == 0x7C00 { // infinity or NaN
		return math.Float32frombits(sign | 0x7F800000 | b)
	}
	// Read with float32's exponent bias the number is 2^112 times too small,
	// subnormals included; the product is exact.
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(b)*0x1p112))
}

// Float32ToF16 rounds to the nearest half, ties to even. Numbers of magnitude 65520
// and above become infinity. A NaN stays one and keeps its upper payload bits.
func Float32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7FFFFFFF
	switch {
	case b > 0x7F800000: // NaN
		payload := uint16(b>>13) & 0x3FF
		if payload == 0 {
			payload = 0x200
		}
		return sign | 0x7C00 | payload
	case b >= 0x47800000: // 2^16 and above
		return sign | 0x7C00
	case b >= 0x38800000: // 2^-14 and above: normal
		b -= (127 - 15) << 23
		b += 0xFFF + b>>13&1 // a carry runs into the exponent, and up to infinity
		return sign | uint16(b>>13)
	default:
		// The last bit of a float32 near 0.5 is 2^-24, the unit of subnormal
		// halves, so the addition does the rounding.
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-math.Float32bits(0.5))
	}
}

// BF16ToFloat32 converts a bfloat16 exactly; it keeps the bits of a NaN.
func BF16ToFloat32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// Float32ToBF16 rounds to the nearest bfloat16, ties to even; numbers beyond
// the largest become infinity. A NaN stays one and keeps its upper payload bits.
func Float32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7FFFFFFF > 0x7F800000 {
		if b&0x7F0000 == 0 {
			b |= 0x400000
		}
		return uint16(b >> 16)
	}
	return uint16((b + 0x7FFF + b>>16&1) >> 16)
}

// Decode converts little-endian elements of type d to float32. F64 is rounded.
func Decode(dst []float32, src []byte, d DType) {
	le := binary.LittleEndian
	switch d {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = F16ToFloat32(le.Uint16(src[2*i:]))
		}
	case BF16:
		// The common case of a published model: four elements at a time.
		for len(dst) >= 4 && len(src) >= 8 {
			v := le.Uint64(src)
			dst[0] = math.Float32frombits(uint32(v) << 16)
			dst[1] = math.Float32frombits(uint32(v) &^ 0xFFFF)
			dst[2] = math.Float32frombits(uint32(v>>32) << 16)
			dst[3] = math.Float32frombits(uint32(v>>32) &^ 0xFFFF)
			dst, src = dst[4:], src[8:]
		}
		for i := range dst {
			dst[i] = BF16ToFloat32(le.Uint16(src[2*i:]))
		}
	case F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(le.Uint64(src[8*i:])))
		}
	}
}

// Encode writes src rounded to type d, one of F32, F16 and BF16, little-endian. dst must be long enough.
func Encode(dst []byte, src []float32, d DType) {
	le := binary.LittleEndian
	switch d {
	case F32:
		for i, f := range src {
			le.PutUint32(dst[4*i:], math.Float32bits(f))
		}
	case F16:
		for i, f := range src {
			le.PutUint16(dst[2*i:], Float32ToF16(f))
		}
	case BF16:
		for i, f := range src {
			le.PutUint16(dst[2*i:], Float32ToBF16(f))
		}
	}
}

// overflow returns the index of the first finite element of src that becomes infinite in
// type d, or -1; for int8 and NF4 the index of the first element that is not finite.
func overflow(src []float32, d DType) int {
	var limit float32 // the smallest magnitude that rounds to infinity
	switch d {
	case I8, NF4: // which have neither infinities nor NaN
		return slices.IndexFunc(src, func(f float32) bool { return f-f != 0 })
	case F16:
		limit = 65520
	case BF16:
		limit = math.Float32frombits(0x7F7F8000)
	default:
		return -1
	}
	for i, f := range src {
		if a := math.Abs(float64(f)); a >= float64(limit) && a <= math.MaxFloat32 {
			return i
		}
	}
	return -1
}

// Holds reports whether type d, one of F32, F16 and BF16, can hold the finite
// elements of src without making them infinite.
func Holds(d DType, src []float32) bool { return overflow(src, d) < 0 }

// beyondFloat32 returns the index of the first finite F64 in src that decode made
// infinite in dst, or -1. The other types fit into float32.
func beyondFloat32(dst []float32, src []byte, d DType) int {
	if d != F64 {
		return -1
	}
	for i, f := range dst {
		if x := math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])); math.IsInf(float64(f), 0) && !math.IsInf(x, 0) {
			return i
		}
	}
	return -1
}
