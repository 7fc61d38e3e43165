package graphtest

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"onering/models"
	"onering/models/graph"
)

// A Case is a small graph that tests one op.
type Case struct {
	Name string
	// Build declares inputs and returns the results and the inputs to differentiate by;
	// none where the op has no gradient.
	Build func(g *graph.Graph) (y, wrt []*graph.Node)
	// Sizes are the values of the letters in shapes.
	Sizes map[string]int
	// Values makes the inputs that cannot be random normal numbers.
	Values map[string]func(r *rand.Rand) Tensor
	// Onto names, for a result such as y0, the input whose buffer it overwrites.
	Onto map[string]string
}

// Forward builds the graph with the outputs y0, y1, ... The functions set, such as Graph.OrderSums, are called first.
func (c Case) Forward(set ...func(*graph.Graph)) (models.Program, error) {
	return graph.Build(c.Name, func(g *graph.Graph) {
		for _, f := range set {
			f(g)
		}
		y, _ := c.Build(g)
		for i, n := range y {
			name := fmt.Sprintf("y%d", i)
			g.OutputOnto(name, n, c.Onto[name])
		}
	})
}

// Backward builds the graph of the gradient: it has in addition an input dy0, dy1, ...
// for each result, and for each differentiated input x an output d.x.
func (c Case) Backward(set ...func(*graph.Graph)) (models.Program, error) {
	return graph.Build(c.Name+".backward", func(g *graph.Graph) {
		for _, f := range set {
			f(g)
		}
		y, wrt := c.Build(g)
		dy := make([]*graph.Node, len(y))
		for i, n := range y {
			dy[i] = g.Input(fmt.Sprintf("dy%d", i), n.Elem(), n.Shape())
		}
		for i, d := range graph.Gradient(y, dy, wrt) {
			g.Output("d."+wrt[i].Name(), d)
		}
	})
}

// Differentiable reports whether the case has a gradient.
func (c Case) Differentiable() (yes bool) {
	graph.Build(c.Name, func(g *graph.Graph) {
		_, wrt := c.Build(g)
		yes = len(wrt) > 0
	})
	return yes
}

// Inputs makes inputs for a Program of the case, the same ones in each call.
func (c Case) Inputs(p models.Program) map[string]Tensor {
	h := fnv.New64()
	h.Write([]byte(p.Name))
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	in := make(map[string]Tensor)
	for _, port := range p.Inputs {
		if f := c.Values[port.Name]; f != nil {
			in[port.Name] = f(r)
			continue
		}
		t := Normal(r, Sizes(port, c.Sizes)...)
		t.Type = port.DType
		in[port.Name] = t
	}
	return in
}

// Sizes returns the dims of a port where letters have the given values.
func Sizes(p models.Port, letters map[string]int) []int {
	dims := make([]int, len(p.Shape))
	for i, s := range p.Shape {
		dims[i] = evaluate(s, -1, letters)
	}
	return dims
}

// positive makes numbers between 0.5 and 2.5.
func positive(dims ...int) func(*rand.Rand) Tensor {
	return func(r *rand.Rand) Tensor {
		return Zeros(dims...).mapped(func(float64) float64 { return 0.5 + 2*r.Float64() })
	}
}

func ints(data []int, dims ...int) func(*rand.Rand) Tensor {
	return func(*rand.Rand) Tensor { return Ints(data, dims...) }
}

func int32s(data []int, dims ...int) func(*rand.Rand) Tensor {
	return func(*rand.Rand) Tensor { return Int32(data, dims...) }
}

// coins makes booleans.
func coins(dims ...int) func(*rand.Rand) Tensor {
	return func(r *rand.Rand) Tensor {
		t := Zeros(dims...).mapped(func(float64) float64 { return float64(r.IntN(2)) })
		t.Type = models.Bool
		return t
	}
}

