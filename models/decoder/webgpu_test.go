package decoder_test

import (
	"fmt"
	"slices"
	"testing"

	"onering/models"
)

// webgpuPrograms are the Programs for WebGPU of each block, in both types that it has and
// with an adapter of each module or without one.
func webgpuPrograms(t *testing.T) map[string]models.Program {
	programs := map[string]models.Program{}
	for name, block := range blocks {
		n := block.Names
		all := &models.Adapter{Rank: 3, Scale: 0.5, Modules: []string{n.Q, n.K, n.V, n.O, n.Gate, n.Up, n.Down}}
		for _, dtype := range []models.DType{models.F32, models.F16} {
			for _, adapter := range []*models.Adapter{nil, all} {
				of := build{models.Compute{Type: dtype, Provider: models.WebGPU, Adapter: adapter}}
				for what, p := range allPrograms(t, of.of(block)) {
					programs[fmt.Sprintf("%s %v, adapter %t, %s", name, dtype, adapter != nil, what)] = p
				}
			}
		}
	}
	return programs
}

// TestWebGPUOperators: no graph for WebGPU has an operator or a type of which the
// provider left nodes to the CPU, nor a kernel that reads and writes one buffer.
func TestWebGPUOperators(t *testing.T) {
	lacking := []string{"FusedMatMul", "Max", "GroupQueryAttention", "Pad", "ReduceMax"}
	nodes := 0
	for name, p := range webgpuPrograms(t) {
		for _, c := range p.Constants {
			if c.Type == models.F64 {
				t.Errorf("%s has a constant of float64", name)
			}
		}
		sizes := map[string]bool{} // outputs of Shape
		for _, n := range p.Nodes {
			nodes++
			if n.Op == "Shape" {
				sizes[n.Outputs[0]] = true
			} else if slices.ContainsFunc(n.Inputs, func(in string) bool { return sizes[in] }) && !slices.Contains([]string{"Reshape", "Expand", "Slice"}, n.Op) {
				t.Errorf("%s: %s computes with sizes, which ONNX Runtime does on the CPU", name, n.Op)
			}
			if slices.Contains(lacking, n.Op) {
				t.Errorf("%s has %s", name, n.Op)
			}
			for _, a := range n.Attrs {
				if n.Op == "Cast" && a.Name == "to" && models.DType(a.Value.(int64)) == models.F64 {
					t.Errorf("%s casts to float64", name)
				}
			}
			for _, out := range n.Outputs {
				if onto := p.Alias[out]; onto != "" && n.Op != "ScatterND" && slices.Contains(n.Inputs, onto) {
					t.Errorf("%s: %s reads %s, whose buffer it writes", name, n.Op, onto)
				}
			}
		}
	}
	if nodes == 0 {
		t.Error("no nodes")
	}
}
