package algebra

import (
	"errors"
	"math/big"

	"onering/verifier/internal/ball"
	"onering/verifier/internal/latex"
)

// errSteps is what evaluation fails with that has no meaning as a number.
var errNotANumber = errors.New("algebra: not a number")

// A numeric evaluates expressions in ball arithmetic at one point.
type numeric struct {
	c       *Checker
	ball    *ball.Context
	at      *point
	factors map[string]bool
	// complex is set where i occurs: then nothing is outside the reals.
	complex bool
	left    bool      // an operation left the reals
	scale   ball.Real // the largest summand met
	// swallowed says that a summand that is not zero was too small to change a sum
	// at this precision, as in 1 + e^-10000: equality then means nothing.
	swallowed bool
}

func (e *numeric) rat(r *big.Rat) ball.Complex { return e.ball.FromRat(r) }

func (e *numeric) small(n, d int64) ball.Complex { return e.rat(big.NewRat(n, d)) }

// value evaluates n.
func (e *numeric) value(n *latex.Node) (ball.Complex, error) {
	if e.c.budget -= 2 + int(e.ball.Prec)/256; e.c.budget < 0 {
		return ball.Complex{}, errLimit
	}
	if n == nil {
		return ball.Complex{}, errNotANumber
	}
	switch n.Op {
	case latex.Num:
		return e.rat(n.Rat), nil
	case latex.Sym:
		return e.symbol(n.Name)
	case latex.Const:
		return e.constant(n.Name)
	case latex.Unit:
		return e.unknown(hashName(n.Name, 12)), nil
	case latex.Sum, latex.Prod:
		return e.series(n)
	case latex.Fact, latex.Fact2, latex.Binom:
		r, err := e.c.rational(n, e.at)
		if err == errIrrational {
			err = errNotANumber
		}
		if err != nil {
			return ball.Complex{}, err
		}
		return e.rat(r), nil
	case latex.Opaque, latex.Mod, latex.Text, latex.Matrix, latex.Bracket, latex.Set, latex.List, latex.Rel, latex.Named, latex.Dots, latex.Cases:
		return e.opaque(n)
	case latex.Index:
		return e.smooth(n, 13)
	case latex.App:
		if e.factors[n.Name] && len(n.Args) == 1 {
			x, err := e.value(n.Args[0])
			if err != nil {
				return x, err
			}
			f, err := e.symbol(n.Name)
			return e.ball.CMul(f, x), err
		}
		return e.smooth(n, 14)
	case latex.Pow:
		return e.power(n)
	case latex.Root:
		return e.root(n)
	case latex.Func:
		if n.Name == "gcd" || n.Name == "lcm" {
			r, err := e.c.rational(n, e.at)
			if err != nil {
				return ball.Complex{}, errNotANumber
			}
			return e.rat(r), nil
		}
		if n.Name == "max" || n.Name == "min" {
			return e.extreme(n)
		}
		return e.function(n)
	case latex.PlusMinus, latex.MinusPlus:
		return ball.Complex{}, errNotANumber
	}
	if len(n.Args) == 0 {
		return ball.Complex{}, errNotANumber
	}
	total, err := e.value(n.Args[0])
	if err != nil {
		return total, err
	}
	for _, arg := range n.Args[1:] {
		v, err := e.value(arg)
		if err != nil {
			return v, err
		}
		switch n.Op {
		case latex.Add:
			total = e.sum(total, v)
		case latex.Mul:
			total = e.ball.CMul(total, v)
		case latex.Div:
			if total, err = e.ball.CQuo(total, v); err != nil {
				return total, err
			}
		default:
			return total, errNotANumber
		}
	}
	switch n.Op {
	case latex.Neg:
		return e.ball.CNeg(total), nil
	case latex.Percent:
		return e.ball.CMul(total, e.small(1, 100)), nil
	case latex.Degree:
		return e.ball.CMul(total, ball.Complex{Re: e.ball.Mul(e.ball.Pi(), e.ball.Rat(big.NewRat(1, 180)))}), nil
	case latex.Abs:
		r, err := e.ball.CAbs(total)
		return ball.Complex{Re: r}, err
	case latex.Floor, latex.Ceil:
		return e.step(n)
	}
	return total, nil
}

