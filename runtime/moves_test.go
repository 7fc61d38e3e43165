package runtime

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/graph"
	"onering/models/onnx"
	"onering/models/optim/adamw"
)

// run executes a Program in the interpreter.
func interpret(t *testing.T, p models.Program, err error, in map[string]graphtest.Tensor) map[string]graphtest.Tensor {
	t.Helper()
	out, err := graphtest.Loaded(t, p, err).Run(in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSeveral: one run of Several does the work of a run for each tensor, for any sizes, and with
// constants.
func TestSeveral(t *testing.T) {
	step, err := adamw.Default().Program(nil, models.BF16)
	if err != nil {
		t.Fatal(err)
	}
	norm, err := graph.Build("norm", func(g *graph.Graph) {
		x := g.Float("g", "n")
		g.Output("sum", graph.ReduceSumSquare(graph.Mul(x, g.Float("unscale"))))
		g.Output("found", graph.ReduceSum(graph.Where(graph.LessOrEqual(x, g.Scalar(1)), g.Scalar(0), g.Scalar(1)), 0))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		p      models.Program
		joined []string
	}{{step, nil}, {norm, []string{norm.Outputs[0].Name, norm.Outputs[1].Name}}} {
		for n := 1; n <= 3; n++ {
			r := rand.New(rand.NewPCG(1, uint64(n)))
			var scalars []string
			for _, in := range tt.p.Inputs {
				if len(in.Shape) == 0 {
					scalars = append(scalars, in.Name)
				}
			}
			slices.Sort(scalars)
			numbers := make([]float64, len(scalars))
			for i := range numbers {
				numbers[i] = 0.1 + r.Float64()
			}
			all, want := map[string]graphtest.Tensor{portScalars: graphtest.Floats(numbers, len(numbers))}, map[string][]float64{}
			for i := range n {
				one := map[string]graphtest.Tensor{}
				for _, in := range tt.p.Inputs {
					if k := slices.Index(scalars, in.Name); k >= 0 {
						one[in.Name] = graphtest.Floats(numbers[k : k+1])
						continue
					}
					x := graphtest.Normal(r, 2+i)
					for k, v := range x.Data {
						x.Data[k] = math.Abs(v) // moments of squares
					}
					one[in.Name], all[numbered(in.Name, i)] = x, x
				}
				for name, x := range interpret(t, tt.p, nil, one) {
					if !slices.Contains(tt.joined, name) {
						name = numbered(name, i)
					}
					want[name] = append(want[name], x.Data...)
				}
			}
			several := several(tt.p, n, tt.joined...)
			out := interpret(t, several, nil, all)
			for name, x := range want {
				if got, ok := out[name]; !ok || !slices.Equal(got.Data, x) {
					t.Errorf("%s of %d: %s is %v, want %v", tt.p.Name, n, name, got.Data, x)
				}
			}
			if len(out) != len(want) {
				t.Errorf("%s of %d: %d outputs, want %d", tt.p.Name, n, len(out), len(want))
			}
			for out, in := range tt.p.Alias {
				if several.Alias[numbered(out, n-1)] != numbered(in, n-1) {
					t.Errorf("%s of %d: %s is not in place of %s", tt.p.Name, n, out, in)
				}
			}
		}
	}
}

// Beside reads from one input the values that the Program read from several, and returns
// the same results; the last column is unchanged.
func TestBeside(t *testing.T) {
	build := func(varies any) (models.Program, error) {
		return graph.Build("several", func(g *graph.Graph) {
			ids, at := g.Input("ids", models.I64, graph.Dims("B", varies)), g.Input("at", models.I64, graph.Dims("B", 2, 3))
			g.Output("rows", graph.Gather(g.Float("table", "M", 4), ids))
			g.Output("places", graph.Cast(at, models.F32))
		})
	}
	p, err := build(1)
	if err != nil {
		t.Fatal(err)
	}
	const largest = 1<<24 - 1
	for rows := 1; rows <= 3; rows++ {
		r := rand.New(rand.NewPCG(1, uint64(rows)))
		table := graphtest.Normal(r, 5, 4)
		var ids, at []int
		var columns, last []float64
		for range rows {
			id, u := r.IntN(5), float64(r.Float32())
			columns, ids, last = append(columns, float64(id)), append(ids, id), append(last, u)
			for k := range 6 {
				x := largest - r.IntN(2+k)
				columns, at = append(columns, float64(x)), append(at, x)
			}
			columns = append(columns, u)
		}
		want := interpret(t, p, nil, map[string]graphtest.Tensor{"table": table, "ids": graphtest.Ints(ids, rows, 1), "at": graphtest.Ints(at, rows, 2, 3)})
		want["last"] = graphtest.Floats(last, rows)
		beside, err := beside(p, "last", "ids", "at")
		got := interpret(t, beside, err, map[string]graphtest.Tensor{"table": table, portColumns: graphtest.Floats(columns, rows, 8)})
		for name, x := range want {
			if y := got[name]; !slices.Equal(x.Data, y.Data) || !slices.Equal(x.Dims, y.Dims) {
				t.Errorf("%d rows: %s is %v %v, want %v %v", rows, name, y, y.Data, x, x.Data)
			}
		}
		if len(got) != len(want) || len(beside.Inputs) != 2 {
			t.Errorf("%d rows: %d outputs of %d inputs", rows, len(got), len(beside.Inputs))
		}
	}
	varies, err := build("n")
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"a size that varies": second(beside(varies, "last", "ids")), "no such input": second(beside(p, "last", "id")),
	} {
		if err == nil || !strings.Contains(err.Error(), `"several"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second(_ models.Program, err error) error { return err }

// TestApart: a node that reads an input and writes onto it reads a copy; other nodes
// still read the input, and a Program without such nodes does not change.
func TestApart(t *testing.T) {
	before := []onnx.Node{{Op: "Mul", Inputs: []string{"p", "x"}, Outputs: []string{"a"}}, {Op: "Sub", Inputs: []string{"p", "a"}, Outputs: []string{"p1"}}}
	after := []onnx.Node{
		{Op: "Neg", Inputs: []string{"p"}, Outputs: []string{"p.minus"}}, {Op: "Neg", Inputs: []string{"p.minus"}, Outputs: []string{"p.copy"}},
		before[0], {Op: "Sub", Inputs: []string{"p.copy", "a"}, Outputs: []string{"p1"}},
	}
	for _, tt := range []struct {
		alias map[string]string
		want  []onnx.Node
	}{{map[string]string{"p1": "p"}, after}, {map[string]string{"p1": "x"}, before}, {nil, before}} {
		got := apart(models.Program{Nodes: before, Alias: tt.alias}).Nodes
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.alias, got, tt.want)
		}
	}
	if before[1].Inputs[0] != "p" {
		t.Error("the Program that was given has changed")
	}
}
