package graph_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/graph"
)

// tolerance is of a derivative, relative to 1 and its size. What limits it are
// the central differences.
const tolerance = 2e-9

func run(t testing.TB, g *graphtest.Graph, in map[string]graphtest.Tensor) map[string]graphtest.Tensor {
	t.Helper()
	out, err := g.Run(in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRules checks the gradient of every case by central differences, and that
// the cases are all there is to check.
func TestRules(t *testing.T) {
	emitted, differentiated, composites := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for _, c := range graphtest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			var wrt []*graph.Node
			var units []string
			_, err := graph.Build(c.Name, func(g *graph.Graph) {
				var y []*graph.Node
				y, wrt = c.Build(g)
				for i, n := range y {
					g.Output(fmt.Sprint(i), n)
				}
				units = g.Composites()
			})
			if err != nil {
				t.Fatal(err)
			}
			p, err := c.Forward()
			forward := graphtest.Loaded(t, p, err)
			for op := range forward.Ops() {
				emitted[op] = true
				differentiated[op] = differentiated[op] || len(wrt) > 0
			}
			if len(wrt) == 0 {
				run(t, forward, c.Inputs(p))
				return
			}
			for _, u := range units {
				composites[u] = true
			}
			b, err := c.Backward()
			backward := graphtest.Loaded(t, b, err)
			for op := range backward.Ops() {
				emitted[op] = true
			}
			checkGradient(t, forward, backward, p, c.Inputs(b))
		})
	}
	for op, differentiable := range graph.RuleNames() {
		if !emitted[op] {
			t.Errorf("%s is in the table of rules, but no case has it", op)
		}
		if differentiable && !differentiated[op] && op != "Squeeze" { // ops that only gradients have
			t.Errorf("%s has a rule, but no case checks it", op)
		}
	}
	for op := range emitted {
		if _, ok := graph.RuleNames()[op]; !ok {
			t.Errorf("%s is emitted, but is not in the table of rules", op)
		}
	}
	ops, units := written(t)
	for _, op := range ops {
		if !emitted[op] {
			t.Errorf("the source emits %s, but no case has it", op)
		}
	}
	for _, u := range units {
		if !composites[u] {
			t.Errorf("the source has a composite %s, but no case checks it", u)
		}
	}
}

// checkGradient compares backward's outputs d.x with the differences of
// sum dy_i y_i.
func checkGradient(t *testing.T, forward, backward *graphtest.Graph, p models.Program, in map[string]graphtest.Tensor) {
	t.Helper()
	own := make(map[string]graphtest.Tensor)
	for _, port := range p.Inputs {
		own[port.Name] = in[port.Name]
	}
	seeds := make(map[string]graphtest.Tensor)
	for name, v := range in {
		if y, ok := strings.CutPrefix(name, "dy"); ok {
			seeds["y"+y] = v
		}
	}
	loss := func() float64 { return graphtest.Dot(seeds, run(t, forward, own)) }
	for name, d := range run(t, backward, in) {
		x, ok := in[strings.TrimPrefix(name, "d.")]
		if !ok || !slices.Equal(x.Dims, d.Dims) {
			t.Fatalf("%s is %v for %v", name, d, x)
		}
		worst, at := 0.0, 0
		for i := range x.Data {
			want := graphtest.Derivative(loss, &x.Data[i])
			if gap := math.Abs(d.Data[i]-want) / (1 + math.Abs(want)); !(gap <= worst) {
				worst, at = gap, i
			}
		}
		if !(worst <= tolerance) {
			t.Errorf("%s[%d] = %v, off by %.1e", name, at, d.Data[at], worst)
		}
	}
}

// written reads from the source of the package which operators and composites it emits.
func written(t *testing.T) (ops, composites []string) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found, units := make(map[string]bool), make(map[string]bool)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok || len(c.Args) == 0 {
				return true
			}
			literal, ok := c.Args[0].(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			s, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			callee := ""
			switch f := c.Fun.(type) {
			case *ast.Ident:
				callee = f.Name
			case *ast.SelectorExpr:
				callee = f.Sel.Name
			}
			switch callee {
			case "call", "calls", "pairwise", "unary", "smooth", "reduce":
				found[s] = true
			case "composite":
				units[s] = true
			}
			return true
		})
	}
	if len(found) < 35 || len(units) < 6 {
		t.Fatalf("found only %d operators and %d composites in the source", len(found), len(units))
	}
	return slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(units))
}