// sum is x + y.
func (e *numeric) sum(x, y ball.Complex) ball.Complex {
	e.notice(x)
	e.notice(y)
	for _, part := range [...][2]ball.Real{{x.Re, y.Re}, {x.Im, y.Im}} {
		e.swallowed = e.swallowed || e.ball.Swallows(part[0], part[1]) || e.ball.Swallows(part[1], part[0])
	}
	return e.ball.CAdd(x, y)
}

// fromOne notes that a function of z that is 1 at zero, or z times such a one, cannot be
// told from it at this precision, as e^z of 10^-600 or the sine of 10^-300. order is the
// power of z by which it differs.
func (e *numeric) fromOne(z ball.Complex, order int) {
	power := z
	for range order - 1 {
		power = e.ball.CMul(power, z)
	}
	z = power
	one := e.ball.Int(1)
	e.swallowed = e.swallowed || e.ball.Swallows(one, z.Re) || e.ball.Swallows(one, z.Im)
}

// notice keeps the largest magnitude among summands, for judging cancellation.
func (e *numeric) notice(z ball.Complex) {
	e.scale = ball.Larger(e.scale, ball.Larger(z.Re, z.Im))
}

// symbol is the value of a variable.
func (e *numeric) symbol(name string) (ball.Complex, error) {
	p := e.at.lookup(name)
	switch {
	case p == nil:
		return e.unknown(hashName(name, 11)), nil
	case p.turn == nil:
		return e.rat(p.value), nil
	case p.prec != e.ball.Prec:
		power, err := e.ball.Exp(e.ball.Rat(p.turn))
		if err != nil {
			return ball.Complex{}, err
		}
		p.ball, p.prec = e.ball.Mul(e.ball.Rat(p.value), power), e.ball.Prec
	}
	return ball.Complex{Re: p.ball}, nil
}

// unknown is a number between 1/2 and 2 made from a hash.
func (e *numeric) unknown(h uint64) ball.Complex {
	return e.small(int64(1<<20+h%(3<<20)), 1<<21)
}

func (e *numeric) constant(name string) (ball.Complex, error) {
	switch name {
	case "pi":
		return ball.Complex{Re: e.ball.Pi()}, nil
	case "e":
		r, err := e.ball.Exp(e.ball.Int(1))
		return ball.Complex{Re: r}, err
	case "i":
		return ball.Complex{Im: e.ball.Int(1)}, nil
	}
	return ball.Complex{}, errNotANumber // infinity
}

// opaque is an unknown that depends on the whole of n as a formula.
func (e *numeric) opaque(n *latex.Node) (ball.Complex, error) {
	f := formula{c: e.c, in: fieldFor(5), seed: 5, mult: e.factors}
	h := f.value(n)
	if f.bad {
		return ball.Complex{}, errNotANumber
	}
	return e.unknown(mix(h)), nil
}

// smooth is the value of an unknown function: a fixed analytic function of its
// arguments that no identity singles out.
func (e *numeric) smooth(n *latex.Node, seed uint64) (ball.Complex, error) {
	h := hashName(n.Name, seed)
	total := e.unknown(h)
	for _, arg := range n.Args {
		v, err := e.value(arg)
		if err != nil {
			return v, err
		}
		h = mix(h)
		sin, _, err := e.ball.CSinCos(e.ball.CAdd(e.ball.CMul(v, e.unknown(h)), e.unknown(mix(h+1))))
		if err != nil {
			return sin, err
		}
		total = e.ball.CAdd(e.ball.CMul(total, e.unknown(mix(h+2))), e.ball.CAdd(sin, e.ball.CMul(v, e.unknown(mix(h+3)))))
	}
	return total, nil
}

