package kernels

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"onering/models"
	_ "onering/models/all"
	"onering/models/onnx"
)

// ops counts the operators of a graph that are not views, by name.
func ops(p models.Program) map[string]int {
	n := map[string]int{}
	for _, node := range p.Nodes {
		if node.Op != "Reshape" {
			n[node.Op]++
		}
	}
	return n
}

// TestFuse counts the operators that are left: seven in a layer of decode, and none that
// adds, casts or multiplies elements around the products of a layer in training.
func TestFuse(t *testing.T) {
	for _, dir := range []string{"tiny", "tiny-untied", "qwen2.5-1.5b", "qwen2.5-7b", "smollm2-135m"} {
		m, err := models.ReadConfig("../../bench/" + dir + "/config.json")
		if err != nil {
			t.Fatal(err)
		}
		a, err := m.Architecture(models.Compute{Type: models.BF16, Provider: models.CUDA})
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.Decode(models.Direct)
		if err != nil {
			t.Fatal(err)
		}
		layers := a.Geometry().Layers
		want := map[string]int{"Gather": 1, "RMSNormalization": 1, "NormBFloat16": 2 * layers, "ProductBFloat16": layers, "AttendBFloat16": layers, "ProductOntoBFloat16": 2 * layers, "GateUpBFloat16": layers}
		if got := ops(fuseAll(p)); !maps.Equal(got, want) {
			t.Errorf("%s: decode has %v, want %v", dir, got, want)
		}
		forward, backward, err := a.Layer(0, true, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := ops(fuseAll(forward)); got["NormBFloat16"] != 2 || got["SwiGLUBFloat16"] != 1 || got["ProductOntoBFloat16"] != 2 || got["ProductBFloat16"] != 5 || got["CausalAttentionBFloat16"] != 1 || got["TurnBFloat16"] != 2 || got["RowsBFloat16"] != 4 || got["Gemm"] != 0 || got["Cast"] != 0 || got["Transpose"] != 0 {
			t.Errorf("%s: forward has %v", dir, got)
		}
		_, _, head, err := a.Head(models.HeadForm{Full: true})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := ops(fuseAll(head)), (map[string]int{"HeadGradShortBFloat16": 1, "ProductOntoBFloat16": 1, "OuterOntoBFloat16": 1, "Cast": 2}); !maps.Equal(got, want) {
			t.Errorf("%s: the head's gradient has %v, want %v", dir, got, want)
		}
		lean, again, err := a.Layer(0, false, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := ops(fuseAll(lean)); got["GateUpBFloat16"] != 1 || got["ProductBFloat16"] != 3 || got["SwiGLUBFloat16"] != 0 {
			t.Errorf("%s: forward that keeps nothing has %v", dir, got)
		}
		if got := ops(fuseAll(again)); got["CausalAttentionBFloat16"] != 1 || got["CausalAttentionGradBFloat16"] != 1 || got["MaskedSoftmax"] != 0 {
			t.Errorf("%s: backward that keeps nothing has %v", dir, got)
		}
		got := ops(fuseAll(backward))
		for op, n := range map[string]int{"NormBFloat16": 2, "NormGradBFloat16": 2, "SwiGLUBFloat16": 1, "SwiGLUGradBFloat16": 1, "CausalAttentionGradBFloat16": 1, "MaskedSoftmax": 0, "Softmax": 0, "FusedMatMul": 0, "Transpose": 0, "TurnBFloat16": 2, "RotaryEmbedding": 0, "Gather": 0, "OuterOntoBFloat16": 7, "ProductBFloat16": 0, "RMSNormalization": 0, "Sigmoid": 0, "ReduceMean": 0} {
			if got[op] != n {
				t.Errorf("%s: backward has %d %s, want %d: %v", dir, got[op], op, n, got)
			}
		}
	}
}

// TestFuseLeavesOthers: graphs of float32, and nodes with other readers, stay unchanged.
func TestFuseLeavesOthers(t *testing.T) {
	m, err := models.ReadConfig("../../bench/tiny/config.json")
	if err != nil {
		t.Fatal(err)
	}
	a, err := m.Architecture(models.Compute{Provider: models.CUDA})
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Decode(models.Direct)
	if err != nil {
		t.Fatal(err)
	}
	if got := fuseAll(p); fmt.Sprint(got) != fmt.Sprint(p) {
		t.Error("a graph of float32 was changed")
	}
	if a, err = m.Architecture(models.Compute{Type: models.BF16, Provider: models.CUDA}); err != nil {
		t.Fatal(err)
	}
	if p, err = a.Decode(models.Direct); err != nil {
		t.Fatal(err)
	}
	norm := slices.IndexFunc(p.Nodes, func(n onnx.Node) bool { return n.Op == "RMSNormalization" })
	p.Outputs = append(slices.Clone(p.Outputs), models.Port{Name: p.Nodes[norm].Outputs[0], DType: models.F32, Shape: []string{"B", "64"}})
	before, after := ops(p), ops(fuseAll(p))
	if after["RMSNormalization"] != 2 || before["RMSNormalization"] != 5 {
		t.Errorf("a norm that is an output: %v", strings.Fields(fmt.Sprint(after)))
	}
}

// TestFuseAdapter: the product of an adapter adds a matrix, which the operator's bias is not.
func TestFuseAdapter(t *testing.T) {
	m, err := models.ReadConfig("../../bench/tiny/config.json")
	if err != nil {
		t.Fatal(err)
	}
	a, err := m.Architecture(models.Compute{Type: models.BF16, Provider: models.CUDA, Adapter: &models.Adapter{Rank: 2, Scale: 1, Modules: []string{"self_attn.q_proj"}}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Decode(models.Direct)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range fuseAll(p).Nodes {
		if n.Op == "ProductBFloat16" && len(n.Inputs) == 3 && !strings.HasSuffix(n.Inputs[2], ".bias") {
			t.Errorf("%q is taken for a bias", n.Inputs[2])
		}
	}
}

// TestFuseHeld: every product by a matrix that is held in fewer bits reads it as it is, but for
// gradients in float32, which unpack it.
func TestFuseHeld(t *testing.T) {
	m, err := models.ReadConfig("../../bench/qwen2.5-7b/config.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, base := range []models.DType{models.BF16, models.F16, models.I8, models.NF4} {
		for _, d := range []models.DType{models.F32, models.BF16} {
			a, err := m.Architecture(models.Compute{Type: d, Base: base, Adapter: &models.Adapter{Rank: 2, Scale: 1, Modules: []string{"self_attn.q_proj"}}})
			if err != nil {
				t.Fatal(err)
			}
			decode, err := a.Decode(models.Direct)
			if err != nil {
				t.Fatal(err)
			}
			forward, backward, err := a.Layer(0, false, 1)
			if err != nil {
				t.Fatal(err)
			}
			alone, err := m.Architecture(models.Compute{Type: d, Base: base, Sampled: true})
			if err != nil {
				t.Fatal(err)
			}
			head, err := alone.Sample(models.Draw, models.Direct)
			if err != nil {
				t.Fatal(err)
			}
			if got := ops(NewHost(nil, func() int { return 1 }).Fuse(head)); d == models.BF16 && got["Cast"] > 1 || got["LogitsBFloat16"]+got["FloatProduct"] != 1 || got["FloatUnpack"]+got["UnpackBFloat16"] > 0 {
				t.Errorf("%v in %v: the head is not read as it is held: %v", base, d, got)
			}
			for _, p := range []models.Program{decode, forward, backward} {
				got := ops(NewHost(nil, func() int { return 1 }).Fuse(p))
				unpacked := got["FloatUnpack"] + got["UnpackBFloat16"]
				want := map[bool]int{true: 7, false: 0}[p.Name == "layer.backward" && d == models.F32]
				if unpacked != want || d == models.F32 && got["FloatProduct"] == 0 {
					t.Errorf("%v in %v: %s unpacks %d matrices, want %d: %v", base, d, p.Name, unpacked, want, got)
				}
			}
		}
	}
}
