package scalar

import "math/big"

// A ball is a complex number known up to a radius: the true value is within rad
// of re + i im. im is nil for a number known to be real, which then is within
// rad on the real line. Radii are rounded up, so that two balls that do not meet
// prove that two numbers differ.
type ball struct {
	re, im *big.Float
	rad    *big.Float
}

// radius is a 32-bit upper bound.
func radius() *big.Float { return new(big.Float).SetPrec(32).SetMode(big.ToPositiveInf) }

// calc computes with balls of p bits.
type calc struct {
	constants
	*budget
}

func newCalc(p uint, b *budget) *calc { return &calc{constants{p: p}, b} }

func (c *calc) zero() *big.Float { return float(c.p) }

// imag is the imaginary part, 0 for a real ball.
func (c *calc) imag(a ball) *big.Float {
	if a.im == nil {
		return c.zero()
	}
	return a.im
}

// upper is an upper bound of |a|; lower a lower bound, possibly negative.
func upper(a ball) *big.Float {
	u := radius().Set(a.re)
	u.Abs(u)
	if a.im != nil {
		v := radius().Set(a.im)
		u.Add(u, v.Abs(v))
	}
	return u.Add(u, a.rad)
}

func lower(a ball) *big.Float {
	l := new(big.Float).SetPrec(32).SetMode(big.ToZero).Set(a.re)
	l.Abs(l)
	if a.im != nil {
		m := new(big.Float).SetPrec(32).SetMode(big.ToZero).Set(a.im)
		if m.Abs(m); m.Cmp(l) > 0 {
			l = m
		}
	}
	return l.SetMode(big.ToNegativeInf).Sub(l, a.rad)
}

// ulp is 2^(e-p+4) for the result's exponent e: what one operation may round.
func (c *calc) ulp(a ball) *big.Float {
	e := exponent(a.re)
	if a.im != nil {
		e = max(e, exponent(a.im))
	}
	u := radius()
	if e < -1<<30 {
		return u
	}
	return u.SetMantExp(big.NewFloat(1), e-int(c.p)+4)
}

// ball makes a result of a centre and a radius, rounding included.
func (c *calc) ball(re, im, rad *big.Float) (ball, error) {
	b := ball{re, im, rad}
	for _, x := range [...]*big.Float{re, im, rad} {
		if x == nil || x.Sign() == 0 {
			continue
		}
		if x.IsInf() {
			return ball{}, ErrLimit
		}
		if e := x.MantExp(nil); e > maxExponent || e < -maxExponent {
			return ball{}, ErrLimit
		}
	}
	b.rad = radius().Add(rad, c.ulp(b))
	return b, c.spend(1, int(c.p))
}

// exactly is the ball of a rational.
func (c *calc) exactly(r *big.Rat) (ball, error) {
	f := c.zero().SetRat(r)
	if f.Acc() == big.Exact {
		b, err := c.ball(f, nil, radius())
		b.rad = radius()
		return b, err
	}
	return c.ball(f, nil, radius())
}

func (c *calc) integer(n int64) ball { return ball{fromInt(n, c.p), nil, radius()} }

func (c *calc) neg(a ball) ball {
	b := ball{c.zero().Neg(a.re), nil, a.rad}
	if a.im != nil {
		b.im = c.zero().Neg(a.im)
	}
	return b
}

func (c *calc) add(a, b ball) (ball, error) {
	re := c.zero().Add(a.re, b.re)
	var im *big.Float
	if a.im != nil || b.im != nil {
		im = c.zero().Add(c.imag(a), c.imag(b))
	}
	rad := radius().Add(a.rad, b.rad)
	if a.rad.Sign() == 0 && b.rad.Sign() == 0 && re.Acc() == big.Exact && (im == nil || im.Acc() == big.Exact) {
		return ball{re, im, rad}, c.spend(1, int(c.p))
	}
	// The sum may be far smaller than its rounding only if it was exact.
	return c.ball(re, im, rad)
}

func (c *calc) sub(a, b ball) (ball, error) { return c.add(a, c.neg(b)) }

