package graph

import "slices"

// Footprint computes from shapes the peak memory in bytes of a run of the graph that f builds, without its
// inputs and outputs: nodes run in the order of creation, a value lives from its computation to its last use,
// and reshaped views take no memory. sizes gives the letters' values. It ignores memory inside kernels, and
// that a runtime may write a sum onto an operand, which mostly needs sizes that are known to be equal.
func Footprint(f func(g *Graph), sizes map[string]int) (peak int64, err error) {
	g, err := build("footprint", f)
	if err != nil {
		return 0, err
	}
	defer func() {
		if e, ok := recover().(buildError); ok {
			err = e
		}
	}()
	needed, _ := g.live()
	last := lastReaders(g, needed)
	// The graph allocates values that a call computes and a later call reads.
	allocated := func(n *Node) bool { return n.call != nil && last[n] > 0 }
	now := int64(0)
	for n := range g.calling(needed) {
		for _, out := range n.call.out {
			if out.buffer() == out && allocated(out) {
				now += bytesOf(out, sizes)
			}
		}
		peak = max(peak, now)
		var freed []*Node // an operand that is read twice is freed once
		for _, in := range n.call.in {
			if in != nil && allocated(in.buffer()) && last[in.buffer()] == n.id && !slices.Contains(freed, in.buffer()) {
				freed = append(freed, in.buffer())
				now -= bytesOf(in.buffer(), sizes)
			}
		}
	}
	return peak, nil
}

// buffer returns the node whose memory holds the value of n: a reshaped view uses the memory of its operand.
func (n *Node) buffer() *Node {
	for n = n.orStash(); n.call != nil && n.isView(); {
		n = n.call.in[0].orStash()
	}
	return n
}

// isView reports whether a computed node is its operand in another shape.
func (n *Node) isView() bool { return n.call.op == "Reshape" || n.call.op == "Squeeze" }

// lastReaders gives for each buffer the id of the last call that reads it, and -1 for
// buffers of outputs, which belong to the caller.
func lastReaders(g *Graph, needed []bool) map[*Node]int {
	last := make(map[*Node]int)
	for n := range g.calling(needed) {
		for _, in := range n.call.in {
			if in != nil {
				last[in.buffer()] = n.id
			}
		}
	}
	for _, o := range g.outputs {
		last[o.node.buffer()] = -1
	}
	return last
}

// bytesOf is the size of a value, given the sizes that the letters stand for.
func bytesOf(n *Node, sizes map[string]int) int64 {
	total := int64(n.elem.Size())
	for _, d := range n.shape {
		total *= int64(d.N)
		for _, l := range d.letters() {
			if sizes[l] == 0 {
				fail("Footprint: no size of %q", l)
			}
			total *= int64(sizes[l])
		}
	}
	return total
}
