package graphtest

import (
	"math"
	"math/rand/v2"

	"onering/models"
	"onering/models/graph"
)

// A Delta is a graph of the gated delta rule for rows of T tokens, and what it should
// compute.
type Delta struct {
	Program, Backward models.Program // with the outputs o and last; with their gradients
	In, Want          map[string]Tensor
}

// NewDelta makes the graphs for rows of T tokens and random inputs. If alike is set, the
// keys of all tokens are almost equal and hardly decay. Want comes from the definition of
// the rule, token by token.
func NewDelta(r *rand.Rand, T int, alike bool) (d Delta, err error) {
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
	if d.Program, err = graph.Build("delta", func(g *graph.Graph) {
		_, o, last := expression(g)
		g.Output("o", o)
		g.Output("last", last)
	}); err != nil {
		return d, err
	}
	if d.Backward, err = graph.Build("delta.backward", func(g *graph.Graph) {
		in, o, last := expression(g)
		seeds := []*graph.Node{g.Input("d_out", models.F32, o.Shape()), g.Input("d_state", models.F32, last.Shape())}
		for i, x := range graph.Gradient([]*graph.Node{o, last}, seeds, in) {
			g.Output("d"+names[i], x)
		}
	}); err != nil {
		return d, err
	}
	d.In = map[string]Tensor{"q": Normal(r, B, T, G, K), "k": Normal(r, B, T, G, K), "v": Normal(r, B, T, H, V),
		"g": Zeros(B, T, H), "beta": Zeros(B, T, H), "state": Normal(r, B, H, K, V)}
	for i, k := range d.In["k"].Data {
		if alike && i >= K {
			d.In["k"].Data[i] = d.In["k"].Data[i%K] + 1e-3*k
		}
	}
	for i := range B * T * G {
		unit(d.In["q"].Data[i*K : (i+1)*K])
		unit(d.In["k"].Data[i*K : (i+1)*K])
	}
	for i := range B * T * H {
		d.In["g"].Data[i], d.In["beta"].Data[i] = -3*r.Float64()*r.Float64(), r.Float64()
		if alike {
			d.In["g"].Data[i], d.In["beta"].Data[i] = -1e-3*r.Float64(), 0.99
		}
	}
	d.Want = d.ByTokens()
	return d, nil
}

func unit(x []float64) {
	n := 0.0
	for _, v := range x {
		n += v * v
	}
	for i := range x {
		x[i] /= math.Sqrt(n)
	}
}

// ByTokens computes the rule as it is defined.
func (d Delta) ByTokens() map[string]Tensor {
	q, k, v := d.In["q"], d.In["k"], d.In["v"]
	B, T, G, K, H, V := q.Dims[0], q.Dims[1], q.Dims[2], q.Dims[3], v.Dims[2], v.Dims[3]
	o, last := Zeros(v.Dims...), d.In["state"].Clone()
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
	return map[string]Tensor{"o": o, "last": last}
}
