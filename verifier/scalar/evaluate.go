package scalar

import (
	"errors"
	"hash/fnv"
	"math/big"

	"onering/verifier/latex"
)

// symbol is the value of a variable, a unit or infinity at the point.
func (v *evaluator) symbol(n *latex.Node) (*big.Rat, error) {
	if x := v.at[key(n)]; x != nil {
		return x, nil
	}
	return nil, ErrForeign
}

// key is the name of a symbol among all kinds of symbols.
func key(n *latex.Node) string {
	switch n.Op {
	case latex.Unit:
		return "unit " + n.Name
	case latex.Const:
		return "const " + n.Name
	}
	return n.Name
}

// approximate is the value of n as a ball of the precision of c.
func (v *evaluator) approximate(c *calc, n *latex.Node) (ball, error) {
	x, err := v.exact(n)
	if err == nil {
		return c.exactly(x)
	}
	if !errors.Is(err, errInexact) {
		return ball{}, err
	}
	switch n.Op {
	case latex.Const:
		return v.constant(c, n)
	case latex.Sum, latex.Prod:
		return v.series(c, n)
	}
	if !arity(n) {
		return ball{}, ErrForeign
	}
	args := make([]ball, len(n.Args))
	for i, arg := range n.Args {
		if args[i], err = v.approximate(c, arg); err != nil {
			return ball{}, err
		}
	}
	return v.operate(c, n, args)
}

func (v *evaluator) constant(c *calc, n *latex.Node) (ball, error) {
	switch n.Name {
	case "pi":
		return c.pi()
	case "e":
		return c.exp(c.integer(1))
	case "i":
		return c.i(), nil
	}
	return ball{}, ErrForeign
}

// operate applies the operation of n to the values of its arguments.
func (v *evaluator) operate(c *calc, n *latex.Node, args []ball) (ball, error) {
	a := args[0]
	switch n.Op {
	case latex.Add, latex.Mul:
		var err error
		for _, b := range args[1:] {
			if n.Op == latex.Add {
				a, err = c.add(a, b)
			} else {
				a, err = c.mul(a, b)
			}
			if err != nil {
				return ball{}, err
			}
		}
		return a, nil
	case latex.Div:
		return c.quo(a, args[1])
	case latex.Neg:
		return c.neg(a), nil
	case latex.Pow:
		return v.pow(c, n, a, args[1])
	case latex.Root:
		return v.root(c, n, a)
	case latex.Abs:
		return c.abs(a)
	case latex.Floor, latex.Ceil:
		return c.whole(a, n.Op == latex.Ceil)
	case latex.Percent:
		h, err := c.exactly(big.NewRat(1, 100))
		if err != nil {
			return ball{}, err
		}
		return c.mul(a, h)
	case latex.Degree:
		p, err := c.pi()
		if err != nil {
			return ball{}, err
		}
		h, err := c.exactly(big.NewRat(1, 180))
		if err != nil {
			return ball{}, err
		}
		if a, err = c.mul(a, h); err != nil {
			return ball{}, err
		}
		return c.mul(a, p)
	case latex.Func:
		return v.function(c, n, args)
	case latex.Fact, latex.Fact2, latex.Binom:
		return ball{}, errUndefined // of what is not whole
	}
	return ball{}, ErrForeign
}

// real ends with errNotReal for a value that left the reals where only reals
// are wanted.
func (v *evaluator) real(b ball, err error) (ball, error) {
	if err == nil && v.reals && b.im != nil {
		return ball{}, errNotReal
	}
	return b, err
}

// pow is a^b. A rational exponent with an odd denominator takes negative reals
// to reals, as odd roots do.
func (v *evaluator) pow(c *calc, n *latex.Node, a, b ball) (ball, error) {
	exp, err := v.exact(n.Args[1])
	if err != nil && !errors.Is(err, errInexact) {
		return ball{}, err
	}
	if err == nil && exp.IsInt() {
		return c.power(a, exp.Num())
	}
	if err == nil && a.im == nil && a.re.Sign() < 0 && exp.Denom().Bit(0) == 1 && lower(a).Sign() > 0 {
		r, err := c.pow(c.neg(a), b)
		if err == nil && exp.Num().Bit(0) == 1 {
			r = c.neg(r)
		}
		return r, err
	}
	if err == nil && exp.Cmp(big.NewRat(1, 2)) == 0 {
		return v.real(c.sqrt(a))
	}
	return v.real(c.pow(a, b))
}

