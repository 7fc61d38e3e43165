package graph

import (
	"fmt"
	"slices"

	"onering/models/onnx"
)

// Recurrence takes n steps of a state S [...,K,V], beginning with s:
//
//	N = u - m S
//	S <- g S + l^T N + y
//
// with g [n,...,1,1], u [n,...,C,V], l and m [n,...,C,K], and y [n,...,K,V], which may be nil. It returns the
// last state, the states before each step [n,...,K,V], and N [n,...,C,V]. With backward the last step comes
// first. It is ONNX's operator Scan, so n may vary. Its gradient is a Recurrence in the other direction.
func Recurrence(s, g, u, l, m, y *Node, backward bool) (last, states, n *Node) {
	const op = "Recurrence"
	in := []*Node{s, g, u, l, m}
	if y != nil {
		in = append(in, y)
	}
	floats(op, in...)
	s.ranked(op, "the state", 2)
	g.ranked(op, "the factors", len(s.shape)+1)
	u.ranked(op, "u", len(s.shape)+1)
	r := len(s.shape)
	steps, batch, rows := g.shape[0], s.shape[:r-2], u.shape[r-1]
	all := func(sizes ...Dim) Shape { return slices.Concat(Shape{steps}, batch, sizes) } // of all steps
	one, k, v := Dim{N: 1}, s.shape[r-2], s.shape[r-1]
	g.shaped(op, "the factors", all(one, one))
	u.shaped(op, "u", all(rows, v))
	l.shaped(op, "l", all(rows, k))
	m.shaped(op, "m", l.shape)
	if y != nil {
		y.shaped(op, "y", all(k, v))
	}
	prefix := fmt.Sprintf("s%d.", len(s.g.nodes)) // names in a body must differ from those around it
	body, err := build("step", func(b *Graph) {
		b.prefix = prefix
		input := func(name string, like *Node, shape Shape) *Node { return b.Input(prefix+name, like.elem, shape) }
		state, g := input("S", s, s.shape), input("g", g, g.shape[1:])
		u, l, m := input("u", u, u.shape[1:]), input("l", l, l.shape[1:]), input("m", m, m.shape[1:])
		n := Sub(u, MatMul(m, state, plain, plain, 1))
		next := Add(Mul(g, state), MatMul(l, n, transposed, plain, 1))
		if y != nil {
			next = Add(next, input("y", y, y.shape[1:]))
		}
		b.Output(prefix+"next", next)
		b.Output(prefix+"before", state)
		b.Output(prefix+"N", n)
	})
	if err != nil {
		fail("%s: %v", op, err)
	}
	fromLast := make([]int64, len(in)-1) // by input that has steps, all but s: 1 takes the last step first
	attrs := []onnx.Attr{attr("body", body.encode().ONNX().Graph), attr("num_scan_inputs", len(fromLast))}
	if backward {
		for i := range fromLast {
			fromLast[i] = 1
		}
		attrs = append(attrs, attr("scan_input_directions", fromLast), attr("scan_output_directions", fromLast[:2])) // states and N
	}
	elem := s.elem
	out := s.g.calls("Scan", "", []onnx.DType{elem, elem, elem}, []Shape{s.shape, all(k, v), u.shape}, in, attrs...)
	return out[0], out[1], out[2]
}

// scanVJP is the rule of Recurrence. With d the gradient of the state after a step, that of N is e = dN + l d, and
// that of the state before the step is g d - m^T e + dS, where dN and dS are the gradients of the results N and S.
// That is a Recurrence with d for S, e for N and the steps in the other order.
func scanVJP(c *call, dy []*Node) []*Node {
	for _, i := range []int{0, 2} { // of the last state and N; that of the states may be nil
		if dy[i] == nil {
			dy[i] = ExpandLike(c.out[i].g.fill(0, c.out[i]), c.out[i])
		}
	}
	l, m, states, n := c.in[3], c.in[4], c.out[1], c.out[2]
	_, backward := c.attr("scan_input_directions").([]int64)
	ds, after, e := Recurrence(dy[0], c.in[1], dy[2], Neg(m), Neg(l), dy[1], !backward)
	dg := ReduceSum(ReduceSum(Mul(after, states), -1), -2)
	return []*Node{ds, dg, e, MatMul(n, after, plain, transposed, 1), MatMul(e, states, plain, transposed, -1), after}[:len(c.in)]
}
