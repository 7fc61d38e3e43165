package sampler

import (
	"math"
	"testing"
)

// TestPhiloxKnownAnswers: the known answers are those of the authors' library, Random123
// (kat_vectors, philox4x32 with 10 rounds).
func TestPhiloxKnownAnswers(t *testing.T) {
	const f = 0xffffffff
	for _, c := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{f, f, f, f}, [2]uint32{f, f}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		if got := philox(c.ctr, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.ctr, c.key, got, c.want)
		}
	}
}

// TestUniformKnownAnswers: runs must be the same in later versions, so this test fixes the
// key's layout.
func TestUniformKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		seed, prompt  uint64
		sample, token int
		word          uint32 // philox's first word
	}{
		{0, 0, 0, 0, 0x6627e8d5},
		{math.MaxUint64, math.MaxUint64, math.MaxUint32, math.MaxUint32, 0x408f276d},
		{0x299f31d0a4093822, 0x85a308d3243f6a88, 0x13198a2e, 0x03707344, 0xd16cfe09},
	} {
		want := float32(c.word>>8) / (1 << 24)
		if got := Uniform(c.seed, c.prompt, c.sample, c.token); got != want {
			t.Errorf("Uniform(%#x, %#x, %d, %d) = %v, want %v", c.seed, c.prompt, c.sample, c.token, got, want)
		}
	}
}

// TestUniformIsUniform: neighbours in any one of the four coordinates must look
// independent: uniform in each of 64 cells, and in pairs over 16 x 16 cells.
func TestUniformIsUniform(t *testing.T) {
	const n = 1 << 16
	for name, at := range map[string]func(i int) float32{
		"token":  func(i int) float32 { return Uniform(1, 2, 3, i) },
		"sample": func(i int) float32 { return Uniform(1, 2, i, 3) },
		"prompt": func(i int) float32 { return Uniform(1, uint64(i), 2, 3) },
		"seed":   func(i int) float32 { return Uniform(uint64(i), 1, 2, 3) },
	} {
		var cells [64]int
		var pairs [256]int
		for i := range n {
			u := at(i)
			if !(u >= 0 && u < 1) {
				t.Fatalf("%s %d: %v is not in [0, 1)", name, i, u)
			}
			cells[int(u*64)]++
			pairs[int(u*16)*16+int(at(i+1)*16)]++
		}
		// chi-square with k degrees of freedom: mean k, variance 2k. The numbers are
		// fixed, so the bound of 4 standard deviations always passes or always fails.
		for _, counts := range [][]int{cells[:], pairs[:]} {
			expected, chi := float64(n)/float64(len(counts)), 0.0
			for _, c := range counts {
				chi += (float64(c) - expected) * (float64(c) - expected) / expected
			}
			k := float64(len(counts) - 1)
			if math.Abs(chi-k) > 4*math.Sqrt(2*k) {
				t.Errorf("%s: chi-square %.1f over %d cells", name, chi, len(counts))
			}
		}
	}
}

func BenchmarkUniform(b *testing.B) {
	var sum float32
	for i := 0; b.Loop(); i++ {
		sum += Uniform(1, 2, 3, i)
	}
	_ = sum
}
