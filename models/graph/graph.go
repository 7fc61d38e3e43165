// Package graph builds ONNX graphs and their gradients.
//
// A Graph is filled by op functions on Nodes, which infer shapes and panic with names and shapes where they
// don't fit; Build recovers such a panic into an error, so ops compose as expressions: Mul(x, Sigmoid(x)).
// Gradient adds the nodes that compute a vector-Jacobian product (VJP): given dL/dy for some nodes y it returns
// dL/dx for some nodes x. Each op has one rule in the table of vjp.go. Nodes that no output needs are left out
// when the graph is written.
package graph

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"onering/models"
	"onering/models/onnx"
)

// A Graph is under construction until Build returns.
type Graph struct {
	name         string
	nodes        []*Node // in topological order: a node follows all nodes from which it is computed
	inputs       []*Node
	outputs      []output
	consts       []*Node               // constants; equal ones share a node
	uses         map[string]models.Use // uses of ports by their names
	orderSums    bool                  // set by OrderSums
	turnProducts bool                  // set by TurnProducts
	prefix       string                // stands in the names of values that have no other name
	options      map[string]string     // options of the Program
}

// OrderSums sums gradients of broadcast operands over the first axes by products with ones, if the other sizes
// are numbers. The CUDA provider's kernel for ReduceSum over the first axes adds in any order, so that the last
// bits of the sum change from run to run. (A transpose before the sum would not help: ONNX Runtime removes it.)
func (g *Graph) OrderSums() { g.orderSums = true }

// TurnProducts makes Outer transpose an operand before a large product. ONNX Runtime's Gemm on the CPU reads a
// transposed first operand again for every 128 columns of the result.
func (g *Graph) TurnProducts() { g.turnProducts = true }

// An output is a node with the name by which a caller reads it.
type output struct {
	name  string
	node  *Node
	alias string // the input onto whose buffer it may be written; "" for none
}

// A Node is one value of a Graph: an input, a constant, or an output of a call.
type Node struct {
	g        *Graph
	id       int    // its index in Graph.nodes
	name     string // name of an input or a constant
	elem     models.DType
	shape    Shape
	call     *call       // the call that computes the node; nil for inputs and constants
	stash    *Node       // the input that holds the value, if it is stashed
	composed *composite  // set if the gradient has its own rule and bypasses call
	data     onnx.Tensor // elements of a constant
}

// A call is one operator call; its outputs have successive ids.
type call struct {
	op, domain     string
	in, out        []*Node // in may hold nil for omitted inputs
	attrs          []onnx.Attr
	joinsGradients bool // an Add that joins gradients
}

// A composite is an expression of several ops with its own gradient rule: vjp takes dL/dy of the expression's
// result y and returns dL/din for each of in, nil where there is none.
type composite struct {
	rule string
	in   []*Node
	vjp  func(dy *Node) []*Node
}

// Build runs f on a new Graph and encodes the result. An error names the op and shapes that didn't fit.
func Build(name string, f func(g *Graph)) (models.Program, error) {
	g, err := build(name, f)
	if err != nil {
		return models.Program{}, err
	}
	return g.encode(), nil
}

// build is Build without the encoding.
func build(name string, f func(g *Graph)) (g *Graph, err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case buildError:
			err = fmt.Errorf("graph: %s: %s", name, e.text)
		default:
			panic(e)
		}
	}()
	g = &Graph{name: name}
	f(g)
	if len(g.outputs) == 0 {
		fail("no outputs")
	}
	separateOutputs(g)
	foldSums(g)
	checkAliases(g)
	return g, nil
}

// Input declares an input of the graph. Names that begin with % are reserved for the package.
func (g *Graph) Input(name string, elem models.DType, shape Shape) *Node {
	if g.input(name) != nil {
		fail("input %q is declared twice", name)
	}
	if name == "" || name[0] == '%' {
		fail("input %q: a name must not be empty or begin with %%", name)
	}
	if elem.Size() == 0 {
		fail("input %q: element type %v is not supported", name, elem)
	}
	for _, d := range shape {
		Dims(d) // fails if d is not valid
	}
	n := g.add(&Node{name: name, elem: elem, shape: shape})
	g.inputs = append(g.inputs, n)
	return n
}

// input returns the input of a name, nil if there is none.
func (g *Graph) input(name string) *Node {
	for _, n := range g.inputs {
		if n.name == name {
			return n
		}
	}
	return nil
}

// Float declares a float32 input; sizes are as for Dims.
func (g *Graph) Float(name string, sizes ...any) *Node {
	return g.Input(name, models.F32, Dims(sizes...))
}

// Use tells a runtime what to bind to the ports of a name, in place of values for one
// run. The graph itself does not change.
func (g *Graph) Use(name string, u models.Use) {
	if g.uses == nil {
		g.uses = make(map[string]models.Use)
	}
	g.uses[name] = u
}

// Output names a node as an output.
func (g *Graph) Output(name string, n *Node) { g.OutputOnto(name, n, "") }

// OutputOnto names an output that may be bound onto the buffer of an input of the same type and shape. Build
// checks that this is safe: each reader of the input must be the node that computes the output, or precede it.
func (g *Graph) OutputOnto(name string, n *Node, input string) {
	if n == nil {
		fail("output %q is nil: a gradient that does not exist?", name)
	}
	if n.g != g {
		fail("output %q is of another graph", name)
	}
	if name == "" || name[0] == '%' {
		fail("output %q: a name must not be empty or begin with %%", name)
	}
	g.outputs = append(g.outputs, output{name, n, input})
}

