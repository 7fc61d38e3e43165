package verifier

import (
	"math/big"
	"slices"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
)

// filled is n with each ellipsis between numbers, as in {1, 2, ..., 10} and
// 1 + 3 + ... + 99, written out where the numbers around it settle an
// arithmetic or a geometric progression. An ellipsis that has no end stays.
func (c *comparer) filled(n *latex.Node) *latex.Node {
	if n == nil || !n.Contains(latex.Dots) {
		return n
	}
	out := *n
	out.Args = nil
	for i, arg := range n.Args {
		collection := n.Op == latex.List || n.Op == latex.Set || n.Op == latex.Bracket || n.Op == latex.Add || n.Op == latex.Mul
		if arg.Is(latex.Dots) && collection && i > 0 && i+1 < len(n.Args) {
			out.Args = append(out.Args, c.between(out.Args, n.Args[i+1])...)
			continue
		}
		out.Args = append(out.Args, c.filled(arg))
	}
	out.Args = c.begun(out.Args)
	return &out
}

// begun returns elements without those that an ellipsis repeats: 1, 2, 3, ... is 1, 2,
// ....
func (c *comparer) begun(elements []*latex.Node) []*latex.Node {
	dots := slices.IndexFunc(elements, func(n *latex.Node) bool { return n.Is(latex.Dots) })
	if dots < 3 {
		return elements
	}
	var next func(*big.Rat) *big.Rat
	var before *big.Rat
	for i, n := range elements[:dots] {
		r, ok := c.algebra.Rational(n)
		switch {
		case !ok, i > 1 && next(before).Cmp(r) != 0:
			return elements
		case i == 1:
			next, _ = arithmetic(before, r)
		}
		before = r
	}
	return append(slices.Clone(elements[:2]), elements[dots:]...)
}

// between is the elements between the given ones and next; an ellipsis where
// no progression fits.
func (c *comparer) between(given []*latex.Node, next *latex.Node) []*latex.Node {
	dots := []*latex.Node{{Op: latex.Dots}}
	end, ok := c.algebra.Rational(next)
	if !ok {
		return dots
	}
	var known []*big.Rat
	for _, n := range given[max(0, len(given)-3):] {
		r, ok := c.algebra.Rational(n)
		if !ok {
			known = nil
			continue
		}
		known = append(known, r)
	}
	if len(known) == 1 && len(given) == 1 && known[0].IsInt() && end.IsInt() && known[0].Cmp(end) < 0 {
		known = append([]*big.Rat{new(big.Rat).Sub(known[0], big.NewRat(1, 1))}, known...) // 1, ..., 5
	}
	last := len(known) - 1
	if last < 1 {
		return dots
	}
	for _, grow := range [...]func(a, b *big.Rat) (func(*big.Rat) *big.Rat, bool){arithmetic, geometric} {
		step, ok := grow(known[last-1], known[last])
		if !ok || last == 2 && step(known[0]).Cmp(known[1]) != 0 {
			continue
		}
		var out []*latex.Node
		forward := known[last].Cmp(known[last-1])
		for v := step(known[last]); v.Cmp(end) == -forward; v = step(v) {
			out = append(out, algebra.Rational(v))
			if len(out) > maxEllipsis {
				c.limited = true
				return dots
			}
			if step(v).Cmp(end) == 0 {
				return out
			}
		}
		if step(known[last]).Cmp(end) == 0 {
			return nil
		}
	}
	return dots
}

// arithmetic is the step of a progression with a constant difference.
func arithmetic(a, b *big.Rat) (func(*big.Rat) *big.Rat, bool) {
	d := new(big.Rat).Sub(b, a)
	return func(v *big.Rat) *big.Rat { return new(big.Rat).Add(v, d) }, d.Sign() != 0
}

// geometric is the step of a progression with a constant quotient above one.
func geometric(a, b *big.Rat) (func(*big.Rat) *big.Rat, bool) {
	if a.Sign() <= 0 || b.Cmp(a) <= 0 {
		return nil, false
	}
	q := new(big.Rat).Quo(b, a)
	return func(v *big.Rat) *big.Rat { return new(big.Rat).Mul(v, q) }, true
}