// series adds or multiplies the terms of a finite sum or product.
func (e *numeric) series(n *latex.Node) (ball.Complex, error) {
	low, high, err := e.c.bounds(n, e.at)
	if err == errIrrational {
		return e.opaque(n)
	}
	if err != nil {
		return ball.Complex{}, err
	}
	total := ball.Complex{}
	if n.Op == latex.Prod {
		total.Re = e.ball.Int(1)
	}
	outer := e.at
	defer func() { e.at = outer }()
	for k := low; k <= high; k++ {
		e.at = &point{name: n.Args[1].Name, value: big.NewRat(k, 1), next: outer}
		v, err := e.value(n.Args[0])
		if err != nil {
			return v, err
		}
		if n.Op == latex.Prod {
			total = e.ball.CMul(total, v)
		} else {
			total = e.sum(total, v)
		}
	}
	return total, nil
}

// power evaluates base^exponent.
func (e *numeric) power(n *latex.Node) (ball.Complex, error) {
	base, err := e.value(n.Args[0])
	if err != nil {
		return base, err
	}
	exp, err := e.c.rational(n.Args[1], e.at)
	switch {
	case err == errLimit:
		return base, errLimit
	case err == nil && exp.IsInt():
		if !exp.Num().IsInt64() {
			return base, errLimit
		}
		k := exp.Num().Int64()
		if k == 0 {
			return e.small(1, 1), nil
		}
		return e.ball.CPowInt(base, k)
	case err == nil:
		return e.rationalPower(base, exp)
	}
	if c := n.Args[0]; c.Op == latex.Const && c.Name == "e" {
		w, err := e.value(n.Args[1])
		if err != nil {
			return w, err
		}
		e.fromOne(w, 1)
		return e.ball.CExp(w)
	}
	w, err := e.value(n.Args[1])
	if err != nil {
		return w, err
	}
	if err := e.positive(base); err != nil {
		return base, err
	}
	e.fromOne(w, 1)
	return e.ball.CPow(base, w)
}

// positive notes that a power or logarithm leaves the reals unless z > 0.
func (e *numeric) positive(z ball.Complex) error {
	if !z.IsReal() {
		return nil
	}
	s, err := z.Re.Sign()
	if err != nil {
		return err
	}
	if s < 0 {
		e.left = true
	}
	return nil
}

// rationalPower is z^(p/q). With an odd q it is real for negative z, as in
// school; elsewhere the principal value.
func (e *numeric) rationalPower(z ball.Complex, exp *big.Rat) (ball.Complex, error) {
	e.fromOne(e.rat(exp), 1)
	half := exp.Denom().IsInt64() && exp.Denom().Int64() == 2
	if half && exp.Num().IsInt64() {
		r, err := e.squareRoot(z)
		if err != nil {
			return r, err
		}
		return e.ball.CPowInt(r, exp.Num().Int64())
	}
	if z.IsReal() && exp.Denom().Bit(0) == 1 {
		s, err := z.Re.Sign()
		if err != nil && z.Re.ContainsZero() && exp.Sign() > 0 {
			return ball.Complex{}, ball.ErrUndecided
		}
		if err != nil {
			return z, err
		}
		if s < 0 {
			r, err := e.ball.CPow(ball.Complex{Re: e.ball.Neg(z.Re)}, e.rat(exp))
			if exp.Num().Bit(0) == 1 {
				r = e.ball.CNeg(r)
			}
			return r, err
		}
	}
	if err := e.positive(z); err != nil {
		return z, err
	}
	return e.ball.CPow(z, e.rat(exp))
}

// squareRoot is the principal square root.
func (e *numeric) squareRoot(z ball.Complex) (ball.Complex, error) {
	if z.IsReal() && !z.Re.ContainsZero() {
		if s, _ := z.Re.Sign(); s < 0 {
			e.left = true
		}
	}
	return e.ball.CSqrt(z)
}

// root evaluates an n-th root.
func (e *numeric) root(n *latex.Node) (ball.Complex, error) {
	z, err := e.value(n.Args[0])
	if err != nil {
		return z, err
	}
	index, err := e.c.rational(n.Args[1], e.at)
	if err == nil && index.Sign() != 0 {
		return e.rationalPower(z, new(big.Rat).Inv(index))
	}
	if err == nil {
		return z, errUndefined
	}
	w, err := e.value(n.Args[1])
	if err != nil {
		return w, err
	}
	if w, err = e.ball.CQuo(e.small(1, 1), w); err != nil {
		return w, err
	}
	if err := e.positive(z); err != nil {
		return z, err
	}
	return e.ball.CPow(z, w)
}

