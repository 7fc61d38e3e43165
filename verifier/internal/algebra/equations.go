package algebra

import (
	"onering/verifier/internal/ball"
	"onering/verifier/internal/latex"
)

// maxDegree bounds the polynomials that fractions are cleared with.
const maxDegree = 60

// SameZeros reports whether a and b, written as quotients of polynomials in
// lowest terms, have numerators that are constant multiples of one another, so
// that a = 0 and b = 0 are one equation: xy - 1 and y - 1/x, but not xy - x and
// y - 1, whose factor x may be zero. Function applications and roots stand for
// unknowns of their own.
//
// Both are looked at along one random line through the space of the unknowns,
// over the field: there lowest terms stay lowest terms, and numerators that
// are no multiples stay so, except with a chance of about the degree over 2^61.
// If strict is set, a denominator in b must not vanish at a zero of a.
func (c *Checker) SameZeros(a, b *latex.Node, strict bool) bool {
	l := restriction{c: c, at: formula{c: c, in: fieldFor(pairSeed(a, b)), seed: 31, mult: factorLetters(a, b)}}
	x, y := l.quotient(a), l.quotient(b)
	if l.failed || l.at.bad {
		return false
	}
	p, q := l.lowest(x), l.lowest(y)
	if l.failed || len(p) < 2 || len(p) != len(q) {
		return false // constants have no zeros to compare
	}
	for i := range p {
		if l.at.in.mul(p[i], q[len(q)-1]) != l.at.in.mul(q[i], p[len(p)-1]) {
			return false
		}
	}
	return !strict || !c.poles(b, a)
}

// poles reports whether a denominator in a vanishes at a solution of b = 0, so that a = 0,
// which clears to b = 0, lacks that solution: (y-2x-3)/(x-1) lacks y = 5 at x = 1. Letters
// other than x, y and z are parameters, which nobody means to be zero. A denominator that
// cannot be solved for a letter counts if it takes both signs.
func (c *Checker) poles(a, b *latex.Node) bool {
	for _, d := range denominators(a, nil) {
		parameters, linear := true, false
		for _, v := range Variables(d) {
			if v != "x" && v != "y" && v != "z" {
				continue
			}
			parameters = false
			values, solved := c.whereZero(d, b, v)
			if linear = linear || solved; solved && len(values) == 2 && values[0] != values[1] {
				return true
			}
		}
		if !parameters && !linear && c.changesSign(d) {
			return true
		}
	}
	return false
}

// denominators appends the factors with variables of what n divides by.
func denominators(n *latex.Node, found []*latex.Node) []*latex.Node {
	switch n.Op {
	case latex.Div:
		found = factors(n.Args[1], found)
	case latex.Pow:
		if k := n.Args[1]; k.Op == latex.Neg && len(Variables(k)) == 0 {
			return factors(n.Args[0], found)
		}
	case latex.Add, latex.Mul, latex.Neg:
	default:
		return found
	}
	for _, arg := range n.Args {
		found = denominators(arg, found)
	}
	return found
}

// factors appends the factors of n that have variables.
func factors(n *latex.Node, found []*latex.Node) []*latex.Node {
	switch n.Op {
	case latex.Mul, latex.Neg:
		for _, arg := range n.Args {
			found = factors(arg, found)
		}
		return found
	case latex.Pow:
		return factors(n.Args[0], found)
	}
	if len(Variables(n)) > 0 {
		found = append(found, n)
	}
	return found
}

// whereZero are the values of n, where it has one, at two points of the field with d = 0;
// solved says that d is linear in v, so that it can be made zero.
func (c *Checker) whereZero(d, n *latex.Node, v string) (values []uint64, solved bool) {
	for seed := uint64(1); seed <= 2; seed++ {
		f := formula{c: c, in: fieldFor(pairSeed(d, n)), seed: seed, mult: factorLetters(d, n), pinned: v}
		at := func(x uint64, n *latex.Node) uint64 {
			f.pin = x
			return f.value(n)
		}
		zero, one, two := at(0, d), at(1, d), at(2, d)
		slope := f.in.add(one, f.in.neg(zero))
		if f.bad || slope == 0 || f.in.add(one, slope) != two {
			return nil, false
		}
		if w := at(f.in.mul(f.in.neg(zero), f.in.inverse(slope)), n); !f.bad {
			values = append(values, w)
		}
	}
	return values, true
}

// changesSign reports whether n is positive at a point and negative at another.
func (c *Checker) changesSign(n *latex.Node) bool {
	signs := map[int]bool{}
	s := survey(n)
	for _, points := range [...]func() []*point{s.fractions, s.naturals} {
		for _, at := range points() {
			e := numeric{c: c, ball: &ball.Context{Prec: precisions[0], Budget: &c.budget}, at: at}
			if z, err := e.try(n); err == nil && z.IsReal() {
				signs[z.Re.KnownSign()] = true
			}
		}
	}
	return signs[0] || signs[1] && signs[-1]
}

