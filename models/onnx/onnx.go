// Package onnx has the messages of the ONNX format that onering writes, and
// their encoding. Field numbers are those of onnx.proto3 (IR version 10); it
// knows no model and no operator.
package onnx

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// irVersion is the version of the file format that Encode writes. Version 10
// is read by every ONNX Runtime since 1.18.
const irVersion = 10

// Microsoft is the domain of the operators that ONNX Runtime adds to ONNX.
const Microsoft = "com.microsoft"

// A DType is the element type of a tensor, numbered as TensorProto.DataType.
type DType int32

// The types of constants in this package; package models names all types.
const (
	float  DType = 1
	int64s DType = 7
)

// dtypes are the types in use: their names in safetensors headers, and the bytes of an element; 0
// for a type that is none of ONNX's.
var dtypes = map[DType]struct {
	name string
	size int
}{
	1: {"F32", 4}, 2: {"U8", 1}, 3: {"I8", 1}, 6: {"I32", 4}, 7: {"I64", 8}, 9: {"BOOL", 1}, 10: {"F16", 2}, 11: {"F64", 8}, 16: {"BF16", 2},
	-4: {"NF4", 0},
}

// String returns the name that safetensors headers use, such as "BF16"; "invalid" for 0.
func (d DType) String() string {
	switch e, ok := dtypes[d]; {
	case ok:
		return e.name
	case d == 0:
		return "invalid"
	}
	return fmt.Sprintf("DType(%d)", int32(d))
}

// Size returns the bytes of one element; 0 for a type that is not known.
func (d DType) Size() int { return dtypes[d].size }

// MarshalText writes the name of d.
func (d DType) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the name that MarshalText wrote. An unknown name makes d 0.
func (d *DType) UnmarshalText(text []byte) error {
	*d = 0
	for known, e := range dtypes {
		if e.name == string(text) {
			*d = known
			return nil
		}
	}
	return fmt.Errorf("onnx: unknown element type %q", text)
}

// A Model is a graph and the operator sets it is written in.
type Model struct {
	Producer string
	Opsets   []Opset
	Graph    Graph
	Doc      string
}

// An Opset names a domain ("" is ONNX's own) and its version.
type Opset struct {
	Domain  string
	Version int64
}

// A Graph is a list of nodes in topological order.
type Graph struct {
	Name            string
	Nodes           []Node
	Initializers    []Tensor
	Inputs, Outputs []ValueInfo
	Doc             string
}

// A Node is one operator call. An empty input or output name is an omitted
// optional one.
type Node struct {
	Name, Op, Domain string
	Inputs, Outputs  []string
	Attrs            []Attr
}

// An Attr is one attribute; Value is an int64, float32, string, []int64,
// []float32 or Graph.
type Attr struct {
	Name  string
	Value any
}

// A Tensor is a constant; Raw is little-endian.
type Tensor struct {
	Name string
	Type DType
	Dims []int64
	Raw  []byte
}

