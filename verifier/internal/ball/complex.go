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
func (c *Context) CQuo(a, b Complex) Complex {
	d := b.Re
	if !b.IsReal() {
		a, d = c.CMul(a, Complex{b.Re, c.Neg(b.Im)}), c.Add(c.Mul(b.Re, b.Re), c.Mul(b.Im, b.Im))
	}
	return Complex{c.Quo(a.Re, d), c.Quo(a.Im, d)}
}

// CAbs is |z|.
func (c *Context) CAbs(z Complex) Real {
	if z.IsReal() {
		return c.Abs(z.Re)
	}
	return c.Sqrt(c.Add(c.Mul(z.Re, z.Re), c.Mul(z.Im, z.Im)))
}

// CPowInt is z^n, by squaring. It fails with ErrRange where a power gets too large or too small.
func (c *Context) CPowInt(z Complex, n int64) Complex {
	result := Complex{Re: c.Int(1)}
	if n < 0 {
		return c.CQuo(result, c.CPowInt(z, -n))
	}
	for ; n > 0; n >>= 1 {
		c.charge(6)
		if n&1 == 1 {
			result = c.CMul(result, z)
		}
		if n > 1 { // the last square would not be used
			z = c.CMul(z, z)
		}
		for _, x := range [...]Real{z.Re, z.Im, result.Re, result.Im} {
			e := x.float().MantExp(nil)
			FailIf(e > maxExponent || e < -maxExponent, ErrRange)
		}
	}
	return result
}

// CExp is e^z.
func (c *Context) CExp(z Complex) Complex {
	r := c.Exp(z.Re)
	if z.IsReal() {
		return Complex{Re: r}
	}
	sin, cos := c.SinCos(z.Im)
	return Complex{c.Mul(r, cos), c.Mul(r, sin)}
}

// Arg is the angle of z in (-pi, pi]. It is undefined for zero, and undecided where z may be on the negative real axis, at
// which it jumps, but is not known to be real.
func (c *Context) Arg(z Complex) Real {
	if z.IsReal() {
		switch s := c.Sign(z.Re); {
		case s == 0:
			Fail(ErrUndefined)
		case s < 0:
			return c.Pi()
		}
		return Real{}
	}
	half := c.Mul(c.Pi(), c.Rat(big.NewRat(1, 2)))
	if z.Re.KnownSign() > 0 {
		return c.Atan(c.Quo(z.Im, z.Re))
	}
	im := z.Im.KnownSign()
	FailIf(im == 0, ErrUndecided) // on the branch cut, or zero
	// pi/2 - atan(re/im) above the axis, -pi/2 - atan(re/im) below.
	if im < 0 {
		half = c.Neg(half)
	}
	return c.Sub(half, c.Atan(c.Quo(z.Re, z.Im)))
}

// CLog is the principal logarithm of z.
func (c *Context) CLog(z Complex) Complex {
	if z.IsReal() && c.Sign(z.Re) >= 0 {
		return Complex{Re: c.Log(z.Re)}
	}
	return Complex{c.Log(c.CAbs(z)), c.Arg(z)}
}

// CSqrt is the principal root of z.
func (c *Context) CSqrt(z Complex) Complex {
	switch {
	case !z.IsReal():
		// e^(log z / 2) is short and good enough for the rare case.
		return c.CPow(z, Complex{Re: c.Rat(big.NewRat(1, 2))})
	case z.Re.KnownSign() > 0 || z.Re.IsZero():
		return Complex{Re: c.Sqrt(z.Re)}
	case z.Re.KnownSign() < 0:
		return Complex{Im: c.Sqrt(c.Neg(z.Re))}
	}
	// Near zero on either side: both parts are within the root of its size.
	r := c.Sqrt(z.Re)
	return Complex{r, r}
}

// CPow is the principal value of z^w.
func (c *Context) CPow(z, w Complex) Complex {
	if z.IsZero() {
		FailIf(w.Re.KnownSign() <= 0, ErrUndefined)
		return Complex{}
	}
	return c.CExp(c.CMul(w, c.CLog(z)))
}

// CSinCos is the sine and the cosine of z.
func (c *Context) CSinCos(z Complex) (sin, cos Complex) {
	s, co := c.SinCos(z.Re)
	if z.IsReal() {
		return Complex{Re: s}, Complex{Re: co}
	}
	e := c.Exp(z.Im)
	inverse := c.Quo(c.Int(1), e)
	half := c.Rat(big.NewRat(1, 2))
	cosh := c.Mul(half, c.Add(e, inverse))
	sinh := c.Mul(half, c.Sub(e, inverse))
	return Complex{c.Mul(s, cosh), c.Mul(co, sinh)}, Complex{c.Mul(co, cosh), c.Neg(c.Mul(s, sinh))}
}
