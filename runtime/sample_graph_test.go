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
	B := 64
	if runtime.ProviderOf(e) == models.WebGPU {
		B = 12 // it may be software
	}
	for _, vocab := range []int{32, 320, 1500, 2048 + 7, 2053, 151936} {
		c := qwen2Of(models.Sizes{Hidden: 1, Heads: 1, KVHeads: 1, HeadDim: 2, Vocab: vocab})
		// Those for WebGPU draw without float64; the CPU runs them too.
		forms, providers := models.Forms, []models.Provider{runtime.ProviderOf(e), models.WebGPU}
		if runtime.ProviderOf(e) == models.WebGPU {
			forms, providers = forms[:1], providers[:1]
		}
		for i := range len(forms) * len(providers) {
			form := forms[i%len(forms)]
			c.Provider = providers[i/len(forms)]
			hidden, logits, us := make([]float32, B), make([]float32, vocab), make([]float32, B)
			next, logp, entropy := make([]int64, B), make([]float32, B), make([]float32, B)
			b := bind(t, e, must(c.Sample(models.Draw, form))(t), map[string]*runtime.Value{
				"hidden": value(t, hidden, int64(B), 1), "lm_head.weight": value(t, logits, int64(vocab), 1),
				"inv_temperature": value(t, []float32{1}), "uniforms": value(t, us, int64(B)),
			}, map[string]*runtime.Value{"next": value(t, next, int64(B)), "logp": value(t, logp, int64(B)), "entropy": value(t, entropy, int64(B))})
			for i := range hidden {
				hidden[i] = 1
			}
			for _, kind := range []string{"normal", "wide", "flat", "one", "holes"} {
				for i := range logits {
					x := r.NormFloat64()
					switch {
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
	for i, l := range logits { // all within a range that exp can take
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
		// The uniforms for which id is right, with the tolerance.
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

// TestMinPInFloat32 draws with min-p alone and after top-k and top-p and compares
// with float64: what is drawn is the inverse of the cumulative distribution of
// the ids that are kept, but for uniforms within 1e-6 of a boundary.
func TestMinPInFloat32(t *testing.T) {
	e := runtimetest.Test(t)
	r := rand.New(rand.NewPCG(13, 14))
	const k, topP = 20, 0.9
	B, bounds := 32, []float32{0, 1e-30, 0.05, 0.5, math.Nextafter32(1, 0)}
	software := runtime.ProviderOf(e) == models.WebGPU // which it may be
	if software {
		B, bounds = 6, bounds[2:]
	}
	for _, vocab := range []int{32, 2053, 151936} {
		c := qwen2Of(models.Sizes{Hidden: 1, Heads: 1, KVHeads: 1, HeadDim: 2, Vocab: vocab})
		for _, choice := range []models.Choice{models.DrawMinP, models.FilterMinP} {
			hidden, logits, us, minP := make([]float32, B), make([]float32, vocab), make([]float32, B), make([]float32, 1)
			for i := range hidden {
				hidden[i] = 1
			}
			next, short := make([]int64, B), make([]float32, B)
			all := map[string]*runtime.Value{
				"hidden": value(t, hidden, int64(B), 1), "lm_head.weight": value(t, logits, int64(vocab), 1),
				"inv_temperature": value(t, []float32{1}), "uniforms": value(t, us, int64(B)), "min_p": value(t, minP),
				"k": value(t, []int64{k}, 1), "top_p": value(t, []float32{topP}), "renormalize": value(t, []float32{1}),
				"next": value(t, next, int64(B)), "short": value(t, short, int64(B)), "logp": value(t, make([]float32, B), int64(B)), "entropy": value(t, make([]float32, B), int64(B)),
			}
			p := must(c.Sample(choice, models.Wide))(t)
			b := bind(t, e, p, portsOf(p.Inputs, all), portsOf(p.Outputs, all))
			for _, flat := range []bool{false, true} {
				for i := range logits {
					if logits[i] = float32(2 * r.NormFloat64()); flat {
						logits[i] = 3
					}
				}
				for i := range bounds {
					if minP[0] = bounds[i]; software && vocab > 1<<16 && (flat || i > 0) {
						continue
					}
					for i := range us {
						us[i] = r.Float32()
					}
					copy(us, []float32{0, math.Nextafter32(1, 0), 0.5})
					if err := b.Run(); err != nil {
						t.Fatal(err)
					}
					kept := minPKept(logits, float64(minP[0]))
					if choice == models.FilterMinP && !flat { // equal ones are all kept
						kept = topKept(logits, kept, k, topP)
					}
					checkKept(t, fmt.Sprintf("vocabulary %d, choice %d, flat %v, min-p %v", vocab, choice, flat, minP[0]), logits, kept, us, next)
				}
			}
		}
	}
}

// minPKept says which ids are at least minP times as likely as the likeliest.
func minPKept(logits []float32, minP float64) []bool {
	largest, kept := slices.Max(logits), make([]bool, len(logits))
	for i, l := range logits {
		kept[i] = math.Exp(float64(l)-float64(largest)) >= minP
	}
	return kept
}

// topKept leaves of kept what is among the k likeliest, and among the fewest of
// these that hold topP of their probability.
func topKept(logits []float32, kept []bool, k int, topP float64) []bool {
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	order = order[:k]
	total, sum := 0.0, 0.0
	for _, i := range order {
		total += math.Exp(float64(logits[i]))
	}
	both := make([]bool, len(logits))
	for _, i := range order {
		if sum >= topP*total {
			break
		}
		both[i] = kept[i]
		sum += math.Exp(float64(logits[i]))
	}
	return both
}

// checkKept compares each drawn id with the interval of uniforms that it stands
// for among the ids that are kept.
func checkKept(t *testing.T, what string, logits []float32, kept []bool, us []float32, next []int64) {
	t.Helper()
	sums, sum := make([]float64, len(logits)), 0.0
	for i, l := range logits {
		if kept[i] {
			sum += math.Exp(float64(l))
		}
		sums[i] = sum
	}
	for row, u := range us {
		id := int(next[row])
		if id < 0 || id >= len(logits) || !kept[id] {
			t.Errorf("%s: u = %v gives id %d, which is not kept", what, u, id)
			continue
		}
		if before := (sums[id] - math.Exp(float64(logits[id]))) / sum; float64(u) < before-1e-6 || float64(u) > sums[id]/sum+1e-6 {
			t.Errorf("%s: u = %v gives id %d, which stands for %v to %v", what, u, id, before, sums[id]/sum)
		}
	}
}
