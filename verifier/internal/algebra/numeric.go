package algebra

import (
	"errors"
	"math/big"
	"strings"

	"onering/verifier/internal/ball"
	"onering/verifier/internal/latex"
)

// errNotANumber is the error for an expression without a numeric meaning.
var errNotANumber = errors.New("algebra: not a number")

// A numeric evaluates expressions in ball arithmetic at one point.
type numeric struct {
	c       *Checker
	ball    *ball.Context
	at      *point
	factors map[string]bool
	// complex is set where i occurs: then nothing is outside the reals.
	complex   bool
	leftReals bool      // an operation left the reals
	scale     ball.Real // the largest summand met
	// lostSummand says that a nonzero summand was too small to change a sum at this
	// precision, as in 1 + e^-10000: equality then proves nothing.
	lostSummand bool
}

func (e *numeric) ratio(n, d int64) ball.Complex { return e.ball.FromRat(big.NewRat(n, d)) }

// try evaluates n. The error is one of package ball, errNotANumber, errUndefined or errLimit.
func (e *numeric) try(n *latex.Node) (ball.Complex, error) {
	return ball.Try(func() ball.Complex { return e.value(n) })
}

// ofReal is x as a complex number.
func ofReal(x ball.Real) ball.Complex { return ball.Complex{Re: x} }

// checked is r, unless the evaluation that gave it failed.
func (e *numeric) checked(r *big.Rat, err error) ball.Complex {
	if err == errIrrational {
		err = errNotANumber
	}
	ball.FailIf(err != nil, err)
	return e.ball.FromRat(r)
}

// value evaluates n. It fails as operations of package ball do, for try to return. The numbers 12 to 14 are seeds: by them
// unknowns of different kinds differ. Much that has no numeric meaning is an unknown that depends on its formula.
func (e *numeric) value(n *latex.Node) ball.Complex {
	e.c.budget -= 2 + int(e.ball.Prec)/256 // the cost of an operation, by its bits
	ball.FailIf(e.c.budget < 0, errLimit)
	ball.FailIf(n == nil, errNotANumber)
	switch n.Op {
	case latex.Num:
		return e.ball.FromRat(n.Rat)
	case latex.Sym:
		return e.symbol(n.Name)
	case latex.Const:
		return e.constant(n.Name)
	case latex.Unit:
		return e.unknown(hashName(n.Name, 12))
	case latex.Sum, latex.Prod:
		return e.series(n)
	case latex.Fact, latex.Fact2, latex.Binom:
		return e.checked(e.c.rational(n, e.at))
	case latex.Opaque, latex.Mod, latex.Logic, latex.Text, latex.Matrix, latex.Bracket, latex.Set, latex.List, latex.Rel, latex.Named, latex.Dots, latex.Cases:
		return e.opaque(n) // made of the formula
	case latex.Index:
		return e.smooth(n, 13) // made of the values of its arguments
	case latex.App:
		if e.factors[n.Name] && len(n.Args) == 1 {
			x := e.value(n.Args[0])
			return e.ball.CMul(e.symbol(n.Name), x)
		}
		return e.smooth(n, 14) // f(2) and f(1+1) are equal
	case latex.Pow:
		return e.power(n)
	case latex.Root:
		return e.root(n)
	case latex.Floor, latex.Ceil:
		return e.step(n)
	case latex.Func:
		return e.function(n)
	}
	ball.FailIf(n.Op == latex.PlusMinus || n.Op == latex.MinusPlus || len(n.Args) == 0, errNotANumber)
	total := e.value(n.Args[0])
	for _, arg := range n.Args[1:] {
		v := e.value(arg)
		switch n.Op {
		case latex.Add:
			total = e.sum(total, v)
		case latex.Mul:
			total = e.ball.CMul(total, v)
		case latex.Div:
			total = e.ball.CQuo(total, v)
		default:
			ball.Fail(errNotANumber)
		}
	}
	switch n.Op {
	case latex.Neg:
		return e.ball.CNeg(total)
	case latex.Percent:
		return e.ball.CMul(total, e.ratio(1, 100))
	case latex.Degree:
		return e.ball.CMul(total, ofReal(e.ball.Mul(e.ball.Pi(), e.ball.Rat(big.NewRat(1, 180)))))
	case latex.Abs:
		return ofReal(e.ball.CAbs(total))
	}
	return total
}

