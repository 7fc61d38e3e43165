package verifier

import (
	"cmp"
	"slices"

	"onering/verifier/internal/latex"
)

// A region is a set of real numbers: separate intervals and points in order. It is nil
// for anything that is no such set or cannot be ordered; operations on nil give nil.
type region struct {
	pieces   []interval
	variable string // the variable that an inequality was about, if one was
}

// An interval is a piece of the line. A point has low = high and is closed.
type interval struct {
	low, high             *latex.Node
	closedLow, closedHigh bool
}

// about returns r as an inequality's statement about the variable, or as a set if the variable is empty.
func (r *region) about(variable string) *region {
	if r == nil {
		return nil
	}
	return &region{r.pieces, variable}
}

var infinity = &latex.Node{Op: latex.Const, Name: "infty"}
var minusInfinity = &latex.Node{Op: latex.Neg, Args: []*latex.Node{infinity}}
var line = &region{pieces: []interval{{low: minusInfinity, high: infinity}}}

// mostEnds bounds the ends that are put in order.
const mostEnds = 200

// combine returns the numbers for which has holds of whether x and y have them; nil if the ends of x and y cannot be put in
// order. The ends cut the line into points and gaps between them, which are tried from left to right.
func (c *comparer) combine(x, y *region, has func(inX, inY bool) bool) *region {
	if x == nil || y == nil {
		return nil
	}
	ends := []*latex.Node{minusInfinity, infinity}
	for _, p := range append(slices.Clone(x.pieces), y.pieces...) {
		ends = append(ends, p.low, p.high)
	}
	comparable := true
	order := func(a, b *latex.Node) int {
		k, ok := c.algebra.Compare(a, b)
		comparable = comparable && ok
		return k
	}
	slices.SortStableFunc(ends, order)
	ends = slices.CompactFunc(ends, func(a, b *latex.Node) bool { return order(a, b) == 0 })
	if c.limited = c.limited || len(ends) > mostEnds; c.limited || !comparable {
		return nil
	}
	holds := func(r *region, at int, gap bool) bool { // r has ends[at], or the gap behind it
		return slices.ContainsFunc(r.pieces, func(p interval) bool {
			low, _ := slices.BinarySearchFunc(ends, p.low, order)
			high, _ := slices.BinarySearchFunc(ends, p.high, order)
			if gap {
				return low <= at && at < high
			}
			return low < at && at < high || at == low && p.closedLow || at == high && p.closedHigh
		})
	}
	out := &region{variable: cmp.Or(x.variable, y.variable)}
	open := false // the last piece of out reaches up to the current point or gap
	for i := range 2*len(ends) - 1 {
		at, gap := i/2, i%2 == 1
		n := len(out.pieces) - 1
		switch {
		case !has(holds(x, at, gap), holds(y, at, gap)):
			open = false
			continue
		case gap && open:
			out.pieces[n].high, out.pieces[n].closedHigh = ends[at+1], false
		case gap:
			out.pieces = append(out.pieces, interval{low: ends[at], high: ends[at+1]})
		case open:
			out.pieces[n].closedHigh = true
		default:
			out.pieces = append(out.pieces, interval{low: ends[at], high: ends[at], closedLow: true, closedHigh: true})
		}
		open = true
	}
	return out
}

func (c *comparer) union(x, y *region) *region {
	return c.combine(x, y, func(a, b bool) bool { return a || b })
}

func (c *comparer) intersection(x, y *region) *region {
	return c.combine(x, y, func(a, b bool) bool { return a && b })
}

// complement is the rest of the line.
func (c *comparer) complement(x *region) *region {
	return c.combine(line, x, func(a, b bool) bool { return a && !b })
}

// sameRegion reports whether no number is in one region alone.
func (c *comparer) sameRegion(x, y *region) bool {
	d := c.combine(x, y, func(a, b bool) bool { return a != b })
	if d == nil {
		return c.decide(false, "ends that cannot be put in order")
	}
	return c.decide(len(d.pieces) == 0, "the same set of numbers")
}
