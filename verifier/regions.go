package verifier

import (
	"math/big"
	"slices"

	"onering/verifier/algebra"
	"onering/verifier/latex"
)

// A region is a set of real numbers: intervals and points in order, apart from
// one another.
type region struct {
	pieces   []interval
	variable string // the variable that an inequality was about, if one was
	explicit bool   // written with brackets, braces or by name
}

// An interval is a piece of the line. A point has low = high and is closed.
type interval struct {
	low, high             *latex.Node
	closedLow, closedHigh bool
}

var infinity = &latex.Node{Op: latex.Const, Name: "infty"}
var minusInfinity = &latex.Node{Op: latex.Neg, Args: []*latex.Node{infinity}}

var line = region{pieces: []interval{{low: minusInfinity, high: infinity}}, explicit: true}

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

// regions compares g and a as sets of real numbers; ok is false if one of them
// is none, or if neither has to be read so.
func (c *comparer) regions(g, a *latex.Node) (verdict, ok bool) {
	if !mayBeRegion(g) || !mayBeRegion(a) || isPlainElements(g) && isPlainElements(a) {
		return false, false
	}
	if g.Op == latex.Bracket && a.Op == latex.Bracket {
		return false, false
	}
	x, okX := c.region(g)
	y, okY := c.region(a)
	if !okX || !okY {
		return false, false
	}
	if x.variable != "" && y.variable != "" && x.variable != y.variable {
		return c.say(false, "inequalities in different variables"), true
	}
	return c.sameRegion(x, y), true
}

