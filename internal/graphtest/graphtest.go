// Package graphtest runs ONNX graphs in float64, without ONNX Runtime, and has the small
// test graphs of package graph. It is an oracle for tests: slow, simple and strict. A
// node with an attribute, a type or a shape that the interpreter does not expect is an
// error, as is a value whose shape is not the one that the graph states.
package graphtest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"onering/models"
	"onering/models/onnx"
)

// A Graph is a Program ready to be interpreted.
type Graph struct {
	// Single rounds every result to its type - float32, float16 or bfloat16 - as a
	// runtime does; the inside of an operator stays float64.
	Single bool
	// Noise, if not nil, returns the relative error to add to each result of
	// products and attention. It imitates kernels that sum in another order.
	Noise func() float64

	program models.Program
	consts  map[string]Tensor
}

// Load makes a Program ready.
func Load(p models.Program) (g *Graph, err error) {
	defer recoverTo(&err, p.Name)
	g = &Graph{program: p, consts: make(map[string]Tensor)}
	for _, c := range p.Constants {
		dims := make([]int, len(c.Dims))
		for i, d := range c.Dims {
			dims[i] = int(d)
		}
		if len(c.Raw) != c.Type.Size()*size(dims) {
			fail("constant %q has %d bytes for %v of type %v", c.Name, len(c.Raw), dims, c.Type)
		}
		g.consts[c.Name] = FromBytes(c.Type, c.Raw, dims...)
	}
	return g, nil
}

// Run computes the outputs from the inputs, all of which must be given. The elements of inputs are not changed.
func (g *Graph) Run(in map[string]Tensor) (out map[string]Tensor, err error) {
	defer recoverTo(&err, g.program.Name)
	letters := make(map[string]int) // the sizes that the inputs give the letters of the stated shapes
	values := maps.Clone(g.consts)
	for _, v := range g.program.Inputs {
		t, ok := in[v.Name]
		if !ok {
			fail("input %q is missing", v.Name)
		}
		if len(t.Data) != size(t.Dims) {
			fail("input %q has %d elements for %v", v.Name, len(t.Data), t.Dims)
		}
		defineOnce(values, v.Name, t)
		checkConforms(v, t, letters)
	}
	if len(in) != len(g.program.Inputs) {
		fail("%d inputs are given, there are %d", len(in), len(g.program.Inputs))
	}
	for _, n := range g.program.Nodes {
		for i, t := range run(n, values) {
			if g.Noise != nil && slices.Contains(orderSensitive, n.Op) {
				t = t.mapped(func(v float64) float64 { return v * (1 + g.Noise()) }) // as from another order of its sums
			}
			if g.Single {
				t = t.As(t.Type) // rounds, as a runtime does: operators compute in float64
			}
			if i < len(n.Outputs) && n.Outputs[i] != "" {
				defineOnce(values, n.Outputs[i], t)
			}
		}
	}
	out = make(map[string]Tensor)
	for _, v := range g.program.Outputs {
		t, ok := values[v.Name]
		if !ok {
			fail("output %q is not computed", v.Name)
		}
		checkConforms(v, t, letters)
		out[v.Name] = t
	}
	return out, nil
}

// orderSensitive are the operators whose results depend on the order of long sums.
var orderSensitive = []string{"Gemm", "MatMul", "FusedMatMul", "GroupQueryAttention", "LinearAttention"}

// Ops counts the operator calls of the graph by name.
func (g *Graph) Ops() map[string]int {
	ops := make(map[string]int)
	for _, n := range g.program.Nodes {
		ops[n.Op]++
	}
	return ops
}

func defineOnce(values map[string]Tensor, name string, t Tensor) {
	if _, twice := values[name]; twice {
		fail("value %q is defined twice", name)
	}
	values[name] = t
}

