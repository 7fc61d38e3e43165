package tiles_test

import (
	"math"
	"testing"

	"onering/models"
	"onering/runtime/internal/tiles"
)

// TestHalves holds the upper halves to bfloat16's rounding, for every upper half and lower ones
// at which it turns, and the number itself to what comes back: it differs only halfway below an
// even bfloat16, and then by the last bit.
func TestHalves(t *testing.T) {
	lows := []uint32{0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF}
	x := make([]float32, 0, len(lows)<<16)
	for upper := range uint32(1 << 16) {
		for _, low := range lows {
			x = append(x, math.Float32frombits(upper<<16|low))
		}
	}
	for _, n := range []int{0, 1, 255, 257, len(x)} {
		h := tiles.Halves{High: make([]uint16, n), Low: make([]uint16, n)}
		got, again := make([]float32, n), make([]float32, n)
		h.Split(x[:n])
		for i, f := range x[:n] {
			if want := models.Float32ToBF16(f); h.High[i] != want {
				t.Fatalf("%#08x is rounded to %#04x, not %#04x", math.Float32bits(f), h.High[i], want)
			}
		}
		h.Join(got)
		h.Split(got)
		h.Join(again)
		for i, f := range x[:n] {
			want := math.Float32bits(f)
			if want&0x1FFFF == 0x18000 {
				want++
			}
			a, b := math.Float32bits(got[i]), math.Float32bits(again[i])
			if f != f && got[i] != got[i] {
				continue // any NaN will do
			}
			if a != want || b != want {
				t.Fatalf("%#08x comes back as %#08x and %#08x, not %#08x", math.Float32bits(f), a, b, want)
			}
		}
	}
}
