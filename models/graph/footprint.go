package graph

import "slices"

// Footprint computes from shapes how many bytes a run of the graph that f
// builds takes at its peak besides its inputs and outputs: nodes run in the
// order of creation, a value lives from where it is computed to where it is
// last read, and reshaped views are no values of their own. sizes gives the
// letters' values. It leaves out what kernels take for themselves, and that a
// runtime may put a sum in the place of an operand: where sizes vary it mostly
// cannot tell that they are equal.
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
	held := func(n *Node) *Node { // whose buffer n is
		for n = n.source(); n.call != nil && (n.call.op == "Reshape" || n.call.op == "Squeeze"); {
			n = n.call.in[0].source()
		}
		return n
	}
	last := make(map[*Node]int) // id of the last call that reads the buffer
	for _, n := range g.nodes {
		if n.call == nil || !needed[n.id] {
			continue
		}
		for _, in := range n.call.in {
			if in != nil {
				last[held(in)] = n.call.out[0].id
			}
		}
	}
	for _, o := range g.outputs {
		last[held(o.node)] = -1 // the caller's
	}
	bytes := func(n *Node) int64 {
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
	now := int64(0)
	free := func(n *Node) bool { return n.call != nil && last[n] > 0 }
	for _, n := range g.nodes {
		if n.call == nil || !needed[n.id] || n.call.out[0] != n {
			continue
		}
		var done []*Node // operands that this is the last reader of
		for _, in := range n.call.in {
			if in == nil {
				continue
			}
			if h := held(in); free(h) && last[h] == n.id && !slices.Contains(done, h) {
				done = append(done, h)
			}
		}
		for _, out := range n.call.out {
			if held(out) != out || !free(out) {
				continue
			}
			now += bytes(out)
		}
		peak = max(peak, now)
		for _, h := range done {
			now -= bytes(h)
		}
	}
	return peak, nil
}
