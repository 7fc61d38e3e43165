package graph_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/graph"
)

// TestGradientOfCompositions builds random expressions of ops, with values used
// several times, and compares the derivative along a random direction.
func TestGradientOfCompositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var recipe []int // the random choices, so that both graphs are equal
		draw := func(at *int, n int) int {
			if *at == len(recipe) {
				recipe = append(recipe, rapid.IntRange(0, 1<<16).Draw(t, "choice"))
			}
			*at++
			return recipe[*at-1] % n
		}
		steps, ordered := rapid.IntRange(1, 12).Draw(t, "steps"), rapid.Bool().Draw(t, "ordered sums")
		build := func(name string, backward bool) (models.Program, error) {
			return graph.Build(name, func(g *graph.Graph) {
				if ordered {
					g.OrderSums()
				}
				at := 0
				x, w, m := g.Float("x", "N", 4), g.Float("w", 4), g.Float("m", 4, 4)
				values, cut := []*graph.Node{x, w, m}, g.Float("cut", "N", 4)
				for range steps {
					values = append(values, step(values, cut, func(n int) int { return draw(&at, n) }))
				}
				y := values[3:]
				if !backward {
					for i, n := range y {
						g.Output(fmt.Sprintf("y%d", i), n)
					}
					return
				}
				dy := make([]*graph.Node, len(y))
				for i, n := range y {
					dy[i] = g.Input(fmt.Sprintf("dy%d", i), models.F32, n.Shape())
				}
				for i, d := range graph.Gradient(y, dy, values[:3]) {
					if d != nil {
						g.Output("d."+values[i].Name(), d)
					}
				}
				g.Output("x again", x)
			})
		}
		f, err := build("forward", false)
		if err != nil {
			t.Fatal(err)
		}
		b, err := build("backward", true)
		if err != nil {
			t.Fatal(err)
		}
		forward, err := graphtest.Load(f)
		if err != nil {
			t.Fatal(err)
		}
		backward, err := graphtest.Load(b)
		if err != nil {
			t.Fatal(err)
		}
		c := graphtest.Case{Sizes: map[string]int{"N": 3}}
		in := c.Inputs(b)
		toward := graphtest.Case{Sizes: c.Sizes}.Inputs(f) // The other name gives other random numbers.
		grad, err := backward.Run(in)
		if err != nil {
			t.Fatal(err)
		}
		got := 0.0
		for name, d := range grad {
			if x, ok := strings.CutPrefix(name, "d."); ok {
				for i, v := range d.Data {
					got += v * toward[x].Data[i]
				}
			}
		}
		seeds := make(map[string]graphtest.Tensor)
		for name, v := range in {
			if y, ok := strings.CutPrefix(name, "dy"); ok {
				seeds["y"+y] = v
			}
		}
		scale, along := 0.0, 0.0
		want := graphtest.Derivative(func() float64 {
			moved := map[string]graphtest.Tensor{"cut": in["cut"]}
			for _, name := range []string{"x", "w", "m"} {
				moved[name] = in[name].Clone()
				for i := range moved[name].Data {
					moved[name].Data[i] += along * toward[name].Data[i]
				}
			}
			out, err := forward.Run(moved)
			if err != nil {
				t.Fatal(err)
			}
			for name, y := range out {
				for i, v := range y.Data {
					scale = max(scale, math.Abs(v*seeds[name].Data[i]))
				}
			}
			return graphtest.Dot(seeds, out)
		}, &along)
		if gap := math.Abs(got - want); !(gap <= 1e-7*(1+scale+math.Abs(want))) {
			t.Fatalf("derivative %v, differences give %v", got, want)
		}
	})
}

