package runtime_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/decoder"
	"onering/runtime"
	"onering/runtime/runtimetest"
)

// TestGPUGraphsOnCPU runs the float32 graphs for CUDA on the CPU, whose provider has the
// same operators, and compares them with the interpreter. They may differ by some units of
// float32 of the largest element.
func TestGPUGraphsOnCPU(t *testing.T) {
	e := runtimetest.Test(t)
	for _, width := range []int{10, 16} {
		c := qwen2Of(models.Sizes{Hidden: 24, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: width, FFN: 40, Vocab: 50, MaxPositions: 16})
		c.RopeTheta, c.RMSEps, c.Provider = 100, 1e-3, models.CUDA
		programs := []models.Program{must(c.Prefill())(t)}
		for _, form := range models.Forms {
			programs = append(programs, must(c.Decode(form))(t))
		}
		for _, blocks := range []int{1, 3} {
			for _, full := range []bool{false, true} {
				f, b, err := c.Layer(0, full, blocks)
				if err != nil {
					t.Fatal(err)
				}
				programs = append(programs, f, b)
			}
		}
		for _, p := range programs {
			t.Run(fmt.Sprint(p.Name, " ", width), func(t *testing.T) {
				in := madeUp(p)
				if _, decodes := in["places"]; decodes {
					in["places"] = graphtest.Ints([]int{0, 1, 2, 3, 4, 5, 6, 7})
					in["ids"], in["pos"] = graphtest.Ints([]int{7, 8, 9}, 3, 1), graphtest.Ints([]int{5, 0, 3}, 3, 1)
					in["at"] = graphtest.Ints([]int{0, 0, 5, 0, 1, 5, 1, 0, 0, 1, 1, 0, 2, 0, 3, 2, 1, 3}, 3, 2, 3)
				}
				g := must(graphtest.Load(p))(t)
				want, all := runBoth(t, e, g, p, in)
				for name, y := range want {
					scale, worst := 0.0, 0.0
					for i, v := range y.Data {
						scale = max(scale, math.Abs(v))
						worst = max(worst, math.Abs(all[name].Data[i]-v))
					}
					if scale == 0 || !(worst <= 4e-6*scale) {
						t.Errorf("%s %v is %g off, of %g", name, y, worst, scale)
					}
				}
			})
		}
	}
}

// TestCUDASamplingOnCPU: the graphs for CUDA of sampling and of the head's forward
// pass, which look some numbers up, draw the same tokens as those for the CPU, which
// compute them, and give the same bits, but for the sums over a large vocabulary, which
// the CPU takes by blocks.
func TestCUDASamplingOnCPU(t *testing.T) {
	e := runtimetest.Test(t)
	r := rand.New(rand.NewPCG(51, 52))
	const B, D = 32, 3
	for _, vocab := range []int{32, 1500, 2053, 50000} {
		c := qwen2Of(models.Sizes{Hidden: D, Heads: 1, KVHeads: 1, HeadDim: 2, Vocab: vocab})
		cuda := c
		cuda.Provider = models.CUDA
		hidden, head, us := make([]float32, B*D), make([]float32, vocab*D), make([]float32, B)
		for i := range hidden {
			hidden[i] = float32(r.NormFloat64())
		}
		for i := range head {
			head[i] = float32(3 * r.NormFloat64())
		}
		for i := range us {
			us[i] = r.Float32()
		}
		copy(us, []float32{0, math.Nextafter32(1, 0), 1, 0.5, math.SmallestNonzeroFloat32})
		hidden[0], hidden[1], hidden[2] = 0, 0, 0         // all logits equal
		hidden[3], hidden[4], hidden[5] = 1000, 1000, 300 // Almost all probability is on one id.

		for _, choice := range models.Choices {
			k := int64(min(512, vocab))
			var want, got sampled
			for into, config := range map[*sampled]decoder.Architecture{&want: c, &got: cuda} {
				*into = sampled{make([]int64, B), make([]int64, B*k), make([]float32, B), make([]float32, B)}
				logp := []int64{B}
				if choice == models.Candidates {
					into.logp, logp = make([]float32, B*k), []int64{B, k}
				}
				p := must(config.Sample(choice, models.Direct))(t)
				all := map[string]*runtime.Value{
					"hidden": value(t, hidden, B, D), "lm_head.weight": value(t, head, int64(vocab), D),
					"inv_temperature": value(t, []float32{0.7}), "uniforms": value(t, us, B), "k": value(t, []int64{k}, 1),
					"next": value(t, into.next, B), "candidates": value(t, into.candidates, B, k), "logp": value(t, into.logp, logp...), "entropy": value(t, into.entropy, B),
				}
				if err := bind(t, e, p, portsOf(p.Inputs, all), portsOf(p.Outputs, all)).Run(); err != nil {
					t.Fatal(err)
				}
			}
			tolerance := 0.0
			if vocab > 1024 {
				tolerance = 1e-4
			}
			if !got.equal(want, tolerance) {
				t.Errorf("%d ids, choice %d: for CUDA %v, else %v", vocab, choice, got, want)
			}
		}

		z, u := map[bool][]float32{}, map[bool][]float32{}
		for onCUDA, config := range map[bool]decoder.Architecture{false: c, true: cuda} {
			p, _, _, err := config.Head(models.HeadForm{})
			if err != nil {
				t.Fatal(err)
			}
			z0, u0 := slices.Repeat([]float32{-1e30}, B), make([]float32, B)
			z[onCUDA], u[onCUDA] = make([]float32, B), make([]float32, B)
			err = bind(t, e, p, map[string]*runtime.Value{"h": value(t, hidden, B, D), "E": value(t, head, int64(vocab), D), "z": value(t, z0, B, 1), "u": value(t, u0, B, 1)},
				map[string]*runtime.Value{"z_out": value(t, z[onCUDA], B, 1), "u_out": value(t, u[onCUDA], B, 1)}).Run()
			if err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(z[true], z[false]) || !slices.Equal(u[true], u[false]) {
			t.Errorf("%d ids: log-sum-exps %v for CUDA, else %v", vocab, z[true], z[false])
		}
	}
}

// sampled are the outputs of Sample.
type sampled struct {
	next, candidates []int64
	logp, entropy    []float32
}

func (s sampled) equal(o sampled, tolerance float64) bool {
	near := func(x, y float32) bool { return x == y || math.Abs(float64(x-y)) <= tolerance }
	return slices.Equal(s.next, o.next) && slices.Equal(s.candidates, o.candidates) &&
		slices.EqualFunc(s.logp, o.logp, near) && slices.EqualFunc(s.entropy, o.entropy, near)
}

// portsOf picks the values of ports.
func portsOf(ports []models.Port, all map[string]*runtime.Value) map[string]*runtime.Value {
	out := make(map[string]*runtime.Value)
	for _, p := range ports {
		out[p.Name] = all[p.Name]
	}
	return out
}
