// Package models describes models without running them:
// Programs (ONNX graphs with named inputs and outputs), Weights (one buffer
// that every graph reads and the optimizer writes), and Hugging Face folders
// that it reads and writes. It uses no cgo; package runtime runs the Programs.
//
// Shape letters, the same in every comment and every ONNX dim_param: B rows in
// a batch, T tokens of a row, N packed tokens, S cached length, D hidden width,
// H query heads, G key/value heads, K head width, F feed-forward width, V
// vocabulary, L layers.
package models

import (
	"fmt"
	"strconv"
	"strings"

	"onering/models/onnx"
)

// A DType is the element type of a tensor.
type DType uint8

// The element types that Programs and safetensors files use.
const (
	Invalid DType = iota
	F32
	F16
	BF16
	F64
	I64
	I32
	U8
	Bool
	I8
)

var dtypes = [...]struct {
	name string
	size int
	onnx onnx.ElemType
}{
	Invalid: {"invalid", 0, 0}, F32: {"F32", 4, onnx.Float}, F16: {"F16", 2, onnx.Float16}, BF16: {"BF16", 2, onnx.BFloat16},
	F64: {"F64", 8, onnx.Double}, I64: {"I64", 8, onnx.Int64}, I32: {"I32", 4, onnx.Int32}, U8: {"U8", 1, onnx.Uint8},
	Bool: {"BOOL", 1, onnx.Boolean}, I8: {"I8", 1, onnx.Int8},
}

// String returns the name that safetensors headers use, such as "BF16".
func (d DType) String() string {
	if int(d) < len(dtypes) {
		return dtypes[d].name
	}
	return fmt.Sprintf("DType(%d)", d)
}

// Size returns the bytes of one element; 0 for Invalid.
func (d DType) Size() int {
	if int(d) < len(dtypes) {
		return dtypes[d].size
	}
	return 0
}

// parseDType is the inverse of String; it returns Invalid for a name it does not know.
func parseDType(name string) DType {
	for d, e := range dtypes {
		if d > 0 && e.name == name {
			return DType(d)
		}
	}
	return Invalid
}

// ONNX returns d as one of ONNX's element types; 0 for Invalid.
func (d DType) ONNX() onnx.ElemType {
	if int(d) < len(dtypes) {
		return dtypes[d].onnx
	}
	return 0
}

// FromONNX is the inverse of ONNX; it returns Invalid for a type that it does not know.
func FromONNX(t onnx.ElemType) DType {
	for d, e := range dtypes {
		if e.onnx == t {
			return DType(d)
		}
	}
	return Invalid
}

// A Port is one input or output of a Program. Each entry of Shape is a decimal
// number, a letter such as "N" for a size that varies, or a product such as
// "4*B*T".
type Port struct {
	Name  string   `json:"name"`
	DType DType    `json:"dtype"`
	Shape []string `json:"shape"`
	Use   `json:"-"`
}

// A Use says which value a runtime binds to a port.
type Use struct {
	Role Role
	// Of is the name of the parameter to which a Gradient belongs.
	Of string
	// Layer is the layer whose Keys or Values the port is, and Part the part of the
	// cache, from 0, in a Program that takes one in parts.
	Layer, Part int
}

// InPart is the name of a port in a part of the cache, for DecodeParts: from part 1 on
// the ports of caches, of places in them and of masks have one for each part.
func InPart(name string, part int) string {
	if part == 0 {
		return name
	}
	return fmt.Sprintf("%s.part%d", name, part)
}

// A Role is a kind of port. A runtime binds all ports of one role in the same way.
type Role uint8

const (
	// fed is a port whose value the caller gives for each run, such as token ids.
	// Package ports names them.
	fed Role = iota
	// Parameter is the tensor of the layout that has the port's name. In a layer
	// Program the name comes without the LayerPrefix.
	Parameter
	// Gradient is the running gradient of a parameter; the output is written
	// onto the input.
	Gradient
	// Kept is a value that a forward Program returns and its backward Program
	// takes under the same name.
	Kept
	// Keys and Values are the cache of one layer.
	Keys
	Values
)

// Sizes returns the port's shape as numbers, given the sizes of the letters.
func (p Port) Sizes(letters map[string]int) ([]int64, error) {
	out := make([]int64, len(p.Shape))
	for i, text := range p.Shape {
		out[i] = 1
		for _, factor := range strings.Split(text, "*") {
			n, ok := letters[factor]
			if !ok {
				var err error
				if n, err = strconv.Atoi(factor); err != nil {
					return nil, fmt.Errorf("models: port %q has a size %s, and %s is not known", p.Name, text, factor)
				}
			}
			out[i] *= int64(n)
		}
	}
	return out, nil
}

// declared returns ports as inputs or outputs of an ONNX graph.
func declared(ports []Port) []onnx.ValueInfo {
	infos := make([]onnx.ValueInfo, len(ports))
	for i, p := range ports {
		infos[i] = onnx.ValueInfo{Name: p.Name, Type: p.DType.ONNX()}
		for _, size := range p.Shape {
			d := onnx.Dim{Param: size}
			if n, err := strconv.ParseInt(size, 10, 64); err == nil {
				d = onnx.Dim{Value: n}
			}
			infos[i].Dims = append(infos[i].Dims, d)
		}
	}
	return infos
}

// opset is the version of ONNX's operators that Programs use: 23, the first with
// RMSNormalization. Contrib operators are of the domain onnx.Microsoft.
const opset = 23

// A Program is an ONNX graph that any stock ONNX Runtime can run.
type Program struct {
	// Name says what the graph computes, e.g. "layer.backward".
	Name string
	// Nodes are in topological order.
	Nodes []onnx.Node
	// Constants are small. Weights are inputs.
	Constants []onnx.Tensor
	// Inputs and Outputs are in the graph's order.
	Inputs, Outputs []Port
	// Alias maps an output to the input whose buffer it may be bound onto: the
	// graph then updates that buffer in place.
	Alias map[string]string
	// Options are session configuration entries that the graph needs, such as
	// "optimization.disable_specified_optimizers".
	Options map[string]string
}

// ONNX returns the graph as a model file states it.
func (p Program) ONNX() onnx.Model {
	return onnx.Model{
		Producer: "onering", Opsets: []onnx.Opset{{Version: opset}, {Domain: onnx.Microsoft, Version: 1}},
		Graph: onnx.Graph{Name: p.Name, Nodes: p.Nodes, Initializers: p.Constants, Inputs: declared(p.Inputs), Outputs: declared(p.Outputs)},
	}
}

// MarshalText writes the safetensors name of d.
func (d DType) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the name that MarshalText wrote.
func (d *DType) UnmarshalText(text []byte) error {
	if *d = parseDType(string(text)); *d == Invalid {
		return fmt.Errorf("models: unknown element type %q", text)
	}
	return nil
}
