package onnx

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// sample has every field that Model can hold.
func sample() Model {
	return Model{
		Producer: "test",
		Opsets:   []Opset{{"", 23}, {"com.microsoft", 1}},
		Graph: Graph{
			Name: "g",
			Nodes: []Node{
				{Name: "n", Op: "Pad", Inputs: []string{"x", "p", "", "a"}, Outputs: []string{"y"}},
				{Op: "Fused", Domain: "com.microsoft", Inputs: []string{"y"}, Outputs: []string{"z", "w"}, Attrs: []Attr{
					{"int", int64(-3)}, {"zero", int64(0)}, {"float", float32(0.25)}, {"string", "s"},
					{"ints", []int64{1, -1, 1 << 60}}, {"floats", []float32{1, -2}},
				}},
			},
			Initializers: []Tensor{Int64s("p", []int64{1, -2}), Float32s("a", []float32{1, 2, 3, 4, 5, 6}, 2, 3), Float32s("s", []float32{7})},
			Inputs:       []ValueInfo{{"x", Float, []Dim{{Param: "4*B*T"}, {Value: 64}}}},
			Outputs:      []ValueInfo{{"z", Int64, nil}, {"w", Boolean, []Dim{{Value: 0}}}},
		},
	}
}

func TestDecodeReadsWhatEncodeWrites(t *testing.T) {
	want := sample()
	got, err := Decode(want.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Decode(Encode(m)) =\n%+v, want\n%+v", got, want)
	}
}

// TestDecodePacked reads repeated numbers as other writers encode them.
func TestDecodePacked(t *testing.T) {
	var b []byte
	b = appendString(b, 1, "v")
	b = appendInt(b, 20, 7)
	b = protowire.AppendTag(b, 8, protowire.BytesType)
	b = protowire.AppendBytes(b, []byte{1, 2, 0x96, 0x01})
	var a Attr
	if err := a.decode(b); err != nil {
		t.Fatal(err)
	}
	if want := []int64{1, 2, 150}; !reflect.DeepEqual(a.Value, want) {
		t.Errorf("ints = %v, want %v", a.Value, want)
	}

	b = appendInt(appendString(nil, 1, "v"), 20, 6)
	b = protowire.AppendTag(b, 7, protowire.BytesType)
	b = protowire.AppendBytes(b, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0})
	if err := a.decode(b); err != nil {
		t.Fatal(err)
	}
	if want := []float32{1, -2}; !reflect.DeepEqual(a.Value, want) {
		t.Errorf("floats = %v, want %v", a.Value, want)
	}
}

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

func TestDecodeErrors(t *testing.T) {
	model := func(graph []byte) []byte {
		b := appendInt(nil, 1, IRVersion)
		return appendMessage(b, 7, func([]byte) []byte { return graph })
	}
	tensor := func(t Tensor) []byte { return model(Graph{Initializers: []Tensor{t}}.append(nil)) }
	node := func(attr []byte) []byte {
		return model(appendMessage(nil, 1, func(b []byte) []byte {
			b = appendString(b, 3, "n")
			return appendMessage(b, 5, func([]byte) []byte { return attr })
		}))
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "IR version -1, want 10"},
		{"old version", appendInt(nil, 1, 3), "IR version 3, want 10"},
		{"cut short", sample().Encode()[:40], "onnx: "},
		{"not protobuf", []byte("\x80not an ONNX file"), "onnx: "},
		{"unknown field", appendString(appendInt(nil, 1, IRVersion), 6, "doc"), "field 6 of ModelProto is not supported"},
		{"wrong wire type", appendString(nil, 1, "ten"), "field 1 has wire type 2, want 0"},
		{"graph attribute", node(appendInt(appendString(nil, 1, "body"), 20, 5)), `node "n": attribute "body": type 5 is not supported`},
		{"attribute of two types", node(appendInt(appendString(appendInt(appendString(nil, 1, "a"), 3, 1), 4, "s"), 20, 2)), `attribute "a": field 4 does not belong to type 2`},
		{"short data", tensor(Tensor{Name: "w", Type: Float, Dims: []int64{2}, Raw: make([]byte, 4)}), `tensor "w": 4 bytes for dims [2]`},
		{"negative dim", tensor(Tensor{Name: "w", Type: Float, Dims: []int64{-1}}), `tensor "w": dims [-1] are not sizes`},
		{"overflowing dims", tensor(Tensor{Name: "w", Type: Float, Dims: []int64{1 << 31, 1 << 31, 1 << 31}}), "are not sizes"},
		{"overflow hidden by a zero", tensor(Tensor{Name: "w", Type: Float, Dims: []int64{0, 1 << 62, 1 << 62}}), ""},
		{"strings", tensor(Tensor{Name: "w", Type: 8}), `tensor "w": element type ElemType(8) is not supported`},
	} {
		_, err := Decode(tt.b)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "onnx: ") {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
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

// FuzzDecode: no input makes Decode panic, and
// what it accepts encodes to bytes that decode to the same model.
func FuzzDecode(f *testing.F) {
	f.Add(sample().Encode())
	f.Add(Model{}.Encode())
	f.Add([]byte{})
	f.Add(sample().Encode()[:100])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		once := m.Encode()
		again, err := Decode(once)
		if err != nil {
			t.Fatalf("Decode(Encode(m)): %v", err)
		}
		if !bytes.Equal(again.Encode(), once) {
			t.Fatalf("encodings differ: %x and %x", once, again.Encode())
		}
	})
}