// TestShapes checks the shape of every value of every case, forward and
// backward, against what the interpreter computes.
func TestShapes(t *testing.T) {
	for _, c := range graphtest.Cases() {
		p, err := graph.Build(c.Name, func(g *graph.Graph) {
			y, wrt := c.Build(g)
			var dy []*graph.Node
			for i, n := range y {
				g.Output(fmt.Sprintf("y%d", i), n)
				if len(wrt) > 0 {
					dy = append(dy, g.Input(fmt.Sprintf("dy%d", i), n.Elem(), n.Shape()))
				}
			}
			if len(wrt) > 0 {
				graph.Gradient(y, dy, wrt)
			}
			g.OutputAll()
		})
		g := graphtest.Loaded(t, p, err)
		if _, err := g.Run(c.Inputs(p)); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

// TestNoGradient: an op without a rule between wrt and the output is an error that names
// the op.
func TestNoGradient(t *testing.T) {
	for _, c := range graphtest.Cases() {
		op, _, _ := strings.Cut(c.Name, "/")
		differentiable, isOp := graph.RuleNames()[op]
		if differentiable || !isOp {
			continue
		}
		_, err := graph.Build(c.Name, func(g *graph.Graph) {
			y, _ := c.Build(g)
			seed := g.Input("dy", y[0].Elem(), y[0].Shape())
			x := g.Inputs()[0]
			g.Output("d", graph.Gradient(y[:1], []*graph.Node{seed}, []*graph.Node{x})[0])
		})
		if err == nil || !strings.Contains(err.Error(), op) {
			t.Errorf("%s: error %v", c.Name, err)
		}
	}
}

// TestStash: a stashed value is read and not computed, and the gradient is that of the
// expression. If the stash holds another value, the gradient is taken at this value.
func TestStash(t *testing.T) {
	build := func(stash bool) (models.Program, error) {
		return graph.Build("stash", func(g *graph.Graph) {
			x, dy := g.Float("x", "N", 3), g.Float("dy", "N", 3)
			h := graph.Exp(graph.Neg(x))
			y := graph.Mul(graph.Sigmoid(h), h)
			if stash {
				h.Stash(g.Float("h", "N", 3))
			} else {
				g.Output("h", h)
			}
			g.Output("dx", graph.Gradient([]*graph.Node{y}, []*graph.Node{dy}, []*graph.Node{x})[0])
		})
	}
	p, err := build(false)
	plain := graphtest.Loaded(t, p, err)
	p, err = build(true)
	stashed := graphtest.Loaded(t, p, err)
	if n := stashed.Ops()["Exp"] + stashed.Ops()["Sigmoid"]; n != 1 || plain.Ops()["Exp"] != 1 {
		t.Errorf("%v with the stash, %v without", stashed.Ops(), plain.Ops())
	}
	in := map[string]graphtest.Tensor{"x": graphtest.Floats([]float64{0.3, -1, 2}, 1, 3), "dy": graphtest.Floats([]float64{1, 2, -3}, 1, 3)}
	want := run(t, plain, in)
	in["h"] = want["h"]
	if got := run(t, stashed, in); !slices.Equal(got["dx"].Data, want["dx"].Data) {
		t.Errorf("dx = %v, want %v", got["dx"], want["dx"])
	}
}

// TestStashOneOfTwo: a call with several outputs, one of which is stashed, still computes
// the others.
func TestStashOneOfTwo(t *testing.T) {
	p, err := graph.Build("stash", func(g *graph.Graph) {
		parts := graph.Split(g.Float("x", "N", 4), 1, 2, 2)
		y := graph.Mul(parts[0], parts[1])
		parts[0].Stash(g.Float("left", "N", 2))
		g.Output("y", y)
	})
	out := run(t, graphtest.Loaded(t, p, err), map[string]graphtest.Tensor{
		"x": graphtest.Floats([]float64{1, 2, 3, 4}, 1, 4), "left": graphtest.Floats([]float64{10, 20}, 1, 2)})
	if want := []float64{30, 80}; !slices.Equal(out["y"].Data, want) {
		t.Errorf("y = %v, want %v", out["y"].Data, want)
	}
}

// TestSumsOfProducts: sums of gradients that are matrix products become third
// operands, and no product is computed twice.
func TestSumsOfProducts(t *testing.T) {
	p, err := graph.Build("sums", func(g *graph.Graph) {
		x, w, v := g.Float("x", "N", 3), g.Float("w", 4, 3), g.Float("v", 4, 3)
		dy, running := g.Float("dy", "N", 4), g.Float("running", 4, 3)
		y := graph.Add(graph.Linear(x, w, nil), graph.Linear(x, v, nil))
		d := graph.Gradient([]*graph.Node{y}, []*graph.Node{dy}, []*graph.Node{x, w})
		g.Output("dx", d[0])
		g.OutputOnto("dw", graph.AddTo(running, d[1]), "running")
	})
	g := graphtest.Loaded(t, p, err)
	if ops := g.Ops(); ops["Add"] != 0 || ops["Gemm"] != 3 {
		t.Errorf("%v, want three products and no sum", ops)
	}
	c := graphtest.Case{Sizes: map[string]int{"N": 5}}
	in := c.Inputs(p)
	out := run(t, g, in)
	for n := range 5 {
		for k := range 3 {
			want := 0.0
			for o := range 4 {
				want += in["dy"].Row(n)[o] * (in["w"].Row(o)[k] + in["v"].Row(o)[k])
			}
			if got := out["dx"].Row(n)[k]; math.Abs(got-want) > 1e-12 {
				t.Errorf("dx[%d,%d] = %v, want %v", n, k, got, want)
			}
		}
	}
	for o := range 4 {
		for k := range 3 {
			want := in["running"].Row(o)[k]
			for n := range 5 {
				want += in["dy"].Row(n)[o] * in["x"].Row(n)[k]
			}
			if got := out["dw"].Row(o)[k]; math.Abs(got-want) > 1e-12 {
				t.Errorf("dw[%d,%d] = %v, want %v", o, k, got, want)
			}
		}
	}
}

// TestSumWithProductFirst: the product may be either part of the sum.
func TestSumWithProductFirst(t *testing.T) {
	for _, exp := range []bool{false, true} {
		p, err := graph.Build("first", func(g *graph.Graph) {
			x, w, dy := g.Float("x", "N", 3), g.Float("w", 3, 3), g.Float("dy", "N", 3)
			parts := []*graph.Node{graph.Linear(x, w, nil), graph.Sigmoid(x)}
			if exp { // The gradient of the later product comes first.
				parts[0], parts[1] = graph.Exp(x), graph.Linear(x, w, nil)
			}
			y := graph.Add(parts[0], parts[1])
			g.Output("dx", graph.Gradient([]*graph.Node{y}, []*graph.Node{dy}, []*graph.Node{x})[0])
		})
		g := graphtest.Loaded(t, p, err)
		if ops := g.Ops(); ops["Gemm"] != 1 || ops["Add"] != 0 {
			t.Errorf("%v, want one product that holds the sum", ops)
		}
	}
}

// TestSharedProductStays: a product with a second reader is computed once and then added.
func TestSharedProductStays(t *testing.T) {
	p, err := graph.Build("shared", func(g *graph.Graph) {
		x, w, dy := g.Float("x", "N", 3), g.Float("w", 4, 3), g.Float("dy", "N", 4)
		h := graph.Exp(x)
		// dh = dy w is the gradient of exp and of the sum.
		y := graph.Linear(graph.Add(h, graph.Mul(h, h)), w, nil)
		g.Output("dx", graph.Gradient([]*graph.Node{y}, []*graph.Node{dy}, []*graph.Node{x})[0])
	})
	if ops := graphtest.Loaded(t, p, err).Ops(); ops["Gemm"] != 1 {
		t.Errorf("%v, want one product", ops)
	}
}

// TestGradientOfGradient differentiates a gradient once more.
func TestGradientOfGradient(t *testing.T) {
	p, err := graph.Build("second", func(g *graph.Graph) {
		x := g.Float("x", "N", 1)
		one := g.Float("one", "N", 1)
		y := graph.Exp(graph.Mul(x, x))
		d := graph.Gradient([]*graph.Node{y}, []*graph.Node{one}, []*graph.Node{x})
		dd := graph.Gradient(d, []*graph.Node{one}, []*graph.Node{x})
		g.Output("d", d[0])
		g.Output("dd", dd[0])
	})
	x := 0.7
	out := run(t, graphtest.Loaded(t, p, err), map[string]graphtest.Tensor{
		"x": graphtest.Floats([]float64{x}, 1, 1), "one": graphtest.Floats([]float64{1}, 1, 1)})
	e := math.Exp(x * x)
	if d := out["d"].Data[0]; math.Abs(d-2*x*e) > 1e-12 {
		t.Errorf("d = %v, want %v", d, 2*x*e)
	}
	if dd := out["dd"].Data[0]; math.Abs(dd-(2+4*x*x)*e) > 1e-12 {
		t.Errorf("dd = %v, want %v", dd, (2+4*x*x)*e)
	}
}

// TestGradientByIntermediate differentiates by a value inside, and gets nil for a value
// on which the result does not depend.
func TestGradientByIntermediate(t *testing.T) {
	var d []*graph.Node
	p, err := graph.Build("inside", func(g *graph.Graph) {
		x, dy, other := g.Float("x", "N"), g.Float("dy", "N"), g.Float("other", "N")
		h := graph.Exp(x)
		y := graph.Mul(h, h)
		d = graph.Gradient([]*graph.Node{y, h}, []*graph.Node{dy, dy}, []*graph.Node{h, other, graph.Cast(graph.Cast(x, models.I64), models.F32), y})
		g.Output("dh", d[0])
	})
	if d[1] != nil || d[2] != nil {
		t.Errorf("gradients %v of what y does not depend on", d[1:3])
	}
	out := run(t, graphtest.Loaded(t, p, err), map[string]graphtest.Tensor{"x": graphtest.Floats([]float64{0.5}, 1),
		"dy": graphtest.Floats([]float64{3}, 1), "other": graphtest.Floats([]float64{0}, 1)})
	if want := 3*2*math.Exp(0.5) + 3; math.Abs(out["dh"].Data[0]-want) > 1e-12 {
		t.Errorf("dh = %v, want %v", out["dh"].Data[0], want)
	}
}

// TestCastToIntStopsGradient: nothing flows back through an integer.
func TestCastToIntStopsGradient(t *testing.T) {
	p, err := graph.Build("int", func(g *graph.Graph) {
		x, dy := g.Float("x", "N"), g.Float("dy", "N")
		y := graph.Mul(x, graph.Cast(graph.Cast(x, models.I64), models.F32))
		g.Output("dx", graph.Gradient([]*graph.Node{y}, []*graph.Node{dy}, []*graph.Node{x})[0])
	})
	out := run(t, graphtest.Loaded(t, p, err), map[string]graphtest.Tensor{"x": graphtest.Floats([]float64{2.5}, 1), "dy": graphtest.Floats([]float64{3}, 1)})
	if out["dx"].Data[0] != 6 {
		t.Errorf("dx = %v, want 6", out["dx"].Data[0])
	}
}

// TestOuter: the forms of d^T x + c compute the same. A product is turned where it is
// large enough, the narrower operand first.
func TestOuter(t *testing.T) {
	for _, tt := range []struct {
		m, n     int
		letter   bool // whether m varies
		onto     bool
		wantGemm string // what the product reads
	}{
		{512, 600, false, true, "turned d"}, {600, 512, false, true, "turned x"}, {600, 512, false, false, "turned x"},
		{512, 512, true, true, "turned x"}, {511, 600, false, true, "d"}, {600, 511, true, true, "d"},
	} {
		var out [2][]float64
		for turn := range out {
			p, err := graph.Build("outer", func(g *graph.Graph) {
				if turn == 1 {
					g.TurnProducts()
				}
				var m any = tt.m
				if tt.letter {
					m = "v"
				}
				d, x := g.Float("d", "N", m), g.Float("x", "N", tt.n)
				var c *graph.Node
				if tt.onto {
					c = g.Float("c", m, tt.n)
				}
				g.Output("y", graph.Outer(d, x, c))
			})
			if err != nil {
				t.Fatal(err)
			}
			if turned := strings.Count(string(p.ONNX().Encode()), "Transpose_") > 0; turned != (turn == 1 && tt.wantGemm != "d") || turned != (len(p.Options) > 0) {
				t.Errorf("%+v: turned %v, options %v", tt, turned, p.Options)
			}
			if twice := strings.Count(string(p.ONNX().Encode()), "Transpose_") == 2; turn == 1 && twice != (tt.wantGemm == "turned x") {
				t.Errorf("%+v: two transposes: %v", tt, twice)
			}
			g, err := graphtest.Load(p)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(3, 1))
			in := map[string]graphtest.Tensor{"d": graphtest.Normal(r, 3, tt.m), "x": graphtest.Normal(r, 3, tt.n)}
			if tt.onto {
				in["c"] = graphtest.Normal(r, tt.m, tt.n)
			}
			got, err := g.Run(in)
			if err != nil {
				t.Fatal(err)
			}
			out[turn] = got["y"].Data
		}
		for i, x := range out[0] {
			if math.Abs(out[1][i]-x) > 1e-12 {
				t.Fatalf("%+v: element %d is %v, turned %v", tt, i, x, out[1][i])
			}
		}
	}
}
