package verifier

import (
	"math/big"
	"slices"
	"strings"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
)

// isRegionLike reports whether n can be nothing but a set.
func isRegionLike(n *latex.Node) bool {
	switch n.Op {
	case latex.Union, latex.Intersect, latex.Without, latex.SetBuilder, latex.Named:
		return true
	case latex.Bracket:
		return len(n.Args) == 2 && (n.Name == "[)" || n.Name == "(]")
	}
	return false
}

// regions compares g and a as sets of real numbers; ok is false if one of them is not a set of real numbers, or if
// neither has to be read as one: two lists of numbers, or two pairs in brackets, are left to other rules.
func (c *comparer) regions(g, a *latex.Node) (verdict, ok bool) {
	if !mayBeRegion(g) || !mayBeRegion(a) || isPlainElements(g) && isPlainElements(a) {
		return false, false
	}
	if g.Op == latex.Bracket && a.Op == latex.Bracket {
		return false, false
	}
	x, y := c.region(g), c.region(a)
	if x == nil || y == nil {
		return false, false
	}
	if x.variable != "" && y.variable != "" && x.variable != y.variable {
		return c.decide(false, "inequalities in different variables"), true
	}
	return c.sameRegion(x, y), true
}

// isPlainElements reports whether n lists numbers, which other rules compare.
func isPlainElements(n *latex.Node) bool {
	switch n.Op {
	case latex.List, latex.Set:
		return n.Every(func(arg *latex.Node) bool {
			return arg.Op.Scalar() || arg.Op == latex.Rel && !isInequality(arg) && !onlyRelation(arg, "in")
		})
	case latex.Rel:
		return isEquation(n)
	}
	return n.Op.Scalar()
}

// mayBeRegion reports whether n is of a kind that region reads.
func mayBeRegion(n *latex.Node) bool {
	switch n.Op {
	case latex.Union, latex.Intersect, latex.Without, latex.SetBuilder, latex.Named, latex.Set, latex.List, latex.Rel:
		return true
	case latex.Bracket:
		return len(n.Args) == 2 && n.Name != "<>"
	}
	return false
}

// region reads n as a set of real numbers; nil if it is none, or its ends cannot be put in order.
func (c *comparer) region(n *latex.Node) *region {
	if c.steps++; c.steps > maxCompareSteps {
		c.limited = true
		return nil
	}
	switch n.Op {
	case latex.Named:
		switch n.Name {
		case "R":
			return line
		case "empty":
			return &region{}
		case "R+":
			return &region{pieces: []interval{{low: integer(0), high: infinity}}}
		case "R-":
			return &region{pieces: []interval{{low: minusInfinity, high: integer(0)}}}
		}
	case latex.Bracket:
		if len(n.Args) != 2 || n.Name == "<>" || !n.Args[0].Op.Scalar() || !n.Args[1].Op.Scalar() {
			return nil
		}
		order, ok := c.algebra.Compare(n.Args[0], n.Args[1])
		if !ok || order > 0 || order == 0 && n.Name != "[]" { // (2,1) and (1,1) are no intervals
			return nil
		}
		return &region{pieces: []interval{{n.Args[0], n.Args[1], n.Name[0] == '[', n.Name[1] == ']'}}}
	case latex.Set:
		r := &region{}
		for _, arg := range n.Args {
			if !arg.Op.Scalar() || len(algebra.Variables(arg)) > 0 {
				return nil
			}
			r = c.union(r, &region{pieces: []interval{{arg, arg, true, true}}})
		}
		return r
	case latex.Union, latex.Intersect, latex.Without:
		return c.combination(n)
	case latex.List:
		return c.listRegion(n)
	case latex.SetBuilder:
		return c.builtRegion(n)
	case latex.Rel:
		return c.relationRegion(n)
	}
	return nil
}

func integer(n int64) *latex.Node { return algebra.Rational(big.NewRat(n, 1)) }

func absolute(n *latex.Node) *latex.Node { return &latex.Node{Op: latex.Abs, Args: []*latex.Node{n}} }

// combination reads unions, intersections and differences.
func (c *comparer) combination(n *latex.Node) *region {
	total := c.region(n.Args[0])
	for _, arg := range n.Args[1:] {
		if total == nil {
			return nil
		}
		switch r := c.region(arg); n.Op {
		case latex.Union:
			total = c.union(total, r)
		case latex.Intersect:
			total = c.intersection(total, r)
		default:
			total = c.intersection(total, c.complement(r))
		}
	}
	return total
}

// listRegion reads several inequalities in one variable: with "or" their union; else
// their intersection or, if that is empty, their union.
func (c *comparer) listRegion(n *latex.Node) *region {
	parts := make([]*region, len(n.Args))
	inequality := false
	if n.Args[0].Op == latex.Bracket && !certainIntervals(n.Args) {
		return nil // (1,2), (3,4) are points
	}
	for i, arg := range n.Args {
		switch {
		case arg.Op == latex.Rel:
			parts[i] = c.relationRegion(arg)
			inequality = inequality || !isEquation(arg)
		case isRegionLike(arg) || arg.Op == latex.Bracket:
			parts[i] = c.region(arg)
			inequality = true
		}
		if parts[i] == nil || parts[i].variable != parts[0].variable {
			return nil
		}
	}
	if !inequality {
		return nil
	}
	isIntervals := n.Args[0].Op != latex.Rel // these are never intersected
	if n.Name != "or" && !isIntervals {
		if all := joined(parts, c.intersection); all == nil || len(all.pieces) > 0 {
			return all
		}
	}
	if n.Name == "and" && !isIntervals {
		return nil // no number meets all, and "and" makes no union
	}
	return joined(parts, c.union)
}