// root is the principal root, and of a negative real the real one where the
// index is odd.
func (v *evaluator) root(c *calc, n *latex.Node, a ball) (ball, error) {
	index, err := v.exact(n.Args[1])
	if err != nil {
		return ball{}, err
	}
	if index.Sign() == 0 {
		return ball{}, errUndefined
	}
	if index.Cmp(big.NewRat(2, 1)) == 0 {
		return v.real(c.sqrt(a))
	}
	inverse, err := c.exactly(new(big.Rat).Inv(index))
	if err != nil {
		return ball{}, err
	}
	if index.IsInt() && index.Num().Bit(0) == 1 && a.im == nil && a.re.Sign() < 0 {
		r, err := c.pow(c.neg(a), inverse)
		return c.neg(orZero(c, r)), err
	}
	return v.real(c.pow(a, inverse))
}

// orZero is b, or 0 for the ball of a failed computation.
func orZero(c *calc, b ball) ball {
	if b.re == nil {
		return c.integer(0)
	}
	return b
}

// whole rounds a real ball down or up; it must not hold a whole number inside.
func (c *calc) whole(a ball, up bool) (ball, error) {
	if a.im != nil {
		return ball{}, errNotReal
	}
	if exponent(a.re) > int(c.p)/2 {
		return ball{}, errImprecise
	}
	f, _ := new(big.Float).SetPrec(c.p).Sub(a.re, a.rad).Rat(nil)
	g, _ := new(big.Float).SetPrec(c.p).Add(a.re, a.rad).Rat(nil)
	low, high := floor(f), floor(g)
	if low.Cmp(high) != 0 {
		return ball{}, errImprecise
	}
	if up && !(a.rad.Sign() == 0 && f.IsInt()) {
		low.Add(low, big.NewRat(1, 1))
	}
	return c.exactly(low)
}

// series adds or multiplies approximate terms.
func (v *evaluator) series(c *calc, n *latex.Node) (ball, error) {
	low, high, err := v.limits(n)
	if err != nil {
		return ball{}, err
	}
	total := c.integer(0)
	if n.Op == latex.Prod {
		total = c.integer(1)
	}
	defer v.bind(n.Args[1].Name, nil)()
	for k := low; k <= high; k++ {
		v.at[n.Args[1].Name] = new(big.Rat).SetInt64(k)
		x, err := v.approximate(c, n.Args[0])
		if err != nil {
			return ball{}, err
		}
		if n.Op == latex.Prod {
			total, err = c.mul(total, x)
		} else {
			total, err = c.add(total, x)
		}
		if err != nil {
			return ball{}, err
		}
	}
	return total, nil
}

