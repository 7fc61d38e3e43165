// Package tiles runs element-wise Programs, such as an optimizer's update, on the CPU:
// it reads them as steps (Compile), and does all steps for a few elements at a time.
//
// ONNX Runtime runs the operators of a graph one after the other, each over whole
// tensors. On the CPU an update of AdamW so moves 136 bytes for each parameter, of which
// 28 are weights, gradients and moments; the others are results between operators. Done
// tile by tile, those never leave the cache of a core.
package tiles

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"onering/models"
)

// Code is an element-wise Program: steps on arrays of float32 of one length.
type Code struct {
	// Inputs are the ports of the arrays that the caller gives. Steps change those that
	// an output of the Program replaces.
	Inputs []string
	// Scalars are the ports without dimensions.
	Scalars []string
	Steps   []Step
	// Arrays counts the Inputs and the results between steps.
	Arrays int
}

// A Step is an operator. Its result is array To.
type Step struct {
	Op   string // Mul, Add, Sub, Div, Sqrt or Sign
	To   int
	A, B Operand // Sqrt and Sign have no B
}

// An Operand is an array or a scalar by its number.
type Operand struct {
	Index  int
	Scalar bool
}

// operands is how many each operator has.
var operands = map[string]int{"Mul": 2, "Add": 2, "Sub": 2, "Div": 2, "Sqrt": 1, "Sign": 1}

// Most is how many arrays a Code may have.
const Most = 32

// Compile reads a Program. Every output must be in place of an input. An error says
// which part of it is not element-wise; ONNX Runtime can run such a Program.
func Compile(p models.Program) (*Code, error) {
	nodes, err := nodesOf(p.ONNX)
	if err == nil {
		c := compiler{program: p, at: map[string]Operand{}, last: map[string]int{}}
		if err = c.compile(nodes); err == nil {
			return &c.Code, nil
		}
	}
	return nil, fmt.Errorf("tiles: program %q: %w", p.Name, err)
}

type compiler struct {
	Code
	program models.Program
	at      map[string]Operand // where a tensor is
	last    map[string]int     // the last node that reads it
	free    []int              // arrays between steps that nothing reads any more
}

func (c *compiler) compile(nodes []node) error {
	for _, in := range c.program.Inputs {
		switch {
		case in.DType != models.F32 || len(in.Shape) > 1 || len(in.Shape) == 1 && in.Shape[0] != c.length(in.Shape[0]):
			return fmt.Errorf("input %q is %s %v", in.Name, in.DType, in.Shape)
		case len(in.Shape) == 0:
			c.at[in.Name] = Operand{len(c.Scalars), true}
			c.Scalars = append(c.Scalars, in.Name)
		default:
			c.at[in.Name] = Operand{len(c.Inputs), false}
			c.Inputs = append(c.Inputs, in.Name)
		}
	}
	c.Arrays = len(c.Inputs)
	for _, out := range c.program.Outputs {
		if c.program.Alias[out.Name] == "" {
			return fmt.Errorf("output %q is in the place of no input", out.Name)
		}
	}
	nodes = c.needed(nodes)
	for i, n := range nodes {
		for _, name := range n.inputs {
			c.last[name] = i
		}
	}
	for i, n := range nodes {
		if err := c.step(i, n); err != nil {
			return fmt.Errorf("node %d, %s: %w", i, n.op, err)
		}
	}
	for _, out := range c.program.Outputs {
		if _, ok := c.at[out.Name]; !ok {
			return fmt.Errorf("nothing makes output %q", out.Name)
		}
	}
	return nil
}

// length is the one dimension that arrays have: that of the first.
func (c *compiler) length(d string) string {
	for _, in := range c.program.Inputs {
		if len(in.Shape) > 0 {
			return in.Shape[0]
		}
	}
	return d
}

