package graphtest

import (
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/models/onnx"
)

// TestCheckRefuses: Check can fail.
func TestCheckRefuses(t *testing.T) {
	good := models.Program{
		Name: "good", Nodes: []onnx.Node{{Op: "Neg", Inputs: []string{"x"}, Outputs: []string{"y"}}},
		Inputs:  []models.Port{{Name: "x", DType: models.F32, Shape: []string{"N", "3"}}},
		Outputs: []models.Port{{Name: "y", DType: models.F32, Shape: []string{"N", "3"}}},
	}
	python, err := interpreter()
	if err != nil {
		t.Skip(err)
	}
	if problems := check(t, python, []models.Program{good}); problems != nil {
		t.Fatal(problems)
	}
	for name, change := range map[string]func(p *models.Program){
		"shape":     func(p *models.Program) { p.Outputs[0].Shape = []string{"N", "4"} },
		"rank":      func(p *models.Program) { p.Outputs[0].Shape = []string{"N"} },
		"type":      func(p *models.Program) { p.Outputs[0].DType = models.I64 },
		"operator":  func(p *models.Program) { p.Nodes[0].Op = "Negate" },
		"attribute": func(p *models.Program) { p.Nodes[0].Attrs = []onnx.Attr{{Name: "axis", Value: int64(1)}} },
		"operand":   func(p *models.Program) { p.Nodes[0].Inputs = []string{"z"} },
	} {
		p := good
		p.Name, p.Nodes, p.Outputs = "the "+name, slices.Clone(good.Nodes), slices.Clone(good.Outputs)
		change(&p)
		problems := check(t, python, []models.Program{p})
		if !strings.Contains(strings.Join(problems, "\n"), "the "+name+": ") {
			t.Errorf("a wrong %s gives %q", name, problems)
		}
	}
}