// function applies a named function.
func (v *evaluator) function(c *calc, n *latex.Node, args []ball) (ball, error) {
	a := args[0]
	one := c.integer(1)
	invert := func(b ball, err error) (ball, error) {
		if err != nil {
			return b, err
		}
		return c.inv(b)
	}
	switch n.Name {
	case "sin", "cos", "tan", "cot", "sec", "csc":
		s, k, err := c.sincos(a)
		if err != nil {
			return ball{}, err
		}
		return quotient(c, n.Name, [...]string{"sin", "cos", "tan", "cot", "sec", "csc"}, s, k)
	case "sinh", "cosh", "tanh", "coth", "sech", "csch":
		s, k, err := c.sinhcosh(a)
		if err != nil {
			return ball{}, err
		}
		return quotient(c, n.Name, [...]string{"sinh", "cosh", "tanh", "coth", "sech", "csch"}, s, k)
	case "asin":
		return v.real(c.asin(a))
	case "acos":
		return v.real(c.acos(a))
	case "atan":
		return v.real(c.atan(a))
	case "acot":
		t, err := c.atan(a)
		if err != nil {
			return ball{}, err
		}
		h, err := c.halfPi()
		if err != nil {
			return ball{}, err
		}
		return v.real(c.sub(h, t))
	case "asec", "acsc":
		i, err := invert(a, nil)
		if err != nil {
			return ball{}, err
		}
		if n.Name == "asec" {
			return v.real(c.acos(i))
		}
		return v.real(c.asin(i))
	case "asinh", "acosh":
		square, err := c.mul(a, a)
		if err != nil {
			return ball{}, err
		}
		if n.Name == "asinh" {
			square, err = c.add(square, one)
		} else {
			square, err = c.sub(square, one)
		}
		if err != nil {
			return ball{}, err
		}
		if square, err = c.sqrt(square); err != nil {
			return ball{}, err
		}
		if square, err = c.add(square, a); err != nil {
			return ball{}, err
		}
		return v.real(c.log(square))
	case "atanh":
		plus, err := c.add(one, a)
		if err != nil {
			return ball{}, err
		}
		minus, err := c.sub(one, a)
		if err != nil {
			return ball{}, err
		}
		if plus, err = c.quo(plus, minus); err != nil {
			return ball{}, err
		}
		if plus, err = c.log(plus); err != nil {
			return ball{}, err
		}
		half, _ := c.exactly(big.NewRat(1, 2))
		return v.real(c.mul(plus, half))
	case "ln":
		return v.real(c.log(a))
	case "log", "lg":
		base := c.integer(10)
		if len(args) == 2 {
			base = args[1]
		}
		l, err := v.real(c.log(a))
		if err != nil {
			return ball{}, err
		}
		b, err := v.real(c.log(base))
		if err != nil {
			return ball{}, err
		}
		return c.quo(l, b)
	case "exp":
		return c.exp(a)
	case "sgn":
		s, err := c.sign(a)
		return c.integer(int64(s)), err
	case "re":
		return ball{a.re, nil, a.rad}, nil
	case "im":
		return ball{c.imag(a), nil, a.rad}, nil
	case "arg":
		l, err := c.log(a)
		if err != nil {
			return ball{}, err
		}
		return ball{c.imag(l), nil, l.rad}, nil
	case "max", "min":
		for _, b := range args[1:] {
			d, err := c.sub(a, b)
			if err != nil {
				return ball{}, err
			}
			s, err := c.sign(d)
			if err != nil {
				return ball{}, err
			}
			if s < 0 == (n.Name == "max") {
				a = b
			}
		}
		return a, nil
	}
	x, err := v.hashed(n)
	if err != nil {
		return ball{}, err
	}
	return c.exactly(x)
}

// quotient picks from sine and cosine, or their quotients, by name.
func quotient(c *calc, name string, names [6]string, s, k ball) (ball, error) {
	switch name {
	case names[0]:
		return s, nil
	case names[1]:
		return k, nil
	case names[2]:
		return c.quo(s, k)
	case names[3]:
		return c.quo(k, s)
	case names[4]:
		return c.inv(k)
	}
	return c.inv(s)
}

// hashed gives an unknown function, integral or limit the value that its name
// and the values of its parts hash to: equal parts give equal values, and
// nothing else is assumed.
func (v *evaluator) hashed(n *latex.Node) (*big.Rat, error) {
	h := fnv.New64a()
	text := func(s string) { h.Write([]byte(s)); h.Write([]byte{0}) }
	text(n.Op.String())
	text(n.Name)
	args := n.Args
	switch n.Op {
	case latex.Sum, latex.Prod:
		// The bound variable's name does not matter.
		if len(args) == 4 && args[1].Is(latex.Sym) {
			defer v.bind(args[1].Name, big.NewRat(int64(1000+v.bound), 7))()
		}
	}
	c := newCalc(128, v.budget)
	for _, arg := range args {
		if arg == nil {
			text("nothing")
			continue
		}
		b, err := v.approximate(c, arg)
		switch {
		case errors.Is(err, ErrLimit):
			return nil, err
		case err != nil:
			text(arg.String())
		default:
			text(rounded(b.re, b.rad))
			if b.im != nil {
				text(rounded(b.im, b.rad))
			} else {
				text("0")
			}
		}
	}
	sum := h.Sum64()
	return big.NewRat(int64(sum>>40)+1, 1<<20+7), nil
}

// rounded is x to 18 digits; what is not known to be different from 0 is 0.
func rounded(x, rad *big.Float) string {
	if new(big.Float).Abs(x).Cmp(rad) <= 0 {
		return "0"
	}
	return x.Text('e', 18)
}
