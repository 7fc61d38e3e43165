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
		Inputs:  []ValueInfo{{Name: "x", Type: float, Dims: []Dim{{Param: "N"}, {Value: 2}}}},
		Outputs: []ValueInfo{{Name: "y", Type: float, Dims: []Dim{{Param: "N"}, {Value: 2}}}},
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

// TestDocEncodeBytes: doc_strings stand behind the other fields of the messages, as field 6
// of ModelProto, 10 of GraphProto and 3 of ValueInfoProto.
func TestDocEncodeBytes(t *testing.T) {
	m := Model{Doc: "A", Graph: Graph{Doc: "A", Inputs: []ValueInfo{{Name: "x", Doc: "X"}}}}
	const want = "080a" + "1200" + "3a15" + "1200" + "5a0e" + "0a0178" + "12060a0408001200" + "1a0158" + "520141" + "320141"
	if got := hex.EncodeToString(m.Encode()); got != want {
		t.Errorf("Encode() = %s, want %s", got, want)
	}
}
