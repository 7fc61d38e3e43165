package jinja

import (
	"html"
	"math"
	"math/big"
	"slices"
	"strings"
)

// arithmetic returns left op right for + - * / // and %, also of texts and lists.
func (r *run) arithmetic(op string, left, right Value) Value {
	r.failIfUndefined(left)
	r.pay("operator", op, left, right)
	if s, ok := text(left); ok && op == "%" {
		return r.formatPercent(left, s, right)
	}
	r.failIfUndefined(right) // not before: a format writes what is undefined as an empty text
	if a, ok := number(left); ok {
		if b, ok := number(right); ok {
			return r.numberArithmetic(op, a, b)
		}
	}
	switch op {
	case "+":
		if v, ok := r.join(left, right); ok {
			return v
		}
	case "*":
		if n, ok := integer(left); ok {
			left, right = right, n
		}
		s, isText := text(left)
		if n, ok := integer(right); ok && isText {
			r.spendTimes(n, len(s))
			return like(left, strings.Repeat(s, max(n, 0)))
		}
	}
	r.fail("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(left), typeName(right))
	return nil
}

// join is left + right for two texts, lists or tuples; ok is false for other values. Where only one text is
// markup, the other is escaped.
func (r *run) join(left, right Value) (sum Value, ok bool) {
	if a, ok := text(left); ok {
		b, ok := text(right)
		if !ok {
			return nil, false
		}
		_, leftSafe := left.(markup)
		_, rightSafe := right.(markup)
		switch {
		case leftSafe && !rightSafe:
			b = html.EscapeString(b)
		case rightSafe && !leftSafe:
			a = html.EscapeString(a)
		}
		r.spend(len(a) + len(b))
		if leftSafe || rightSafe {
			return markup(a + b), true
		}
		return a + b, true
	}
	a, okA := sequence(left)
	b, okB := sequence(right)
	if !okA || !okB || !sameSequence(left, right) {
		return nil, false
	}
	r.spend(elementCost * (len(a) + len(b)))
	return sequenceLike(left, slices.Concat(a, b)), true
}

// A num is a number: an integer, or a float if i is nil.
type num struct {
	i *big.Int
	f float64
}

func number(v Value) (num, bool) {
	switch v := v.(type) {
	case *big.Int:
		return num{i: v}, true
	case float64:
		return num{f: v}, true
	}
	n, ok := integer(v)
	return num{i: big.NewInt(int64(n))}, ok
}

func (n num) float() float64 {
	if n.i == nil {
		return n.f
	}
	f, _ := new(big.Float).SetInt(n.i).Float64()
	return f
}

// numberArithmetic is a op b.
func (r *run) numberArithmetic(op string, a, b num) Value {
	if a.i != nil && b.i != nil && op != "/" {
		return r.integerArithmetic(op, a.i, b.i)
	}
	x, y := a.float(), b.float()
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	}
	r.failIf(y == 0, "division by zero")
	switch op {
	case "/":
		return x / y
	case "//":
		return math.Floor(x / y)
	}
	rest := math.Mod(x, y)
	if rest != 0 && (rest < 0) != (y < 0) {
		rest += y
	}
	return rest
}

// integerArithmetic is a op b for integers, which Python does not limit.
func (r *run) integerArithmetic(op string, a, b *big.Int) Value {
	z := new(big.Int)
	switch op {
	case "+":
		z.Add(a, b)
	case "-":
		z.Sub(a, b)
	case "*":
		z.Mul(a, b)
	default:
		r.failIf(b.Sign() == 0, "division by zero")
		rest := new(big.Int)
		z.QuoRem(a, b, rest)
		if rest.Sign() != 0 && rest.Sign() != b.Sign() { // Python rounds down
			z.Sub(z, big.NewInt(1))
			rest.Add(rest, b)
		}
		if op == "%" {
			z = rest
		}
	}
	r.failIf(z.BitLen() > 4*maxDigits, "the integer has too many digits")
	r.spend(z.BitLen() / 8)
	return shrink(z)
}

// signed returns -v or, if op is "+", v, which must be a number.
func (r *run) signed(op string, v Value) Value {
	n, ok := number(v)
	switch {
	case !ok:
		r.failIfUndefined(v)
		r.fail("bad operand type for unary %s: '%s'", op, typeName(v))
	case n.i == nil && op == "-":
		return -n.f
	case n.i == nil:
		return n.f
	case op == "-":
		n.i = new(big.Int).Neg(n.i)
	}
	return shrink(n.i)
}
