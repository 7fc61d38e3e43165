package graph

import (
	"slices"

	"onering/models"
)

// Gradient adds the nodes of a vector-Jacobian product: given seeds[i] = dL/doutputs[i] it returns dL/dwrt[i]
// for each of wrt; nil where L does not depend on it. Only paths from wrt to outputs are differentiated.
//
// This is reverse-mode differentiation. The adjoint of a node is dL/dnode, the sum of its
// readers' contributions. Nodes are visited from the outputs back to wrt, and each passes
// its adjoint on to its inputs by its op's rule.
func Gradient(outputs, seeds, wrt []*Node) []*Node {
	if len(outputs) == 0 || len(outputs) != len(seeds) {
		fail("Gradient: %d outputs and %d seeds", len(outputs), len(seeds))
	}
	operands("Gradient", slices.Concat(outputs, seeds, wrt)...)
	g := outputs[0].g
	wanted := g.reachedFrom(wrt)
	adjoint := make(map[*Node]*Node)
	last := 0
	for i, o := range outputs {
		if o.elem != seeds[i].elem || !o.shape.equal(seeds[i].shape) {
			fail("Gradient: output %v %v and seed %v %v differ", o.elem, o.shape, seeds[i].elem, seeds[i].shape)
		}
		adjoint[o] = accumulate(adjoint[o], seeds[i])
		last = max(last, o.id)
	}
	// Ids are in topological order, so a node's adjoint is complete when the walk
	// reaches it. The rules add nodes with larger ids, which the walk does not visit.
	for id := last; id >= 0; id-- {
		if !wanted[id] {
			continue
		}
		in, grads := g.nodes[id].inputGradients(adjoint)
		for i, x := range in {
			if x == nil || i >= len(grads) || grads[i] == nil || !wanted[x.id] {
				continue
			}
			if !grads[i].shape.equal(x.shape) {
				fail("Gradient: rule of value %d gives %v for an input %v", id, grads[i].shape, x.shape)
			}
			adjoint[x] = accumulate(adjoint[x], grads[i])
		}
	}
	out := make([]*Node, len(wrt))
	for i, x := range wrt {
		out[i] = adjoint[x]
	}
	return out
}

// inputGradients returns the inputs of n and n's contributions to their adjoints. It returns nothing if L does
// not depend on n. A call with several outputs has one rule for all of them, which is applied at its first
// output: the others have larger ids, so their adjoints are complete by then.
func (n *Node) inputGradients(adjoint map[*Node]*Node) (in, grads []*Node) {
	if n.composed != nil {
		if dy := adjoint[n]; dy != nil {
			return n.composed.in, n.composed.vjp(dy)
		}
		return nil, nil
	}
	if n.call == nil || n.call.out[0] != n {
		return nil, nil
	}
	dys, any := make([]*Node, len(n.call.out)), false
	for i, o := range n.call.out {
		dys[i] = adjoint[o]
		any = any || dys[i] != nil
	}
	if !any {
		return nil, nil
	}
	r := rules[n.call.op]
	if r == nil {
		fail("Gradient: %s (value %d) has no gradient", n.call.op, n.id)
	}
	return n.call.in, r(n.call, dys)
}

// reachedFrom marks, by id, the nodes that depend on one of from. An input of a node
// has a smaller id, so one pass in order of ids is enough.
func (g *Graph) reachedFrom(from []*Node) []bool {
	reached := make([]bool, len(g.nodes))
	for _, n := range from {
		reached[n.id] = true
	}
	isReached := func(x *Node) bool { return x != nil && reached[x.id] }
	for id, n := range g.nodes {
		switch {
		case n.composed != nil:
			reached[id] = reached[id] || slices.ContainsFunc(n.composed.in, isReached)
		case n.call != nil:
			reached[id] = reached[id] || slices.ContainsFunc(n.call.in, isReached)
		}
	}
	return reached
}

// accumulate is a + b, where a may be nil.
func accumulate(a, b *Node) *Node {
	if a == nil {
		return b
	}
	sum := Add(a, b)
	sum.call.joinsGradients = true
	return sum
}

// AddTo returns running + grad, which Build turns into one matrix product with a third operand if grad is a
// product: binding the output onto running's buffer then costs nothing. A gradient of another type is cast to
// running's: 16-bit gradients are summed in float32.
func AddTo(running, grad *Node) *Node {
	if grad == nil {
		fail("AddTo: no gradient to add")
	}
	operands("AddTo", running, grad)
	grad.shaped("AddTo", "the gradient", running.shape)
	grad = Cast(grad, running.elem)
	return accumulate(running, grad)
}

// Stash takes the value of x from the input stash, where an earlier graph left it. The graph then reads the
// input instead of computing x, while Gradient still differentiates the expression that x was built from.
func (x *Node) Stash(stash *Node) {
	operands("Stash", x, stash)
	if x.elem != stash.elem || !x.shape.equal(stash.shape) {
		fail("Stash: %v %v and %v %v differ", x.elem, x.shape, stash.elem, stash.shape)
	}
	if x.call == nil || stash.call != nil || stash.data.Raw != nil {
		fail("Stash: %q is not an input, or what it holds is not computed", stash.name)
	}
	x.stash = stash
}

// sumFirst sums over the first n axes, whose sizes become 1. After OrderSums, and if the other sizes are numbers, it
// is a matrix product with ones, which adds in a fixed order; else it is one ReduceSum for each axis.
func sumFirst(x *Node, n int) *Node {
	letters := func(d Dim) bool { return d.Letters != "" }
	if !x.g.orderSums || n == 0 || slices.ContainsFunc(x.shape[n:], letters) {
		for i := range n {
			x = ReduceSum(x, i)
		}
		return x
	}
	sizes, width := make([]int, len(x.shape)), 1
	for i, d := range x.shape {
		sizes[i] = 1
		if i >= n {
			sizes[i] = d.N
			width *= d.N
		}
	}
	const copies = 32 // of the sum, of which one is read: products with a single row have other kernels, whose order was not tested
	x = Reshape(x, -1, width)
	ones := columnsLike(x, 1, copies) // [rows of x, copies]
	return Reshape(Slice(Gemm(ones, x, nil, transposed, plain), x.g.Ints(0), x.g.Ints(1), 0, 1), sizes...)
}

// sumTo sums a gradient over the axes along which its input, like, was broadcast: those where like has the size 1,
// and those in front that it lacks. 16-bit gradients are summed in float32.
func sumTo(dy *Node, like *Node) *Node {
	if dy.shape.equal(like.shape) {
		return dy
	}
	if dy.elem.Size() == 2 {
		return Cast(sumTo(Cast(dy, models.F32), like), dy.elem)
	}
	extra := len(dy.shape) - len(like.shape)
	broadcast := func(i int) bool { return i < extra || like.shape[i-extra].isOne() && !dy.shape[i].isOne() }
	leading := 0 // how many first axes sumFirst sums together
	for leading < len(dy.shape)-1 && broadcast(leading) {
		leading++
	}
	dy = sumFirst(dy, leading)
	for i := leading; i < len(dy.shape); i++ {
		if broadcast(i) {
			dy = ReduceSum(dy, i)
		}
	}
	if extra > 0 {
		axes := make([]int64, extra)
		for i := range axes {
			axes[i] = int64(i)
		}
		dy = dy.g.call("Squeeze", "", dy.elem, dy.shape[extra:], []*Node{dy, dy.g.Ints(axes...)})
	}
	return dy
}
