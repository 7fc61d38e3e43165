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
		if n.unit != nil {
			names = append(names, n.unit.rule)
		}
	}
	return names
}

// OutputAll makes an output of every node that is none yet, so that a test sees
// whether the inferred shapes are right.
func (g *Graph) OutputAll() {
	taken := make(map[*Node]bool)
	for _, o := range g.outputs {
		taken[o.node] = true
	}
	for _, n := range g.nodes {
		if n.call != nil && n.value == nil && !taken[n] {
			g.Output("all."+n.call.op+Dim{N: n.id}.String(), n)
		}
	}
}
