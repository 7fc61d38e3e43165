package graph

import (
	"fmt"
	"iter"

	"onering/models"
)

// separateOutputs copies outputs that are inputs, constants or other outputs: each output
// of an ONNX graph needs its own node.
func separateOutputs(g *Graph) {
	taken := make(map[*Node]bool)
	for i, o := range g.outputs {
		if s := o.node.orStash(); s.call == nil || taken[s] {
			g.outputs[i].node = g.call("Identity", "", s.elem, s.shape, []*Node{s})
		}
		taken[g.outputs[i].node.orStash()] = true
	}
}

// live marks, by id, the nodes that the outputs need; others are not written. It also returns the function that
// names nodes in the encoded graph: inputs and outputs as the caller named them, all others by their id. It fails if
// two of them have one name. separateOutputs must have run, so that each output has a node of its own, which is no input.
func (g *Graph) live() (needed []bool, name func(*Node) string) {
	needed = make([]bool, len(g.nodes))
	names := make(map[*Node]string)
	outputNames := make(map[string]bool)
	for _, o := range g.outputs {
		s := o.node.orStash() // the node itself: separateOutputs has copied those that an input stands for (Stash)
		if outputNames[o.name] || g.input(o.name) != nil {
			fail("output %q has the name of an input or another output", o.name)
		}
		names[s], outputNames[o.name] = o.name, true
		s.mark(needed)
	}
	return needed, func(n *Node) string {
		switch {
		case n.call == nil:
			return n.name
		case names[n] != "":
			return names[n]
		}
		return fmt.Sprintf("%%%s%d", g.prefix, n.id)
	}
}

// calling yields the first output of each needed call, in the order of creation.
func (g *Graph) calling(needed []bool) iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for _, n := range g.nodes {
			if n.call != nil && n.call.out[0] == n && needed[n.id] && !yield(n) {
				return
			}
		}
	}
}

// mark marks the ids of the nodes from which n is computed, and of n.
func (n *Node) mark(seen []bool) {
	if n == nil {
		return
	}
	n = n.orStash()
	if seen[n.id] {
		return
	}
	seen[n.id] = true
	if n.call != nil {
		// A call computes all of its outputs or none.
		for _, o := range n.call.out {
			seen[o.id] = true
		}
		for _, in := range n.call.in {
			in.mark(seen)
		}
	}
}

// foldSums turns the sum of a gradient and a matrix product that nothing else reads into one Gemm, which adds a third
// operand at no cost. A product with another reader must stay: folded, it would be computed twice.
func foldSums(g *Graph) {
	needed, _ := g.live()
	readers := make([]int, len(g.nodes)) // how many calls and outputs read each node
	for _, o := range g.outputs {
		readers[o.node.orStash().id]++
	}
	for n := range g.calling(needed) {
		for _, in := range n.call.in {
			if in != nil {
				readers[in.orStash().id]++
			}
		}
	}
	for n := range g.calling(needed) {
		if !n.call.joinsGradients {
			continue
		}
		// Addition commutes, so the product may stand on either side.
		sum, product := n.call.in[0], n.call.in[1]
		if !product.foldable(readers) {
			sum, product = product, sum
		}
		if product.foldable(readers) {
			p := product.call
			n.call = &call{op: p.op, in: []*Node{p.in[0], p.in[1], sum}, out: []*Node{n}, attrs: p.attrs}
		}
	}
}

// foldable reports whether n is a matrix product with one reader and no third operand.
func (n *Node) foldable(readers []int) bool {
	return n.stash == nil && n.call != nil && n.call.op == "Gemm" && len(n.call.in) == 2 && readers[n.id] == 1
}

// After is x, with the same bits, computed after all of before. An output that overwrites
// an input needs this if other nodes read that input and do not lead to the output: an
// optimizer whose step takes the old moment m makes the new one by
//
//	g.OutputOnto("m1", Add(Mul(m, After(beta, step)), ...), "m")
//
// ONNX orders nodes only by their data, so After selects x or x by an element of each of
// before. That copies x, which costs nothing for a scalar.
func After(x *Node, before ...*Node) *Node {
	operands("After", append([]*Node{x}, before...)...)
	for _, b := range before {
		for axis := range b.shape {
			b = Slice(b, b.g.Ints(0), b.g.Ints(1), axis, 1)
		}
		b = ReduceSumSquare(Cast(b, models.F32)) // a node without dimensions
		x = Where(LessOrEqual(b, b), x, x)
	}
	return x
}

// checkAliases fails if an output may not be bound onto the buffer of its input: the input does not exist, has
// another type or shape, is bound twice, or is still read by a node that does not precede the output.
func checkAliases(g *Graph) {
	needed, _ := g.live()
	onto := make(map[*Node]string)
	for _, o := range g.outputs {
		if o.alias == "" {
			continue
		}
		in := g.input(o.alias)
		if in == nil {
			fail("output %q: no input %q", o.name, o.alias)
		}
		if onto[in] != "" {
			fail("outputs %q and %q go onto one input, %q", onto[in], o.name, o.alias)
		}
		onto[in] = o.name
		if in.elem != o.node.elem || !in.shape.equal(o.node.shape) {
			fail("output %q is %v %v, its input %q is %v %v", o.name, o.node.elem, o.node.shape, o.alias, in.elem, in.shape)
		}
		before := make([]bool, len(g.nodes))
		o.node.mark(before) // the output and all nodes that are computed before it
		for _, r := range readersOf(g, in, needed) {
			if !before[r.id] {
				fail("output %q would overwrite input %q before %s (value %d) reads it", o.name, o.alias, r.call.op, r.id)
			}
		}
	}
}

// readersOf returns the needed nodes that read the buffer of in, directly or through a reshaped view of it.
func readersOf(g *Graph, in *Node, needed []bool) []*Node {
	var out []*Node
	views := map[*Node]bool{in: true}
	for n := range g.calling(needed) {
		for _, x := range n.call.in {
			if x != nil && views[x.orStash()] {
				out = append(out, n)
				if n.isView() {
					views[n] = true
				}
				break
			}
		}
	}
	return out
}
