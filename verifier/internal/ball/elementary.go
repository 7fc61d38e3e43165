package ball

import (
	"math"
	"math/big"
)

// Elementary functions: the middle is computed with guard bits, the exponential, the sine and the cosine by
// their series, their inverses by Newton's iteration; the radius follows from the function's slope.

// guard is how many extra bits the middles are computed with, twice where a reduction of the argument takes some.
const guard = 64

// guarded is a float with all guard bits that holds x.
func (c *Context) guarded(x *big.Float) *big.Float {
	return new(big.Float).SetPrec(c.Prec + 2*guard).Set(x)
}

// fromMiddle is x rounded to the precision, with a slope's share of rad.
func (c *Context) fromMiddle(x *big.Float, rad size) Real {
	y := c.newFloat().Set(x)
	return Real{y, rad.plus(sizeOf(y) - size(c.Prec) + 1)}
}

// absolute is the size of the error of a function whose argument is reduced.
func (c *Context) absolute() size { return -size(c.Prec + guard/2) }

// beyondBits reports whether a step of a sum, or of an iteration, changes x only beyond the bits.
func beyondBits(step, x *big.Float, bits uint) bool {
	return step.Sign() == 0 || step.MantExp(nil) < x.MantExp(nil)-int(bits)
}

// Pi is pi.
func (c *Context) Pi() Real { return c.fromMiddle(c.piFloat(), none) }

// piFloat is pi with guard bits, computed once for the Context, by the arithmetic-geometric mean of Gauss and Legendre.
func (c *Context) piFloat() *big.Float {
	if c.pi != nil {
		return c.pi
	}
	a, t, p := c.guarded(big.NewFloat(1)), c.guarded(big.NewFloat(0.25)), big.NewFloat(1)
	b := c.guarded(big.NewFloat(0.5))
	b.Sqrt(b)
	for {
		mean := c.guarded(a) // a copy with guard bits
		mean.Add(mean, b).SetMantExp(mean, -1)
		d := c.guarded(a)
		d.Sub(d, mean)
		b = c.guarded(b.Sqrt(c.guarded(b).Mul(a, b)))
		a = mean
		if beyondBits(d, a, (c.Prec+2*guard)/2) { // the digits double, and this difference is squared
			break
		}
		t.Sub(t, d.Mul(d, d).Mul(d, p))
		p.SetMantExp(p, 1)
	}
	a.Add(a, b)
	c.pi = a.Mul(a, a).Quo(a, t.SetMantExp(t, 2))
	return c.pi
}

// Exp is e^a.
func (c *Context) Exp(a Real) Real {
	if a.IsZero() {
		return c.Int(1)
	}
	c.charge(60)
	FailIf(sizeOf(a.float()) > 26, ErrRange)
	FailIf(a.radius() >= -3, ErrUndecided)
	y := c.expFloat(a.float())
	return c.fromMiddle(y, sizeOf(y)+a.radius()+0.5) // e^(mid+r) - e^mid <= e^mid 1.2 r for r < 1/8
}

// expFloat is e^x, as the power 2^k of e^(x/2^k), which has a short series.
func (c *Context) expFloat(x *big.Float) *big.Float {
	const small = 12  // the series is of an argument below 2^-small, |x|/2^k
	r := c.guarded(x) // a copy with guard bits
	r.Abs(r)
	k := max(0, r.MantExp(nil)+small)
	r.SetMantExp(r, -k)
	// sum = e^r - 1, whose squaring (s+1)^2 - 1 = s(s+2) keeps its digits.
	sum, term := c.guarded(r), c.guarded(r)
	for n := int64(2); !beyondBits(term, sum, term.Prec()); n++ {
		term.Mul(term, r).Quo(term, new(big.Float).SetInt64(n))
		sum = add(sum, sum, term)
	}
	for range k {
		sum.Mul(sum, add(c.guarded(sum), sum, big.NewFloat(2)))
	}
	add(sum, sum, big.NewFloat(1))
	if x.Sign() < 0 { // e^-|x|
		sum.Quo(c.guarded(big.NewFloat(1)), sum)
	}
	return sum
}

