package ball

import (
	"math/big"
)

// Elementary functions: the middle is computed with guard bits by argument
// reduction and a Taylor series; the radius follows from the function's slope.

// guard is how many extra bits the middles are computed with.
const guard = 64

// fromMiddle is x rounded to the precision, with a slope's share of rad.
func (c *Context) fromMiddle(x *big.Float, rad mag) Real {
	y := c.newFloat().Set(x)
	if y.Sign() == 0 {
		return Real{mid: y, rad: rad.add(mag{0.5, -int(c.Prec)})}
	}
	return Real{mid: y, rad: rad.add(c.rounding(y)).add(c.rounding(y))}
}

// Pi is pi.
func (c *Context) Pi() Real { return c.fromMiddle(c.piFloat(), mag{}) }

// piFloat is pi with guard bits, by Machin's formula.
func (c *Context) piFloat() *big.Float {
	if c.pi == nil {
		p := c.Prec + 2*guard
		a := inverseSeries(5, p, true)
		b := inverseSeries(239, p, true)
		a.Mul(a, big.NewFloat(16))
		b.Mul(b, big.NewFloat(4))
		c.pi = a.Sub(a, b)
	}
	return c.pi
}

// inverseSeries sums 1/n ± 1/(3 n^3) + 1/(5 n^5) ± ...: atan or atanh of 1/n.
func inverseSeries(n int64, prec uint, alternate bool) *big.Float {
	// Fixed point: the terms are integers over 2^prec.
	term := new(big.Int).Lsh(big.NewInt(1), prec+16)
	term.Quo(term, big.NewInt(n))
	sum := new(big.Int).Set(term)
	square := big.NewInt(n * n)
	part := new(big.Int)
	for k := int64(3); term.Sign() != 0; k += 2 {
		term.Quo(term, square)
		part.Quo(term, big.NewInt(k))
		if alternate && k%4 == 3 {
			sum.Sub(sum, part)
		} else {
			sum.Add(sum, part)
		}
	}
	x := new(big.Float).SetPrec(prec).SetInt(sum)
	return x.SetMantExp(x, -int(prec+16))
}

// oddSeries sums x ± x^3/3 + x^5/5 ± ...: atan or atanh of a small x.
func oddSeries(x *big.Float, prec uint, alternate bool) *big.Float {
	square := new(big.Float).SetPrec(prec).Mul(x, x)
	sum := new(big.Float).SetPrec(prec).Set(x)
	term := new(big.Float).SetPrec(prec).Set(x)
	part := new(big.Float).SetPrec(prec)
	limit := x.MantExp(nil) - int(prec)
	for k := int64(3); k < 20_000; k += 2 {
		term.Mul(term, square)
		if term.Sign() == 0 || term.MantExp(nil) < limit {
			break
		}
		part.Quo(term, new(big.Float).SetInt64(k))
		if alternate && k%4 == 3 {
			sum.Sub(sum, part)
		} else {
			sum.Add(sum, part)
		}
	}
	return sum
}

// ln2Float is log 2 with guard bits: 2 atanh(1/3).
func (c *Context) ln2Float() *big.Float {
	if c.ln2 == nil {
		x := inverseSeries(3, c.Prec+2*guard, false)
		c.ln2 = x.Mul(x, big.NewFloat(2))
	}
	return c.ln2
}

// Exp is e^a.
func (c *Context) Exp(a Real) Real {
	if a.IsZero() {
		return c.Int(1)
	}
	c.charge(60)
	FailIf(above(a.float()).e > 26, ErrRange)
	FailIf(!a.rad.less(mag{0.5, -2}), ErrUndecided)
	y := c.expFloat(a.float())
	// e^(mid+r) - e^mid <= e^mid 1.2 r for r < 1/8
	return c.fromMiddle(y, above(y).mul(a.rad).mul(newMag(1.2, 0)))
}