// step evaluates a floor or ceiling.
func (e *numeric) step(n *latex.Node) (ball.Complex, error) {
	if r, err := e.c.rational(n, e.at); err == nil {
		return e.rat(r), nil
	}
	z, err := e.value(n.Args[0])
	if err != nil {
		return z, err
	}
	if !z.IsReal() {
		return z, errNotANumber
	}
	x := z.Re
	if n.Op == latex.Ceil {
		x = e.ball.Neg(x)
	}
	k, err := e.ball.Floor(x)
	if err != nil {
		return z, err
	}
	if n.Op == latex.Ceil {
		k.Neg(k)
	}
	return ball.Complex{Re: e.ball.FromInt(k)}, nil
}

// extreme evaluates a maximum or minimum.
func (e *numeric) extreme(n *latex.Node) (ball.Complex, error) {
	var best ball.Complex
	for i, arg := range n.Args {
		v, err := e.value(arg)
		if err != nil {
			return v, err
		}
		if !v.IsReal() {
			return v, errNotANumber
		}
		if i == 0 {
			best = v
			continue
		}
		s, err := e.ball.Sub(v.Re, best.Re).Sign()
		if err != nil {
			continue // as good as equal
		}
		if s > 0 == (n.Name == "max") && s != 0 {
			best = v
		}
	}
	return best, nil
}

// function evaluates a known function.
func (e *numeric) function(n *latex.Node) (ball.Complex, error) {
	if len(n.Args) == 0 || len(n.Args) > 2 {
		return ball.Complex{}, errNotANumber
	}
	z, err := e.value(n.Args[0])
	if err != nil {
		return z, err
	}
	b := e.ball
	one := e.small(1, 1)
	switch n.Name {
	case "sin", "cos", "tan", "cot", "sec", "csc":
		e.fromOne(z, map[string]int{"cos": 2, "sec": 2, "sin": 3, "tan": 3, "cot": 3, "csc": 3}[n.Name])
		sin, cos, err := b.CSinCos(z)
		if err != nil {
			return z, err
		}
		switch n.Name {
		case "sin":
			return sin, nil
		case "cos":
			return cos, nil
		case "tan":
			return b.CQuo(sin, cos)
		case "cot":
			return b.CQuo(cos, sin)
		case "sec":
			return b.CQuo(one, cos)
		}
		return b.CQuo(one, sin)
	case "exp":
		e.fromOne(z, 1)
		return b.CExp(z)
	case "ln":
		if err := e.positive(z); err != nil {
			return z, err
		}
		return b.CLog(z)
	case "log":
		base := e.small(10, 1)
		if len(n.Args) == 2 {
			if base, err = e.value(n.Args[1]); err != nil {
				return base, err
			}
		}
		return e.logarithm(z, base)
	case "sinh", "cosh", "tanh", "coth", "sech", "csch":
		return e.hyperbolic(n.Name, z)
	case "asin", "acos", "atan", "acot", "asec", "acsc", "asinh", "acosh", "atanh":
		return e.inverse(n.Name, z)
	case "sgn":
		if !z.IsReal() {
			return z, errNotANumber
		}
		s, err := z.Re.Sign()
		return e.small(int64(s), 1), err
	case "re":
		return ball.Complex{Re: z.Re}, nil
	case "im":
		return ball.Complex{Re: z.Im}, nil
	case "arg":
		r, err := b.Arg(z)
		return ball.Complex{Re: r}, err
	}
	return e.opaque(n) // det, tr, norm, ...
}

func (e *numeric) logarithm(z, base ball.Complex) (ball.Complex, error) {
	if err := e.positive(z); err != nil {
		return z, err
	}
	if err := e.positive(base); err != nil {
		return z, err
	}
	num, err := e.ball.CLog(z)
	if err != nil {
		return z, err
	}
	den, err := e.ball.CLog(base)
	if err != nil {
		return z, err
	}
	return e.ball.CQuo(num, den)
}

