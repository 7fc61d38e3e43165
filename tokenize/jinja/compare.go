package jinja

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strings"
)

// compare is left op right for comparisons and membership.
func (r *run) compare(op string, left, right Value) bool {
	switch op {
	case "==":
		return r.equal(left, right, 0)
	case "!=":
		return !r.equal(left, right, 0)
	case "in":
		return r.contains(right, left)
	case "not in":
		return !r.contains(right, left)
	}
	c, ok := r.order(left, right)
	if !ok {
		r.failIfUndefined(left)
		r.failIfUndefined(right)
		r.fail("'%s' not supported between instances of '%s' and '%s'", op, typeName(left), typeName(right))
	}
	switch op {
	case "<":
		return c < 0 // not of unordered, which is above 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0 && c != unordered
	}
	return c >= 0 && c != unordered
}

// unordered is the order of a number and NaN, for which every comparison is false. As it is above 0, < and <= are.
const unordered = 2

// compareNumbers returns -1, 0 or 1 as a is less than, equal to or greater than b, and unordered if one is NaN.
func compareNumbers(a, b num) int {
	if a.i != nil && b.i != nil {
		return a.i.Cmp(b.i)
	}
	x, y := a.float(), b.float()
	if math.IsNaN(x) || math.IsNaN(y) {
		return unordered
	}
	if a.i != nil && !math.IsInf(y, 0) || b.i != nil && !math.IsInf(x, 0) {
		return a.exact().Cmp(b.exact())
	}
	return cmp.Compare(x, y)
}

func (n num) exact() *big.Float {
	if n.i != nil {
		return new(big.Float).SetInt(n.i)
	}
	return big.NewFloat(n.f)
}

// equal is a == b; both are nested in depth other values.
func (r *run) equal(a, b Value, depth int) bool {
	r.pay("operator", "==", a, b)
	if depth > maxDepth {
		r.fail("values nested deeper than %d", maxDepth)
	}
	if x, ok := text(a); ok {
		y, ok := text(b)
		return ok && x == y
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && compareNumbers(x, y) == 0
	}
	if x, ok := sequence(a); ok {
		y, ok := sequence(b)
		return ok && sameSequence(a, b) && slices.EqualFunc(x, y, func(a, b Value) bool { return r.equal(a, b, depth+1) })
	}
	switch x := a.(type) {
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || x.Len() != y.Len() {
			return false
		}
		for key, value := range x.All() {
			other, ok := y.Get(key)
			if !ok || !r.equal(value, other, depth+1) {
				return false
			}
		}
		return true
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case *view:
		r.fail("comparing a %s is not supported; make a list of it", x.kind)
	}
	return a == b
}

// order returns a negative number, 0 or a positive one as a is less than, equal to or greater than b, or
// unordered; ok is false if values of these types have no order.
func (r *run) order(a, b Value) (c int, ok bool) {
	r.pay("operator", "<", a, b)
	if x, ok := number(a); ok {
		y, ok := number(b)
		if !ok {
			return 0, false
		}
		return compareNumbers(x, y), true
	}
	if x, ok := text(a); ok {
		y, ok := text(b)
		return strings.Compare(x, y), ok
	}
	if _, ok := sequence(a); ok {
		r.fail("the order of a %s is not supported", typeName(a))
	}
	return 0, false
}

// contains is v in container.
func (r *run) contains(container, v Value) bool {
	r.pay("operator", "in", container, v)
	if s, ok := text(container); ok {
		part, ok := text(v)
		if !ok {
			r.fail("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		return strings.Contains(s, part)
	}
	if d, ok := container.(*Dict); ok {
		r.checkKey(v)
		_, found := d.Get(v)
		return found
	}
	if _, ok := r.each(container); !ok {
		r.fail("argument of type '%s' is not iterable", typeName(container))
	}
	for e := range r.elements(container) {
		if r.equal(e, v, 0) {
			return true
		}
	}
	return false
}