// sum is x + y. It keeps the largest magnitude among summands, for judging cancellation.
func (e *numeric) sum(x, y ball.Complex) ball.Complex {
	for _, z := range [...]ball.Complex{x, y} {
		e.scale = e.scale.Larger(z.Re.Larger(z.Im))
	}
	for _, part := range [...][2]ball.Real{{x.Re, y.Re}, {x.Im, y.Im}} {
		e.lostSummand = e.lostSummand || e.ball.Swallows(part[0], part[1]) || e.ball.Swallows(part[1], part[0])
	}
	return e.ball.CAdd(x, y)
}

// noteIfNegligible sets lostSummand if a function of z that is 1 at zero, or z times such a function,
// cannot be distinguished from 1 (or z) at this precision, as e^z of 10^-600 or the sine
// of 10^-300. order is the power of z by which it differs.
func (e *numeric) noteIfNegligible(z ball.Complex, order int) {
	power := z
	for range order - 1 {
		power = e.ball.CMul(power, z)
	}
	one := e.ball.Int(1)
	e.lostSummand = e.lostSummand || e.ball.Swallows(one, power.Re) || e.ball.Swallows(one, power.Im)
}

// symbol is the value of a variable.
func (e *numeric) symbol(name string) ball.Complex {
	p := e.at.lookup(name)
	switch {
	case p == nil:
		return e.unknown(hashName(name, 11))
	case p.logFactor == nil:
		return e.ball.FromRat(p.value)
	case p.prec != e.ball.Prec:
		power := e.ball.Exp(e.ball.Rat(p.logFactor))
		p.ball, p.prec = e.ball.Mul(e.ball.Rat(p.value), power), e.ball.Prec
	}
	return ofReal(p.ball)
}

// unknown is a number between 1/2 and 2 made from a hash.
func (e *numeric) unknown(h uint64) ball.Complex { return e.ratio(int64(1<<20+h%(3<<20)), 1<<21) }

// constant is the value of pi, e or i; infinity is not a number.
func (e *numeric) constant(name string) ball.Complex {
	switch name {
	case "pi":
		return ofReal(e.ball.Pi())
	case "e":
		return ofReal(e.ball.Exp(e.ball.Int(1)))
	case "i":
		return ball.Complex{Im: e.ball.Int(1)}
	}
	ball.Fail(errNotANumber) // infinity
	return ball.Complex{}
}

// opaque returns an unknown that depends on all of n as a formula.
func (e *numeric) opaque(n *latex.Node) ball.Complex {
	f := formula{c: e.c, field: fieldFor(5), seed: 5, factors: e.factors}
	h := f.value(n)
	ball.FailIf(f.spoiled, errNotANumber)
	return e.unknown(mix(h))
}

// smooth is the value of an unknown function: a fixed analytic function of its
// arguments that no identity singles out.
func (e *numeric) smooth(n *latex.Node, seed uint64) ball.Complex {
	h := hashName(n.Name, seed)
	total := e.unknown(h)
	for _, arg := range n.Args {
		v := e.value(arg)
		h = mix(h)
		sin, _ := e.ball.CSinCos(e.ball.CAdd(e.ball.CMul(v, e.unknown(h)), e.unknown(mix(h+1))))
		total = e.ball.CAdd(e.ball.CMul(total, e.unknown(mix(h+2))), e.ball.CAdd(sin, e.ball.CMul(v, e.unknown(mix(h+3)))))
	}
	return total
}

// series adds or multiplies the terms of a finite sum or product, with the index bound at the point. With bounds that are
// not rational it is an unknown.
func (e *numeric) series(n *latex.Node) ball.Complex {
	var low, high int64
	_, err := ball.Try(func() *big.Rat { low, high = e.c.bounds(n, e.at); return nil }) // Try's value is not used
	if err == errIrrational {
		return e.opaque(n)
	}
	ball.FailIf(err != nil, err)
	total := ball.Complex{}
	if n.Op == latex.Prod {
		total.Re = e.ball.Int(1)
	}
	outer := e.at
	defer func() { e.at = outer }()
	for k := low; k <= high; k++ {
		e.at = &point{name: n.Args[1].Name, value: big.NewRat(k, 1), next: outer}
		v := e.value(n.Args[0])
		if n.Op == latex.Prod {
			total = e.ball.CMul(total, v)
		} else {
			total = e.sum(total, v)
		}
	}
	return total
}