// one wraps an op of float inputs of the given shapes, named a, b, ..., all of them differentiated.
func one(f func(in []*graph.Node) *graph.Node, shapes ...graph.Shape) func(*graph.Graph) (y, wrt []*graph.Node) {
	return func(g *graph.Graph) (y, wrt []*graph.Node) {
		for i, s := range shapes {
			wrt = append(wrt, g.Input(string(rune('a'+i)), models.F32, s))
		}
		return []*graph.Node{f(wrt)}, wrt
	}
}

// noGradient is like one, for an op without a gradient.
func noGradient(f func(in []*graph.Node) *graph.Node, shapes ...graph.Shape) func(*graph.Graph) (y, wrt []*graph.Node) {
	return func(g *graph.Graph) ([]*graph.Node, []*graph.Node) {
		y, _ := one(f, shapes...)(g)
		return y, nil
	}
}

// Cases returns small graphs that together have every op of package graph, with odd sizes, broadcasting and
// transposes. one declares inputs a, b, ... of the shapes, and has the op differentiated by all of them. Values make the
// inputs of these names, all others are random, and Onto says which result may overwrite which input.
func Cases() []Case {
	sizes := map[string]int{"B": 2, "T": 5, "N": 7, "P": 6, "Tw": 8}
	dims := graph.Dims
	var cases []Case
	add := func(name string, build func(*graph.Graph) (y, wrt []*graph.Node), values map[string]func(*rand.Rand) Tensor) {
		cases = append(cases, Case{Name: name, Build: build, Sizes: sizes, Values: values})
	}
	type values = map[string]func(*rand.Rand) Tensor

	// Pairs of operands, with every way to broadcast.
	for name, f := range map[string]func(a, b *graph.Node) *graph.Node{"Add": graph.Add, "Sub": graph.Sub, "Mul": graph.Mul, "Div": graph.Div} {
		pair := func(in []*graph.Node) *graph.Node { return f(in[0], in[1]) }
		add(name, one(pair, dims("N", 3), dims("N", 3)), values{"b": positive(7, 3)})
		add(name+"/column", one(pair, dims("N", 3), dims("N", 1)), values{"b": positive(7, 1)})
		add(name+"/row", one(pair, dims(3), dims("B", "N", 3)), values{"b": positive(2, 7, 3)})
		add(name+"/outer", one(pair, dims("N", 1), dims(1, 3)), values{"b": positive(1, 3)})
		add(name+"/scalar", one(pair, dims("N", 1, 3), dims()), values{"b": positive()})
		add(name+"/itself", one(func(in []*graph.Node) *graph.Node { return f(in[0], in[0]) }, dims("N", 3)), values{"a": positive(7, 3)})
	}
	add("Max", noGradient(func(in []*graph.Node) *graph.Node { return graph.Max(in[0], in[1]) }, dims("N", 3), dims("N", 1)), nil)
	for name, f := range map[string]func(a, b *graph.Node) *graph.Node{"LessOrEqual": graph.LessOrEqual, "GreaterOrEqual": graph.GreaterOrEqual} {
		add(name, noGradient(func(in []*graph.Node) *graph.Node { return f(in[0], in[1]) }, dims("N", 3), dims(3)), nil)
		add(name+"/int", func(g *graph.Graph) (y, wrt []*graph.Node) {
			return []*graph.Node{f(g.Input("a", models.I64, dims("N", 3)), g.Input("b", models.I64, dims(3)))}, nil
		}, values{"a": ints([]int{-3, -2, 9, 0, 1, 7, 2, -2, -9, 5, 5, 8, -1, 0, 7, 1, 2, 3, 0, -1, -2}, 7, 3), "b": ints([]int{0, -2, 7}, 3)})
	}
	for name, f := range map[string]func(*graph.Node) *graph.Node{"Neg": graph.Neg, "Exp": graph.Exp, "Sigmoid": graph.Sigmoid,
		"Softplus": graph.Softplus, "Tanh": graph.Tanh} {
		add(name, one(func(in []*graph.Node) *graph.Node { return f(in[0]) }, dims("N", 3)), nil)
	}
	for name, f := range map[string]func(*graph.Node) *graph.Node{"Log": graph.Log, "Sqrt": graph.Sqrt, "Reciprocal": graph.Reciprocal} {
		add(name, one(func(in []*graph.Node) *graph.Node { return f(in[0]) }, dims("N", 3)), values{"a": positive(7, 3)})
	}
	add("Abs", noGradient(func(in []*graph.Node) *graph.Node { return graph.Abs(in[0]) }, dims("N", 3)), nil)
	add("Sign", noGradient(func(in []*graph.Node) *graph.Node { return graph.Sign(in[0]) }, dims("N", 3)), nil)
	add("After", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x, h := g.Float("x", "N", 3), g.Float("h")
		before := graph.Sigmoid(x)
		return []*graph.Node{before, graph.Mul(x, graph.After(h, before, h))}, []*graph.Node{x, h}
	}, nil)
	cases[len(cases)-1].Onto = map[string]string{"y1": "x"} // a runtime may write the result into the input's buffer
	add("Where", func(g *graph.Graph) (y, wrt []*graph.Node) {
		cond := g.Input("cond", models.Bool, dims("N", 1))
		a, b := g.Float("a", "N", 3), g.Float("b", 3)
		return []*graph.Node{graph.Where(cond, a, b)}, []*graph.Node{a, b}
	}, values{"cond": coins(7, 1)})
	add("Cast", one(func(in []*graph.Node) *graph.Node {
		x := graph.Cast(in[0], models.F64) // the cast, and an op in the new type
		return graph.Cast(graph.Sigmoid(graph.Where(graph.LessOrEqual(x, in[0].Graph().Double(0.1)), x, graph.Exp(x))), models.F32)
	}, dims("N", 3)), nil)
	add("Cast/int", noGradient(func(in []*graph.Node) *graph.Node { return graph.Cast(in[0], models.I64) }, dims("N", 3)), nil)

	// Products, with every transpose.
	for i := range 4 {
		tA, tB := i&1 != 0, i&2 != 0
		name := fmt.Sprintf("/%v,%v", tA, tB)
		flip := func(flip bool, r, c any) graph.Shape {
			if flip {
				r, c = c, r
			}
			return dims(r, c)
		}
		a, b := flip(tA, "N", 3), flip(tB, 3, 4)
		for what, c := range map[string]graph.Shape{"matrix": dims("N", 4), "row": dims(4), "column": dims("N", 1)} {
			add("Gemm"+name+"/"+what, one(func(in []*graph.Node) *graph.Node { return graph.Gemm(in[0], in[1], in[2], tA, tB) }, a, b, c), nil)
			if what == "matrix" {
				cases[len(cases)-1].Onto = map[string]string{"y0": "c"}
			}
		}
		add("Gemm"+name, one(func(in []*graph.Node) *graph.Node { return graph.Gemm(in[0], in[1], nil, tA, tB) }, a, b), nil)
		batch := func(s graph.Shape) graph.Shape { return append(dims("B", 3), s...) }
		for _, alpha := range []float64{1, 0.37} {
			add(fmt.Sprintf("MatMul%s/%v", name, alpha), one(func(in []*graph.Node) *graph.Node {
				return graph.MatMul(in[0], in[1], tA, tB, alpha)
			}, batch(a), batch(b)), nil)
		}
	}
	add("MatMul/matrices", one(func(in []*graph.Node) *graph.Node { return graph.MatMul(in[0], in[1], false, false, 1) }, dims("N", 3), dims(3, 4)), nil)
	add("Linear", one(func(in []*graph.Node) *graph.Node { return graph.Linear(in[0], in[1], in[2]) }, dims("N", 3), dims(4, 3), dims(4)), nil)
	add("Gemm/itself", one(func(in []*graph.Node) *graph.Node { return graph.Gemm(in[0], in[0], nil, true, false) }, dims("N", 3)), nil)

	// Sums.
	add("Softmax", one(func(in []*graph.Node) *graph.Node { return graph.Softmax(in[0]) }, dims("B", "N", 3)), nil)
	for axis := range 3 {
		at := fmt.Sprintf("/%d", axis-1) // the axes -1, 0 and 1
		add("ReduceSum"+at, one(func(in []*graph.Node) *graph.Node { return graph.ReduceSum(in[0], axis-1) }, dims("N", 3, 4)), nil)
		for _, exclusive := range []bool{false, true} {
			add(fmt.Sprintf("CumSum%s/%v", at, exclusive), one(func(in []*graph.Node) *graph.Node {
				return graph.CumSum(in[0], axis-1, exclusive)
			}, dims("N", 3, 4)), nil)
		}
	}
	add("ReduceMean", one(func(in []*graph.Node) *graph.Node { return graph.ReduceMean(in[0], -1) }, dims("N", 3)), nil)
	add("ReduceMean/1", one(func(in []*graph.Node) *graph.Node { return graph.ReduceMean(in[0], 1) }, dims("N", 3, 4)), nil)
	add("ReduceMax", noGradient(func(in []*graph.Node) *graph.Node { return graph.ReduceMax(in[0], -1) }, dims("B", "N", 3)), nil)
	add("ReduceSumSquare", noGradient(func(in []*graph.Node) *graph.Node { return graph.ReduceSumSquare(in[0]) }, dims("N", 3)), nil)
	add("ArgMax", noGradient(func(in []*graph.Node) *graph.Node { return graph.ArgMax(in[0]) }, dims("B", "N", 3)), nil)
	add("TopK", func(g *graph.Graph) (y, wrt []*graph.Node) {
		v, i := graph.TopK(g.Float("a", "B", "N"), g.Input("k", models.I64, dims(1)), "k")
		return []*graph.Node{v, i}, nil
	}, values{"k": ints([]int{3}), "a": func(r *rand.Rand) Tensor { // some values are equal
		return Zeros(2, 7).mapped(func(float64) float64 { return float64(r.IntN(4)) })
	}})

	// Moves.
	add("Reshape", one(func(in []*graph.Node) *graph.Node { return graph.Reshape(in[0], 0, -1, 2) }, dims("B", "N", 4)), nil)
	add("Reshape/flat", one(func(in []*graph.Node) *graph.Node { return graph.Reshape(in[0], -1) }, dims("B", "N", 4)), nil)
	add("Reshape/fixed", one(func(in []*graph.Node) *graph.Node { return graph.Reshape(in[0], 4, 6) }, dims(2, 3, 4)), nil)
	add("Transpose", one(func(in []*graph.Node) *graph.Node { return graph.Transpose(in[0], 2, 0, 1) }, dims("B", "N", 4)), nil)
	add("Concat", one(func(in []*graph.Node) *graph.Node { return graph.Concat(1, in...) }, dims("N", 3), dims("N", 1), dims("N", 2)), nil)
	add("Concat/last", one(func(in []*graph.Node) *graph.Node { return graph.Concat(-1, in[0], in[1], in[0]) }, dims("N", 2, 3), dims("N", 2, 1)), nil)
	add("Split", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x := g.Float("x", "N", 6)
		return graph.Split(x, 1, 3, 1, 2), []*graph.Node{x}
	}, nil)
	add("Split/unused part", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x := g.Float("x", 6, "N")
		return graph.Split(x, 0, 3, 1, 2)[1:2], []*graph.Node{x}
	}, nil)
	add("Slice", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x := g.Float("x", "B", "N", 3)
		at := g.Input("at", models.I64, dims(1))
		return []*graph.Node{graph.Slice(x, at, graph.Add(at, g.Ints(4)), 1, 4)}, []*graph.Node{x}
	}, values{"at": ints([]int{2})})
	add("Pad", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x := g.Float("x", "N", 3)
		return []*graph.Node{graph.Pad(x, g.Ints(2), g.Ints(1), -1, dims(6)[0])}, []*graph.Node{x}
	}, nil)
	add("PadLast", one(func(in []*graph.Node) *graph.Node { return graph.PadLast(in[0], 8) }, dims("B", "N", 3)), nil)
	add("PadLast/vector", one(func(in []*graph.Node) *graph.Node { return graph.PadLast(in[0], 4) }, dims(3)), nil)
	add("PadLast/as it is", one(func(in []*graph.Node) *graph.Node { return graph.PadLast(graph.Neg(in[0]), 3) }, dims("N", 3)), nil)
	add("Gather", func(g *graph.Graph) (y, wrt []*graph.Node) {
		return []*graph.Node{graph.Gather(g.Float("x", "N", 3), g.Input("at", models.I64, dims("B", 4)))}, nil
	}, values{"at": ints([]int{6, 0, 0, 3, 1, 2, 5, 4}, 2, 4)})
	add("GatherRows", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x, at := g.Float("x", "B", "N", 3), g.Input("at", models.I64, dims("B", 1))
		return []*graph.Node{graph.GatherRows(x, at), graph.GatherRows(graph.Reshape(x, 0, -1), at)}, nil
	}, values{"at": ints([]int{6, 2}, 2, 1)})
	add("ScatterRows", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x, at := g.Float("x", "B", 2, 5, 3), g.Input("at", models.I64, dims("B", 2, 3))
		return []*graph.Node{graph.ScatterRows(x, at, g.Float("rows", "B", 2, 3))}, nil
	}, values{"at": ints([]int{0, 0, 4, 0, 1, 0, 1, 0, 2, 1, 1, 2}, 2, 2, 3)})
	cases[len(cases)-1].Onto = map[string]string{"y0": "x"}
	add("AddRows", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x, at := g.Float("x", "B", 3), g.Input("at", models.I64, dims("N"))
		return []*graph.Node{graph.AddRows(x, at, g.Float("rows", "N", 3))}, nil
	}, values{"at": ints([]int{1, 0, 1, 1, 0, 1, 0}, 7)})
	cases[len(cases)-1].Onto = map[string]string{"y0": "x"}
	add("AddElements", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x, at := g.Float("x", "B", 3), g.Input("at", models.I64, dims("N", 2))
		return []*graph.Node{graph.AddElements(graph.Neg(x), at, g.Float("y", "N"))}, nil
	}, values{"at": ints([]int{1, 0, 0, 2, 1, 1, 0, 0, 1, 0, 0, 1, 1, 2}, 7, 2)})
	add("Rows", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x, ids := g.Float("x", "B", "N", 3), g.Input("ids", models.I64, dims("B", "N"))
		return []*graph.Node{graph.Rows(graph.Reshape(x, -1, 3), ids)}, []*graph.Node{x}
	}, values{"ids": ints(make([]int, 14), 2, 7)})
	add("Rows/one each", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x, ids := g.Float("x", "B", 3), g.Input("ids", models.I64, dims("B", 1))
		return []*graph.Node{graph.Rows(x, ids)}, []*graph.Node{x}
	}, values{"ids": ints(make([]int, 2), 2, 1)})

	// Composites.
	add("RMSNorm", one(func(in []*graph.Node) *graph.Node { return graph.RMSNorm(in[0], in[1], 1e-6) }, dims("N", 6), dims(6)), nil)
	add("RMSNorm/3", one(func(in []*graph.Node) *graph.Node { return graph.RMSNorm(in[0], in[1], 1e-2) }, dims("B", "N", 3), dims(3)), nil)
	add("SwiGLU", one(func(in []*graph.Node) *graph.Node { return graph.SwiGLU(in[0], in[1]) }, dims("N", 3), dims("N", 3)), nil)
	add("SwiGLU/itself", one(func(in []*graph.Node) *graph.Node { return graph.SwiGLU(in[0], in[0]) }, dims("N", 3)), nil)
	add("GeGLU", one(func(in []*graph.Node) *graph.Node { return graph.GeGLU(in[0], in[1]) }, dims("N", 3), dims("N", 3)), nil)
	for _, h := range [][2]int{{1, 4}, {3, 4}, {1, 6}, {3, 6}} { // heads, of which 4 elements are turned
		add(fmt.Sprintf("Rotary/%d heads of %d", h[0], h[1]), func(g *graph.Graph) (y, wrt []*graph.Node) {
			x := g.Float("x", "N", h[0]*h[1])
			pos := g.Input("pos", models.I64, dims("N", 1))
			return []*graph.Node{graph.Rotary(x, pos, g.Float("cos", "P", 2), g.Float("sin", "P", 2), h[0])}, []*graph.Node{x}
		}, values{"pos": ints([]int{0, 1, 2, 3, 0, 5, 2}, 7, 1)})
	}
	// Rows of 5 and 2 tokens, padded with token 3.
	packing := values{
		"copies": ints([]int{0}, 1, 1), "copied": func(*rand.Rand) Tensor { return Floats([]float64{1}, 1, 1, 1) },
		"rows":   ints([]int{0, 1, 2, 3, 4, 5, 6, 3, 3, 3}, 2, 5),
		"tokens": ints([]int{0, 1, 2, 3, 4, 5, 6}),
		"valid": func(*rand.Rand) Tensor {
			return Floats([]float64{1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, 2, 5, 1)
		},
		"mask": func(*rand.Rand) Tensor {
			m := Zeros(5, 5)
			for i := range 5 {
				for j := i + 1; j < 5; j++ {
					m.Row(i)[j] = -1e30
				}
			}
			return m
		},
		"bounds": ints([]int{0, 2, 3, 5}), "bounds.1": ints([]int{2}, 1), "bounds.2": ints([]int{3}, 1),
	}
	pack := func(g *graph.Graph) *graph.Packing {
		return &graph.Packing{Rows: g.Input("rows", models.I64, dims("B", "T")),
			Tokens: g.Input("tokens", models.I64, dims("N")), Valid: g.Float("valid", "B", "T", 1),
			Copies: g.Input("copies", models.I64, dims("M", "J")), Copied: g.Float("copied", "M", 1, "J")}
	}
	// Rows of 4 and 5 tokens that begin with the same two.
	shared := maps.Clone(packing)
	shared["rows"] = ints([]int{0, 1, 3, 4, 3, 0, 1, 2, 5, 6}, 2, 5)
	shared["tokens"] = ints([]int{0, 1, 7, 2, 3, 8, 9})
	shared["copies"] = ints([]int{0, 5, 1, 6, 7, 0}, 3, 2)
	shared["copied"] = func(*rand.Rand) Tensor { return Floats([]float64{1, 1, 1, 1, 1, 0}, 3, 1, 2) }
	shared["valid"] = func(*rand.Rand) Tensor { return Floats([]float64{1, 1, 1, 1, 0, 0, 0, 1, 1, 1}, 2, 5, 1) }
	shared["there"] = func(*rand.Rand) Tensor { return Floats([]float64{1, 1, 1, 1, 0, 1, 1, 1, 1, 1}, 2, 5, 1) }
	add("Unpack", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x, p := g.Float("x", "N", 3), pack(g)
		return []*graph.Node{graph.Mul(p.Unpack(x), p.Valid)}, []*graph.Node{x} // mask the padding, whose values are unspecified
	}, packing)
	add("Unpack/shared", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x, p := g.Float("x", "N", 3), pack(g)
		return []*graph.Node{graph.Mul(p.Unpack(x), g.Float("there", "B", "T", 1))}, []*graph.Node{x}
	}, shared)
	add("UnpackOnce", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x, p := g.Float("x", "N", 3), pack(g)
		return []*graph.Node{graph.Mul(p.UnpackOnce(x), p.Valid)}, []*graph.Node{x}
	}, shared)
	add("Pack", func(g *graph.Graph) (y, wrt []*graph.Node) {
		x, p := g.Float("x", "B", "T", 3), pack(g)
		return []*graph.Node{p.Pack(x)}, []*graph.Node{x}
	}, packing)
	for _, groups := range []int{1, 2, 4} { // key heads of 4 heads
		for _, how := range []string{"1 blocks", "3 blocks", "3 blocks in turn"} {
			form := graph.Attention{Heads: 4, KVHeads: groups, Blocks: int(how[0] - '0'), InTurn: how != "3 blocks"}
			if groups == 2 {
				form.Scale, form.Cap = 0.75, 0.5 // float32 has them, and their quotient
			}
			name := fmt.Sprintf("CausalAttention/%d of 4 heads, %s", groups, how)
			attention := func(g *graph.Graph, q, k, v *graph.Node) *graph.Node {
				mask := g.Float("mask", "T", "T")
				var bounds *graph.Node
				if form.Blocks > 1 {
					bounds = g.Input("bounds", models.I64, dims(form.Blocks+1))
				}
				return graph.CausalAttention(q, k, v, mask, bounds, form)
			}
			add(name, func(g *graph.Graph) (y, wrt []*graph.Node) {
				q, k, v := g.Float("q", "B", "T", 12), g.Float("k", "B", "T", groups*3), g.Float("v", "B", "T", groups*3)
				return []*graph.Node{attention(g, q, k, v)}, []*graph.Node{q, k, v}
			}, packing)
			packed := func(g *graph.Graph) (y, wrt []*graph.Node) {
				q, k, v, p := g.Float("q", "N", 12), g.Float("k", "N", groups*3), g.Float("v", "N", groups*3), pack(g)
				o := attention(g, p.UnpackOnce(q), p.Unpack(k), p.Unpack(v))
				return []*graph.Node{p.Pack(o)}, []*graph.Node{q, k, v}
			}
			add(name+", packed", packed, packing)
			add(name+", packed, shared", packed, shared)
		}
	}
	for _, before := range []bool{false, true} {
		add(fmt.Sprintf("CausalConv/%v", before), func(g *graph.Graph) (y, wrt []*graph.Node) {
			wrt = []*graph.Node{g.Float("x", "B", "T", 3), g.Float("w", 3, 1, 4)}
			var first *graph.Node
			if before {
				first = g.Float("before", "B", 3, 3)
				wrt = append(wrt, first)
			}
			z, joined := graph.CausalConv(wrt[0], wrt[1], first)
			return []*graph.Node{z, joined}, wrt
		}, nil)
		for _, y := range []bool{false, true} {
			add(fmt.Sprintf("Recurrence/%v, %v", before, y), func(g *graph.Graph) ([]*graph.Node, []*graph.Node) {
				wrt := []*graph.Node{g.Float("s", "B", 3, 4), g.Float("g", "N", "B", 1, 1), g.Float("u", "N", "B", 2, 4),
					g.Float("l", "N", "B", 2, 3), g.Float("m", "N", "B", 2, 3), nil}
				if y {
					wrt[5] = g.Float("y", "N", "B", 3, 4)
				}
				last, states, n := graph.Recurrence(wrt[0], wrt[1], wrt[2], wrt[3], wrt[4], wrt[5], before)
				return []*graph.Node{last, states, n}, slices.DeleteFunc(wrt, func(n *graph.Node) bool { return n == nil })
			}, values{"g": func(*rand.Rand) Tensor {
				return Floats([]float64{.5, .2, .9, .1, .6, .8, .3, .7, .4, 1, .5, .2, .1, .9}, 7, 2, 1, 1)
			},
				"m": func(r *rand.Rand) Tensor {
					return Normal(r, 7, 2, 2, 3).mapped(func(v float64) float64 { return v / 4 })
				}})
		}
	}
	rule := func(rows any, heads int) []graph.Shape {
		return []graph.Shape{dims("B", rows, 1, 2), dims("B", rows, 1, 2), dims("B", rows, heads, 3), dims("B", rows, heads), dims("B", rows, heads)}
	}
	for _, heads := range []int{1, 2} {
		// g is the negative of a square, so that states do not grow.
		add(fmt.Sprintf("DeltaRule/%d", heads), one(func(in []*graph.Node) *graph.Node {
			o, last := graph.DeltaRule(in[0], in[1], in[2], graph.Neg(graph.Mul(in[3], in[3])), graph.Sigmoid(in[4]), nil)
			return graph.Add(o, graph.Reshape(graph.ReduceSum(last, 2), 0, 1, heads, 3))
		}, rule("T", heads)...), nil)
		cases[len(cases)-1].Sizes = map[string]int{"B": 1, "T": 3}
		add(fmt.Sprintf("DeltaStep/%d", heads), one(func(in []*graph.Node) *graph.Node {
			o, now := graph.DeltaStep(in[0], in[1], in[2], graph.Neg(graph.Mul(in[3], in[3])), graph.Sigmoid(in[4]), in[5], false)
			return graph.Add(o, graph.Reshape(graph.ReduceSum(now, 2), 0, 1, heads, 3))
		}, append(rule(1, heads), dims("B", heads, 2, 3))...), nil)
		add(fmt.Sprintf("LinearAttention/%d", heads), noGradient(func(in []*graph.Node) *graph.Node {
			o, now := graph.DeltaStep(in[0], in[1], in[2], graph.Neg(graph.Mul(in[3], in[3])), graph.Sigmoid(in[4]), in[5], true)
			return graph.Add(o, graph.Reshape(graph.ReduceSum(now, 2), 0, 1, heads, 3))
		}, append(rule(1, heads), dims("B", heads, 2, 3))...), nil)
	}
	cached := func(tokens int, rotary bool, form graph.Attention) func(*graph.Graph) (y, wrt []*graph.Node) {
		return func(g *graph.Graph) ([]*graph.Node, []*graph.Node) {
			groups := form.KVHeads
			qkv := g.Float("qkv", "R", tokens, (4+2*groups)*16)
			past := graph.Cache{K: g.Float("past_key", "R", groups, 9, 16), V: g.Float("past_value", "R", groups, 9, 16)}
			seqlens, total := g.Input("seqlens", models.I32, dims("R")), g.Input("total", models.I32, dims())
			var cos, sin *graph.Node
			if rotary {
				cos, sin = g.Float("cos", 9, 8), g.Float("sin", 9, 8)
			}
			o, now := graph.GroupQueryAttention(qkv, past, seqlens, total, cos, sin, form)
			return []*graph.Node{o, now.K, now.V}, nil
		}
	}
	for _, tt := range []struct {
		name          string
		tokens, total int
		rotary        bool
		groups        int
		window        int
		cap           float64
		seqlens       []int
	}{
		{"prompts", 5, 5, true, 2, 0, 0, []int{4, 1, 2}},
		{"prompts, no angles", 5, 5, false, 4, 0, 0, []int{4, 4, 0}},
		{"prompts, window", 5, 5, true, 2, 2, 0, []int{4, 1, 2}},
		{"prompts, window of one, cap", 5, 5, true, 2, 1, 0.4, []int{4, 1, 2}},
		{"one token", 1, 8, true, 1, 0, 0, []int{7, 3, 0}},
		{"one token, window", 1, 8, true, 1, 4, 0, []int{7, 3, 0}},
		{"one token, cap", 1, 8, true, 1, 0, 0.5, []int{7, 3, 0}},
		{"one token, no angles", 1, 9, false, 2, 0, 0, []int{8, 0, 3}},
		{"more of one prompt", 3, 7, true, 2, 0, 0, []int{6}},
	} {
		form := graph.Attention{Heads: 4, KVHeads: tt.groups, Scale: 0.3, Window: tt.window, Cap: tt.cap}
		add("GroupQueryAttention/"+tt.name, cached(tt.tokens, tt.rotary, form),
			values{"seqlens": int32s(tt.seqlens, len(tt.seqlens)), "total": int32s([]int{tt.total})})
		cases[len(cases)-1].Sizes = map[string]int{"R": len(tt.seqlens)}
		cases[len(cases)-1].Onto = map[string]string{"y1": "past_key", "y2": "past_value"}
	}
	slices.SortFunc(cases, func(a, b Case) int { return strings.Compare(a.Name, b.Name) })
	return cases
}
