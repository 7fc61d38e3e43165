// Package tiles runs element-wise Programs, such as an optimizer's update, on the CPU:
// it reads them as steps (Compile), and does all steps for a few elements at a time.
//
// ONNX Runtime runs the operators of a graph one after the other, each over whole tensors. On the CPU an update of
// AdamW so moves 136 bytes for each parameter, of which 28 are weights, gradients and moments; the others are results
// between operators. Tile by tile, intermediate results never leave the cache of a core.
package tiles

import (
	"errors"
	"fmt"
	"slices"

	"onering/models"
	"onering/models/onnx"
)

// Code is an element-wise Program: steps on arrays of float32 of one length.
type Code struct {
	// Inputs are the ports of the arrays that the caller gives. Steps overwrite an array
	// that an output of the Program replaces.
	Inputs []string
	// Scalars are the ports without dimensions.
	Scalars []string
	Steps   []step
	// Arrays counts the Inputs and the intermediate results.
	Arrays int
}

// A step applies an operator. Its result goes to array To.
type step struct {
	Op   string // Mul, Add, Sub, Div, Sqrt or Sign
	To   int
	A, B operand // Sqrt and Sign have no B
}

// An operand is an array or a scalar by its number.
type operand struct {
	Index  int
	Scalar bool
}

// operands is the number of operands of each operator.
var operands = map[string]int{"Mul": 2, "Add": 2, "Sub": 2, "Div": 2, "Sqrt": 1, "Sign": 1}

// mostArrays is the largest number of arrays of a Code.
const mostArrays = 32

// Compile reads a Program. Every output must be written onto an input. An error names the
// part that is not element-wise; ONNX Runtime can run such a Program.
func Compile(p models.Program) (*Code, error) {
	c := compiler{program: p, arrayOf: map[string]operand{}, lastReader: map[string]int{}}
	if err := c.compile(); err != nil {
		return nil, fmt.Errorf("tiles: program %q: %w", p.Name, err)
	}
	return &c.Code, nil
}

type compiler struct {
	Code
	program      models.Program
	arrayOf      map[string]operand // the array that holds a tensor
	lastReader   map[string]int     // the last node that reads a tensor
	unusedArrays []int              // arrays of intermediate results that nothing reads any more
}

// compile gives each input a scalar or an array, and then makes a step of each node that an output needs, in order. It
// refuses a Program of which an output does not take the place of an input (Alias).
func (c *compiler) compile() error {
	for _, in := range c.program.Inputs {
		switch {
		case in.DType != models.F32 || len(in.Shape) > 1 || len(in.Shape) == 1 && in.Shape[0] != c.length(in.Shape[0]):
			return fmt.Errorf("input %q is %s %v", in.Name, in.DType, in.Shape)
		case len(in.Shape) == 0:
			c.arrayOf[in.Name] = operand{len(c.Scalars), true}
			c.Scalars = append(c.Scalars, in.Name)
		default:
			c.arrayOf[in.Name] = operand{len(c.Inputs), false}
			c.Inputs = append(c.Inputs, in.Name)
		}
	}
	c.Arrays = len(c.Inputs)
	for _, out := range c.program.Outputs {
		if c.program.Alias[out.Name] == "" {
			return fmt.Errorf("output %q is in the place of no input", out.Name)
		}
	}
	nodes := c.needed()
	for i, n := range nodes {
		for _, name := range n.Inputs {
			c.lastReader[name] = i
		}
	}
	for i, n := range nodes {
		if err := c.step(i, n); err != nil {
			return fmt.Errorf("node %d, %s: %w", i, n.Op, err)
		}
	}
	for _, out := range c.program.Outputs {
		if _, ok := c.arrayOf[out.Name]; !ok {
			return fmt.Errorf("nothing makes output %q", out.Name)
		}
	}
	return nil
}

// length returns the one dimension of all arrays: that of the first.
func (c *compiler) length(d string) string {
	for _, in := range c.program.Inputs {
		if len(in.Shape) > 0 {
			return in.Shape[0]
		}
	}
	return d
}

// needed returns the nodes that outputs are computed from, with a selection of x or x
// (see graph.After) counted as x: steps run in the order of the nodes anyway.
func (c *compiler) needed() (kept []onnx.Node) {
	wanted := map[string]bool{} // results that outputs need
	for _, out := range c.program.Outputs {
		wanted[out.Name] = true
	}
	for _, n := range slices.Backward(c.program.Nodes) {
		if !slices.ContainsFunc(n.Outputs, func(name string) bool { return wanted[name] }) {
			continue
		}
		if n.Op == "Where" && len(n.Inputs) == 3 && n.Inputs[1] == n.Inputs[2] {
			n = onnx.Node{Op: after, Inputs: n.Inputs[1:2], Outputs: n.Outputs}
		}
		for _, name := range n.Inputs {
			wanted[name] = true
		}
		kept = append(kept, n)
	}
	slices.Reverse(kept)
	return kept
}

// after returns the operand of a node whose result equals that operand.
const after = "After"

// step adds the step of node i, n. Its result goes onto the input that the Program's Alias names, or to the array of
// an intermediate result that nothing reads any more, which may be an operand's, or to a new one.
func (c *compiler) step(i int, n onnx.Node) error {
	if n.Op == after && c.arrayOf[n.Inputs[0]].Scalar { // its result is that scalar, which takes no step
		c.arrayOf[n.Outputs[0]] = c.arrayOf[n.Inputs[0]]
		return nil
	}
	if count, ok := operands[n.Op]; !ok || n.Domain != "" || len(n.Attrs) > 0 || len(n.Inputs) != count || len(n.Outputs) != 1 {
		return errors.New("it is not an element-wise operator that is known")
	}
	var x [2]operand
	for k, name := range n.Inputs {
		at, ok := c.arrayOf[name]
		if !ok {
			return fmt.Errorf("%q is unknown, or was overwritten", name)
		}
		x[k] = at
	}
	if x[0].Scalar && (len(n.Inputs) == 1 || x[1].Scalar) {
		return errors.New("it has scalars only")
	}
	for k, name := range n.Inputs {
		intermediate := !x[k].Scalar && x[k].Index >= len(c.Inputs)
		if intermediate && c.lastReader[name] == i && !slices.Contains(c.unusedArrays, x[k].Index) {
			c.unusedArrays = append(c.unusedArrays, x[k].Index)
		}
	}
	s := step{Op: n.Op, A: x[0], B: x[1]}
	out := n.Outputs[0]
	if in := c.program.Alias[out]; in != "" {
		at, ok := c.arrayOf[in]
		if !ok || at.Scalar {
			return fmt.Errorf("%q is not an array, or was overwritten", in)
		}
		delete(c.arrayOf, in) // so that no later step reads the old value
		s.To = at.Index
	} else if len(c.unusedArrays) > 0 {
		s.To, c.unusedArrays = c.unusedArrays[len(c.unusedArrays)-1], c.unusedArrays[:len(c.unusedArrays)-1]
	} else if s.To = c.Arrays; s.To < mostArrays {
		c.Arrays++
	} else {
		return fmt.Errorf("there are more than %d arrays", mostArrays)
	}
	c.arrayOf[out] = operand{Index: s.To}
	c.Steps = append(c.Steps, s)
	return nil
}
