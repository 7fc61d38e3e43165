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

// deltaKinds are what keys and gates may be like: alike has almost equal keys that hardly decay,
// for which a power series would be wrong in its first digit; edges has gates and corrections at
// the ends of their range.
var deltaKinds = []string{"any", "alike", "edges"}

// TestDeltaRuleByTokens compares the rule in chunks with its definition.
func TestDeltaRuleByTokens(t *testing.T) {
	for _, T := range deltaLengths {
		for _, kind := range deltaKinds {
			d := newDelta(t, rand.New(rand.NewPCG(uint64(T), 1)), T, kind)
			got := run(t, graphtest.Loaded(t, d.Program, nil), d.In)
			for name, want := range d.Want {
				closeTo(t, fmt.Sprintf("%d tokens, %s: %s", T, kind, name), got[name].Data, want.Data, 1e-9)
			}
		}
	}
}

// TestDeltaRuleGradient compares the gradient over several chunks with differences.
func TestDeltaRuleGradient(t *testing.T) {
	for _, T := range []int{33, 64, 71} {
		r := rand.New(rand.NewPCG(uint64(T), 2))
		d := newDelta(t, r, T, deltaKinds[T%3]) // each kind once
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

// A delta is a graph of the gated delta rule for rows of T tokens, and what it should
// compute.
type delta struct {
	Program, Backward models.Program // with the outputs o and last; with their gradients
	In, Want          map[string]graphtest.Tensor
}

// newDelta makes the graphs for rows of T tokens and random inputs of one of deltaKinds. Want
// comes from the definition of the rule, token by token.
func newDelta(t *testing.T, r *rand.Rand, T int, kind string) (d delta) {
	t.Helper()
	const B, G, H, K, V = 2, 2, 4, 6, 5
	dims := [][]any{{"B", "T", G, K}, {"B", "T", G, K}, {"B", "T", H, V}, {"B", "T", H}, {"B", "T", H}, {"B", H, K, V}}
	names := []string{"q", "k", "v", "g", "beta", "state"}
	expression := func(g *graph.Graph) (in []*graph.Node, o, last *graph.Node) {
		for i, name := range names {
			in = append(in, g.Float(name, dims[i]...))
		}
		o, last = graph.DeltaRule(in[0], in[1], in[2], in[3], in[4], in[5])
		return in, o, last
	}
	d.Program = built(t, "delta", func(g *graph.Graph) {
		_, o, last := expression(g)
		g.Output("o", o)
		g.Output("last", last)
	})
	d.Backward = built(t, "delta.backward", func(g *graph.Graph) {
		in, o, last := expression(g)
		seeds := []*graph.Node{g.Input("d_out", models.F32, o.Shape()), g.Input("d_state", models.F32, last.Shape())}
		for i, x := range graph.Gradient([]*graph.Node{o, last}, seeds, in) {
			g.Output("d"+names[i], x)
		}
	})
	d.In = map[string]graphtest.Tensor{"q": graphtest.Normal(r, B, T, G, K), "k": graphtest.Normal(r, B, T, G, K), "v": graphtest.Normal(r, B, T, H, V),
		"g": graphtest.Zeros(B, T, H), "beta": graphtest.Zeros(B, T, H), "state": graphtest.Normal(r, B, H, K, V)}
	for i, k := range d.In["k"].Data {
		if kind == "alike" && i >= K {
			d.In["k"].Data[i] = d.In["k"].Data[i%K] + 1e-3*k
		}
	}
	for i := range B * T * G {
		unit(d.In["q"].Data[i*K : (i+1)*K])
		unit(d.In["k"].Data[i*K : (i+1)*K])
	}
	for i := range B * T * H {
		d.In["g"].Data[i], d.In["beta"].Data[i] = -3*r.Float64()*r.Float64(), r.Float64()
		switch kind {
		case "alike":
			d.In["g"].Data[i], d.In["beta"].Data[i] = -1e-3*r.Float64(), 0.99
		case "edges":
			d.In["g"].Data[i], d.In["beta"].Data[i] = edgeGates[r.IntN(len(edgeGates))], float64(r.IntN(2))
		}
	}
	d.Want = d.byTokens()
	return d
}

// edgeGates are logarithms of decays from none to all.
var edgeGates = []float64{0, 0, -1e-5, -0.1, -3, -300, -1e5}

func unit(x []float64) {
	n := 0.0
	for _, v := range x {
		n += v * v
	}
	for i := range x {
		x[i] /= math.Sqrt(n)
	}
}

// byTokens computes the rule as it is defined.
func (d delta) byTokens() map[string]graphtest.Tensor {
	q, k, v := d.In["q"], d.In["k"], d.In["v"]
	B, T, G, K, H, V := q.Dims[0], q.Dims[1], q.Dims[2], q.Dims[3], v.Dims[2], v.Dims[3]
	o, last := graphtest.Zeros(v.Dims...), d.In["state"].Clone()
	for b := range B {
		for t := range T {
			for h := range H {
				at := (b*T+t)*H + h
				key := ((b*T+t)*G + h/(H/G)) * K
				s := last.Data[(b*H+h)*K*V : (b*H+h+1)*K*V]
				for j := range V {
					now := 0.0
					for i := range K {
						s[i*V+j] *= math.Exp(d.In["g"].Data[at])
						now += s[i*V+j] * k.Data[key+i]
					}
					more := d.In["beta"].Data[at] * (v.Data[at*V+j] - now)
					for i := range K {
						s[i*V+j] += k.Data[key+i] * more
						o.Data[at*V+j] += s[i*V+j] * q.Data[key+i]
					}
				}
			}
		}
	}
	return map[string]graphtest.Tensor{"o": o, "last": last}
}

func built(t *testing.T, name string, f func(g *graph.Graph)) models.Program {
	t.Helper()
	p, err := graph.Build(name, f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
