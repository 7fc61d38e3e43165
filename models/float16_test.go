package models

import (
	"math"
	"testing"
)

// halfValue is the definition: (-1)^s 2^(e-15) 1.m, subnormals 2^-14 0.m.
func halfValue(h uint16) float64 {
	sign, e, m := 1.0, int(h>>10&31), float64(h&0x3FF)
	if h>>15 == 1 {
		sign = -1
	}
	switch {
	case e == 31 && m != 0:
		return math.NaN()
	case e == 31:
		return sign * math.Inf(1)
	case e == 0:
		return sign * math.Ldexp(m, -24)
	}
	return sign * math.Ldexp(1024+m, e-25)
}

func brainValue(h uint16) float64 {
	sign, e, m := 1.0, int(h>>7&255), float64(h&0x7F)
	if h>>15 == 1 {
		sign = -1
	}
	switch {
	case e == 255 && m != 0:
		return math.NaN()
	case e == 255:
		return sign * math.Inf(1)
	case e == 0:
		return sign * math.Ldexp(m, -133)
	}
	return sign * math.Ldexp(128+m, e-134)
}

// TestHalfPrecisionExhaustively takes every value of both formats: widening is
// its definition, narrowing gives the same bits back, and between a value and
// its neighbour the half-way point goes to the even one and either side of it
// to the nearer one.
func TestHalfPrecisionExhaustively(t *testing.T) {
	formats := []struct {
		name     string
		widen    func(uint16) float32
		narrow   func(float32) uint16
		value    func(uint16) float64
		infinity uint16
	}{
		{"F16", F16ToFloat32, Float32ToF16, halfValue, 0x7C00},
		{"BF16", BF16ToFloat32, Float32ToBF16, brainValue, 0x7F80},
	}
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			for i := range 1 << 16 {
				h := uint16(i)
				got, want := f.widen(h), f.value(h)
				if float64(got) != want && !(math.IsNaN(want) && got != got) || math.Signbit(float64(got)) != (h>>15 == 1) {
					t.Fatalf("%#04x widens to %g, want %g", h, got, want)
				}
				if back := f.narrow(got); back != h {
					t.Fatalf("%#04x comes back as %#04x", h, back)
				}
				if h&0x7FFF >= f.infinity {
					continue
				}
				// The step leads to the next value, away from zero. Above the largest
				// value the step is as large as if the range did not end.
				next := f.value(h + 1)
				if h&0x7FFF == f.infinity-1 {
					next = 2*want - f.value(h-1)
				}
				middle := float32((want + next) / 2)
				if float64(middle) != (want+next)/2 {
					continue // The half-way point lies between two subnormals of BF16 at the end of float32.
				}
				even := h + h&1
				if got := f.narrow(middle); got != even {
					t.Fatalf("%g, half-way above %#04x, narrows to %#04x, want %#04x", middle, h, got, even)
				}
				away := float32(math.Inf(1 - 2*int(h>>15)))
				if got := f.narrow(math.Nextafter32(middle, 0)); got != h {
					t.Fatalf("just below half-way above %#04x narrows to %#04x", h, got)
				}
				if got := f.narrow(math.Nextafter32(middle, away)); got != h+1 {
					t.Fatalf("just above half-way above %#04x narrows to %#04x", h, got)
				}
			}
		})
	}
}

func TestNarrowingNaN(t *testing.T) {
	// the payload of these NaNs lies below the bits that 16 bits keep
	for _, bits := range []uint32{0x7F800001, 0xFF800001, 0x7FC00000} {
		f := math.Float32frombits(bits)
		for name, back := range map[string]float32{"F16": F16ToFloat32(Float32ToF16(f)), "BF16": BF16ToFloat32(Float32ToBF16(f))} {
			if back == back || math.Signbit(float64(back)) != (bits>>31 == 1) {
				t.Errorf("NaN %#08x through %s became %g", bits, name, back)
			}
		}
	}
}

func TestOverflow(t *testing.T) {
	inf := float32(math.Inf(1))
	cases := []struct {
		d     DType
		value float32
		want  bool
	}{
		{F32, math.MaxFloat32, false},
		{F16, 65519.996, false}, {F16, 65520, true}, {F16, -65520, true}, {F16, inf, false}, {F16, float32(math.NaN()), false},
		{BF16, 3.3895e38, false}, {BF16, math.MaxFloat32, true}, {BF16, -math.MaxFloat32, true}, {BF16, -inf, false},
	}
	for _, c := range cases {
		if got := overflow([]float32{0, c.value}, c.d) == 1; got != c.want {
			t.Errorf("overflow of %g in %s: %v, want %v", c.value, c.d, got, c.want)
		}
	}
}
