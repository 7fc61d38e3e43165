package ball

import "math/big"

// A Complex is a rectangle of complex numbers. Im exactly zero means real.
type Complex struct{ Re, Im Real }

// IsReal reports whether z is known to be real.
func (z Complex) IsReal() bool { return z.Im.IsZero() }

// IsZero reports whether z is exactly zero.
func (z Complex) IsZero() bool { return z.Re.IsZero() && z.Im.IsZero() }

// FromRat is the real r.
func (c *Context) FromRat(r *big.Rat) Complex { return Complex{Re: c.Rat(r)} }

// CAdd is a + b.
func (c *Context) CAdd(a, b Complex) Complex {
	return Complex{c.Add(a.Re, b.Re), c.Add(a.Im, b.Im)}
}

// CNeg is -a.
func (c *Context) CNeg(a Complex) Complex { return Complex{c.Neg(a.Re), c.Neg(a.Im)} }

// CSub is a - b.
func (c *Context) CSub(a, b Complex) Complex { return c.CAdd(a, c.CNeg(b)) }

// CMul is a b.
func (c *Context) CMul(a, b Complex) Complex {
	if a.IsReal() && b.IsReal() {
		return Complex{Re: c.Mul(a.Re, b.Re)}
	}
	return Complex{
		c.Sub(c.Mul(a.Re, b.Re), c.Mul(a.Im, b.Im)),
		c.Add(c.Mul(a.Re, b.Im), c.Mul(a.Im, b.Re)),
	}
}

// CQuo is a / b.
func (c *Context) CQuo(a, b Complex) (Complex, error) {
	d := b.Re
	if !b.IsReal() {
		a, d = c.CMul(a, Complex{b.Re, c.Neg(b.Im)}), c.Add(c.Mul(b.Re, b.Re), c.Mul(b.Im, b.Im))
	}
	re, err := c.Quo(a.Re, d)
	if err != nil {
		return Complex{}, err
	}
	im, err := c.Quo(a.Im, d)
	return Complex{re, im}, err
}

// CAbs is |z|.
func (c *Context) CAbs(z Complex) (Real, error) {
	if z.IsReal() {
		return c.Abs(z.Re), nil
	}
	return c.Sqrt(c.Add(c.Mul(z.Re, z.Re), c.Mul(z.Im, z.Im)))
}

// CPowInt is z^n.
func (c *Context) CPowInt(z Complex, n int64) (Complex, error) {
	if z.IsReal() {
		re, err := c.PowInt(z.Re, n)
		return Complex{Re: re}, err
	}
	return power(c, z, Complex{Re: c.Int(1)}, n, 6, c.CMul, c.CQuo, func(z Complex) []Real { return []Real{z.Re, z.Im} })
}

// CExp is e^z.
func (c *Context) CExp(z Complex) (Complex, error) {
	r, err := c.Exp(z.Re)
	if err != nil || z.IsReal() {
		return Complex{Re: r}, err
	}
	sin, cos, err := c.SinCos(z.Im)
	return Complex{c.Mul(r, cos), c.Mul(r, sin)}, err
}

// Arg is the angle of z in (-pi, pi].
func (c *Context) Arg(z Complex) (Real, error) {
	if z.IsReal() {
		s, err := z.Re.Sign()
		switch {
		case err != nil:
			return Real{}, err
		case s == 0:
			return Real{}, ErrUndefined
		case s < 0:
			return c.Pi(), nil
		}
		return Real{}, nil
	}
	re, reErr := z.Re.Sign()
	im, imErr := z.Im.Sign()
	half := c.Mul(c.Pi(), c.Rat(big.NewRat(1, 2)))
	switch {
	case reErr == nil && re > 0:
		t, err := c.Quo(z.Im, z.Re)
		if err != nil {
			return Real{}, err
		}
		return c.Atan(t)
	case imErr == nil && im != 0:
		// pi/2 - atan(re/im) above the axis, -pi/2 - atan(re/im) below.
		t, err := c.Quo(z.Re, z.Im)
		if err != nil {
			return Real{}, err
		}
		a, err := c.Atan(t)
		if im < 0 {
			half = c.Neg(half)
		}
		return c.Sub(half, a), err
	}
	return Real{}, ErrUndecided // on the branch cut, or zero
}