func (c *calc) mul(a, b ball) (ball, error) {
	rad := radius().Mul(upper(a), b.rad)
	rad.Add(rad, radius().Mul(upper(b), a.rad))
	rad.Add(rad, radius().Mul(a.rad, b.rad))
	switch {
	case a.im == nil && b.im == nil:
		re := c.zero().Mul(a.re, b.re)
		if rad.Sign() == 0 && re.Acc() == big.Exact {
			return c.exactBall(re)
		}
		return c.ball(re, nil, rad)
	case a.im == nil:
		return c.ball(c.zero().Mul(a.re, b.re), c.zero().Mul(a.re, b.im), rad)
	case b.im == nil:
		return c.ball(c.zero().Mul(a.re, b.re), c.zero().Mul(a.im, b.re), rad)
	}
	re := c.zero().Mul(a.re, b.re)
	t := c.zero().Mul(a.im, b.im)
	// Cancellation within a part: its rounding is relative to the products.
	rad.Add(rad, c.ulp(ball{re: re, im: t}))
	re.Sub(re, t)
	im := c.zero().Mul(a.re, b.im)
	t = c.zero().Mul(a.im, b.re)
	rad.Add(rad, c.ulp(ball{re: im, im: t}))
	im.Add(im, t)
	return c.ball(re, im, rad)
}

func (c *calc) exactBall(re *big.Float) (ball, error) {
	b, err := c.ball(re, nil, radius())
	b.rad = radius()
	return b, err
}

// inv is 1/a. The error of 1/z is at most r / (|z| (|z| - r)).
func (c *calc) inv(a ball) (ball, error) {
	low := lower(a)
	if low.Sign() <= 0 {
		if a.rad.Sign() == 0 {
			return ball{}, errUndefined
		}
		return ball{}, errImprecise
	}
	rad := radius().Quo(a.rad, radius().Mul(down(low), down(low)))
	rad.Add(rad, rad)
	if a.im == nil {
		return c.ball(c.zero().Quo(fromInt(1, c.p), a.re), nil, rad)
	}
	n := c.zero().Mul(a.re, a.re)
	n.Add(n, c.zero().Mul(a.im, a.im))
	re := c.zero().Quo(a.re, n)
	im := c.zero().Quo(a.im, n)
	return c.ball(re, im.Neg(im), rad)
}

// down is x made a little smaller, so that products of it stay lower bounds.
func down(x *big.Float) *big.Float {
	return new(big.Float).SetPrec(32).SetMode(big.ToZero).Mul(x, big.NewFloat(1-1e-6))
}

func (c *calc) quo(a, b ball) (ball, error) {
	i, err := c.inv(b)
	if err != nil {
		return ball{}, err
	}
	return c.mul(a, i)
}

// abs is |a|, a real.
func (c *calc) abs(a ball) (ball, error) {
	if a.im == nil {
		return c.ball(c.zero().Abs(a.re), nil, a.rad)
	}
	n := c.zero().Mul(a.re, a.re)
	n.Add(n, c.zero().Mul(a.im, a.im))
	return c.ball(n.Sqrt(n), nil, a.rad)
}

// sign of a real ball: -1, 0 (only if it is exactly 0) or 1.
func (c *calc) sign(a ball) (int, error) {
	switch {
	case a.im != nil:
		return 0, errNotReal
	case lower(a).Sign() > 0:
		return a.re.Sign(), nil
	case a.rad.Sign() == 0:
		return 0, nil
	}
	return 0, errImprecise
}

// apart reports whether a and b cannot be the same number.
func (c *calc) apart(a, b ball) bool {
	d := ball{c.zero().Sub(a.re, b.re), nil, radius().Add(a.rad, b.rad)}
	if a.im != nil || b.im != nil {
		d.im = c.zero().Sub(c.imag(a), c.imag(b))
	}
	if d.rad.Sign() == 0 {
		return d.re.Sign() != 0 || d.im != nil && d.im.Sign() != 0
	}
	d.rad.Add(d.rad, c.ulp(d))
	return lower(d).Sign() > 0
}

// sharp reports whether a is known to at least so many bits.
func sharp(a ball, bits int) bool {
	if a.rad.Sign() == 0 {
		return true
	}
	l := lower(a)
	return l.Sign() > 0 && l.MantExp(nil)-a.rad.MantExp(nil) >= bits
}