// isPlainElements reports whether n lists numbers, which other rules compare.
func isPlainElements(n *latex.Node) bool {
	switch n.Op {
	case latex.List, latex.Set:
		for _, arg := range n.Args {
			if arg.Op == latex.Rel && !isInequality(arg) && !single(arg, "in") {
				continue
			}
			if !arg.Op.Scalar() {
				return false
			}
		}
		return true
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

// region reads n as a set of real numbers.
func (c *comparer) region(n *latex.Node) (region, bool) {
	if c.steps++; c.steps > maxCompareSteps {
		c.limited = true
		return region{}, false
	}
	switch n.Op {
	case latex.Named:
		switch n.Name {
		case "R":
			return line, true
		case "empty":
			return region{explicit: true}, true
		case "R+":
			return region{pieces: []interval{{low: integer(0), high: infinity}}, explicit: true}, true
		case "R-":
			return region{pieces: []interval{{low: minusInfinity, high: integer(0)}}, explicit: true}, true
		}
	case latex.Bracket:
		if len(n.Args) != 2 || n.Name == "<>" || !n.Args[0].Op.Scalar() || !n.Args[1].Op.Scalar() {
			return region{}, false
		}
		order, ok := c.algebra.Compare(n.Args[0], n.Args[1])
		if !ok || order > 0 || order == 0 && n.Name != "[]" {
			return region{}, false
		}
		return region{pieces: []interval{{n.Args[0], n.Args[1], n.Name[0] == '[', n.Name[1] == ']'}}, explicit: true}, true
	case latex.Set:
		r := region{explicit: true}
		for _, arg := range n.Args {
			if !arg.Op.Scalar() || len(algebra.Variables(arg)) > 0 {
				return region{}, false
			}
			var ok bool
			if r, ok = c.union(r, region{pieces: []interval{{arg, arg, true, true}}, explicit: true}); !ok {
				return region{}, false
			}
		}
		return r, true
	case latex.Union, latex.Intersect, latex.Without:
		return c.combination(n)
	case latex.List:
		return c.listRegion(n)
	case latex.SetBuilder:
		return c.builtRegion(n)
	case latex.Rel:
		return c.relationRegion(n)
	}
	return region{}, false
}

func integer(n int64) *latex.Node { return algebra.Rational(big.NewRat(n, 1)) }

// combination reads unions, intersections and differences.
func (c *comparer) combination(n *latex.Node) (region, bool) {
	total, ok := c.region(n.Args[0])
	if !ok {
		return region{}, false
	}
	for _, arg := range n.Args[1:] {
		r, ok := c.region(arg)
		if !ok {
			return region{}, false
		}
		switch n.Op {
		case latex.Union:
			total, ok = c.union(total, r)
		case latex.Intersect:
			total, ok = c.intersection(total, r)
		default:
			if r, ok = c.complement(r); ok {
				total, ok = c.intersection(total, r)
			}
		}
		if !ok {
			return region{}, false
		}
	}
	return total, true
}

// listRegion reads several inequalities in one variable: with "or" their
// union; else what they have in common or, if that is nothing, their union.
func (c *comparer) listRegion(n *latex.Node) (region, bool) {
	parts := make([]region, len(n.Args))
	inequality := false
	if n.Args[0].Op == latex.Bracket && !certainIntervals(n.Args) {
		return region{}, false // (1,2), (3,4) are points
	}
	for i, arg := range n.Args {
		r, ok := region{}, false
		switch {
		case arg.Op == latex.Rel:
			r, ok = c.relationRegion(arg)
			inequality = inequality || !isEquation(arg)
		case isRegionLike(arg) || arg.Op == latex.Bracket:
			r, ok = c.region(arg)
			inequality = true
		}
		if !ok || i > 0 && r.variable != parts[0].variable {
			return region{}, false
		}
		parts[i] = r
	}
	if !inequality {
		return region{}, false
	}
	for _, op := range [...]string{"and", "or"} {
		if op == "and" && n.Name == "or" || n.Args[0].Op != latex.Rel && op == "and" {
			continue
		}
		total := parts[0]
		for _, r := range parts[1:] {
			ok := false
			if op == "or" {
				total, ok = c.union(total, r)
			} else {
				total, ok = c.intersection(total, r)
			}
			if !ok {
				return region{}, false
			}
		}
		if op == "or" || len(total.pieces) > 0 {
			return total, true
		}
	}
	return region{}, false
}

// certainIntervals reports whether a list of pairs can only be meant as
// intervals: one has a square bracket or an infinite end.
func certainIntervals(pairs []*latex.Node) bool {
	for _, p := range pairs {
		if isRegionLike(p) || p.Op == latex.Bracket && (p.Name == "[]" || algebra.Infinite(p.Args[0]) != 0 || algebra.Infinite(p.Args[len(p.Args)-1]) != 0) {
			return true
		}
	}
	return false
}

// builtRegion reads {x ∈ S | condition}.
func (c *comparer) builtRegion(n *latex.Node) (region, bool) {
	r, ok := c.region(n.Args[1])
	if !ok {
		return region{}, false
	}
	if element := n.Args[0]; element.Op == latex.Rel {
		s, ok := membership(element)
		if !ok {
			return region{}, false
		}
		base, ok := c.region(s)
		if !ok || r.variable != "" && element.Args[0].String() != r.variable {
			return region{}, false
		}
		if r, ok = c.intersection(r, base); !ok {
			return region{}, false
		}
	} else if !isName(element) || r.variable != "" && element.String() != r.variable {
		return region{}, false
	}
	r.variable, r.explicit = "", true
	return r, true
}

// relationRegion reads an inequality, or a chain, in one variable.
func (c *comparer) relationRegion(n *latex.Node) (region, bool) {
	if s, ok := membership(n); ok {
		r, ok := c.region(s)
		r.variable = n.Args[0].String()
		return r, ok
	}
	if single(n, "notin") && isName(n.Args[0]) {
		r, ok := c.region(n.Args[1])
		if ok {
			r, ok = c.complement(r)
		}
		r.variable = n.Args[0].String()
		return r, ok
	}
	total := line
	total.explicit = false
	for i, op := range n.Ops {
		r, ok := c.boundRegion(n.Args[i], op, n.Args[i+1])
		if !ok || total.variable != "" && r.variable != total.variable {
			return region{}, false
		}
		variable := r.variable
		if total, ok = c.intersection(total, r); !ok {
			return region{}, false
		}
		total.variable = variable
	}
	return total, true
}

// mirrored is the relation read from right to left.
func mirrored(op string) string {
	switch op {
	case "<":
		return ">"
	case "<=":
		return ">="
	case ">":
		return "<"
	case ">=":
		return "<="
	}
	return op
}

// boundRegion solves left op right for its variable where one side is the
// variable, its absolute value or linear in it.
func (c *comparer) boundRegion(left *latex.Node, op string, right *latex.Node) (region, bool) {
	if !left.Op.Scalar() || !right.Op.Scalar() {
		return region{}, false
	}
	if isConstant(left) {
		left, right, op = right, left, mirrored(op)
	}
	if isConstant(right) {
		if isName(left) && left.Op != latex.Abs {
			return halfLine(left.String(), op, right)
		}
		if left.Op == latex.Abs {
			return c.absoluteRegion(left.Args[0], op, right)
		}
	}
	names := algebra.Variables(left, right)
	if len(names) != 1 {
		return region{}, false
	}
	slope, offset, ok := c.algebra.Linear(algebra.Difference(left, right), names[0])
	if !ok {
		return c.quadraticRegion(algebra.Difference(left, right), op, names[0])
	}
	if slope.Sign() == 0 {
		return region{}, false
	}
	if slope.Sign() < 0 {
		op = mirrored(op)
	}
	root := offset.Neg(offset)
	return halfLine(names[0], op, algebra.Rational(root.Quo(root, slope)))
}

// quadraticRegion solves n op 0 where n is a square polynomial in a variable
// with rational coefficients and two real zeros.
func (c *comparer) quadraticRegion(n *latex.Node, op, variable string) (region, bool) {
	p, q, r, ok := c.algebra.Quadratic(n, variable)
	if !ok || p.Sign() == 0 {
		return region{}, false
	}
	discriminant := new(big.Rat).Mul(q, q)
	discriminant.Sub(discriminant, new(big.Rat).Mul(big.NewRat(4, 1), new(big.Rat).Mul(p, r)))
	if discriminant.Sign() <= 0 {
		return region{}, false
	}
	root := &latex.Node{Op: latex.Root, Args: []*latex.Node{algebra.Rational(discriminant), integer(2)}}
	half := &latex.Node{Op: latex.Div, Args: []*latex.Node{root, algebra.Rational(new(big.Rat).Mul(big.NewRat(2, 1), new(big.Rat).Abs(p)))}}
	middle := algebra.Rational(new(big.Rat).Quo(q, new(big.Rat).Mul(big.NewRat(-2, 1), p)))
	low, high := algebra.Difference(middle, half), &latex.Node{Op: latex.Add, Args: []*latex.Node{middle, half}}
	if p.Sign() < 0 {
		op = mirrored(op)
	}
	out := region{variable: variable}
	switch op {
	case "<", "<=":
		out.pieces = []interval{{low, high, op == "<=", op == "<="}}
	case ">", ">=":
		out.pieces = []interval{{minusInfinity, low, false, op == ">="}, {high, infinity, op == ">=", false}}
	case "!=":
		out.pieces = []interval{{low: minusInfinity, high: low}, {low: low, high: high}, {low: high, high: infinity}}
	default:
		return region{}, false
	}
	return out, true
}

// isConstant reports whether n is a number, infinity included.
func isConstant(n *latex.Node) bool {
	return algebra.Infinite(n) != 0 || len(algebra.Variables(n)) == 0 && !contains(n, latex.App) && !contains(n, latex.Index) && !contains(n, latex.Opaque)
}

// halfLine is the region x op bound.
func halfLine(variable, op string, bound *latex.Node) (region, bool) {
	r := region{variable: variable}
	switch op {
	case "<", "<=":
		r.pieces = []interval{{low: minusInfinity, high: bound, closedHigh: op == "<=" && algebra.Infinite(bound) == 0}}
	case ">", ">=":
		r.pieces = []interval{{low: bound, high: infinity, closedLow: op == ">=" && algebra.Infinite(bound) == 0}}
	case "=":
		r.pieces = []interval{{bound, bound, true, true}}
	case "!=":
		r.pieces = []interval{{low: minusInfinity, high: bound}, {low: bound, high: infinity}}
	default:
		return region{}, false
	}
	return r, true
}

// absoluteRegion solves |inner| op bound for a linear inner.
func (c *comparer) absoluteRegion(inner *latex.Node, op string, bound *latex.Node) (region, bool) {
	if sign, ok := c.algebra.Compare(bound, integer(0)); !ok || sign < 0 {
		return region{}, false
	}
	negative := &latex.Node{Op: latex.Neg, Args: []*latex.Node{bound}}
	below, ok := c.boundRegion(inner, op, bound)
	if !ok {
		return region{}, false
	}
	above, ok := c.boundRegion(inner, mirrored(op), negative)
	if !ok {
		return region{}, false
	}
	variable := below.variable
	var r region
	switch op {
	case "<", "<=", "!=":
		r, ok = c.intersection(below, above)
	default:
		r, ok = c.union(below, above)
	}
	r.variable = variable
	return r, ok
}

// union is the union of x and y.
func (c *comparer) union(x, y region) (region, bool) {
	pieces := append(slices.Clone(x.pieces), y.pieces...)
	if len(pieces) > 200 {
		c.limited = true
		return region{}, false
	}
	comparable := true
	order := func(a, b *latex.Node) int {
		k, ok := c.algebra.Compare(a, b)
		comparable = comparable && ok
		return k
	}
	slices.SortStableFunc(pieces, func(a, b interval) int {
		if k := order(a.low, b.low); k != 0 {
			return k
		}
		switch {
		case a.closedLow == b.closedLow:
			return 0
		case a.closedLow:
			return -1
		}
		return 1
	})
	out := region{variable: x.variable, explicit: x.explicit || y.explicit}
	for _, p := range pieces {
		if n := len(out.pieces); n > 0 {
			last := &out.pieces[n-1]
			k := order(p.low, last.high)
			if k < 0 || k == 0 && (p.closedLow || last.closedHigh) {
				switch h := order(p.high, last.high); {
				case h > 0:
					last.high, last.closedHigh = p.high, p.closedHigh
				case h == 0:
					last.closedHigh = last.closedHigh || p.closedHigh
				}
				continue
			}
		}
		out.pieces = append(out.pieces, p)
	}
	return out, comparable
}

// intersection is what x and y have in common.
func (c *comparer) intersection(x, y region) (region, bool) {
	if len(x.pieces)*len(y.pieces) > 400 {
		c.limited = true
		return region{}, false
	}
	out := region{variable: x.variable, explicit: x.explicit || y.explicit}
	if out.variable == "" {
		out.variable = y.variable
	}
	for _, p := range x.pieces {
		for _, q := range y.pieces {
			low, ok := c.algebra.Compare(p.low, q.low)
			if !ok {
				return region{}, false
			}
			high, ok := c.algebra.Compare(p.high, q.high)
			if !ok {
				return region{}, false
			}
			r := p
			switch {
			case low < 0:
				r.low, r.closedLow = q.low, q.closedLow
			case low == 0:
				r.closedLow = p.closedLow && q.closedLow
			}
			switch {
			case high > 0:
				r.high, r.closedHigh = q.high, q.closedHigh
			case high == 0:
				r.closedHigh = p.closedHigh && q.closedHigh
			}
			k, ok := c.algebra.Compare(r.low, r.high)
			if !ok {
				return region{}, false
			}
			if k < 0 || k == 0 && r.closedLow && r.closedHigh {
				out.pieces = append(out.pieces, r)
			}
		}
	}
	return out, true
}

// complement is the rest of the line.
func (c *comparer) complement(x region) (region, bool) {
	out := region{variable: x.variable, explicit: true}
	low, closed := minusInfinity, false
	for _, p := range x.pieces {
		if k, ok := c.algebra.Compare(low, p.low); !ok {
			return region{}, false
		} else if k < 0 || k == 0 && closed && !p.closedLow {
			out.pieces = append(out.pieces, interval{low, p.low, closed, !p.closedLow && algebra.Infinite(p.low) == 0})
		}
		low, closed = p.high, !p.closedHigh && algebra.Infinite(p.high) == 0
	}
	if algebra.Infinite(low) <= 0 {
		out.pieces = append(out.pieces, interval{low, infinity, closed, false})
	}
	return out, true
}

// sameRegion reports whether two regions have the same pieces.
func (c *comparer) sameRegion(x, y region) bool {
	// Through a union with nothing, so that both are in order and joined.
	x, okX := c.union(x, region{})
	y, okY := c.union(y, region{})
	if !okX || !okY {
		return c.say(false, "ends that cannot be put in order")
	}
	if len(x.pieces) != len(y.pieces) {
		return c.say(false, "different sets of numbers")
	}
	for i, p := range x.pieces {
		q := y.pieces[i]
		if p.closedLow != q.closedLow || p.closedHigh != q.closedHigh {
			return c.say(false, "an end belongs to one set and not to the other")
		}
		for _, ends := range [...][2]*latex.Node{{p.low, q.low}, {p.high, q.high}} {
			if k, ok := c.algebra.Compare(ends[0], ends[1]); !ok || k != 0 {
				return c.say(false, "sets with different ends")
			}
		}
	}
	return c.say(true, "the same set of numbers")
}

// sets compares where a set of numbers is involved that may have symbols for
// ends: as regions, else part by part.
func (c *comparer) sets(g, a *latex.Node) bool {
	if verdict, ok := c.regions(g, a); ok {
		return verdict
	}
	g, a = asBracket(g), asBracket(a)
	switch {
	case g.Op == latex.Bracket && a.Op == latex.Bracket:
		return c.brackets(g, a)
	case g.Op == latex.Named && a.Op == latex.Named:
		return c.say(g.Name == a.Name, "named sets")
	case g.Op != a.Op:
		return c.say(false, "a set against something else")
	case g.Op == latex.Union || g.Op == latex.Intersect:
		if len(g.Args) != len(a.Args) {
			return c.say(false, "different numbers of parts")
		}
		return c.match(g.Args, a.Args, "the same parts in some order")
	}
	if g.Op == latex.SetBuilder {
		if a = boundAlike(g, a); a == nil {
			return c.say(false, "sets over different variables")
		}
	}
	return c.elementwise(g, a, "sets")
}

// boundAlike renames the variable of {2n | n ∈ S} to that of {2k | k ∈ S}; nil
// where k means something else there.
func boundAlike(g, a *latex.Node) *latex.Node {
	from, okA := rangingOver(a.Args[1])
	to, okG := rangingOver(g.Args[1])
	if !okA || !okG || from.Name == to.Name {
		return a
	}
	if mentions(a.Args[0], to) {
		return nil
	}
	return replaced(a, from.Name, to)
}

// rangingOver is the variable of k ∈ S.
func rangingOver(n *latex.Node) (*latex.Node, bool) {
	if n.Op == latex.Rel && single(n, "in") && n.Args[0].Op == latex.Sym && n.Args[1].Op == latex.Named {
		return n.Args[0], true
	}
	return nil, false
}

// asBracket writes a < x < b as an interval, whatever a and b are.
func asBracket(n *latex.Node) *latex.Node {
	if n.Op != latex.Rel || len(n.Ops) != 2 || !isName(n.Args[1]) || n.Ops[0][0] != n.Ops[1][0] {
		return n
	}
	low, high, first, second := n.Args[0], n.Args[2], n.Ops[0], n.Ops[1]
	if first[0] == '>' {
		low, high, first, second = high, low, mirrored(second), mirrored(first)
	}
	if first[0] != '<' {
		return n
	}
	name := "("
	if first == "<=" {
		name = "["
	}
	if second == "<=" {
		name += "]"
	} else {
		name += ")"
	}
	return &latex.Node{Op: latex.Bracket, Name: name, Args: []*latex.Node{low, high}}
}
