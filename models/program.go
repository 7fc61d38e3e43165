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
	"slices"
	"strconv"
	"strings"

	"onering/models/onnx"
)

// A DType is the element type of a tensor.
type DType = onnx.DType

// The element types that Programs and safetensors files use, with ONNX's numbers.
const (
	Invalid DType = 0
	F32     DType = 1
	U8      DType = 2
	I8      DType = 3
	I32     DType = 6
	I64     DType = 7
	Bool    DType = 9
	F16     DType = 10
	F64     DType = 11
	BF16    DType = 16
	// NF4 holds matrices in four bits a number, two numbers to a U8; see narrow.
	NF4 DType = -4
)

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
	// Of is the name of the parameter whose gradient the port is.
	Of string
	// Layer is the layer whose State the port is.
	Layer int
}

// OfKind is the name of a port of Prefill and Decode for the angles of a kind of layers:
// from kind 1 on, kinds with angles of their own have a port each.
func OfKind(name string, kind int) string {
	if kind == 0 {
		return name
	}
	return fmt.Sprintf("%s.kind%d", name, kind)
}

// A Role is a kind of port. A runtime binds all ports of one role in the same way.
type Role uint8

const (
	// fed is the role of a port whose value the caller gives in each run, such as token
	// ids. Package ports names such ports.
	fed Role = iota
	// Parameter is the role of a tensor of the layout with the port's name. In a layer
	// Program the name lacks the LayerPrefix.
	Parameter
	// Gradient is the role of the running gradient of a parameter; the output is written
	// onto the input.
	Gradient
	// Kept is the role of a value that a forward Program returns and its backward Program
	// takes under the same name.
	Kept
	// Keys and Values are the roles of what the cache has of each token for one layer.
	Keys
	Values
	// Window is the role of the last inputs of a layer's convolution, and Memory that of the
	// state of its delta rule.
	Window
	Memory
)

// Sizes returns the port's shape as numbers, given values of the letters.
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
		infos[i] = onnx.ValueInfo{Name: p.Name, Type: p.DType}
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
// RMSNormalization. Contrib operators have the domain onnx.Microsoft.
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

// ONNX returns the graph in the form of a model file.
func (p Program) ONNX() onnx.Model {
	opsets := []onnx.Opset{{Version: opset}, {Domain: onnx.Microsoft, Version: 1}}
	for _, n := range p.Nodes {
		if !slices.ContainsFunc(opsets, func(o onnx.Opset) bool { return o.Domain == n.Domain }) {
			opsets = append(opsets, onnx.Opset{Domain: n.Domain, Version: 1})
		}
	}
	return onnx.Model{
		Producer: "onering", Opsets: opsets,
		Graph: onnx.Graph{Name: p.Name, Nodes: p.Nodes, Initializers: p.Constants, Inputs: declared(p.Inputs), Outputs: declared(p.Outputs)},
	}
}