// power evaluates base^exponent at the point e.at: of an integer exponent by products, of a rational one by roots, else by
// logarithms. It notes where the value leaves the reals (leftReals), or is 1 as far as this precision shows (lostSummand).
func (e *numeric) power(n *latex.Node) ball.Complex {
	base := e.value(n.Args[0])
	exp, err := e.c.rational(n.Args[1], e.at)
	switch {
	case err == errLimit, err == nil && exp.IsInt() && !exp.Num().IsInt64():
		ball.Fail(errLimit)
	case err == nil && exp.Sign() == 0:
		return e.ratio(1, 1) // 0^0, too
	case err == nil && exp.IsInt():
		return e.ball.CPowInt(base, exp.Num().Int64())
	case err == nil:
		return e.rationalPower(base, exp)
	}
	w := e.value(n.Args[1])
	if c := n.Args[0]; c.Op == latex.Const && c.Name == "e" {
		e.noteIfNegligible(w, 1) // e^w differs from 1 by about w^1
		return e.ball.CExp(w)
	}
	e.noteIfNegative(base) // its logarithm is not real
	e.noteIfNegligible(w, 1)
	return e.ball.CPow(base, w)
}

// noteIfNegative notes that a power or a logarithm of z leaves the reals where z is a negative number.
func (e *numeric) noteIfNegative(z ball.Complex) {
	if z.IsReal() && e.ball.Sign(z.Re) < 0 {
		e.leftReals = true
	}
}

// rationalPower is z^(p/q). With an odd q it is real for negative z, as in school; elsewhere the principal value.
func (e *numeric) rationalPower(z ball.Complex, exp *big.Rat) ball.Complex {
	e.noteIfNegligible(e.ball.FromRat(exp), 1) // z^exp differs from 1 by about exp, where that is small
	halves := exp.Denom().IsInt64() && exp.Denom().Int64() == 2
	if halves && exp.Num().IsInt64() {
		return e.ball.CPowInt(e.squareRoot(z), exp.Num().Int64())
	}
	if z.IsReal() && exp.Denom().Bit(0) == 1 && e.ball.Sign(z.Re) < 0 {
		r := e.ball.CPow(e.ball.CNeg(z), e.ball.FromRat(exp))
		if exp.Num().Bit(0) == 1 {
			r = e.ball.CNeg(r)
		}
		return r
	}
	e.noteIfNegative(z)
	return e.ball.CPow(z, e.ball.FromRat(exp))
}

// squareRoot is the principal square root.
func (e *numeric) squareRoot(z ball.Complex) ball.Complex {
	if z.IsReal() && z.Re.KnownSign() < 0 {
		e.leftReals = true
	}
	return e.ball.CSqrt(z)
}

// root evaluates an n-th root.
func (e *numeric) root(n *latex.Node) ball.Complex {
	z := e.value(n.Args[0])
	if index, err := e.c.rational(n.Args[1], e.at); err == nil {
		ball.FailIf(index.Sign() == 0, errUndefined)
		return e.rationalPower(z, new(big.Rat).Inv(index))
	}
	w := e.ball.CQuo(e.ratio(1, 1), e.value(n.Args[1]))
	e.noteIfNegative(z)
	return e.ball.CPow(z, w)
}

// realOnly fails unless z is real.
func (e *numeric) realOnly(z ball.Complex) ball.Complex {
	ball.FailIf(!z.IsReal(), errNotANumber)
	return z
}

// step evaluates a floor or ceiling.
func (e *numeric) step(n *latex.Node) ball.Complex {
	if r, err := e.c.rational(n, e.at); err == nil {
		return e.ball.FromRat(r)
	}
	x := e.realOnly(e.value(n.Args[0])).Re
	if n.Op == latex.Ceil {
		return ofReal(e.ball.Neg(e.ball.Floor(e.ball.Neg(x))))
	}
	return ofReal(e.ball.Floor(x))
}

// extreme evaluates a maximum or minimum.
func (e *numeric) extreme(n *latex.Node) ball.Complex {
	var best ball.Complex
	for i, arg := range n.Args {
		v := e.realOnly(e.value(arg))
		if s := e.ball.Sub(v.Re, best.Re).KnownSign(); i == 0 || s > 0 && n.Name == "max" || s < 0 && n.Name == "min" {
			best = v
		}
	}
	return best
}

