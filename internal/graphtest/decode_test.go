package graphtest

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"onering/models/onnx"
)

func appendInt(b []byte, field protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func appendString(b []byte, field protowire.Number, v string) []byte {
	return appendBytes(b, field, []byte(v))
}

// sample has every field that onnx.Model can hold.
func sample() onnx.Model {
	return onnx.Model{
		Producer: "test",
		Opsets:   []onnx.Opset{{Domain: "", Version: 23}, {Domain: "com.microsoft", Version: 1}},
		Graph: onnx.Graph{
			Name: "g",
			Nodes: []onnx.Node{
				{Name: "n", Op: "Pad", Inputs: []string{"x", "p", "", "a"}, Outputs: []string{"y"}},
				{Op: "Fused", Domain: "com.microsoft", Inputs: []string{"y"}, Outputs: []string{"z", "w"}, Attrs: []onnx.Attr{
					{Name: "int", Value: int64(-3)}, {Name: "zero", Value: int64(0)}, {Name: "float", Value: float32(0.25)}, {Name: "string", Value: "s"},
					{Name: "ints", Value: []int64{1, -1, 1 << 60}}, {Name: "floats", Value: []float32{1, -2}},
				}},
			},
			Initializers: []onnx.Tensor{onnx.Int64s("p", []int64{1, -2}), onnx.Float32s("a", []float32{1, 2, 3, 4, 5, 6}, 2, 3), onnx.Float32s("s", []float32{7})},
			Inputs:       []onnx.ValueInfo{{Name: "x", Type: onnx.Float, Dims: []onnx.Dim{{Param: "4*B*T"}, {Value: 64}}}},
			Outputs:      []onnx.ValueInfo{{Name: "z", Type: onnx.Int64, Dims: nil}, {Name: "w", Type: onnx.Boolean, Dims: []onnx.Dim{{Value: 0}}}},
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
	var a onnx.Attr
	if err := decodeAttr(b, &a); err != nil {
		t.Fatal(err)
	}
	if want := []int64{1, 2, 150}; !reflect.DeepEqual(a.Value, want) {
		t.Errorf("ints = %v, want %v", a.Value, want)
	}

	b = appendInt(appendString(nil, 1, "v"), 20, 6)
	b = protowire.AppendTag(b, 7, protowire.BytesType)
	b = protowire.AppendBytes(b, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0})
	if err := decodeAttr(b, &a); err != nil {
		t.Fatal(err)
	}
	if want := []float32{1, -2}; !reflect.DeepEqual(a.Value, want) {
		t.Errorf("floats = %v, want %v", a.Value, want)
	}
}

func TestDecodeErrors(t *testing.T) {
	model := func(graph []byte) []byte {
		b := appendInt(nil, 1, onnx.IRVersion)
		return appendBytes(b, 7, graph)
	}
	tensor := func(t onnx.Tensor) []byte {
		return onnx.Model{Graph: onnx.Graph{Initializers: []onnx.Tensor{t}}}.Encode()
	}
	node := func(attr []byte) []byte {
		return model(appendBytes(nil, 1, appendBytes(appendString(nil, 3, "n"), 5, attr)))
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
		{"unknown field", appendString(appendInt(nil, 1, onnx.IRVersion), 6, "doc"), "field 6 of ModelProto is not supported"},
		{"wrong wire type", appendString(nil, 1, "ten"), "field 1 has wire type 2, want 0"},
		{"graph attribute", node(appendInt(appendString(nil, 1, "body"), 20, 5)), `node "n": attribute "body": type 5 is not supported`},
		{"attribute of two types", node(appendInt(appendString(appendInt(appendString(nil, 1, "a"), 3, 1), 4, "s"), 20, 2)), `attribute "a": field 4 does not belong to type 2`},
		{"short data", tensor(onnx.Tensor{Name: "w", Type: onnx.Float, Dims: []int64{2}, Raw: make([]byte, 4)}), `tensor "w": 4 bytes for dims [2]`},
		{"negative dim", tensor(onnx.Tensor{Name: "w", Type: onnx.Float, Dims: []int64{-1}}), `tensor "w": dims [-1] are not sizes`},
		{"overflowing dims", tensor(onnx.Tensor{Name: "w", Type: onnx.Float, Dims: []int64{1 << 31, 1 << 31, 1 << 31}}), "are not sizes"},
		{"overflow hidden by a zero", tensor(onnx.Tensor{Name: "w", Type: onnx.Float, Dims: []int64{0, 1 << 62, 1 << 62}}), ""},
		{"strings", tensor(onnx.Tensor{Name: "w", Type: 8}), `tensor "w": element type ElemType(8) is not supported`},
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

// FuzzDecode: no input makes Decode panic, and what it accepts encodes to bytes that decode to the same model.
func FuzzDecode(f *testing.F) {
	f.Add(sample().Encode())
	f.Add(onnx.Model{}.Encode())
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
