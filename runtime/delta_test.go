package runtime_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"onering/internal/graphtest"
	"onering/models/graph"
	"onering/runtime/runtimetest"
)

// TestDeltaRule: in float32 the delta rule in chunks is that of float64, for short and long
// rows, around the edges of chunks, for tokens with almost equal keys, and for gates and
// corrections at the ends of their range. The tests of package graph hold the interpreter's to the
// rule's definition.
func TestDeltaRule(t *testing.T) {
	e := runtimetest.Test(t)
	p := must(graph.Build("delta", func(g *graph.Graph) {
		o, last := graph.DeltaRule(g.Float("q", "B", "T", 2, 6), g.Float("k", "B", "T", 2, 6), g.Float("v", "B", "T", 4, 5),
			g.Float("g", "B", "T", 4), g.Float("beta", "B", "T", 4), nil)
		g.Output("o", o)
		g.Output("last", last)
	}))(t)
	for _, T := range []int{1, 31, 32, 33, 64, 65, 400, 3000} {
		for _, alike := range []float64{1, 1e-3, 0.5} {
			r := rand.New(rand.NewPCG(uint64(T), 3))
			in := map[string]graphtest.Tensor{"q": graphtest.Normal(r, 2, T, 2, 6), "k": graphtest.Normal(r, 2, T, 2, 6), "v": graphtest.Normal(r, 2, T, 4, 5),
				"g": graphtest.Zeros(2, T, 4), "beta": graphtest.Zeros(2, T, 4)}
			for i := range in["k"].Data {
				in["k"].Data[i] = in["k"].Data[i%6] + alike*in["k"].Data[i]
			}
			for _, x := range []graphtest.Tensor{in["q"], in["k"]} {
				for i := range len(x.Data) / 6 {
					head, square := x.Data[6*i:6*i+6], 0.0
					for _, v := range head {
						square += v * v
					}
					for j := range head {
						head[j] /= math.Sqrt(square)
					}
				}
			}
			for i := range in["g"].Data {
				in["g"].Data[i], in["beta"].Data[i] = -3*alike*r.Float64()*r.Float64(), 1-alike*r.Float64()
				if alike == 0.5 {
					in["g"].Data[i], in["beta"].Data[i] = []float64{0, 0, -0x1p-16, -0.125, -3, -300, -0x1p17}[r.IntN(7)], float64(r.IntN(2))
				}
			}
			want, got := runBoth(t, e, must(graphtest.Load(p))(t), p, in)
			for name := range want {
				scale, worst := 1.0, 0.0
				for _, v := range in["v"].Data {
					scale = max(scale, math.Abs(v))
				}
				for i, v := range want[name].Data {
					scale, worst = max(scale, math.Abs(v)), max(worst, math.Abs(got[name].Data[i]-v))
				}
				if !(worst <= 1e-6*scale) {
					t.Errorf("%d tokens, alike to %g: %s is up to %.2g off, of %.2g", T, alike, name, worst, scale)
				}
			}
		}
	}
}