// expFloat is e^x: x = k log 2 + r, e^r = (e^(r/2^12))^(2^12).
func (c *Context) expFloat(x *big.Float) *big.Float {
	const halvings = 12
	prec := c.Prec + 2*guard
	if x.Sign() == 0 {
		return new(big.Float).SetPrec(prec).SetInt64(1)
	}
	q := new(big.Float).SetPrec(64).Quo(x, c.ln2Float())
	f, _ := q.Float64()
	k := int(f)
	r := new(big.Float).SetPrec(prec).SetInt64(int64(k))
	r.Mul(r, c.ln2Float())
	r.Sub(new(big.Float).SetPrec(prec).Set(x), r)
	sum := new(big.Float).SetPrec(prec).SetInt64(1)
	if r.Sign() != 0 {
		r.SetMantExp(r, -halvings)
		// sum = e^r - 1, whose squaring (s+1)^2 - 1 = s(s+2) keeps its digits.
		term := new(big.Float).SetPrec(prec).Set(r)
		sum.Set(r)
		limit := r.MantExp(nil) - int(prec)
		for n := int64(2); n < 10_000; n++ {
			term.Mul(term, r)
			term.Quo(term, new(big.Float).SetInt64(n))
			if term.Sign() == 0 || term.MantExp(nil) < limit {
				break
			}
			sum.Add(sum, term)
		}
		two := big.NewFloat(2)
		for range halvings {
			t := add(new(big.Float).SetPrec(prec), sum, two)
			sum.Mul(sum, t)
		}
		add(sum, sum, big.NewFloat(1))
	}
	return sum.SetMantExp(sum, k)
}

// Log is the natural logarithm of a, which is positive.
func (c *Context) Log(a Real) Real {
	FailIf(c.Sign(a) <= 0, ErrUndefined)
	c.charge(80)
	return c.fromMiddle(c.logFloat(a.mid), a.rad.quo(c.lower(a)))
}

// logFloat is log x: x = 2^e m; log m by roots towards 1 and atanh's series.
func (c *Context) logFloat(x *big.Float) *big.Float {
	const roots = 8
	prec := c.Prec + 2*guard
	m := new(big.Float)
	e := x.MantExp(m)
	if f, _ := m.Float64(); f < 0.7 {
		m.SetMantExp(m, 1)
		e--
	}
	m = new(big.Float).SetPrec(prec).Set(m)
	one := big.NewFloat(1)
	for range roots {
		m.Sqrt(new(big.Float).SetPrec(prec).Set(m))
	}
	num := new(big.Float).SetPrec(prec).Sub(m, one)
	result := new(big.Float).SetPrec(prec)
	if num.Sign() != 0 {
		den := new(big.Float).SetPrec(prec).Add(m, one)
		result = oddSeries(num.Quo(num, den), prec, false)
		result.SetMantExp(result, roots+1)
	}
	if e != 0 {
		k := new(big.Float).SetPrec(prec).SetInt64(int64(e))
		result.Add(result, k.Mul(k, c.ln2Float()))
	}
	return result
}

// SinCos is the sine and the cosine of a.
func (c *Context) SinCos(a Real) (sin, cos Real) {
	if a.IsZero() {
		return Real{}, c.Int(1)
	}
	c.charge(120)
	FailIf(above(a.float()).e > 60, ErrRange)
	FailIf(!a.rad.less(mag{0.5, 0}), ErrUndecided)
	s, co := c.sinCosFloat(a.float())
	floor := mag{0.5, -int(c.Prec) + 1} // the reduction's error is absolute
	rad := a.rad.add(floor)
	return c.fromMiddle(s, rad), c.fromMiddle(co, rad)
}

