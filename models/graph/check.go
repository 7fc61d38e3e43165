package graph

import "onering/models"

// The functions of this file check the operands of ops. A failed check names the op, the
// operand and the shapes.

// operands demands nodes that exist and belong to one graph.
func operands(op string, nodes ...*Node) {
	for i, n := range nodes {
		if n == nil {
			fail("%s: operand %d is nil", op, i+1)
		}
		if n.g != nodes[0].g {
			fail("%s: operands 1 and %d belong to different graphs", op, i+1)
		}
	}
}

// alike demands operands of one element type.
func alike(op string, nodes ...*Node) {
	operands(op, nodes...)
	for _, n := range nodes {
		if n.elem != nodes[0].elem {
			fail("%s: element types %v and %v differ", op, nodes[0].elem, n.elem)
		}
	}
}

// numbers demands operands of one element type that arithmetic is defined for.
func numbers(op string, nodes ...*Node) {
	alike(op, nodes...)
	if nodes[0].elem == models.Bool {
		fail("%s: operands are %v", op, nodes[0].elem)
	}
}

// floats demands operands of one floating-point type.
func floats(op string, nodes ...*Node) {
	alike(op, nodes...)
	if !nodes[0].floating() {
		fail("%s: operands are %v, not floating-point", op, nodes[0].elem)
	}
}

// floating reports whether n holds floating-point numbers.
func (n *Node) floating() bool {
	switch n.elem {
	case models.F32, models.F64, models.F16, models.BF16:
		return true
	}
	return false
}

// typed demands an element type.
func (n *Node) typed(op, what string, elem models.DType) {
	if n.elem != elem {
		fail("%s: %s is %v, not %v", op, what, n.elem, elem)
	}
}

// shaped demands a shape.
func (n *Node) shaped(op, what string, want Shape) {
	if !n.shape.equal(want) {
		fail("%s: %s has shape %v, not %v", op, what, n.shape, want)
	}
}

// ranked demands at least so many dimensions.
func (n *Node) ranked(op, what string, least int) {
	if len(n.shape) < least {
		fail("%s: %s of shape %v has fewer than %d dimensions", op, what, n.shape, least)
	}
}

// fixed returns the size of an axis, which must not be a letter.
func (n *Node) fixed(op, what string, axis int) int {
	d := n.shape[axis]
	if d.Letters != "" {
		fail("%s: axis %d of %s, of shape %v, must have a fixed size", op, axis, what, n.shape)
	}
	return d.N
}

// single demands an int64 node of one element, in one dimension.
func (n *Node) single(op, what string) {
	n.typed(op, what, models.I64)
	n.shaped(op, what, Shape{{N: 1}})
}

// axis turns a negative axis into one that counts from the beginning.
func (n *Node) axis(op string, axis int) int {
	i := axis
	if i < 0 {
		i += len(n.shape)
	}
	if i < 0 || i >= len(n.shape) {
		fail("%s: no axis %d in %v", op, axis, n.shape)
	}
	return i
}
