package onnx

import (
	"encoding/hex"
	"strings"
	"testing"
)

// TestEncodeBytes fixes the encoding of a graph with one node, as the onnx
// Python package (1.23.2) writes it.
func TestEncodeBytes(t *testing.T) {
	m := Model{Producer: "p", Opsets: []Opset{{"", 23}}, Graph: Graph{
		Name:    "g",
		Nodes:   []Node{{Op: "Neg", Inputs: []string{"x"}, Outputs: []string{"y"}}},
		Inputs:  []ValueInfo{{"x", Float, []Dim{{Param: "N"}, {Value: 2}}}},
		Outputs: []ValueInfo{{"y", Float, []Dim{{Param: "N"}, {Value: 2}}}},
	}}
	const want = "080a1201703a3c0a0b0a017812017922034e65671201675a140a0178120f0a0d080112090a0312014e0a0208" +
		"0262140a0179120f0a0d080112090a0312014e0a02080242040a001017"
	if got := hex.EncodeToString(m.Encode()); got != want {
		t.Errorf("Encode() = %s, want %s", got, want)
	}
}

func TestAttrOfAnotherTypePanics(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(r.(string), "attribute axis") {
			t.Errorf("recovered %v", r)
		}
	}()
	Attr{"axis", 1}.append(nil)
}

// TestDocument: doc_strings are appended to the messages, as field 6 of ModelProto, 10
// of GraphProto and 3 of ValueInfoProto, and nothing else changes.
func TestDocument(t *testing.T) {
	model := []byte{
		8, 10, // ir_version
		0x3a, 12, // graph
		0x5a, 3, 0x0a, 1, 'x', // input
		0x62, 5, 0x0a, 1, 'y', 0x12, 0, // output with an empty type
	}
	want := "080a" + "3a15" + "5a060a0178" + "1a0158" + "62080a01791200" + "1a0159" + "520141" + "320141"
	got, err := Document(model, "A", strings.ToUpper)
	if err != nil || hex.EncodeToString(got) != want {
		t.Errorf("Document() = %x, %v, want %s", got, err, want)
	}
	for n := range model {
		if _, err := Document(model[:n], "A", strings.ToUpper); err == nil {
			t.Errorf("the first %d bytes are taken for a model", n)
		}
	}
}

// TestApart: a node that makes an output over an input, and reads it, reads a copy; other
// nodes read the input as before, and where there is none such the bytes stay.
func TestApart(t *testing.T) {
	model := func(nodes ...Node) []byte {
		return Model{Graph: Graph{Name: "g", Nodes: nodes, Inputs: []ValueInfo{{Name: "p", Type: Float}, {Name: "x", Type: Float}}}}.Encode()
	}
	before := []Node{{Op: "Mul", Inputs: []string{"p", "x"}, Outputs: []string{"a"}}, {Op: "Sub", Inputs: []string{"p", "a"}, Outputs: []string{"p1"}}}
	after := []Node{
		{Op: "Neg", Inputs: []string{"p"}, Outputs: []string{"p.minus"}}, {Op: "Neg", Inputs: []string{"p.minus"}, Outputs: []string{"p.copy"}},
		before[0], {Op: "Sub", Inputs: []string{"p.copy", "a"}, Outputs: []string{"p1"}},
	}
	for _, tt := range []struct {
		of   map[string]string
		want []Node
	}{{map[string]string{"p1": "p"}, after}, {map[string]string{"p1": "x"}, before}, {nil, before}} {
		got, err := Apart(model(before...), tt.of)
		if err != nil || hex.EncodeToString(got) != hex.EncodeToString(model(tt.want...)) {
			t.Errorf("%v: %x, %v, want %x", tt.of, got, err, model(tt.want...))
		}
	}
	for n := range 3 {
		if _, err := Apart(model(before...)[:20+n], map[string]string{"p1": "p"}); err == nil {
			t.Errorf("the first %d bytes are taken for a model", 20+n)
		}
	}
}
