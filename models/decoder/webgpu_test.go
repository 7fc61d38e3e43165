package decoder_test

import (
	"slices"
	"testing"

	"onering/models"
	"onering/models/graph/graphtest"
	"onering/models/onnx"
)

var webgpuBuild = build{models.Compute{Type: models.F32, Provider: models.WebGPU}}

// TestWebGPUOperators: no graph for WebGPU has an operator or a type of which the
// provider left nodes to the CPU, nor a kernel that reads and writes one buffer.
func TestWebGPUOperators(t *testing.T) {
	lacking := []string{"FusedMatMul", "Max", "GroupQueryAttention", "Pad", "ReduceMax"}
	nodes := 0
	for name, block := range blocks {
		for what, p := range allPrograms(t, webgpuBuild.of(block)) {
			m, err := graphtest.Decode(p.ONNX)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range m.Graph.Initializers {
				if c.Type == onnx.Double {
					t.Errorf("%s %s has a constant of float64", name, what)
				}
			}
			sizes := map[string]bool{} // outputs of Shape
			for _, n := range m.Graph.Nodes {
				nodes++
				if n.Op == "Shape" {
					sizes[n.Outputs[0]] = true
				} else if slices.ContainsFunc(n.Inputs, func(in string) bool { return sizes[in] }) && !slices.Contains([]string{"Reshape", "Expand", "Slice"}, n.Op) {
					t.Errorf("%s %s: %s computes with sizes, which ONNX Runtime does on the CPU", name, what, n.Op)
				}
				if slices.Contains(lacking, n.Op) {
					t.Errorf("%s %s has %s", name, what, n.Op)
				}
				for _, a := range n.Attrs {
					if n.Op == "Cast" && a.Name == "to" && onnx.ElemType(a.Value.(int64)) == onnx.Double {
						t.Errorf("%s %s casts to float64", name, what)
					}
				}
				for _, out := range n.Outputs {
					if onto := p.Alias[out]; onto != "" && n.Op != "ScatterND" && slices.Contains(n.Inputs, onto) {
						t.Errorf("%s %s: %s reads %s, whose buffer it writes", name, what, n.Op, onto)
					}
				}
			}
		}
	}
	if nodes == 0 {
		t.Error("no nodes")
	}
}