// run evaluates one node from the values of its inputs. An attribute that the operator did not read is a failure.
func run(n onnx.Node, values map[string]Tensor) (out []Tensor) {
	c := &call{Node: n, readAttributes: make(map[string]bool)}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failure:
			fail("%s %q of %v: %s", n.Op, n.Name, c.in, e)
		default:
			panic(e)
		}
	}()
	for _, name := range n.Inputs {
		if name == "" {
			c.in = append(c.in, nil)
			continue
		}
		t, ok := values[name]
		if !ok {
			fail("input %q is not defined before it", name)
		}
		c.in = append(c.in, &t)
	}
	key := n.Op
	if n.Domain != "" {
		key = n.Domain + "." + n.Op
	}
	op, ok := ops[key]
	if !ok {
		fail("operator %q is not known", key)
	}
	out = op(c)
	for _, a := range n.Attrs {
		if !c.readAttributes[a.Name] {
			fail("attribute %q is not known", a.Name)
		}
	}
	if len(n.Outputs) > len(out) {
		fail("%d outputs, the operator has %d", len(n.Outputs), len(out))
	}
	return out
}

// checkConforms compares a tensor with the type and shape that the graph states for it. A
// letter gets its size from the first dimension in which it is the only unknown.
func checkConforms(p models.Port, t Tensor, letters map[string]int) {
	if t.Type != p.DType || len(t.Dims) != len(p.Shape) {
		fail("%q is %v, the graph states %v %v", p.Name, t, p.DType, p.Shape)
	}
	for i, size := range p.Shape {
		if evaluate(size, t.Dims[i], letters) != t.Dims[i] {
			fail("%q is %v, the graph states %v %v, with %v", p.Name, t, p.DType, p.Shape, letters)
		}
	}
}

// evaluate returns the value of a product such as "4*B*T". A letter that is
// new gets the value that makes the product n.
func evaluate(product string, n int, letters map[string]int) int {
	total, unknown := 1, ""
	for _, factor := range strings.Split(product, "*") {
		if v, err := strconv.Atoi(factor); err == nil {
			total *= v
		} else if v, ok := letters[factor]; ok {
			total *= v
		} else if unknown == "" {
			unknown = factor
		} else {
			return n // two unknowns: accept any size
		}
	}
	if unknown == "" {
		return total
	}
	if total != 0 {
		letters[unknown] = n / total
	}
	return total * letters[unknown]
}

// A failure is the value that the interpreter panics with internally.
type failure string

func fail(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

func recoverTo(err *error, name string) {
	switch e := recover().(type) {
	case nil:
	case failure:
		*err = fmt.Errorf("graphtest: %s: %s", name, string(e))
	default:
		panic(e)
	}
}

// A call is a node and its inputs.
type call struct {
	onnx.Node
	in             []*Tensor // nil for an omitted input
	readAttributes map[string]bool
}

// operands demands between least and most inputs and returns them; only the inputs after
// the first least may be omitted.
func (c *call) operands(least, most int) []*Tensor {
	if len(c.in) < least || len(c.in) > most {
		fail("%d inputs, want %d to %d", len(c.in), least, most)
	}
	for i, t := range c.in[:least] {
		if t == nil {
			fail("input %d is omitted", i)
		}
	}
	return append(c.in, make([]*Tensor, most-len(c.in))...)
}

func attribute[T any](c *call, name string, otherwise T) T {
	c.readAttributes[name] = true
	for _, a := range c.Attrs {
		if a.Name == name {
			v, ok := a.Value.(T)
			if !ok {
				fail("attribute %q is a %T", name, a.Value)
			}
			return v
		}
	}
	return otherwise
}

func (c *call) int(name string, otherwise int) int {
	return int(attribute(c, name, int64(otherwise)))
}

func (c *call) flag(name string) bool { return c.int(name, 0) == 1 }

func (c *call) float(name string, otherwise float64) float64 {
	c.readAttributes[name] = true
	if !slices.ContainsFunc(c.Attrs, func(a onnx.Attr) bool { return a.Name == name }) {
		return otherwise
	}
	return float64(attribute[float32](c, name, 0))
}

// axis turns a negative axis into one that counts from the beginning of t's axes.
func (t Tensor) axis(i int) int {
	if i < 0 {
		i += len(t.Dims)
	}
	if i < 0 || i >= len(t.Dims) {
		fail("no axis %d in %v", i, t.Dims)
	}
	return i
}

// checkType refuses a tensor whose elements have none of these types.
func (t Tensor) checkType(elems ...models.DType) {
	if !slices.Contains(elems, t.Type) {
		fail("%v where %v is wanted", t, elems)
	}
}
