package graph_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"onering/models"
	"onering/models/graph"
	"onering/models/graph/graphtest"
	"onering/models/onnx"
)

// python returns an interpreter that has the onnx package: that of the
// environment variable ONERING_PYTHON, or python3.
func python(t *testing.T) string {
	name := os.Getenv("ONERING_PYTHON")
	if name == "" {
		name = "python3"
	}
	if out, err := exec.Command(name, "-c", "import onnx").CombinedOutput(); err != nil {
		t.Skipf("%s can't import onnx, and ONERING_PYTHON names no other interpreter: %v: %s", name, err, out)
	}
	return name
}

// TestOfficialChecker passes every case, forward and backward, through the ONNX
// checker and its shape inference.
func TestOfficialChecker(t *testing.T) {
	interpreter := python(t)
	dir := t.TempDir()
	args := []string{filepath.Join("testdata", "check.py")}
	write := func(p models.Program, err error) {
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, fmt.Sprintf("%03d.onnx", len(args)))
		if err := os.WriteFile(path, p.ONNX, 0o666); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	var names []string
	for _, c := range graphtest.Cases() {
		write(c.Forward())
		names = append(names, c.Name)
		if c.Differentiable() {
			write(c.Backward())
			names = append(names, c.Name+" backward")
		}
	}
	if out, err := exec.Command(interpreter, args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
		for i, name := range names {
			t.Logf("%03d.onnx is %s", i+1, name)
		}
	}
}

// TestOfficialCheckerRefuses shows that the check can fail.
func TestOfficialCheckerRefuses(t *testing.T) {
	interpreter := python(t)
	good := onnx.Model{Opsets: []onnx.Opset{{Version: graph.Opset}}, Graph: onnx.Graph{
		Name:    "good",
		Nodes:   []onnx.Node{{Op: "Neg", Inputs: []string{"x"}, Outputs: []string{"y"}}},
		Inputs:  []onnx.ValueInfo{{Name: "x", Type: onnx.Float, Dims: []onnx.Dim{{Param: "N"}, {Value: 3}}}},
		Outputs: []onnx.ValueInfo{{Name: "y", Type: onnx.Float, Dims: []onnx.Dim{{Param: "N"}, {Value: 3}}}},
	}}
	check := func(change func(m *onnx.Model)) (string, error) {
		m := good
		m.Graph.Nodes = slices.Clone(good.Graph.Nodes)
		m.Graph.Outputs = slices.Clone(good.Graph.Outputs)
		change(&m)
		path := filepath.Join(t.TempDir(), "m.onnx")
		if err := os.WriteFile(path, m.Encode(), 0o666); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(interpreter, filepath.Join("testdata", "check.py"), path).CombinedOutput()
		return string(out), err
	}
	if out, err := check(func(*onnx.Model) {}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, change := range map[string]func(m *onnx.Model){
		"shape":     func(m *onnx.Model) { m.Graph.Outputs[0].Dims = []onnx.Dim{{Param: "N"}, {Value: 4}} },
		"rank":      func(m *onnx.Model) { m.Graph.Outputs[0].Dims = []onnx.Dim{{Param: "N"}} },
		"type":      func(m *onnx.Model) { m.Graph.Outputs[0].Type = onnx.Int64 },
		"operator":  func(m *onnx.Model) { m.Graph.Nodes[0].Op = "Negate" },
		"attribute": func(m *onnx.Model) { m.Graph.Nodes[0].Attrs = []onnx.Attr{{Name: "axis", Value: int64(1)}} },
		"operand":   func(m *onnx.Model) { m.Graph.Nodes[0].Inputs = []string{"z"} },
	} {
		if out, err := check(change); err == nil {
			t.Errorf("a wrong %s passes: %s", name, out)
		}
	}
}
