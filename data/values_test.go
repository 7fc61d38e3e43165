package data

import (
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/float16"
)

func TestShortestFloat(t *testing.T) {
	for _, x := range []float64{0.1, -0.5, 1e-7, 16777216, 3.4028235e38, 0, 1.5, 0.33333334} {
		if got := shortestFloat32(float32(x)); got != x {
			t.Errorf("float32 %v became %v", x, got)
		}
	}
	if !math.IsInf(shortestFloat32(float32(math.Inf(-1))), -1) || !math.IsNaN(shortestFloat32(float32(math.NaN()))) {
		t.Error("infinities and NaN must stay")
	}
	for _, x := range []float64{0.1, -0.5, 0.333, 65500, 6.104e-5, 1.5} {
		if got := shortestFloat16(float16.New(float32(x))); got != x {
			t.Errorf("float16 %v became %v", x, got)
		}
	}
	for bits := range 1 << 16 { // every normal float16 reads back
		x := float16.FromBits(uint16(bits))
		if bits>>10&31 == 0 || bits>>10&31 == 31 {
			continue
		}
		if y := shortestFloat16(x); float16.New(float32(y)) != x {
			t.Fatalf("%#04x became %v, which is %#04x", bits, y, float16.New(float32(y)).Uint16())
		}
	}
}
