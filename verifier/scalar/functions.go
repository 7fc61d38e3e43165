package scalar

import "math/big"

// Functions of balls. Each adds the error that the argument's radius causes to
// the error of the function itself, 2^-p max(1, |result|).

// rounded adds the function's own error to a radius.
func (c *calc) rounded(rad *big.Float, result ball) *big.Float {
	u := radius().SetMantExp(big.NewFloat(1), 3-int(c.p))
	u.Mul(u, radius().Add(upper(ball{result.re, result.im, radius()}), big.NewFloat(1)))
	return radius().Add(rad, u)
}

// exp: |e^(z+d) - e^z| <= 2 r |e^z| for |d| <= r <= 1.
func (c *calc) exp(a ball) (ball, error) {
	if a.rad.Cmp(big.NewFloat(1)) > 0 {
		return ball{}, errImprecise
	}
	if exponent(a.re) > 27 {
		return ball{}, ErrLimit
	}
	if err := c.spend(20, int(c.p)); err != nil {
		return ball{}, err
	}
	re := c.constants.exp(a.re)
	scale := radius().Set(re)
	rad := radius().Mul(scale, a.rad)
	rad.Add(rad, rad)
	rad.Add(rad, radius().SetMantExp(scale, 4-int(c.p)))
	if a.im == nil {
		return c.ball(re, nil, rad)
	}
	if exponent(a.im) > 4000 {
		return ball{}, ErrLimit
	}
	s, k := c.constants.sincos(a.im)
	rad.Add(rad, radius().SetMantExp(scale, 4-int(c.p)))
	return c.ball(c.zero().Mul(re, k), c.zero().Mul(re, s), rad)
}

// log is the principal logarithm: |log(z+d) - log z| <= 2 r/|z| for r <= |z|/2.
func (c *calc) log(a ball) (ball, error) {
	low := lower(a)
	if low.Sign() <= 0 {
		if a.rad.Sign() == 0 {
			return ball{}, errUndefined
		}
		return ball{}, errImprecise
	}
	if err := c.spend(40, int(c.p)); err != nil {
		return ball{}, err
	}
	rad := radius().Quo(a.rad, down(low))
	rad.Add(rad, rad)
	if a.im == nil {
		re := c.constants.log(c.zero().Abs(a.re))
		b := ball{re: re}
		if a.re.Sign() < 0 {
			b.im = c.zero().Set(c.piAt())
		}
		return c.ball(b.re, b.im, c.rounded(rad, b))
	}
	// Across the cut the logarithm jumps.
	if a.re.Sign() < 0 && radius().Abs(a.im).Cmp(a.rad) <= 0 {
		if a.rad.Sign() != 0 {
			return ball{}, errImprecise
		}
	}
	m, err := c.abs(ball{a.re, a.im, radius()})
	if err != nil {
		return ball{}, err
	}
	b := ball{re: c.constants.log(m.re), im: c.atan2(a.im, a.re)}
	return c.ball(b.re, b.im, c.rounded(rad, b))
}

// sqrt is the principal root. Its error is at most r/|sqrt z| for r <= |z|/2,
// and anyway at most 2 sqrt(|z| + r).
func (c *calc) sqrt(a ball) (ball, error) {
	if a.rad.Sign() == 0 && a.re.Sign() == 0 && (a.im == nil || a.im.Sign() == 0) {
		return a, nil
	}
	low := lower(a)
	if low.Sign() <= 0 {
		rad := upper(a)
		rad.Sqrt(rad)
		rad.Add(rad, rad)
		im := c.zero()
		if a.im == nil && a.re.Sign() >= 0 {
			im = nil // a nonnegative real, by its centre
		}
		return c.ball(c.zero(), im, rad)
	}
	rad := radius().Quo(a.rad, down(radius().Sqrt(low)))
	rad.Add(rad, rad)
	if a.im == nil {
		root := c.zero().Sqrt(c.zero().Abs(a.re))
		if a.re.Sign() > 0 {
			return c.ball(root, nil, rad)
		}
		return c.ball(c.zero(), root, rad)
	}
	if a.re.Sign() < 0 && radius().Abs(a.im).Cmp(a.rad) <= 0 && a.rad.Sign() != 0 {
		return ball{}, errImprecise
	}
	// With t = sqrt((|z| + |x|)/2) the root is t + i y/(2t), or turned round.
	w := c.p + guard
	m := float(w).Add(float(w).Mul(a.re, a.re), float(w).Mul(a.im, a.im))
	m.Sqrt(m)
	m.Add(m, float(w).Abs(a.re))
	m.Quo(m, fromInt(2, w))
	t := float(w).Sqrt(m)
	if t.Sign() == 0 {
		return ball{}, errImprecise
	}
	u := float(w).Quo(a.im, float(w).Add(t, t))
	if a.re.Sign() >= 0 {
		return c.ball(c.zero().Set(t), c.zero().Set(u), rad)
	}
	re, im := c.zero().Abs(u), c.zero().Set(t)
	if a.im.Sign() < 0 {
		im.Neg(im)
	}
	return c.ball(re, im, rad)
}