// needed returns the nodes that outputs are computed from, with a selection of x or x (see
// graph.After) as a node of x alone: steps are done in the order of the nodes anyway.
func (c *compiler) needed(nodes []node) (kept []node) {
	wanted := map[string]bool{}
	for _, out := range c.program.Outputs {
		wanted[out.Name] = true
	}
	for _, n := range slices.Backward(nodes) {
		if !slices.ContainsFunc(n.outputs, func(name string) bool { return wanted[name] }) {
			continue
		}
		if n.op == "Where" && len(n.inputs) == 3 && n.inputs[1] == n.inputs[2] {
			n = node{op: after, inputs: n.inputs[1:2], outputs: n.outputs}
		}
		for _, name := range n.inputs {
			wanted[name] = true
		}
		kept = append(kept, n)
	}
	slices.Reverse(kept)
	return kept
}

// after is the operator of a node whose result is its operand.
const after = "After"

// step adds the step of one node.
func (c *compiler) step(i int, n node) error {
	if n.op == after && c.at[n.inputs[0]].Scalar {
		c.at[n.outputs[0]] = c.at[n.inputs[0]]
		return nil
	}
	if count, ok := operands[n.op]; !ok || n.attributes || len(n.inputs) != count || len(n.outputs) != 1 {
		return errors.New("it is not an element-wise operator that is known")
	}
	var x [2]Operand
	for k, name := range n.inputs {
		at, ok := c.at[name]
		if !ok {
			return fmt.Errorf("%q is unknown, or was overwritten", name)
		}
		x[k] = at
	}
	if x[0].Scalar && (len(n.inputs) == 1 || x[1].Scalar) {
		return errors.New("it has scalars only")
	}
	for k, name := range n.inputs {
		between := !x[k].Scalar && x[k].Index >= len(c.Inputs)
		if between && c.last[name] == i && !slices.Contains(c.free, x[k].Index) {
			c.free = append(c.free, x[k].Index)
		}
	}
	s := Step{Op: n.op, A: x[0], B: x[1]}
	out := n.outputs[0]
	if in := c.program.Alias[out]; in != "" {
		at, ok := c.at[in]
		if !ok || at.Scalar {
			return fmt.Errorf("%q is not an array, or was overwritten", in)
		}
		delete(c.at, in) // so that nothing reads it as it was
		s.To = at.Index
	} else if len(c.free) > 0 {
		s.To, c.free = c.free[len(c.free)-1], c.free[:len(c.free)-1]
	} else if s.To = c.Arrays; s.To < Most {
		c.Arrays++
	} else {
		return fmt.Errorf("there are more than %d arrays", Most)
	}
	c.at[out] = Operand{Index: s.To}
	c.Steps = append(c.Steps, s)
	return nil
}

// A node is an operator of a graph.
type node struct {
	op              string
	inputs, outputs []string
	attributes      bool
}

// The numbers of the fields in the messages of ONNX that nodesOf reads.
const (
	modelGraph     = 7
	graphNode      = 1
	nodeInput      = 1
	nodeOutput     = 2
	nodeOp         = 4
	nodeAttribute  = 5
	nodeOpsetOwner = 7 // the domain of the operator
)

// nodesOf reads the nodes of a model.
func nodesOf(model []byte) (nodes []node, err error) {
	err = fields(model, func(field protowire.Number, graph []byte) error {
		if field != modelGraph {
			return nil
		}
		return fields(graph, func(field protowire.Number, value []byte) error {
			if field != graphNode {
				return nil
			}
			var n node
			err := fields(value, func(field protowire.Number, value []byte) error {
				switch field {
				case nodeInput:
					n.inputs = append(n.inputs, string(value))
				case nodeOutput:
					n.outputs = append(n.outputs, string(value))
				case nodeOp:
					n.op = string(value)
				case nodeAttribute:
					n.attributes = true
				case nodeOpsetOwner:
					n.op = string(value) + "." + n.op
				}
				return nil
			})
			nodes = append(nodes, n)
			return err
		})
	})
	return nodes, err
}

// fields calls visit with the fields of a message that have bytes.
func fields(message []byte, visit func(field protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			if value != nil {
				if err := visit(field, value); err != nil {
					return err
				}
			}
		}
		if n = protowire.ConsumeFieldValue(field, kind, message); n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
	}
	return nil
}
