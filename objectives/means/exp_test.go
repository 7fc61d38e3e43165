package means

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestExp: Exp is within two units in the last place of math.Exp over the whole domain,
// and correct beyond the domain.
func TestExp(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var e [1]float64
	check := func(x, tolerance float64) {
		want := math.Exp(x)
		s1, s2 := expSums([]float64{x}, 1, x, 0)
		sum := expFill(e[:], []float64{x}, 1, x, 0)
		if math.Abs(s1-want) > tolerance*want || math.Abs(s2-s1*s1) > 0 || sum != s1 || e[0] != s1 {
			t.Fatalf("e^%v = %v, squared %v, in a row %v with sum %v, want %v", x, s1, s2, e[0], sum, want)
		}
	}
	const ulps = 2 * 0x1p-52
	for range 20_000 {
		check(-r.Float64(), ulps)
		check(-expDomain*r.Float64(), ulps)
		check(-math.Exp(-30*r.Float64()), ulps)
	}
	for _, x := range []float64{0, -1e-300, -math.Ln2 / 256, -math.Ln2, -707.999, -708, -720, -745, -746, -1e5} {
		check(x, ulps)
	}
}