// Name returns the name of an input.
func (n *Node) Name() string { return n.name }

// Graph returns the graph that n belongs to.
func (n *Node) Graph() *Graph { return n.g }

// Elem returns the element type of n.
func (n *Node) Elem() models.DType { return n.elem }

// Shape returns the sizes of n.
func (n *Node) Shape() Shape { return n.shape }

// add appends n to the graph's nodes.
func (g *Graph) add(n *Node) *Node {
	n.g, n.id = g, len(g.nodes)
	g.nodes = append(g.nodes, n)
	return n
}

// call adds an operator call with one output.
func (g *Graph) call(op, domain string, elem models.DType, shape Shape, in []*Node, attrs ...onnx.Attr) *Node {
	return g.calls(op, domain, []models.DType{elem}, []Shape{shape}, in, attrs...)[0]
}

// calls adds an operator call with one output for each of elems and shapes.
func (g *Graph) calls(op, domain string, elems []models.DType, shapes []Shape, in []*Node, attrs ...onnx.Attr) []*Node {
	c := &call{op: op, domain: domain, in: in, attrs: attrs}
	for i, s := range shapes {
		c.out = append(c.out, g.add(&Node{elem: elems[i], shape: s, call: c}))
	}
	return c.out
}

// constant adds a constant, or returns an equal existing one.
func (g *Graph) constant(t onnx.Tensor, shape Shape) *Node {
	for _, c := range g.consts {
		if c.data.Type == t.Type && fmt.Sprint(c.shape) == fmt.Sprint(shape) && bytes.Equal(c.data.Raw, t.Raw) {
			return c
		}
	}
	t.Name = fmt.Sprintf("%%c%d", len(g.consts))
	n := g.add(&Node{name: t.Name, elem: t.Type, shape: shape, data: t})
	g.consts = append(g.consts, n)
	return n
}

// Scalar is a float32 constant of no dimensions.
func (g *Graph) Scalar(v float64) *Node {
	return g.constant(onnx.Float32s("", []float32{float32(v)}), Shape{})
}

// Floats is a float32 constant of a shape.
func (g *Graph) Floats(shape Shape, v ...float32) *Node {
	dims := make([]int64, len(shape))
	for i, d := range shape {
		dims[i] = int64(d.N)
	}
	return g.constant(onnx.Float32s("", v, dims...), shape)
}

// Double is a float64 constant of no dimensions.
func (g *Graph) Double(v float64) *Node {
	raw := binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))
	return g.constant(onnx.Tensor{Type: models.F64, Raw: raw}, Shape{})
}

// fill is a constant without dimensions in the element type of like, to which the value is rounded.
func (g *Graph) fill(v float64, like *Node) *Node {
	half := func(bits uint16) *Node {
		return g.constant(onnx.Tensor{Type: like.elem, Raw: binary.LittleEndian.AppendUint16(nil, bits)}, Shape{})
	}
	switch like.elem {
	case models.F32:
		return g.Scalar(v)
	case models.F64:
		return g.Double(v)
	case models.F16:
		return half(models.Float32ToF16(float32(v)))
	case models.BF16:
		return half(models.Float32ToBF16(float32(v)))
	}
	fail("no constants of %v", like.elem)
	return nil
}

// Ints is an int64 constant of one dimension.
func (g *Graph) Ints(v ...int64) *Node {
	return g.constant(onnx.Int64s("", v), Dims(len(v)))
}

// orStash returns the node that holds the value of n: n, or the input if n is stashed.
func (n *Node) orStash() *Node {
	if n.stash != nil {
		return n.stash
	}
	return n
}

// encode writes the nodes that the outputs need, in the order of creation. That order
// is part of the bytes: the same calls give the same file.
func (g *Graph) encode() models.Program {
	needed, names := g.live()
	name := func(n *Node) string { // name of the value that a call reads as n, which may be stashed; "" for an omitted input
		if n == nil {
			return ""
		}
		return names(n.orStash())
	}

	out := models.Program{Name: g.name, Alias: map[string]string{}, Options: g.options}
	for _, n := range g.inputs {
		out.Inputs = append(out.Inputs, g.portOf(n, n.name))
	}
	for _, n := range g.consts {
		if needed[n.id] {
			out.Constants = append(out.Constants, n.data)
		}
	}
	for n := range g.calling(needed) {
		c := n.call
		node := onnx.Node{Name: fmt.Sprintf("%s_%d", c.op, n.id), Op: c.op, Domain: c.domain, Attrs: c.attrs}
		for _, o := range c.out {
			node.Outputs = append(node.Outputs, names(o))
		}
		for _, in := range c.in {
			node.Inputs = append(node.Inputs, name(in))
		}
		// Omitted inputs have empty names; at the end of the list they are left out.
		for len(node.Inputs) > 0 && node.Inputs[len(node.Inputs)-1] == "" {
			node.Inputs = node.Inputs[:len(node.Inputs)-1]
		}
		out.Nodes = append(out.Nodes, node)
	}
	for _, o := range g.outputs {
		out.Outputs = append(out.Outputs, g.portOf(o.node, o.name))
		if o.alias != "" {
			out.Alias[o.name] = o.alias
		}
	}
	return out
}

// portOf describes n as an input or output for programs that run the graph.
func (g *Graph) portOf(n *Node, name string) models.Port {
	p := models.Port{Name: name, DType: n.elem, Shape: make([]string, len(n.shape)), Use: g.uses[name]}
	for i, d := range n.shape {
		p.Shape[i] = d.String()
	}
	return p
}