// A poly is a polynomial over the field by its coefficients, the constant first
// and the last not zero; zero is empty.
type poly []uint64

// A quotient is one polynomial over another.
type quotient struct{ num, den poly }

// A restriction reads expressions along a line t -> v + w t, where at gives v
// for each unknown.
type restriction struct {
	c      *Checker
	at     formula
	failed bool // too high a degree, a division by zero, or out of budget
}

// fail gives up.
func (l *restriction) fail() quotient {
	l.failed = true
	return quotient{}
}

// quotient is n along the line.
func (l *restriction) quotient(n *latex.Node) quotient {
	if l.failed {
		return quotient{}
	}
	switch n.Op {
	case latex.Add:
		total := quotient{den: poly{1}}
		for _, arg := range n.Args {
			q := l.quotient(arg)
			total = quotient{l.plus(l.times(total.num, q.den), l.times(q.num, total.den)), l.times(total.den, q.den)}
		}
		return total
	case latex.Neg:
		q := l.quotient(n.Args[0])
		return quotient{l.times(poly{l.at.in.p - 1}, q.num), q.den}
	case latex.Mul:
		total := quotient{poly{1}, poly{1}}
		for _, arg := range n.Args {
			q := l.quotient(arg)
			total = quotient{l.times(total.num, q.num), l.times(total.den, q.den)}
		}
		return total
	case latex.Div:
		num, den := l.quotient(n.Args[0]), l.quotient(n.Args[1])
		if len(den.num) == 0 {
			return l.fail()
		}
		return quotient{l.times(num.num, den.den), l.times(num.den, den.num)}
	case latex.Pow:
		if k, ok := l.c.Integer(n.Args[1]); ok {
			if k < -maxDegree || k > maxDegree {
				return l.fail()
			}
			return l.power(l.quotient(n.Args[0]), k)
		}
	}
	v := l.at.value(n)
	if l.at.bad {
		return l.fail()
	}
	if len(Variables(n)) == 0 {
		return quotient{trimmed(poly{v}), poly{1}}
	}
	return quotient{trimmed(poly{v, mix(v) % l.at.in.p}), poly{1}}
}

// power is q^k.
func (l *restriction) power(q quotient, k int) quotient {
	if k < 0 {
		q.num, q.den, k = q.den, q.num, -k
	}
	if len(q.den) == 0 {
		return l.fail()
	}
	total := quotient{poly{1}, poly{1}}
	for range k {
		total = quotient{l.times(total.num, q.num), l.times(total.den, q.den)}
	}
	return total
}

// spend pays for n steps.
func (l *restriction) spend(n int) bool {
	if l.c.budget -= n/4 + 1; l.c.budget < 0 {
		l.failed = true
	}
	return !l.failed
}

func (l *restriction) plus(p, q poly) poly {
	if len(p) < len(q) {
		p, q = q, p
	}
	sum := append(poly(nil), p...)
	for i, v := range q {
		sum[i] = l.at.in.add(sum[i], v)
	}
	return trimmed(sum)
}

func (l *restriction) times(p, q poly) poly {
	if len(p) == 0 || len(q) == 0 {
		return nil
	}
	if len(p)+len(q)-2 > maxDegree {
		l.failed = true
	}
	if !l.spend(len(p) * len(q)) {
		return nil
	}
	product := make(poly, len(p)+len(q)-1)
	for i, v := range p {
		for j, w := range q {
			product[i+j] = l.at.in.add(product[i+j], l.at.in.mul(v, w))
		}
	}
	return trimmed(product)
}

// lowest is the numerator of q in lowest terms, up to a constant factor.
func (l *restriction) lowest(q quotient) poly {
	a, b := q.num, q.den
	for len(b) > 0 { // Euclid's algorithm
		_, r := l.divided(a, b)
		a, b = b, r
	}
	p, _ := l.divided(q.num, a)
	return p
}

// divided returns the quotient of p and q, which is not zero, and the remainder.
func (l *restriction) divided(p, q poly) (ratio, rest poly) {
	rest = append(poly(nil), p...)
	if len(p) < len(q) {
		return nil, rest
	}
	if !l.spend((len(p) - len(q) + 1) * len(q)) {
		return nil, nil
	}
	ratio = make(poly, len(p)-len(q)+1)
	lead := l.at.in.inverse(q[len(q)-1])
	for i := len(p) - len(q); i >= 0; i-- {
		k := l.at.in.mul(rest[i+len(q)-1], lead)
		ratio[i] = k
		for j, v := range q {
			rest[i+j] = l.at.in.add(rest[i+j], l.at.in.neg(l.at.in.mul(k, v)))
		}
	}
	return trimmed(ratio), trimmed(rest[:len(q)-1])
}

// trimmed is p without leading zeros.
func trimmed(p poly) poly {
	for len(p) > 0 && p[len(p)-1] == 0 {
		p = p[:len(p)-1]
	}
	return p
}
