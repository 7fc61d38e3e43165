package graphtest_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/graph"
	"onering/models/onnx"
)

// program makes a Program of nodes with inputs x float [N,3] and i int64 [1],
// and the output y.
func program(elem models.DType, dims []string, nodes ...onnx.Node) models.Program {
	return models.Program{
		Name: "test", Nodes: nodes, Constants: []onnx.Tensor{onnx.Int64s("two", []int64{2}), onnx.Float32s("half", []float32{0.5})},
		Inputs:  []models.Port{{Name: "x", DType: models.F32, Shape: []string{"N", "3"}}, {Name: "i", DType: models.I64, Shape: []string{"1"}}},
		Outputs: []models.Port{{Name: "y", DType: elem, Shape: dims}},
	}
}

func node(op string, inputs string, attrs ...onnx.Attr) onnx.Node {
	return onnx.Node{Name: "n", Op: op, Inputs: strings.Split(inputs, ","), Outputs: []string{"y"}, Attrs: attrs}
}

// TestStrict: the interpreter returns an error for anything that it does not expect.
func TestStrict(t *testing.T) {
	same := []string{"N", "3"}
	x, i := graphtest.Zeros(2, 3), graphtest.Ints([]int{1})
	for _, tt := range []struct {
		want string
		p    models.Program
	}{
		{"", program(models.F32, same, node("Neg", "x"))},
		{`operator "Frobnicate" is not known`, program(models.F32, same, node("Frobnicate", "x"))},
		{`attribute "axis" is not known`, program(models.F32, same, node("Neg", "x", onnx.Attr{Name: "axis", Value: int64(1)}))},
		{`attribute "axis" is a float32`, program(models.F32, same, node("Softmax", "x", onnx.Attr{Name: "axis", Value: float32(1)}))},
		{`input "z" is not defined`, program(models.F32, same, node("Neg", "z"))},
		{`value "x" is defined twice`, program(models.F32, same, onnx.Node{Op: "Neg", Inputs: []string{"x"}, Outputs: []string{"x"}}, node("Neg", "x"))},
		{`output "y" is not computed`, program(models.F32, same)},
		{"2 inputs, want 1 to 1", program(models.F32, same, node("Neg", "x,x"))},
		{"input 1 is omitted", program(models.F32, same, node("Add", "x,"))},
		{"2 outputs, the operator has 1", program(models.F32, same, onnx.Node{Op: "Neg", Inputs: []string{"x"}, Outputs: []string{"y", "z"}})},
		{"I64[1] where [F32] is wanted", program(models.F32, same, node("Add", "x,i"))},
		{"does not broadcast", program(models.F32, same, onnx.Node{Op: "Transpose", Inputs: []string{"x"}, Outputs: []string{"t"},
			Attrs: []onnx.Attr{{Name: "perm", Value: []int64{1, 0}}}}, node("Add", "x,t"))},
		{`"y" is F32[2 3], the graph states F32 [2 2]`, program(models.F32, []string{"2", "2"}, node("Neg", "x"))},
		{`"y" is F32[2 3], the graph states I64`, program(models.I64, same, node("Neg", "x"))},
		{`"y" is F32[2 3], the graph states F32 [N N], with map[N:2]`, program(models.F32, []string{"N", "N"}, node("Neg", "x"))},
		{"no axis 2", program(models.F32, same, node("CumSum", "x,two"))},
		{"index 2 of 2", program(models.F32, []string{"1", "3"}, node("Gather", "x,two"))},
		{"inner sizes 3 and 2", program(models.F32, same, node("Gemm", "x,x"))},
	} {
		g, err := graphtest.Load(tt.p)
		if err == nil {
			_, err = g.Run(map[string]graphtest.Tensor{"x": x, "i": i})
		}
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("error %v\nwant  %s", err, tt.want)
		}
	}
}

// TestInputs: the interpreter accepts only the inputs that the graph declares.
func TestInputs(t *testing.T) {
	g, err := graphtest.Load(program(models.F32, []string{"N", "3"}, node("Neg", "x")))
	if err != nil {
		t.Fatal(err)
	}
	x, i := graphtest.Zeros(2, 3), graphtest.Ints([]int{1})
	for want, in := range map[string]map[string]graphtest.Tensor{
		`input "i" is missing`:               {"x": x},
		"3 inputs are given, there are 2":    {"x": x, "i": i, "z": i},
		`"x" is F32[2 4], the graph states`:  {"x": graphtest.Zeros(2, 4), "i": i},
		`input "x" has 1 elements for [2 3]`: {"x": graphtest.Floats([]float64{1}, 2, 3), "i": i},
		`"i" is I32[1], the graph states`:    {"x": x, "i": graphtest.Int32([]int{1}, 1)},
	} {
		if _, err := g.Run(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// TestSingle rounds each result to the type it has.
func TestSingle(t *testing.T) {
	for _, elem := range []models.DType{models.F32, models.F16, models.BF16} {
		p, err := graph.Build("exp", func(g *graph.Graph) {
			x := g.Input("x", elem, graph.Dims("N"))
			g.Output("y", graph.Exp(x))
			// The gradient of the sigmoid holds a constant of this type.
			g.Output("d", graph.Gradient([]*graph.Node{graph.Sigmoid(x)}, []*graph.Node{x}, []*graph.Node{x})[0])
		})
		if err != nil {
			t.Fatal(err)
		}
		g, err := graphtest.Load(p)
		if err != nil {
			t.Fatal(err)
		}
		in := graphtest.Floats([]float64{1, 12, -2}, 3).As(elem)
		in.Data[2] = math.Pi // An input may hold values that its type cannot, without rounding.
		for _, single := range []bool{false, true} {
			g.Single = single
			out, err := g.Run(map[string]graphtest.Tensor{"x": in})
			if err != nil {
				t.Fatal(err)
			}
			want := []float64{math.E, math.Exp(12), math.Exp(math.Pi)}
			if single {
				want = map[models.DType][]float64{
					models.F32:  {float64(float32(want[0])), float64(float32(want[1])), float64(float32(want[2]))},
					models.F16:  {2.71875, math.Inf(1), 23.140625},
					models.BF16: {2.71875, 162816, 23.125},
				}[elem]
			}
			if got := out["y"].Data; !slices.Equal(got, want) {
				t.Errorf("%v, single %v: %v, want %v", elem, single, got, want)
			}
			s := 1 / (1 + math.Exp(-1))
			if got, want := out["d"].Data[0], s*(1-s); math.Abs(got-want) > 0.01 {
				t.Errorf("%v: gradient %v, want %v", elem, got, want)
			}
		}
	}
}

func TestDerivative(t *testing.T) {
	x := 0.7
	if d := graphtest.Derivative(func() float64 { return math.Sin(x) * math.Exp(x) }, &x); math.Abs(d-(math.Sin(0.7)+math.Cos(0.7))*math.Exp(0.7)) > 1e-11 {
		t.Errorf("derivative %v", d)
	}
	if x != 0.7 {
		t.Errorf("x = %v", x)
	}
}

func TestBytes(t *testing.T) {
	for _, elem := range []models.DType{models.F32, models.F16, models.BF16, models.F64, models.I64, models.I32, models.U8, models.Bool} {
		x := graphtest.Tensor{Type: elem, Dims: []int{1, 2}, Data: []float64{1, 0}}
		if y := graphtest.FromBytes(elem, x.Bytes(), 1, 2); y.Data[0] != 1 || y.Data[1] != 0 || len(y.Data) != 2 {
			t.Errorf("%v became %v %v", x, y, y.Data)
		}
	}
}