// CLog is the principal logarithm of z.
func (c *Context) CLog(z Complex) (Complex, error) {
	if z.IsReal() {
		s, err := z.Re.Sign()
		if err != nil {
			return Complex{}, err
		}
		if s >= 0 {
			re, err := c.Log(z.Re)
			return Complex{Re: re}, err
		}
	}
	r, err := c.CAbs(z)
	if err != nil {
		return Complex{}, err
	}
	re, err := c.Log(r)
	if err != nil {
		return Complex{}, err
	}
	im, err := c.Arg(z)
	return Complex{re, im}, err
}

// CSqrt is the principal root of z.
func (c *Context) CSqrt(z Complex) (Complex, error) {
	if z.IsReal() {
		if z.Re.ContainsZero() && !z.Re.IsZero() {
			// Near zero on either side: both parts are within the root of its size.
			r, err := c.Sqrt(z.Re)
			return Complex{r, r}, err
		}
		if s, _ := z.Re.Sign(); s >= 0 {
			r, err := c.Sqrt(z.Re)
			return Complex{Re: r}, err
		}
		r, err := c.Sqrt(c.Neg(z.Re))
		return Complex{Im: r}, err
	}
	// e^(log z / 2) is short and good enough for the rare case.
	return c.CPow(z, Complex{Re: c.Rat(big.NewRat(1, 2))})
}

// CPow is the principal value of z^w.
func (c *Context) CPow(z, w Complex) (Complex, error) {
	if z.IsZero() {
		if s, err := w.Re.Sign(); err == nil && s > 0 {
			return Complex{}, nil
		}
		return Complex{}, ErrUndefined
	}
	l, err := c.CLog(z)
	if err != nil {
		return Complex{}, err
	}
	return c.CExp(c.CMul(w, l))
}

// CSinCos is the sine and the cosine of z.
func (c *Context) CSinCos(z Complex) (sin, cos Complex, err error) {
	s, co, err := c.SinCos(z.Re)
	if err != nil || z.IsReal() {
		return Complex{Re: s}, Complex{Re: co}, err
	}
	e, err := c.Exp(z.Im)
	if err != nil {
		return Complex{}, Complex{}, err
	}
	inverse, err := c.Quo(c.Int(1), e)
	if err != nil {
		return Complex{}, Complex{}, err
	}
	half := c.Rat(big.NewRat(1, 2))
	cosh := c.Mul(half, c.Add(e, inverse))
	sinh := c.Mul(half, c.Sub(e, inverse))
	return Complex{c.Mul(s, cosh), c.Mul(co, sinh)}, Complex{c.Mul(co, cosh), c.Neg(c.Mul(s, sinh))}, nil
}

// Floor is the largest integer not above a.
func (c *Context) Floor(a Real) (*big.Int, error) {
	if a.mid == nil && a.Exact() {
		return new(big.Int), nil
	}
	if above(a.float()).e > 4096 {
		return nil, ErrRange
	}
	if !a.Exact() && a.float().IsInt() {
		return nil, ErrUndecided // on a step, however small the radius
	}
	r := new(big.Float).SetPrec(64).SetMantExp(big.NewFloat(a.rad.m), a.rad.e)
	low := floorOf(sub(new(big.Float).SetPrec(c.Prec+guard), a.float(), r))
	high := floorOf(add(new(big.Float).SetPrec(c.Prec+guard), a.float(), r))
	if low.Cmp(high) != 0 {
		return nil, ErrUndecided
	}
	return low, nil
}

func floorOf(x *big.Float) *big.Int {
	n, acc := x.Int(nil)
	if acc == big.Above { // truncated towards zero from below
		n.Sub(n, big.NewInt(1))
	}
	return n
}

// FromInt is the integer n, rounded.
func (c *Context) FromInt(n *big.Int) Real { return c.Rat(new(big.Rat).SetInt(n)) }
