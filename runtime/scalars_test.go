package runtime

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/graph"
	"onering/models/optim/adamw"
)

// TestWithScalars: a Program that reads its scalars from one input computes what it did
// before, with constants and without scalars, too.
func TestWithScalars(t *testing.T) {
	step, err := adamw.Default().Program(nil, models.BF16)
	if err != nil {
		t.Fatal(err)
	}
	build := func(f func(g *graph.Graph)) models.Program {
		p, err := graph.Build("p", f)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	norm := build(func(g *graph.Graph) {
		x := g.Float("g", "n")
		g.Output("sum", graph.ReduceSumSquare(graph.Mul(x, g.Float("unscale"))))
		g.Output("found", graph.ReduceSum(graph.Where(graph.LessOrEqual(x, g.Scalar(1)), g.Scalar(0), g.Scalar(1)), 0))
	})
	none := build(func(g *graph.Graph) { g.Output("y", graph.Neg(g.Float("x", "n"))) })
	for i, p := range []models.Program{step, norm, none} {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		scalars, numbers := scalarsOf(p), []float64{}
		apart, joined := map[string]graphtest.Tensor{}, map[string]graphtest.Tensor{}
		for _, in := range p.Inputs {
			if !slices.Contains(scalars, in.Name) {
				x := graphtest.Normal(r, 5)
				for k, v := range x.Data {
					x.Data[k] = math.Abs(v) // moments of squares
				}
				apart[in.Name], joined[in.Name] = x, x
			}
		}
		for k, name := range scalars {
			numbers = append(numbers, 0.1+r.Float64())
			apart[name] = graphtest.Floats(numbers[k : k+1])
		}
		if len(scalars) > 0 {
			joined[portScalars] = graphtest.Floats(numbers, len(numbers))
		}
		want, got := run(t, p, apart), run(t, withScalars(p), joined)
		for name, x := range want {
			if !slices.Equal(got[name].Data, x.Data) {
				t.Errorf("program %d: %s is %v, want %v", i, name, got[name].Data, x.Data)
			}
		}
		if len(got) != len(want) || len(want) == 0 {
			t.Errorf("program %d: %d outputs, want %d", i, len(got), len(want))
		}
	}
}

// run runs a Program in the interpreter.
func run(t *testing.T, p models.Program, in map[string]graphtest.Tensor) map[string]graphtest.Tensor {
	t.Helper()
	out, err := graphtest.Loaded(t, p, nil).Run(in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
