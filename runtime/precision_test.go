package runtime_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/optim/adamw"
	"onering/runtime/runtimetest"
)

// TestFloat16OnCPU compares the graphs of float16 on the CPU with the interpreter.
// The CPU computes most of their operators in float32 between casts; the interpreter
// rounds every value to its type. So they may differ by some units of float16
// (2^-11) of the largest element.
func TestFloat16OnCPU(t *testing.T) { inHalfOnCPU(t, models.F16, 0.004) }

func inHalfOnCPU(t *testing.T, d models.DType, off float64) {
	e := runtimetest.Test(t)
	for _, p := range programsIn(t, d) {
		t.Run(p.Name, func(t *testing.T) {
			g := must(graphtest.Load(p))(t)
			g.Single = true
			want, all := runBoth(t, e, g, p, madeUp(p))
			farthest := 0.0
			for name, y := range want {
				got := all[name]
				scale, worst := 0.0, 0.0
				for i, v := range y.Data {
					if !math.IsNaN(v) { // unspecified
						scale = max(scale, math.Abs(v))
						worst = max(worst, math.Abs(got.Data[i]-v))
					}
				}
				if scale == 0 || !(worst <= off*scale) {
					t.Errorf("%s %v is %g off, of %g", name, y, worst, scale)
				}
				farthest = max(farthest, worst/scale)
			}
			t.Logf("at most %.2g off", farthest)
		})
	}
}

// TestBFloat16OnCPU does the same for bfloat16, whose products and attention are ours: in blocks
// of queries, which training does not have, attention runs in float32 between casts.
func TestBFloat16OnCPU(t *testing.T) { inHalfOnCPU(t, models.BF16, 0.03) }

// programsIn builds the Programs that depend on the compute type.
func programsIn(t *testing.T, d models.DType) (programs []models.Program) {
	t.Helper()
	c := qwen2Of(models.Sizes{Hidden: 24, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 40, Vocab: 50, MaxPositions: 16})
	c.RopeTheta, c.RMSEps, c.Type = 100, 1e-3, d
	add := func(err error, p ...models.Program) {
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, p...)
	}
	p, err := c.Prefill()
	add(err, p)
	p, err = c.Decode(models.Direct)
	add(err, p)
	for _, blocks := range []int{1, 3} {
		f, b, err := c.Layer(0, true, blocks)
		add(err, f, b)
		_, b, err = c.Layer(0, false, blocks)
		add(err, b)
	}
	p, err = adamw.AdamW{}.Program(nil, c.Geometry().Compute)
	add(err, p)
	return programs
}

// madeUp makes inputs for three rows of up to 6 tokens.
func madeUp(p models.Program) map[string]graphtest.Tensor {
	r := rand.New(rand.NewPCG(31, 32))
	sizes := map[string]int{"B": 3, "T": 6, "N": 13, "P": 16, "S": 8, "n": 5}
	in := map[string]graphtest.Tensor{
		"rows":   graphtest.Ints([]int{0, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 7, 8, 9, 10, 11, 12}, 3, 6),
		"tokens": graphtest.Ints([]int{0, 1, 2, 3, 4, 5, 6, 12, 13, 14, 15, 16, 17}),
		"bounds": graphtest.Ints([]int{0, 2, 4, 6}), "bounds.1": graphtest.Ints([]int{2}), "bounds.2": graphtest.Ints([]int{4}),
		"copies": graphtest.Ints([]int{0}, 1, 1),
		"copied": graphtest.Floats([]float64{1}, 1, 1, 1),
		"valid":  graphtest.Floats([]float64{1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}, 3, 6, 1),
		"mask":   graphtest.Zeros(6, 6),
		"last":   graphtest.Ints([]int{5, 6, 15}),
	}
	for i := range 6 {
		for j := i + 1; j < 6; j++ {
			in["mask"].Row(i)[j] = -math.MaxFloat32
		}
	}
	if p.Name == "decode" {
		in["ids"], in["pos"] = graphtest.Ints([]int{7, 8, 9}, 3, 1), graphtest.Ints([]int{5, 0, 3}, 3, 1)
		in["seqlens"], in["total"] = graphtest.Int32([]int{5, 0, 3}, 3), graphtest.Int32([]int{6})
	} else if p.Name == "prefill" {
		ids, pos := make([]int, 18), make([]int, 18)
		for i := range ids {
			ids[i], pos[i] = (7*i+3)%50, i%6
		}
		in["ids"], in["pos"] = graphtest.Ints(ids, 3, 6), graphtest.Ints(pos, 18, 1)
		in["seqlens"], in["total"] = graphtest.Int32([]int{5, 0, 3}, 3), graphtest.Int32([]int{6})
	} else {
		in["pos"] = graphtest.Ints([]int{0, 1, 2, 3, 4, 5, 0, 0, 1, 2, 3, 4, 5}, 13, 1)
	}
	out := make(map[string]graphtest.Tensor)
	for _, port := range p.Inputs {
		x, ok := in[port.Name]
		if !ok {
			x = graphtest.Normal(r, graphtest.Sizes(port, sizes)...)
			for i := range x.Data {
				if x.Data[i] /= 4; strings.HasPrefix(p.Name, "adamw") {
					x.Data[i] = math.Abs(x.Data[i])
				}
			}
		}
		switch port.DType {
		case models.F32:
			x = x.As(models.F32)
		case models.F16:
			x = x.As(models.F16)
		case models.BF16:
			x = x.As(models.BF16)
		}
		out[port.Name] = x
	}
	return out
}
