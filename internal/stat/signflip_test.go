package stat

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// brute computes p with a sum over all 2^n signs.
func brute(d []float64) float64 {
	seen := 0.0
	for _, x := range d {
		seen += x
	}
	extreme := 0
	for signs := range 1 << len(d) {
		sum := 0.0
		for i, x := range d {
			if signs>>i&1 == 1 {
				x = -x
			}
			sum += x
		}
		if max(sum, -sum) >= max(seen, -seen) {
			extreme++
		}
	}
	return float64(extreme) / float64(int(1)<<len(d))
}

func TestExactFlip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		d := make([]float64, r.IntN(11))
		for i := range d {
			d[i] = float64(r.IntN(33) - 16)
		}
		want := brute(d)
		if got := SignFlip(d); math.Abs(got-want) > 1e-12 {
			t.Fatalf("%v: %v, want %v", d, got, want)
		}
		for i := range d {
			d[i] /= 7 // so that sums are rounded
		}
		if got := SignFlip(d); math.Abs(got-want) > 1e-12 {
			t.Fatalf("%v: %v, want %v", d, got, want)
		}
	}
}

// TestMcNemar: for one sample a problem the test is McNemar's exact one, twice
// the binomial tail of the discordant pairs.
func TestMcNemar(t *testing.T) {
	for _, tt := range []struct{ onlyA, onlyB int }{{0, 0}, {0, 6}, {3, 12}, {5, 5}, {40, 71}, {2, 200}} {
		var d []float64
		for range tt.onlyA {
			d = append(d, -1)
		}
		for range tt.onlyB {
			d = append(d, 1, 0)
		}
		n, least := tt.onlyA+tt.onlyB, min(tt.onlyA, tt.onlyB)
		tail := new(big.Int)
		for k := 0; k <= least; k++ {
			tail.Add(tail, new(big.Int).Binomial(int64(n), int64(k)))
		}
		want, _ := new(big.Rat).SetFrac(tail.Lsh(tail, 1), new(big.Int).Lsh(big.NewInt(1), uint(n))).Float64()
		want = min(1, want)
		if got := SignFlip(d); math.Abs(got-want) > 1e-9*want {
			t.Errorf("%d against %d: %v, want %v", tt.onlyA, tt.onlyB, got, want)
		}
	}
}

func TestRandomFlip(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 5 {
		d, values := make([]float64, 83), make([]float64, 83)
		for i := range d {
			d[i] = float64(r.IntN(33) - 15)
			values[i] = d[i] / 17
		}
		exact, drawn := SignFlip(d), SignFlip(values)
		if sd := math.Sqrt(exact*(1-exact)/flips) + 1/float64(flips); math.Abs(exact-drawn) > 4*sd {
			t.Errorf("exact %v, drawn %v", exact, drawn)
		}
	}
	if p := SignFlip(make([]float64, 10)); p != 1 {
		t.Errorf("no difference: p = %v, want 1", p)
	}
}

// TestSignFlipLevel: between models that are alike p <= 5 % in at most 5 % of cases, and
// in almost 5 % where differences are many.
func TestSignFlipLevel(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	p := population{0.5, 0.7}
	for _, samples := range sampleSizes {
		low, n := 0, trials(t)
		for range n {
			a, b := p.drawPair(r, 200, samples, 0)
			d := make([]float64, len(a))
			for i := range d {
				d[i] = math.Round((b[i] - a[i]) * float64(samples))
			}
			if SignFlip(d) <= 0.05 {
				low++
			}
		}
		share := float64(low) / float64(n)
		if slack := 3.5 * math.Sqrt(0.05*0.95/float64(n)); share > 0.05+slack || share < 0.025-slack {
			t.Errorf("%d samples: p <= 5 %% in %.1f %% of cases", samples, 100*share)
		}
	}
}

// TestSignFlipLarge: for sums too wide for the exact test, signs are drawn at random.
func TestSignFlipLarge(t *testing.T) {
	d := make([]float64, 300)
	for i := range d {
		d[i] = float64(1000 + i)
	}
	if p := SignFlip(d); p != 1/float64(flips+1) {
		t.Errorf("300 problems, all better: p = %v", p)
	}
}

func BenchmarkSignFlip(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	d := make([]float64, 675)
	for i := range d {
		d[i] = float64(r.IntN(33) - 16)
	}
	for b.Loop() {
		SignFlip(d)
	}
}