// function evaluates a known function, one without numeric values as an unknown. It notes where the function leaves the
// reals, and where its argument is so small that the value says nothing of it.
func (e *numeric) function(n *latex.Node) ball.Complex {
	switch n.Name {
	case "gcd", "lcm", "sgn":
		return e.checked(e.c.rational(n, e.at))
	case "max", "min":
		return e.extreme(n)
	}
	ball.FailIf(len(n.Args) == 0 || len(n.Args) > 2, errNotANumber)
	z := e.value(n.Args[0])
	b := e.ball
	e.scale = e.scale.Larger(b.Int(1)) // near its zero, a function is small beside this
	switch n.Name {
	case "sin", "cos", "tan", "cot", "sec", "csc": // cos z differs from 1 by about z^2, sin z from z by about z^3
		e.noteIfNegligible(z, map[string]int{"cos": 2, "sec": 2, "sin": 3, "tan": 3, "cot": 3, "csc": 3}[n.Name])
		sin, cos := b.CSinCos(z)
		return e.ofSine(n.Name, sin, cos)
	case "exp":
		e.noteIfNegligible(z, 1)
		return b.CExp(z)
	case "ln":
		e.noteIfNegative(z)
		return b.CLog(z)
	case "log":
		base := e.ratio(10, 1)
		if len(n.Args) == 2 {
			base = e.value(n.Args[1])
		}
		e.noteIfNegative(z)
		e.noteIfNegative(base)
		num := b.CLog(z)
		return b.CQuo(num, b.CLog(base))
	case "sinh", "cosh", "tanh", "coth", "sech", "csch":
		e.noteIfNegligible(z, 3) // sinh z differs from z by about z^3
		up := b.CExp(z)
		down := b.CQuo(e.ratio(1, 1), up)
		sinh := b.CMul(e.ratio(1, 2), e.sum(up, b.CNeg(down)))
		cosh := b.CMul(e.ratio(1, 2), e.sum(up, down))
		return e.ofSine(strings.TrimSuffix(n.Name, "h"), sinh, cosh)
	case "asin", "acos", "atan", "acot", "asec", "acsc":
		return e.arc(n.Name, z)
	}
	return e.opaque(n) // det, tr, norm, ...
}

// ofSine returns the value of a function, circular or hyperbolic, of an angle with this sine and cosine.
func (e *numeric) ofSine(name string, sin, cos ball.Complex) ball.Complex {
	one := e.ratio(1, 1)
	switch name {
	case "sin":
		return sin
	case "cos":
		return cos
	case "tan":
		return e.ball.CQuo(sin, cos)
	case "cot":
		return e.ball.CQuo(cos, sin)
	case "sec":
		return e.ball.CQuo(one, cos)
	}
	return e.ball.CQuo(one, sin)
}

// arc evaluates the inverse circular functions, of real arguments, by arc tangents: asin x is atan(x/sqrt(1-x^2)).
func (e *numeric) arc(name string, z ball.Complex) ball.Complex {
	b := e.ball
	e.noteIfNegligible(z, 3) // asin z differs from z by about z^3
	rightAngle := ofReal(b.Mul(b.Pi(), b.Rat(big.NewRat(1, 2))))
	switch name {
	case "asec", "acsc":
		z = b.CQuo(e.ratio(1, 1), z)
		name = map[string]string{"asec": "acos", "acsc": "asin"}[name]
	case "acot": // between 0 and pi
		return e.sum(rightAngle, b.CNeg(e.arc("atan", z)))
	}
	x := e.realOnly(z).Re
	if name == "atan" {
		if !x.ContainsZero() {
			e.lostSummand = e.lostSummand || b.Swallows(rightAngle.Re, b.Quo(b.Int(1), x)) // the arc tangent of 10^600
		}
		return ofReal(b.Atan(x))
	}
	d := b.Sub(b.Int(1), b.Mul(x, x))
	if d.KnownSign() < 0 {
		e.leftReals = true
		ball.Fail(errUndefined)
	}
	root := b.Sqrt(d)
	a := rightAngle // asin 1
	switch {
	case !root.ContainsZero():
		a = ofReal(b.Atan(b.Quo(x, root)))
	case !root.IsZero(): // x is near 1 or -1
		ball.Fail(ball.ErrUndecided)
	case b.Sign(x) < 0:
		a = b.CNeg(a)
	}
	if name == "acos" {
		a = e.sum(rightAngle, b.CNeg(a))
	}
	return a
}