// step makes one value of others. All stay within a few units, so that
// differences are exact enough.
// Choices are made by cut [N,4], which is not differentiated: a choice by a
// value that moves would jump.
func step(values []*graph.Node, cut *graph.Node, draw func(n int) int) *graph.Node {
	any := func() *graph.Node { return values[draw(len(values))] }
	// of takes a value whose shape fits; the first three values always include one.
	of := func(fits func(graph.Shape) bool) *graph.Node {
		var fit []*graph.Node
		for _, v := range values {
			if fits(v.Shape()) {
				fit = append(fit, v)
			}
		}
		return fit[draw(len(fit))]
	}
	matrix := func(s graph.Shape) bool { return len(s) == 2 && s[1] == graph.Dim{N: 4} }
	square := func(s graph.Shape) bool { return matrix(s) && s[0] == graph.Dim{N: 4} }
	rows := func(s graph.Shape) bool { return matrix(s) && s[0].Letters == "N" && s[0].N == 1 }
	vector := func(s graph.Shape) bool { return len(s) == 1 && s[0] == graph.Dim{N: 4} }
	small := func(x *graph.Node) *graph.Node { return graph.Sub(graph.Sigmoid(x), x.Graph().Scalar(0.5)) }
	flip := func() bool { return draw(2) == 1 }
	switch draw(23) {
	case 0:
		return graph.Add(of(rows), small(of(vector)))
	case 1:
		return graph.Sub(small(of(vector)), of(rows))
	case 2:
		return graph.Mul(small(of(rows)), small(of(vector)))
	case 3:
		return graph.Div(small(of(rows)), graph.Add(graph.Sigmoid(of(vector)), of(rows).Graph().Scalar(1)))
	case 4:
		return graph.Exp(small(any()))
	case 5:
		return graph.Log(graph.Add(graph.Sigmoid(of(rows)), graph.Exp(small(of(rows)))))
	case 6:
		return graph.Tanh(graph.Reciprocal(graph.Sqrt(graph.Exp(small(any())))))
	case 7:
		return graph.Softmax(of(matrix))
	case 8:
		return small(graph.Gemm(of(rows), of(square), nil, false, flip()))
	case 9:
		return small(graph.Gemm(of(rows), of(square), of(vector), false, flip()))
	case 10:
		return small(graph.Gemm(of(rows), of(rows), of(square), true, false))
	case 11:
		return small(graph.MatMul(graph.MatMul(of(square), of(square), flip(), flip(), 0.5), of(square), false, false, 1))
	case 12:
		return graph.RMSNorm(of(rows), of(vector), 1e-3)
	case 13:
		return graph.SwiGLU(small(of(rows)), small(of(rows)))
	case 14:
		return graph.Transpose(of(square), 1, 0)
	case 15:
		x := of(matrix)
		return graph.Reshape(graph.ReduceSum(graph.Transpose(graph.Reshape(small(x), -1, 2, 2), 2, 0, 1), -1), 2, -1)
	case 16:
		parts := graph.Split(of(matrix), 1, 1, 3)
		return graph.Concat(1, parts[1], small(parts[0]))
	case 17:
		x := of(matrix)
		return small(graph.CumSum(small(x), draw(2), flip()))
	case 18:
		x := of(rows)
		x = graph.Sub(x, graph.ReduceMean(x, -1))
		return graph.Where(graph.LessOrEqual(cut, of(vector).Graph().Scalar(0)), small(graph.Cast(graph.Cast(x, models.F64), models.F32)), of(vector))
	case 19:
		return small(graph.Softplus(any()))
	case 20:
		x := of(matrix)
		g := x.Graph()
		return graph.Slice(graph.Pad(x, g.Ints(2), g.Ints(1), 1, graph.Dims(7)[0]), g.Ints(1), g.Ints(5), 1, 4)
	case 21:
		each := func() *graph.Node { return graph.Reshape(small(of(square)), 4, 1, 4) }
		last, _, _ := graph.Recurrence(of(square), graph.Reshape(graph.Sigmoid(of(vector)), 4, 1, 1), each(), each(), each(), nil, flip())
		return small(last)
	default:
		x := small(of(square))
		g := x.Graph()
		return graph.ReduceSum(graph.Slice(x, g.Ints(1), g.Ints(3), 0, 2), 0)
	}
}

// TestStepsAreAll: the random choice in step covers all of its cases.
func TestStepsAreAll(t *testing.T) {
	var ops []string
	for choice := range 23 {
		p, err := graph.Build("step", func(g *graph.Graph) {
			first := true
			y := step([]*graph.Node{g.Float("x", "N", 4), g.Float("w", 4), g.Float("m", 4, 4)}, g.Float("cut", "N", 4), func(n int) int {
				if first {
					first = false
					return choice
				}
				return 0
			})
			g.Output("y", y)
		})
		for op := range graphtest.Loaded(t, p, err).Ops() {
			ops = append(ops, op)
		}
	}
	for op, differentiable := range graph.RuleNames() {
		if differentiable && !slices.Contains(ops, op) && op != "Squeeze" && op != "Neg" && op != "Expand" {
			t.Errorf("no composition has %s", op)
		}
	}
}