// joined is the union or the intersection of all parts, as join makes it of two.
func joined(parts []*region, join func(x, y *region) *region) *region {
	total := parts[0]
	for _, r := range parts[1:] {
		total = join(total, r)
	}
	return total
}

// certainIntervals reports whether a list of pairs can only be meant as
// intervals: one has a square bracket or an infinite end.
func certainIntervals(pairs []*latex.Node) bool {
	return slices.ContainsFunc(pairs, func(p *latex.Node) bool {
		return isRegionLike(p) || p.Op == latex.Bracket && (p.Name == "[]" || algebra.Infinite(p.Args[0]) != 0 || algebra.Infinite(p.Args[len(p.Args)-1]) != 0)
	})
}

// builtRegion reads {x ∈ S | condition}, where the condition is about x, or {x | condition}; nil for anything else.
func (c *comparer) builtRegion(n *latex.Node) *region {
	r := c.region(n.Args[1]) // the numbers that meet the condition; r.variable is its letter, "" if it has none
	if r == nil {
		return nil
	}
	if element := n.Args[0]; element.Op == latex.Rel {
		s, ok := membership(element)
		if !ok || r.variable != "" && element.Args[0].String() != r.variable {
			return nil
		}
		r = c.intersection(r, c.region(s)) // nil, which about leaves so, if S is no set of real numbers
	} else if !isName(element) || r.variable != "" && element.String() != r.variable {
		return nil
	}
	return r.about("") // a set, whose letter has no meaning outside
}

// sets compares where a set of numbers is involved that may have symbols for ends: as regions, else part by part.
func (c *comparer) sets(g, a *latex.Node) bool {
	if verdict, ok := c.regions(g, a); ok {
		return verdict
	}
	g, a = asBracket(g), asBracket(a)
	switch {
	case g.Op == latex.Bracket && a.Op == latex.Bracket:
		return c.brackets(g, a)
	case g.Op == latex.Named && a.Op == latex.Named:
		return c.decide(g.Name == a.Name, "named sets")
	case g.Op != a.Op:
		g, a = swapped(g.Op == latex.Sym, g, a) // \mathbf{R} is read as a letter
		return c.decide(g.Op == latex.Named && a.Op == latex.Sym && g.Name == a.Name, "a set against something else")
	case g.Op == latex.Union || g.Op == latex.Intersect:
		if len(g.Args) != len(a.Args) {
			return c.decide(false, "different numbers of parts")
		}
		return c.match(g.Args, a.Args, "the same parts in some order")
	}
	if g.Op == latex.SetBuilder { // {2n | n ∈ Z} is {2k | k ∈ Z}: the letter of a becomes that of g
		to, okG := rangingOver(g.Args[1])
		from, okA := rangingOver(a.Args[1])
		if okG && okA && !mentions(a.Args[0], to) {
			a = a.Replaced(latex.Sym, from.Name, to)
		}
	}
	return c.elementwise(g, a, "sets")
}

// rangingOver is the variable of k ∈ S.
func rangingOver(n *latex.Node) (*latex.Node, bool) {
	if n.Op == latex.Rel && onlyRelation(n, "in") && n.Args[0].Op == latex.Sym && n.Args[1].Op == latex.Named {
		return n.Args[0], true
	}
	return nil, false
}

// asBracket writes a < x < b and x > a as intervals, and a list of such or of pairs with
// "or" between them as their union, for any a and b; it returns anything else unchanged.
func asBracket(n *latex.Node) *latex.Node {
	if n.Op == latex.List && n.Name != "and" {
		union := &latex.Node{Op: latex.Union}
		for _, arg := range n.Args {
			interval := asBracket(arg)
			if interval.Op != latex.Bracket || len(interval.Args) != 2 || interval == arg && n.Name != "or" { // (1,2), (3,4) are points
				return n
			}
			union.Args = append(union.Args, interval)
		}
		return union
	}
	if n.Op != latex.Rel || !isInequality(n) {
		return n
	}
	n = ascending(bounded(n))
	if len(n.Ops) != 2 || !isName(n.Args[1]) || n.Ops[0][0] != '<' || n.Ops[1][0] != '<' {
		return n
	}
	name := map[string]string{"<": "(", "<=": "["}[n.Ops[0]] + map[string]string{"<": ")", "<=": "]"}[n.Ops[1]] // its delimiters
	return &latex.Node{Op: latex.Bracket, Name: name, Args: []*latex.Node{n.Args[0], n.Args[2]}}
}

// bounded writes x > a as infinity > x > a and returns anything else unchanged. If both sides
// are names, the left one is the variable, unless only the right one is a usual variable.
func bounded(n *latex.Node) *latex.Node {
	if len(n.Ops) != 1 || n.Ops[0] == "!=" {
		return n
	}
	left, op, right := n.Args[0], n.Ops[0], n.Args[1] // to be turned so that the variable is on the left
	usual := func(n *latex.Node) bool { return n.Op == latex.Sym && strings.Contains("xyzt", n.Name) }
	if !isName(left) || usual(right) && !usual(left) {
		left, op, right = right, mirrored(op), left
	}
	if left.Op != latex.Sym || !right.Op.Scalar() || mentions(right, left) {
		return n
	}
	if op[0] == '<' {
		return &latex.Node{Op: latex.Rel, Ops: []string{"<", op}, Args: []*latex.Node{minusInfinity, left, right}}
	}
	return &latex.Node{Op: latex.Rel, Ops: []string{">", op}, Args: []*latex.Node{infinity, left, right}}
}