// Log is the natural logarithm of a, which is positive.
func (c *Context) Log(a Real) Real {
	FailIf(c.Sign(a) <= 0, ErrUndefined)
	c.charge(80)
	return c.fromMiddle(c.logFloat(a.float()), (a.radius() - lower(a)).plus(c.absolute()))
}

// logFloat is log x, by Halley's iteration y + 2 (x - e^y) / (x + e^y).
func (c *Context) logFloat(x *big.Float) *big.Float {
	y := c.guarded(big.NewFloat(float64(sizeOf(x)) * math.Ln2))
	for {
		e := c.expFloat(y)
		step := sub(c.guarded(x), x, e)
		step.Quo(step, add(e, x, e)).SetMantExp(step, 1)
		add(y, y, step)
		if beyondBits(step, big.NewFloat(1), y.Prec()/3) { // the digits triple
			return y
		}
	}
}

// SinCos is the sine and the cosine of a.
func (c *Context) SinCos(a Real) (sin, cos Real) {
	if a.IsZero() {
		return a, c.Int(1)
	}
	c.charge(120)
	FailIf(sizeOf(a.float()) > 60, ErrRange)
	FailIf(a.radius() >= -1, ErrUndecided)
	s, co := c.sinCosFloat(a.float())
	rad := a.radius()
	if sizeOf(a.float()) > -1 { // |a| is above 1/2: there the argument is reduced
		rad = rad.plus(c.absolute())
	}
	return c.fromMiddle(s, rad), c.fromMiddle(co, rad)
}

// sinCosFloat is sin x and cos x, by their series at r, where x = k pi/2 + r; k quarter turns then exchange them or their
// signs.
func (c *Context) sinCosFloat(x *big.Float) (sin, cos *big.Float) {
	r, k := c.guarded(x), int64(0) // guarded makes a copy with guard bits
	if sizeOf(x) > -1 {            // |x| is above 1/2
		half := c.guarded(c.piFloat())
		half.SetMantExp(half, -1)
		q, _ := c.guarded(x).Quo(x, half).Float64()
		k = int64(math.Round(q))
		r.Sub(r, c.guarded(half).Mul(half, new(big.Float).SetInt64(k)))
	}
	sin, cos = c.guarded(new(big.Float)), c.guarded(big.NewFloat(1))
	term := c.guarded(cos) // r^n/n!
	// The first term of each series is added in any case; then terms go on to the last bit of r, the size of the sine.
	for n := int64(1); n < 3 || !beyondBits(term, r, term.Prec()); n++ {
		term.Mul(term, r).Quo(term, new(big.Float).SetInt64(n))
		signed := c.guarded(term)
		if n%4 > 1 {
			signed.Neg(signed)
		}
		if n%2 == 1 {
			add(sin, sin, signed)
		} else {
			add(cos, cos, signed)
		}
	}
	if k&1 == 1 {
		sin, cos = cos, sin.Neg(sin)
	}
	if k&2 == 2 {
		sin, cos = sin.Neg(sin), cos.Neg(cos)
	}
	return sin, cos
}

// Atan is the arc tangent of a.
func (c *Context) Atan(a Real) Real {
	if a.IsZero() {
		return a
	}
	c.charge(150)
	return c.fromMiddle(c.atanFloat(a.float()), a.radius())
}

// atanFloat is atan x, by t + (x cos t - sin t) / (cos t + x sin t), the tangent of what is
// missing. From two on it is pi/2 less that of 1/x.
func (c *Context) atanFloat(x *big.Float) *big.Float {
	if x.MantExp(nil) > 1 {
		half := c.guarded(c.piFloat())
		half.SetMantExp(half, -1)
		if x.Sign() < 0 {
			half.Neg(half)
		}
		return sub(half, half, c.atanFloat(c.guarded(x).Quo(big.NewFloat(1), x)))
	}
	f, _ := x.Float64()
	t := c.guarded(big.NewFloat(math.Atan(f))) // with guard bits
	for {
		sin, cos := c.sinCosFloat(t)
		up := c.guarded(x).Mul(x, cos)
		down := c.guarded(x).Mul(x, sin)
		sub(up, up, sin)
		up.Quo(up, add(down, down, cos))
		add(t, t, up)
		if beyondBits(up, t, t.Prec()/3) { // the digits triple
			return t
		}
	}
}
