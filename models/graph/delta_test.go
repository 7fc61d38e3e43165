package graph_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/graph"
)

// deltaLengths are lengths of rows around the edges of chunks.
var deltaLengths = []int{1, 2, 15, 31, 32, 33, 63, 64, 65, 96, 97, 500, 3000}

// TestDeltaRuleByTokens compares the rule in chunks with its definition, also for tokens
// with almost equal keys, for which a power series would be wrong in its first digit.
func TestDeltaRuleByTokens(t *testing.T) {
	for _, T := range deltaLengths {
		for _, alike := range []bool{false, true} {
			d := newDelta(t, rand.New(rand.NewPCG(uint64(T), 1)), T, alike)
			got := run(t, graphtest.Loaded(t, d.Program, nil), d.In)
			for name, want := range d.Want {
				closeTo(t, fmt.Sprintf("%d tokens, alike %v: %s", T, alike, name), got[name].Data, want.Data, 1e-9)
			}
		}
	}
}

// TestDeltaRuleGradient compares the gradient over several chunks with differences.
func TestDeltaRuleGradient(t *testing.T) {
	for _, T := range []int{33, 64, 70} {
		r := rand.New(rand.NewPCG(uint64(T), 2))
		d := newDelta(t, r, T, false)
		seeds := map[string]graphtest.Tensor{"o": graphtest.Normal(r, d.Want["o"].Dims...), "last": graphtest.Normal(r, d.Want["last"].Dims...)}
		forward, backward := graphtest.Loaded(t, d.Program, nil), graphtest.Loaded(t, d.Backward, nil)
		d.In["d_out"], d.In["d_state"] = seeds["o"], seeds["last"]
		grads := run(t, backward, d.In)
		delete(d.In, "d_out")
		delete(d.In, "d_state")
		for name, x := range d.In {
			was, direction, slope, h := slices.Clone(x.Data), graphtest.Normal(r, x.Dims...), 0.0, 0.0
			for i, v := range direction.Data {
				direction.Data[i] = v / math.Sqrt(float64(len(was)))
				slope += direction.Data[i] * grads["d"+name].Data[i]
			}
			along := graphtest.Derivative(func() float64 {
				for i, v := range direction.Data {
					x.Data[i] = was[i] + h*v
				}
				return graphtest.Dot(seeds, run(t, forward, d.In))
			}, &h)
			copy(x.Data, was)
			if !(math.Abs(slope-along) <= 1e-8*(1+math.Abs(along))) {
				t.Errorf("%d tokens: along a direction of %s the gradient is %v, differences give %v", T, name, slope, along)
			}
		}
	}
}

// TestPartsMatchPyTorch compares the delta rule and the convolution, and their gradients,
// with numbers of a float64 program in PyTorch.
func TestPartsMatchPyTorch(t *testing.T) {
	parts := filepath.Join("..", "..", "..", "shared", "goldens", "families", "parts")
	for _, part := range []struct {
		file         string
		in, out, dys []string
		f            func(in []*graph.Node) []*graph.Node
	}{
		{"delta_rule", []string{"q", "k", "v", "g", "beta", "state0"}, []string{"out", "state"}, []string{"d_out", "d_state"},
			func(in []*graph.Node) []*graph.Node {
				o, last := graph.DeltaRule(in[0], in[1], in[2], in[3], in[4], in[5])
				return []*graph.Node{o, last}
			}},
		{"causal_conv", []string{"x", "weight", "state0"}, []string{"y", "state"}, []string{"dy"},
			func(in []*graph.Node) []*graph.Node {
				y, joined := graph.CausalConv(in[0], in[1], in[2])
				n := joined.Shape()[1].N
				return []*graph.Node{y, graph.Slice(joined, y.Graph().Ints(int64(n-3)), y.Graph().Ints(int64(n)), 1, 3)}
			}},
	} {
		f, err := models.OpenSafetensors(filepath.Join(parts, part.file+".safetensors"))
		if err != nil {
			t.Skipf("no golden numbers of parts: %v", err)
		}
		defer f.Close()
		read := func(name string) graphtest.Tensor {
			info, ok := f.Info(name)
			if !ok {
				return graphtest.Tensor{}
			}
			x := make([]float32, info.Elements)
			if err := f.ReadFloat32(name, x, 0); err != nil {
				t.Fatal(err)
			}
			y := graphtest.Zeros(info.Shape...)
			for i, v := range x {
				y.Data[i] = float64(v)
			}
			return y
		}
		values, want := map[string]graphtest.Tensor{}, map[string]graphtest.Tensor{}
		p, err := graph.Build(part.file, func(g *graph.Graph) {
			input := func(name string) *graph.Node {
				values[name] = read(name)
				var sizes []any
				for _, n := range values[name].Dims {
					sizes = append(sizes, n)
				}
				return g.Float(name, sizes...)
			}
			var in, dys []*graph.Node
			for _, name := range part.in {
				in = append(in, input(name))
			}
			out := part.f(in)
			for i, name := range part.out {
				want[name] = read(name)
				g.Output(name, out[i])
			}
			for _, name := range part.dys {
				dys = append(dys, input(name))
			}
			for i, d := range graph.Gradient(out[:len(dys)], dys, in) {
				name := "d" + part.in[i]
				if want[name] = read(name); want[name].Data != nil {
					g.Output(name, d)
				}
			}
		})
		got := run(t, graphtest.Loaded(t, p, err), values)
		for name, x := range want {
			closeTo(t, part.file+": "+name, got[name].Data, x.Data, 2e-6) // the inputs are rounded to float32
		}
	}
}

// closeTo fails if a number differs from the wanted one.
func closeTo(t *testing.T, what string, got, want []float64, tolerance float64) {
	t.Helper()
	for i, x := range want {
		if !(math.Abs(got[i]-x) <= tolerance*(1+math.Abs(x))) {
			t.Fatalf("%s[%d] is %v, want %v", what, i, got[i], x)
		}
	}
}

func newDelta(t *testing.T, r *rand.Rand, T int, alike bool) graphtest.Delta {
	t.Helper()
	d, err := graphtest.NewDelta(r, T, alike)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
