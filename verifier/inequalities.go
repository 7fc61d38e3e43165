package verifier

import (
	"slices"
	"strings"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
)

// isInequality reports whether all relations of n are <, <=, >, >= or !=.
func isInequality(n *latex.Node) bool {
	return n.Op == latex.Rel && !slices.ContainsFunc(n.Ops, func(op string) bool {
		return op != "<" && op != "<=" && op != ">" && op != ">=" && op != "!="
	})
}

// ascending reverses a chain of > and >=; it returns anything else unchanged.
func ascending(n *latex.Node) *latex.Node {
	for _, op := range n.Ops {
		if op[0] != '>' {
			return n
		}
	}
	out := &latex.Node{Op: latex.Rel}
	for i := len(n.Args) - 1; i >= 0; i-- {
		out.Args = append(out.Args, n.Args[i])
		if i > 0 {
			out.Ops = append(out.Ops, mirrored(n.Ops[i-1]))
		}
	}
	return out
}

// A bound is one inequality: 0 < difference, or <=, or != where op says so.
type bound struct {
	difference *latex.Node
	op         string
}

// boundsOf splits a chain of inequalities.
func boundsOf(n *latex.Node) []bound {
	var out []bound
	for i, op := range n.Ops {
		low, high := n.Args[i], n.Args[i+1]
		if op[0] == '>' {
			low, high, op = high, low, mirrored(op)
		}
		if !low.Op.Scalar() || !high.Op.Scalar() {
			return nil
		}
		out = append(out, bound{algebra.Difference(high, low), op})
	}
	return out
}

// inequalities compares chains: each inequality of one must equal one of the other, up to a positive factor. Other chains
// are compared as sets of numbers, or else part by part.
func (c *comparer) inequalities(g, a *latex.Node) bool {
	x, left := boundsOf(g), boundsOf(a) // left are those of a without a partner
	if x != nil && len(x) == len(left) {
		for _, b := range x {
			at := slices.IndexFunc(left, func(d bound) bool {
				if b.op != d.op {
					return false
				}
				sign, ok := c.algebra.Proportional(b.difference, d.difference)
				return ok && (sign > 0 || sign < 0 && b.op == "!=")
			})
			if at >= 0 {
				left = slices.Delete(left, at, at+1)
			}
		}
		if len(left) == 0 {
			return c.decide(true, "inequalities equal up to a positive factor")
		}
	}
	if verdict, ok := c.regions(g, a); ok {
		return verdict
	}
	return c.sameChain(ascending(g), ascending(a))
}

// relationRegion reads a relation in one variable, or a chain of them that all hold, or the S of x ∈ S; nil if n is none.
func (c *comparer) relationRegion(n *latex.Node) *region {
	if s, ok := membership(n); ok {
		return c.region(s).about(n.Args[0].String())
	}
	total := &region{pieces: line.pieces} // all numbers, from which each relation takes some
	for i, op := range n.Ops {
		r := c.boundRegion(n.Args[i], op, n.Args[i+1])
		if r == nil || total.variable != "" && r.variable != total.variable {
			return nil
		}
		if total = c.intersection(total, r); total == nil {
			return nil
		}
		total.variable = r.variable
	}
	return total
}

var mirror = strings.NewReplacer("<", ">", ">", "<")

// mirrored is the relation read from right to left.
func mirrored(op string) string { return mirror.Replace(op) }

// boundRegion solves left op right for its variable where one side is the variable, an absolute value or linear in it;
// nil where it cannot.
func (c *comparer) boundRegion(left *latex.Node, op string, right *latex.Node) *region {
	if !left.Op.Scalar() || !right.Op.Scalar() {
		return nil
	}
	if isConstant(left) {
		left, right, op = right, left, mirrored(op)
	}
	if isConstant(right) {
		if isName(left) && left.Op != latex.Abs { // isName also holds for |x|, of which the next case is
			return halfLine(left.String(), op, right)
		}
		if left.Op == latex.Abs {
			return c.absoluteRegion(left.Args[0], op, right)
		}
	}
	names := algebra.Variables(left, right) // on both sides, or in an expression
	if len(names) != 1 {
		return nil
	}
	return c.linearRegion(algebra.Difference(left, right), op, names[0])
}

// linearRegion solves n op 0 where n is linear in a variable.
func (c *comparer) linearRegion(n *latex.Node, op, variable string) *region {
	slope, offset, ok := c.algebra.Linear(n, variable)
	if !ok {
		return nil
	}
	if slope.Sign() < 0 {
		op = mirrored(op)
	}
	return halfLine(variable, op, algebra.Rational(offset.Neg(offset.Quo(offset, slope))))
}

// isConstant reports whether n is a number, infinity included.
func isConstant(n *latex.Node) bool {
	return algebra.Infinite(n) != 0 || len(algebra.Variables(n)) == 0 && !n.Contains(latex.App) && !n.Contains(latex.Index) && !n.Contains(latex.Opaque)
}

// halfLine is the region of a variable op bound: a half of the line, a point, or the line without it; nil for other ops.
func halfLine(variable, op string, bound *latex.Node) *region {
	r := &region{variable: variable}
	switch op {
	case "<", "<=":
		r.pieces = []interval{{low: minusInfinity, high: bound, closedHigh: op == "<=" && algebra.Infinite(bound) == 0}} // infinity is never in it
	case ">", ">=":
		r.pieces = []interval{{low: bound, high: infinity, closedLow: op == ">=" && algebra.Infinite(bound) == 0}}
	case "=":
		r.pieces = []interval{{bound, bound, true, true}}
	case "!=":
		r.pieces = []interval{{low: minusInfinity, high: bound}, {low: bound, high: infinity}}
	default:
		return nil
	}
	return r
}

// absoluteRegion solves |inner| op bound for a linear inner and a bound that is not negative: |x| < 3 says x < 3 and x > -3,
// |x| > 3 says x > 3 or x < -3.
func (c *comparer) absoluteRegion(inner *latex.Node, op string, bound *latex.Node) *region {
	if sign, ok := c.algebra.Compare(bound, integer(0)); !ok || sign < 0 {
		return nil
	}
	negative := &latex.Node{Op: latex.Neg, Args: []*latex.Node{bound}}
	below := c.boundRegion(inner, op, bound)
	if below == nil {
		return nil
	}
	above := c.boundRegion(inner, mirrored(op), negative)
	if op == "<" || op == "<=" || op == "!=" {
		return c.intersection(below, above)
	}
	return c.union(below, above)
}
