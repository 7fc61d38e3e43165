package verifier

import "onering/verifier/internal/latex"

// signs compares if a plus-minus occurs, which stands for the list of its values. Several
// ± in one expression take all combinations; with a ∓ among them they go together.
func (c *comparer) signs(g, a *latex.Node) bool {
	x, okX := expandSigns(g)
	y, okY := expandSigns(a)
	if !okX || !okY {
		c.limited = true
		return c.decide(false, "too many signs")
	}
	return c.equal(x, y)
}

// expandSigns replaces the plus-minus signs in n by lists of the values that they stand for; ok is false for too many.
func expandSigns(n *latex.Node) (expanded *latex.Node, ok bool) {
	if !n.Contains(latex.PlusMinus, latex.MinusPlus) {
		return n, true
	}
	if n.Op == latex.List || n.Op == latex.Set {
		// The list's values become elements of the enclosing list.
		out := &latex.Node{Op: n.Op, Name: n.Name}
		for _, arg := range n.Args {
			e, ok := expandSigns(arg)
			if !ok || len(out.Args) > 4*maxSigns {
				return nil, false
			}
			if e != arg && e.Op == latex.List {
				out.Args = append(out.Args, e.Args...)
			} else {
				out.Args = append(out.Args, e)
			}
		}
		return out, true
	}
	count, together := 0, n.Contains(latex.MinusPlus) // a ∓ goes with the ±: all upper signs, or all lower ones
	for m := range n.All() {
		if m.Op == latex.PlusMinus || m.Op == latex.MinusPlus {
			count++
		}
	}
	choices := 1 << min(count, 20) // each sign by itself; 2^20 is too many, too
	if together {
		choices = 2
	}
	if choices > maxSigns {
		return nil, false
	}
	list := &latex.Node{Op: latex.List, Name: ","}
	for bits := range choices {
		next := 0
		list.Args = append(list.Args, withSigns(n, func() bool {
			if together {
				return bits == 0
			}
			next++
			return bits>>(next-1)&1 == 0
		}))
	}
	return list, true
}

// withSigns is n with each plus-minus replaced by its upper sign where upper says so, the plus of ± and the minus of ∓,
// else by its lower one. It calls upper once for each sign, for an outer one before those in it.
func withSigns(n *latex.Node, upper func() bool) *latex.Node {
	if !n.Contains(latex.PlusMinus, latex.MinusPlus) {
		return n
	}
	isSign := n.Op == latex.PlusMinus || n.Op == latex.MinusPlus
	isPlus := isSign && upper() == (n.Op == latex.PlusMinus)
	out := n.Mapped(func(arg *latex.Node) *latex.Node { return withSigns(arg, upper) })
	if !isSign {
		return out
	}
	right := out.Args[1]
	if !isPlus {
		right = &latex.Node{Op: latex.Neg, Args: []*latex.Node{right}}
	}
	if out.Args[0] == nil { // ±5 has no left side
		return right
	}
	return &latex.Node{Op: latex.Add, Args: []*latex.Node{out.Args[0], right}}
}