// sinCosFloat is sin x and cos x: x = k pi/2 + r, Taylor for r/2^3, doubling.
func (c *Context) sinCosFloat(x *big.Float) (*big.Float, *big.Float) {
	prec := c.Prec + 2*guard
	half := new(big.Float).SetPrec(prec).Set(c.piFloat())
	half.SetMantExp(half, -1)
	q := new(big.Float).SetPrec(128).Quo(x, half)
	if q.Sign() >= 0 {
		add(q, q, big.NewFloat(0.5))
	} else {
		sub(q, q, big.NewFloat(0.5))
	}
	k, _ := q.Int64()
	r := new(big.Float).SetPrec(prec).SetInt64(k)
	r.Mul(r, half)
	r.Sub(new(big.Float).SetPrec(prec).Set(x), r)
	sin, versine := sinVersine(r, prec)
	cos := sub(new(big.Float).SetPrec(prec), big.NewFloat(1), versine)
	switch ((k % 4) + 4) % 4 {
	case 1:
		sin, cos = cos, sin.Neg(sin)
	case 2:
		sin, cos = sin.Neg(sin), cos.Neg(cos)
	case 3:
		sin, cos = cos.Neg(cos), sin
	}
	return sin, cos
}

// sinVersine is sin r and 1 - cos r for |r| up to pi/4, by their series at r/8 and
// three doublings of the angle. The versine keeps the digits of small angles that
// the cosine, which is near 1, would lose. r is changed.
func sinVersine(r *big.Float, prec uint) (sin, versine *big.Float) {
	const halvings = 3
	sin = new(big.Float).SetPrec(prec)
	versine = new(big.Float).SetPrec(prec)
	if r.Sign() == 0 {
		return sin, versine
	}
	r.SetMantExp(r, -halvings)
	square := new(big.Float).SetPrec(prec).Mul(r, r)
	term := new(big.Float).SetPrec(prec).Set(r)
	sin.Set(r)
	even := new(big.Float).SetPrec(prec).SetInt64(1)
	limit := square.MantExp(nil) - int(prec)
	for n := int64(2); n < 10_000; n += 2 {
		even.Mul(even, square)
		even.Quo(even, new(big.Float).SetInt64((n-1)*n))
		term.Mul(term, square)
		term.Quo(term, new(big.Float).SetInt64(n*(n+1)))
		if even.Sign() == 0 || even.MantExp(nil) < limit {
			break
		}
		if n%4 == 2 {
			versine.Add(versine, even)
			sin.Sub(sin, term)
		} else {
			versine.Sub(versine, even)
			sin.Add(sin, term)
		}
	}
	for range halvings {
		// sin 2r = 2 sin r (1-v), 1 - cos 2r = 2 v (2-v)
		cos := sub(new(big.Float).SetPrec(prec), big.NewFloat(1), versine)
		sin.Mul(sin, cos)
		sin.SetMantExp(sin, 1)
		t := sub(new(big.Float).SetPrec(prec), big.NewFloat(2), versine)
		versine.Mul(versine, t)
		versine.SetMantExp(versine, 1)
	}
	return sin, versine
}

// Atan is the arc tangent of a.
func (c *Context) Atan(a Real) Real {
	if a.IsZero() {
		return Real{}
	}
	c.charge(150)
	return c.fromMiddle(c.atanFloat(a.float()), a.rad)
}

// atanFloat is atan x: inverted above 1, halved by x/(1+sqrt(1+x^2)), then the series.
func (c *Context) atanFloat(x *big.Float) *big.Float {
	const halvings = 6
	prec := c.Prec + 2*guard
	y := new(big.Float).SetPrec(prec).Set(x)
	if y.Sign() == 0 {
		return y
	}
	one := big.NewFloat(1)
	inverted := y.MantExp(nil) > 0
	if inverted {
		y.Quo(new(big.Float).SetPrec(prec).SetInt64(1), y)
	}
	for range halvings {
		t := new(big.Float).SetPrec(prec).Mul(y, y)
		add(t, t, one)
		t.Sqrt(new(big.Float).SetPrec(prec).Set(t))
		add(t, t, one)
		y.Quo(y, t)
	}
	sum := oddSeries(y, prec, true)
	sum.SetMantExp(sum, halvings)
	if inverted {
		half := new(big.Float).SetPrec(prec).Set(c.piFloat())
		half.SetMantExp(half, -1)
		if x.Sign() < 0 {
			half.Neg(half)
		}
		sub(sum, half, sum)
	}
	return sum
}
