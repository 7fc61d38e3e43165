package graph

// RuleNames lists the table of rules: whether each op has a gradient.
func RuleNames() map[string]bool {
	out := make(map[string]bool)
	for name, r := range rules {
		out[name] = r != nil
	}
	return out
}

// Inputs returns the inputs of a graph.
func (g *Graph) Inputs() []*Node { return g.inputs }

// Composites lists the rules of the composites in a graph.
func (g *Graph) Composites() (names []string) {
	for _, n := range g.nodes {
		if n.composed != nil {
			names = append(names, n.composed.rule)
		}
	}
	return names
}

// OutputAll makes every node an output, so that a test sees whether the inferred shapes
// are right.
func (g *Graph) OutputAll() {
	taken := make(map[*Node]bool)
	for _, o := range g.outputs {
		taken[o.node] = true
	}
	for _, n := range g.nodes {
		if n.call != nil && n.stash == nil && !taken[n] {
			g.Output("all."+n.call.op+Dim{N: n.id}.String(), n)
		}
	}
}

// Alive returns which of the values of a graph that want chooses can be held
// at the same time, in some order of its nodes that respects what each reads:
// pairs neither of which is done with before the other exists. Reshaped views
// count as the value itself.
func (g *Graph) Alive(want func(op string, s Shape) bool) (values []*Node, together map[[2]*Node]bool) {
	needed, _ := g.live()
	readers := make(map[*Node][]*Node)
	for _, n := range g.nodes {
		if n.call == nil || !needed[n.id] {
			continue
		}
		if want(n.call.op, n.shape) && n.call.op != "Reshape" {
			values = append(values, n)
			readers[n] = readersOf(g, n, needed)
		}
	}
	done := func(a, b *Node) bool { // Value a is no longer needed where b is computed.
		before := make([]bool, len(g.nodes))
		for _, in := range b.call.in {
			in.mark(before)
		}
		for _, r := range readers[a] {
			if !before[r.id] {
				return false
			}
		}
		return true
	}
	together = make(map[[2]*Node]bool)
	for i, a := range values {
		for _, b := range values[:i] {
			if !done(a, b) && !done(b, a) {
				together[[2]*Node{a, b}] = true
			}
		}
	}
	return values, together
}

// Op returns the operator that computes n.
func (n *Node) Op() string { return n.call.op }