// Int64s makes a one-dimensional constant.
func Int64s(name string, values []int64) Tensor {
	raw := make([]byte, 0, 8*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	return Tensor{Name: name, Type: int64s, Dims: []int64{int64(len(values))}, Raw: raw}
}

// Float32s makes a constant of the given shape; no dims make a scalar.
func Float32s(name string, values []float32, dims ...int64) Tensor {
	raw := make([]byte, 0, 4*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return Tensor{Name: name, Type: float, Dims: dims, Raw: raw}
}

// A ValueInfo states the type of a graph input or output.
type ValueInfo struct {
	Name string
	Type DType
	Dims []Dim
	Doc  string
}

// A Dim is a fixed size, or where Param is set a named one.
type Dim struct {
	Value int64
	Param string
}

// Encode returns the ModelProto. Here and in each append the numbers are those of the message's fields in onnx.proto3.
func (m Model) Encode() []byte {
	var b []byte
	b = appendInt(b, 1, irVersion)
	b = appendString(b, 2, m.Producer)
	b = appendMessage(b, 7, m.Graph.append)
	for _, o := range m.Opsets {
		b = appendMessage(b, 8, func(b []byte) []byte {
			b = appendString(b, 1, o.Domain)
			return appendInt(b, 2, o.Version)
		})
	}
	return appendOptional(b, 6, m.Doc)
}

// append writes a GraphProto.
func (g Graph) append(b []byte) []byte {
	for _, n := range g.Nodes {
		b = appendMessage(b, 1, n.append)
	}
	b = appendString(b, 2, g.Name)
	for _, t := range g.Initializers {
		b = appendMessage(b, 5, t.append)
	}
	for _, v := range g.Inputs {
		b = appendMessage(b, 11, v.append)
	}
	for _, v := range g.Outputs {
		b = appendMessage(b, 12, v.append)
	}
	return appendOptional(b, 10, g.Doc)
}

func (n Node) append(b []byte) []byte {
	for _, s := range n.Inputs {
		b = appendString(b, 1, s)
	}
	for _, s := range n.Outputs {
		b = appendString(b, 2, s)
	}
	b = appendOptional(b, 3, n.Name)
	b = appendString(b, 4, n.Op)
	for _, a := range n.Attrs {
		b = appendMessage(b, 5, a.append)
	}
	return appendOptional(b, 7, n.Domain)
}

// append writes an AttributeProto; its field 20 says of which type the value is, by AttributeType.
func (a Attr) append(b []byte) []byte {
	b = appendString(b, 1, a.Name)
	switch v := a.Value.(type) {
	case float32:
		b = protowire.AppendTag(b, 2, protowire.Fixed32Type)
		b = protowire.AppendFixed32(b, math.Float32bits(v))
		return appendInt(b, 20, 1) // FLOAT
	case int64:
		b = appendInt(b, 3, v)
		return appendInt(b, 20, 2) // INT
	case string:
		b = appendString(b, 4, v)
		return appendInt(b, 20, 3) // STRING
	case Graph:
		b = appendMessage(b, 6, v.append)
		return appendInt(b, 20, 5) // GRAPH
	case []float32:
		for _, f := range v {
			b = protowire.AppendTag(b, 7, protowire.Fixed32Type)
			b = protowire.AppendFixed32(b, math.Float32bits(f))
		}
		return appendInt(b, 20, 6) // FLOATS
	case []int64:
		for _, i := range v {
			b = appendInt(b, 8, i)
		}
		return appendInt(b, 20, 7) // INTS
	}
	panic("onnx: attribute " + a.Name + " has a type that is not supported")
}

func (t Tensor) append(b []byte) []byte {
	for _, d := range t.Dims {
		b = appendInt(b, 1, d)
	}
	b = appendInt(b, 2, int64(t.Type))
	b = appendString(b, 8, t.Name)
	b = protowire.AppendTag(b, 9, protowire.BytesType)
	return protowire.AppendBytes(b, t.Raw)
}

// append nests ValueInfoProto > TypeProto > Tensor > TensorShapeProto.
func (v ValueInfo) append(b []byte) []byte {
	b = appendString(b, 1, v.Name)
	b = appendMessage(b, 2, func(b []byte) []byte {
		return appendMessage(b, 1, func(b []byte) []byte {
			b = appendInt(b, 1, int64(v.Type))
			return appendMessage(b, 2, func(b []byte) []byte {
				for _, d := range v.Dims {
					b = appendMessage(b, 1, func(b []byte) []byte {
						if d.Param != "" {
							return appendString(b, 2, d.Param)
						}
						return appendInt(b, 1, d.Value)
					})
				}
				return b
			})
		})
	})
	return appendOptional(b, 3, v.Doc)
}

func appendInt(b []byte, field protowire.Number, v int64) []byte {
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v))
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, s)
}

// appendOptional appends a text unless it is empty.
func appendOptional(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return appendString(b, field, s)
}

func appendMessage(b []byte, field protowire.Number, f func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, f(nil))
}