// sincos of a ball: both are within r e^|Im z + r| ... of the centre's; for a
// real ball within r.
func (c *calc) sincos(a ball) (sin, cos ball, err error) {
	if a.im == nil {
		if exponent(a.re) > 4000 {
			return sin, cos, ErrLimit
		}
		if err = c.spend(25, int(c.p)); err != nil {
			return sin, cos, err
		}
		s, k := c.constants.sincos(a.re)
		if sin, err = c.ball(s, nil, c.rounded(a.rad, ball{re: s})); err != nil {
			return sin, cos, err
		}
		cos, err = c.ball(k, nil, c.rounded(a.rad, ball{re: k}))
		return sin, cos, err
	}
	// e^(iz), e^(-iz)
	iz := ball{c.zero().Neg(a.im), a.re, a.rad}
	e, err := c.exp(iz)
	if err != nil {
		return sin, cos, err
	}
	f, err := c.exp(c.neg(iz))
	if err != nil {
		return sin, cos, err
	}
	if cos, err = c.add(e, f); err != nil {
		return sin, cos, err
	}
	if sin, err = c.sub(e, f); err != nil {
		return sin, cos, err
	}
	half, _ := c.exactly(big.NewRat(1, 2))
	if cos, err = c.mul(cos, half); err != nil {
		return sin, cos, err
	}
	sin, err = c.mul(sin, ball{c.zero(), c.zero().Neg(half.re), radius()})
	return sin, cos, err
}

// sinhcosh are from e^z and e^-z.
func (c *calc) sinhcosh(a ball) (sinh, cosh ball, err error) {
	e, err := c.exp(a)
	if err != nil {
		return sinh, cosh, err
	}
	f, err := c.exp(c.neg(a))
	if err != nil {
		return sinh, cosh, err
	}
	half, _ := c.exactly(big.NewRat(1, 2))
	if sinh, err = c.sub(e, f); err == nil {
		sinh, err = c.mul(sinh, half)
	}
	if err != nil {
		return sinh, cosh, err
	}
	if cosh, err = c.add(e, f); err == nil {
		cosh, err = c.mul(cosh, half)
	}
	return sinh, cosh, err
}

func (c *calc) i() ball { return ball{c.zero(), fromInt(1, c.p), radius()} }

// realPart takes back to the reals a result whose formula went through complex
// numbers, where the true value is known to be real.
func realPart(a ball, err error) (ball, error) {
	a.im = nil
	return a, err
}

// atan: of a real number from atan2, else (i/2) (log(1-iz) - log(1+iz)).
func (c *calc) atan(a ball) (ball, error) {
	if a.im == nil {
		if err := c.spend(60, int(c.p)); err != nil {
			return ball{}, err
		}
		if a.re.Sign() == 0 {
			return a, nil
		}
		t := c.atan2(a.re, fromInt(1, c.p))
		return c.ball(t, nil, c.rounded(a.rad, ball{re: t}))
	}
	iz, err := c.mul(c.i(), a)
	if err != nil {
		return ball{}, err
	}
	one := c.integer(1)
	minus, err := c.sub(one, iz)
	if err != nil {
		return ball{}, err
	}
	plus, err := c.add(one, iz)
	if err != nil {
		return ball{}, err
	}
	if minus, err = c.log(minus); err != nil {
		return ball{}, err
	}
	if plus, err = c.log(plus); err != nil {
		return ball{}, err
	}
	d, err := c.sub(minus, plus)
	if err != nil {
		return ball{}, err
	}
	half, _ := c.exactly(big.NewRat(1, 2))
	return c.mul(d, ball{c.zero(), half.re, radius()})
}

