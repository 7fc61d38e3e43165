package verifier

import (
	"cmp"
	"slices"

	"onering/verifier/internal/algebra"
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

// about returns r as an inequality's statement about the variable, or as a set if the variable is
// empty.
func (r *region) about(variable string) *region {
	if r == nil {
		return nil
	}
	return &region{r.pieces, variable}
}

var infinity = &latex.Node{Op: latex.Const, Name: "infty"}

var minusInfinity = &latex.Node{Op: latex.Neg, Args: []*latex.Node{infinity}}

var line = &region{pieces: []interval{{low: minusInfinity, high: infinity}}}

// union is the union of x and y.
func (c *comparer) union(x, y *region) *region {
	if x == nil || y == nil {
		return nil
	}
	pieces := append(slices.Clone(x.pieces), y.pieces...)
	if len(pieces) > 200 {
		c.limited = true
		return nil
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
	out := &region{variable: x.variable}
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
	if !comparable {
		return nil
	}
	return out
}

// intersection returns the intersection of x and y.
func (c *comparer) intersection(x, y *region) *region {
	if x == nil || y == nil {
		return nil
	}
	if len(x.pieces)*len(y.pieces) > 400 {
		c.limited = true
		return nil
	}
	out := &region{variable: cmp.Or(x.variable, y.variable)}
	for _, p := range x.pieces {
		for _, q := range y.pieces {
			low, ok := c.algebra.Compare(p.low, q.low)
			if !ok {
				return nil
			}
			high, ok := c.algebra.Compare(p.high, q.high)
			if !ok {
				return nil
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
				return nil
			}
			if k < 0 || k == 0 && r.closedLow && r.closedHigh {
				out.pieces = append(out.pieces, r)
			}
		}
	}
	return out
}

// complement is the rest of the line.
func (c *comparer) complement(x *region) *region {
	if x == nil {
		return nil
	}
	out := &region{variable: x.variable}
	low, closed := minusInfinity, false
	for _, p := range x.pieces {
		if k, ok := c.algebra.Compare(low, p.low); !ok {
			return nil
		} else if k < 0 || k == 0 && closed && !p.closedLow {
			out.pieces = append(out.pieces, interval{low, p.low, closed, !p.closedLow && algebra.Infinite(p.low) == 0})
		}
		low, closed = p.high, !p.closedHigh && algebra.Infinite(p.high) == 0
	}
	if algebra.Infinite(low) <= 0 {
		out.pieces = append(out.pieces, interval{low, infinity, closed, false})
	}
	return out
}

// sameRegion reports whether two regions have the same pieces.
func (c *comparer) sameRegion(x, y *region) bool {
	// Through a union with nothing, so that both are in order and joined.
	x, y = c.union(x, &region{}), c.union(y, &region{})
	if x == nil || y == nil {
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
