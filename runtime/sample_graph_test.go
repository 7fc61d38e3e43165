package runtime_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onering/models"
	"onering/runtime"
	"onering/runtime/runtimetest"
)

// TestDrawInFloat32 draws from several kinds of distributions and compares with the
// inverse of the cumulative distribution in float64. They must agree unless the
// uniform is within 1e-6 of a boundary, and an id without mass is never drawn. The
// hidden state is 1, so the head [V,1] is the logits.
func TestDrawInFloat32(t *testing.T) {
	e := runtimetest.Test(t)
	r := rand.New(rand.NewPCG(11, 12))
	const B = 64
	for _, vocab := range []int{32, 320, 1500, 2048 + 7, 2053, 151936} {
		c := qwen2Of(models.Sizes{Hidden: 1, Heads: 1, KVHeads: 1, HeadDim: 2, Vocab: vocab})
		c.Provider = e.Provider()
		for _, form := range models.Forms {
			hidden, logits, us := make([]float32, B), make([]float32, vocab), make([]float32, B)
			next, logp, entropy := make([]int64, B), make([]float32, B), make([]float32, B)
			b := bind(t, e, must(c.Sample(models.Draw, form))(t), map[string]*runtime.Value{
				"hidden": value(t, hidden, int64(B), 1), "lm_head.weight": value(t, logits, int64(vocab), 1),
				"inv_temperature": value(t, []float32{1}), "uniforms": value(t, us, int64(B)),
			}, map[string]*runtime.Value{"next": value(t, next, int64(B)), "logp": value(t, logp, int64(B)), "entropy": value(t, entropy, int64(B))})
			for i := range hidden {
				hidden[i] = 1
			}
			for _, kind := range []string{"normal", "wide", "flat", "one", "holes", "certain"} {
				for i := range logits {
					x := r.NormFloat64()
					switch {
					case kind == "certain" && i == vocab/3: // the others are lost in a single sum, and together they count
						x = 17
					case kind == "flat":
						x = 0
					case kind == "wide":
						x *= 10
					case kind == "one" && i != vocab/3, kind == "holes" && i%3 != 1:
						x = -2000
					}
					logits[i] = float32(x)
				}
				for i := range us {
					us[i] = r.Float32()
				}
				copy(us, []float32{0, math.Nextafter32(1, 0), 1, 0.5, 1.0 / (1 << 24), math.SmallestNonzeroFloat32})
				if err := b.Run(); err != nil {
					t.Fatal(err)
				}
				checkDrawn(t, fmt.Sprintf("vocabulary %d, form %d, provider %d, %s", vocab, form, c.Provider, kind), logits, us, next, logp, entropy)
			}
		}
	}
}

func checkDrawn(t *testing.T, what string, logits, us []float32, next []int64, logp, entropy []float32) {
	t.Helper()
	total, h := 0.0, 0.0
	p := make([]float64, len(logits))
	for i, l := range logits { // All logits are within a range that exp can take.
		p[i] = math.Exp(float64(l))
		total += p[i]
	}
	sums, sum := make([]float64, len(p)), 0.0
	for i := range p {
		if p[i] /= total; p[i] > 0 {
			h -= p[i] * math.Log(p[i])
		}
		sum += p[i]
		sums[i] = sum
	}
	for row, u := range us {
		id := int(next[row])
		if id < 0 || id >= len(p) || p[id] < 1e-37 {
			t.Errorf("%s: u = %v gives id %d, which has no mass", what, u, id)
			continue
		}
		// These are the uniforms for which id is right, with the tolerance.
		if before := sums[id] - p[id]; u < 1 && (float64(u) < before-1e-6 || float64(u) > sums[id]+1e-6) {
			t.Errorf("%s: u = %v gives id %d, which stands for %v to %v", what, u, id, before, sums[id])
		}
		if want := math.Log(p[id]); math.Abs(float64(logp[row])-want) > 2e-6*(10+math.Abs(want)) {
			t.Errorf("%s: logp %v, want %v", what, logp[row], want)
		}
		if math.Abs(float64(entropy[row])-h) > 1e-5*(1+h) {
			t.Errorf("%s: entropy %v, want %v", what, entropy[row], h)
		}
	}
}

// TestCandidatesInFloat32 compares the likeliest candidates with the logits in float64:
// they equal a sort's, except for ties.
func TestCandidatesInFloat32(t *testing.T) {
	e := runtimetest.Test(t)
	r := rand.New(rand.NewPCG(13, 14))
	const B = 3
	for _, vocab := range []int{32, 2053, 151936} {
		c := qwen2Of(models.Sizes{Hidden: 1, Heads: 1, KVHeads: 1, HeadDim: 2, Vocab: vocab})
		c.Provider = e.Provider()
		for _, k := range []int{1, 20, 600, vocab} {
			if k > vocab {
				continue
			}
			logits, ids, logp := make([]float32, vocab), make([]int64, B*k), make([]float32, B*k)
			b := bind(t, e, must(c.Sample(models.Candidates, models.Direct))(t), map[string]*runtime.Value{
				"hidden": value(t, []float32{1, 1, 1}, B, 1), "lm_head.weight": value(t, logits, int64(vocab), 1),
				"inv_temperature": value(t, []float32{1}), "k": value(t, []int64{int64(k)}, 1),
			}, map[string]*runtime.Value{"candidates": value(t, ids, B, int64(k)), "logp": value(t, logp, B, int64(k)), "entropy": value(t, make([]float32, B), B)})
			for _, flat := range []bool{false, true} {
				total := 0.0
				for i := range logits {
					if logits[i] = float32(2 * r.NormFloat64()); flat {
						logits[i] = 3
					}
					total += math.Exp(float64(logits[i]))
				}
				if err := b.Run(); err != nil {
					t.Fatal(err)
				}
				sorted, top := slices.Clone(logits), slices.Max(logits)
				slices.SortFunc(sorted, func(a, b float32) int { return cmp.Compare(b, a) })
				seen := map[[2]int]bool{}
				for i, id := range ids {
					if id < 0 || int(id) >= vocab || seen[[2]int{i / k, int(id)}] || logits[id]-top != sorted[i%k]-top {
						t.Fatalf("vocabulary %d, flat %v: candidate %d of %d is id %d", vocab, flat, i, k, id)
					}
					seen[[2]int{i / k, int(id)}] = true
					if want := float64(logits[id]) - math.Log(total); math.Abs(float64(logp[i])-want) > 2e-6*(10+math.Abs(want)) {
						t.Fatalf("vocabulary %d, flat %v: candidate %d has log-prob %v, want %v", vocab, flat, i, logp[i], want)
					}
				}
			}
		}
	}
}