func (e *numeric) hyperbolic(name string, z ball.Complex) (ball.Complex, error) {
	b := e.ball
	e.fromOne(z, 3)
	up, err := b.CExp(z)
	if err != nil {
		return z, err
	}
	down, err := b.CQuo(e.small(1, 1), up)
	if err != nil {
		return z, err
	}
	sinh := b.CMul(e.small(1, 2), e.sum(up, b.CNeg(down)))
	cosh := b.CMul(e.small(1, 2), e.sum(up, down))
	switch name {
	case "sinh":
		return sinh, nil
	case "cosh":
		return cosh, nil
	case "tanh":
		return b.CQuo(sinh, cosh)
	case "coth":
		return b.CQuo(cosh, sinh)
	case "sech":
		return b.CQuo(e.small(1, 1), cosh)
	}
	return b.CQuo(e.small(1, 1), sinh)
}

// inverse evaluates the inverse functions by logarithms and arc tangents.
func (e *numeric) inverse(name string, z ball.Complex) (ball.Complex, error) {
	b := e.ball
	e.fromOne(z, 3)
	one := e.small(1, 1)
	half := ball.Complex{Re: b.Mul(b.Pi(), b.Rat(big.NewRat(1, 2)))}
	var err error
	switch name {
	case "asec", "acsc":
		if z, err = b.CQuo(one, z); err != nil {
			return z, err
		}
		name = map[string]string{"asec": "acos", "acsc": "asin"}[name]
	case "acot": // between 0 and pi
		t, err := e.inverse("atan", z)
		if err != nil {
			return t, err
		}
		return e.sum(half, b.CNeg(t)), nil
	}
	switch name {
	case "atan":
		if !z.IsReal() {
			return z, errNotANumber
		}
		r, err := b.Atan(z.Re)
		if inverse, errQuo := b.Quo(b.Int(1), z.Re); errQuo == nil {
			e.swallowed = e.swallowed || b.Swallows(half.Re, inverse) // the arc tangent of 10^600
		}
		return ball.Complex{Re: r}, err
	case "asin", "acos":
		if !z.IsReal() {
			return z, errNotANumber
		}
		d := b.Sub(b.Int(1), b.Mul(z.Re, z.Re))
		if s, err := d.Sign(); err == nil && s < 0 {
			e.left = true
			return z, errUndefined
		}
		root, err := b.Sqrt(d)
		if err != nil {
			return z, err
		}
		a := half
		if root.ContainsZero() {
			s, err := z.Re.Sign()
			if err != nil {
				return z, err
			}
			if !root.IsZero() {
				return z, ball.ErrUndecided
			}
			if s < 0 {
				a = b.CNeg(a)
			}
		} else {
			t, err := b.Quo(z.Re, root)
			if err != nil {
				return z, err
			}
			r, err := b.Atan(t)
			if err != nil {
				return z, err
			}
			a = ball.Complex{Re: r}
		}
		if name == "acos" {
			a = e.sum(half, b.CNeg(a))
		}
		return a, nil
	}
	// asinh, acosh, atanh
	var x ball.Complex
	switch name {
	case "asinh":
		r, err := b.CSqrt(b.CAdd(b.CMul(z, z), one))
		if err != nil {
			return z, err
		}
		x = b.CAdd(z, r)
	case "acosh":
		r, err := e.squareRoot(b.CSub(b.CMul(z, z), one))
		if err != nil {
			return z, err
		}
		x = b.CAdd(z, r)
	default:
		q, err := b.CQuo(b.CAdd(one, z), b.CSub(one, z))
		if err != nil {
			return z, err
		}
		if err := e.positive(q); err != nil {
			return z, err
		}
		l, err := b.CLog(q)
		return b.CMul(e.small(1, 2), l), err
	}
	if err := e.positive(x); err != nil {
		return z, err
	}
	return b.CLog(x)
}