// asin is -i log(iz + sqrt(1 - z^2)), real for z in [-1, 1].
func (c *calc) asin(a ball) (ball, error) {
	one := c.integer(1)
	if a.im == nil && a.rad.Sign() == 0 && c.zero().Abs(a.re).Cmp(one.re) == 0 {
		half := c.zero().Set(c.piAt())
		half.SetMantExp(half, -1)
		if a.re.Sign() < 0 {
			half.Neg(half)
		}
		return c.ball(half, nil, c.rounded(radius(), ball{re: half}))
	}
	square, err := c.mul(a, a)
	if err != nil {
		return ball{}, err
	}
	rest, err := c.sub(one, square)
	if err != nil {
		return ball{}, err
	}
	isReal := a.im == nil && rest.re.Sign() >= 0
	root, err := c.sqrt(rest)
	if err != nil {
		return ball{}, err
	}
	iz, err := c.mul(c.i(), a)
	if err != nil {
		return ball{}, err
	}
	sum, err := c.add(iz, root)
	if err != nil {
		return ball{}, err
	}
	l, err := c.log(sum)
	if err != nil {
		return ball{}, err
	}
	out, err := c.mul(c.neg(c.i()), l)
	if isReal {
		return realPart(out, err)
	}
	return out, err
}

// acos is pi/2 - asin.
func (c *calc) acos(a ball) (ball, error) {
	s, err := c.asin(a)
	if err != nil {
		return ball{}, err
	}
	h, err := c.halfPi()
	if err != nil {
		return ball{}, err
	}
	return c.sub(h, s)
}

func (c *calc) pi() (ball, error) {
	p := c.zero().Set(c.piAt())
	return c.ball(p, nil, c.rounded(radius(), ball{re: p}))
}

func (c *calc) halfPi() (ball, error) {
	p, err := c.pi()
	if err != nil {
		return ball{}, err
	}
	half, _ := c.exactly(big.NewRat(1, 2))
	return c.mul(p, half)
}

// power is a^n by repeated squaring.
func (c *calc) power(a ball, n *big.Int) (ball, error) {
	m := new(big.Int).Abs(n)
	if m.BitLen() > 64 {
		// So many squarings would lose every digit.
		l, err := c.log(a)
		if err != nil {
			return ball{}, err
		}
		e, err := c.exactly(new(big.Rat).SetInt(n))
		if err != nil {
			return ball{}, err
		}
		if l, err = c.mul(l, e); err != nil {
			return ball{}, err
		}
		return c.exp(l)
	}
	result := c.integer(1)
	var err error
	for i := m.BitLen() - 1; i >= 0; i-- {
		if result, err = c.mul(result, result); err != nil {
			return ball{}, err
		}
		if m.Bit(i) == 1 {
			if result, err = c.mul(result, a); err != nil {
				return ball{}, err
			}
		}
	}
	if n.Sign() < 0 {
		return c.inv(result)
	}
	return result, nil
}

// pow is a^b = exp(b log a), real where a is positive.
func (c *calc) pow(a, b ball) (ball, error) {
	if a.rad.Sign() == 0 && a.re.Sign() == 0 && (a.im == nil || a.im.Sign() == 0) {
		s, err := c.sign(ball{b.re, nil, b.rad})
		switch {
		case err != nil:
			return ball{}, err
		case s > 0:
			return a, nil
		case s < 0:
			return ball{}, errUndefined
		}
		return c.integer(1), nil // 0^0 = 1, as in a polynomial or a binomial series
	}
	l, err := c.log(a)
	if err != nil {
		return ball{}, err
	}
	if l, err = c.mul(l, b); err != nil {
		return ball{}, err
	}
	return c.exp(l)
}
