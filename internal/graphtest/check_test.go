package graphtest

import (
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/models/onnx"
)

// TestCheckRefuses shows that Check can fail.
func TestCheckRefuses(t *testing.T) {
	good := onnx.Model{Opsets: []onnx.Opset{{Version: 23}}, Graph: onnx.Graph{
		Name:    "good",
		Nodes:   []onnx.Node{{Op: "Neg", Inputs: []string{"x"}, Outputs: []string{"y"}}},
		Inputs:  []onnx.ValueInfo{{Name: "x", Type: onnx.Float, Dims: []onnx.Dim{{Param: "N"}, {Value: 3}}}},
		Outputs: []onnx.ValueInfo{{Name: "y", Type: onnx.Float, Dims: []onnx.Dim{{Param: "N"}, {Value: 3}}}},
	}}
	python, err := interpreter()
	if err != nil {
		t.Skip(err)
	}
	if problems := check(t, python, []models.Program{{Name: "good", ONNX: good.Encode()}}); problems != nil {
		t.Fatal(problems)
	}
	for name, change := range map[string]func(g *onnx.Graph){
		"shape":     func(g *onnx.Graph) { g.Outputs[0].Dims = []onnx.Dim{{Param: "N"}, {Value: 4}} },
		"rank":      func(g *onnx.Graph) { g.Outputs[0].Dims = []onnx.Dim{{Param: "N"}} },
		"type":      func(g *onnx.Graph) { g.Outputs[0].Type = onnx.Int64 },
		"operator":  func(g *onnx.Graph) { g.Nodes[0].Op = "Negate" },
		"attribute": func(g *onnx.Graph) { g.Nodes[0].Attrs = []onnx.Attr{{Name: "axis", Value: int64(1)}} },
		"operand":   func(g *onnx.Graph) { g.Nodes[0].Inputs = []string{"z"} },
	} {
		m := good
		m.Graph.Nodes, m.Graph.Outputs = slices.Clone(good.Graph.Nodes), slices.Clone(good.Graph.Outputs)
		change(&m.Graph)
		problems := check(t, python, []models.Program{{Name: "the " + name, ONNX: m.Encode()}})
		if !strings.Contains(strings.Join(problems, "\n"), "the "+name+": ") {
			t.Errorf("a wrong %s gives %q", name, problems)
		}
	}
}
