package eval

import (
	"math"
	"math/big"
	"slices"
	"testing"
)

// TestPassAtK compares with the closed form in exact rational arithmetic.
func TestPassAtK(t *testing.T) {
	for n := 1; n <= 40; n++ {
		for c := 0; c <= n; c++ {
			for k := 1; k <= n; k++ {
				none := new(big.Rat).SetFrac(new(big.Int).Binomial(int64(n-c), int64(k)), new(big.Int).Binomial(int64(n), int64(k)))
				want, _ := new(big.Rat).Sub(big.NewRat(1, 1), none).Float64()
				if got := passAtK(n, c, k); math.Abs(got-want) > 1e-14 {
					t.Fatalf("passAtK(%d, %d, %d) = %v, want %v", n, c, k, got, want)
				}
			}
		}
	}
	// The binomials of this size overflow a float64.
	if got, want := passAtK(10000, 1, 5000), 0.5; math.Abs(got-want) > 1e-12 {
		t.Errorf("passAtK(10000, 1, 5000) = %v, want %v", got, want)
	}
}

// TestPassAtKUnbiased sums over all outcomes of n samples: the mean of the
// estimate must be the probability that one of k samples is right.
func TestPassAtKUnbiased(t *testing.T) {
	const n = 16
	for _, p := range []float64{0.01, 0.2, 0.5, 0.93} {
		for _, k := range powers(n) {
			mean := 0.0
			for c := 0; c <= n; c++ {
				ways, _ := new(big.Float).SetInt(new(big.Int).Binomial(n, int64(c))).Float64()
				mean += ways * math.Pow(p, float64(c)) * math.Pow(1-p, float64(n-c)) * passAtK(n, c, k)
			}
			if want := 1 - math.Pow(1-p, float64(k)); math.Abs(mean-want) > 1e-12 {
				t.Errorf("p=%v k=%d: mean %v, want %v", p, k, mean, want)
			}
		}
	}
}

func TestPowers(t *testing.T) {
	for _, tt := range []struct {
		n    int
		want []int
	}{{1, []int{1}}, {2, []int{1, 2}}, {5, []int{1, 2, 4, 5}}, {16, []int{1, 2, 4, 8, 16}}} {
		if got := powers(tt.n); !slices.Equal(got, tt.want) {
			t.Errorf("powers(%d) = %v, want %v", tt.n, got, tt.want)
		}
	}
}
