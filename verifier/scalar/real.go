package scalar

import (
	"math"
	"math/big"
)

// Elementary functions of big floats. Each returns an absolute error of at most
// 2^-p times max(1, |result|), for |argument| < 2^p; guard bits pay for the
// roundings inside.

const guard = 40

func float(p uint) *big.Float { return new(big.Float).SetPrec(p) }

func fromInt(n int64, p uint) *big.Float { return float(p).SetInt64(n) }

// arctanInverse is arctan(1/n) for a small n, by its series.
func arctanInverse(n int64, p uint, hyperbolic bool) *big.Float {
	// Fixed point: p bits after the point.
	term := new(big.Int).Lsh(big.NewInt(1), p)
	term.Quo(term, big.NewInt(n))
	square := big.NewInt(n * n)
	sum := new(big.Int).Set(term)
	part := new(big.Int)
	for k := int64(1); term.Sign() != 0; k++ {
		term.Quo(term, square)
		part.Quo(term, big.NewInt(2*k+1))
		if k%2 == 1 && !hyperbolic {
			sum.Sub(sum, part)
		} else {
			sum.Add(sum, part)
		}
	}
	f := float(p).SetInt(sum)
	return f.SetMantExp(f, -int(p))
}

// pi is by Machin's formula: 16 arctan(1/5) - 4 arctan(1/239).
func pi(p uint) *big.Float {
	w := p + guard
	a := arctanInverse(5, w, false)
	b := arctanInverse(239, w, false)
	a.Mul(a, fromInt(16, w))
	b.Mul(b, fromInt(4, w))
	return a.Sub(a, b)
}

// ln2 is 18 artanh(1/26) - 2 artanh(1/4801) + 8 artanh(1/8749).
func ln2(p uint) *big.Float {
	w := p + guard
	sum := float(w)
	for _, t := range [...][2]int64{{18, 26}, {-2, 4801}, {8, 8749}} {
		x := arctanInverse(t[1], w, true)
		sum.Add(sum, x.Mul(x, fromInt(t[0], w)))
	}
	return sum
}

// constants are pi and ln 2 at the precision of one evaluation.
type constants struct {
	p      uint
	pi, ln *big.Float
}

func (c *constants) piAt() *big.Float {
	if c.pi == nil {
		c.pi = pi(c.p + 2*guard)
	}
	return c.pi
}

func (c *constants) ln2At() *big.Float {
	if c.ln == nil {
		c.ln = ln2(c.p + 2*guard)
	}
	return c.ln
}

// exp is e^x; x is below maxExponent. The relative error is at most 2^-p.
func (c *constants) exp(x *big.Float) *big.Float {
	if x.Sign() == 0 {
		return fromInt(1, c.p)
	}
	// x = k ln 2 + r, then e^r = (e^(r/2^s))^(2^s).
	const s = 10
	w := c.p + guard + s
	xf, _ := x.Float64()
	k := int64(math.Round(xf / math.Ln2))
	if k != 0 {
		w += 32
	}
	r := float(w).Set(x)
	if k != 0 {
		l := c.ln2At()
		if l.Prec() < w {
			l = ln2(w)
		}
		r.Sub(r, float(w).Mul(fromInt(k, 64), l))
	}
	if r.Sign() != 0 {
		r.SetMantExp(r, -s)
	}
	sum, term := fromInt(1, w), fromInt(1, w)
	for n := int64(1); n < 4*int64(w); n++ {
		term.Mul(term, r)
		term.Quo(term, fromInt(n, 64))
		if term.Sign() == 0 || term.MantExp(nil) < -int(w) {
			break
		}
		sum.Add(sum, term)
	}
	for range s {
		sum.Mul(sum, sum)
	}
	return sum.SetMantExp(sum, int(k))
}

// log is the logarithm of x > 0.
func (c *constants) log(x *big.Float) *big.Float {
	// x = m 2^e with 1/2 <= m < 1; y -> y + 2 (m - e^y) / (m + e^y) triples the
	// correct digits.
	m := float(c.p + guard)
	e := x.MantExp(m)
	start, _ := m.Float64()
	y := float(c.p + guard).SetFloat64(math.Log(start))
	for bits := uint(48); ; bits *= 3 {
		if bits > c.p+guard {
			bits = c.p + guard
		}
		q := constants{p: min(3*bits, c.p) + guard}
		z := q.exp(y)
		num := float(q.p).Sub(m, z)
		den := float(q.p).Add(m, z)
		num.Quo(num, den)
		num.Add(num, num)
		y = float(c.p+guard).Add(y, num)
		if 3*bits >= c.p+guard {
			break
		}
	}
	if e != 0 {
		l := c.ln2At()
		y.Add(y, float(c.p+guard).Mul(fromInt(int64(e), 64), l))
	}
	return y
}

// sincos returns the sine and the cosine of x.
func (c *constants) sincos(x *big.Float) (sin, cos *big.Float) {
	const s = 8
	w := c.p + guard + 2*s
	r := float(w).Set(x)
	// Reduce to |r| <= pi/4 around a multiple k of pi/2.
	quarter := 0
	if e := x.MantExp(nil); x.Sign() != 0 && e > -1 {
		w += uint(max(e, 0))
		half := pi(w)
		half.SetMantExp(half, -1)
		q := float(w).Quo(x, half)
		q.Add(q, big.NewFloat(math.Copysign(0.5, float64(x.Sign()))))
		k, _ := q.Int(nil)
		quarter = int(new(big.Int).And(k, big.NewInt(3)).Int64())
		r = float(w).Sub(float(w).Set(x), float(w).Mul(float(w).SetInt(k), half))
	}
	if r.Sign() != 0 {
		r.SetMantExp(r, -s)
	}
	square := float(w).Mul(r, r)
	sin, term := float(w).Set(r), float(w).Set(r)
	for n := int64(1); n < 4*int64(w); n++ {
		term.Mul(term, square)
		term.Quo(term, fromInt(2*n*(2*n+1), 64))
		if term.Sign() == 0 || term.MantExp(nil) < -int(w) {
			break
		}
		if n%2 == 1 {
			sin.Sub(sin, term)
		} else {
			sin.Add(sin, term)
		}
	}
	one := fromInt(1, w)
	cos = float(w).Sub(one, float(w).Mul(sin, sin))
	cos.Sqrt(cos)
	for range s {
		// sin 2t = 2 sin t cos t, cos 2t = 1 - 2 sin^2 t
		double := float(w).Mul(sin, cos)
		double.Add(double, double)
		cos.Mul(sin, sin)
		cos.Add(cos, cos)
		cos.Sub(one, cos)
		sin = double
	}
	switch quarter {
	case 1:
		sin, cos = cos, sin.Neg(sin)
	case 2:
		sin.Neg(sin)
		cos.Neg(cos)
	case 3:
		sin, cos = cos.Neg(cos), sin
	}
	return sin, cos
}

// atan2 is the angle of the point (x, y), which is not the origin.
func (c *constants) atan2(y, x *big.Float) *big.Float {
	w := c.p + guard
	if y.Sign() == 0 {
		if x.Sign() > 0 {
			return float(w)
		}
		return float(w).Set(c.piAt())
	}
	// Scale so that float64 can hold both, then correct the angle t by
	// sin(angle - t) = (y cos t - x sin t) / r, which triples the correct digits.
	e := max(exponent(x), exponent(y))
	xs, ys := float(w).Set(x), float(w).Set(y)
	if xs.Sign() != 0 {
		xs.SetMantExp(xs, -e)
	}
	ys.SetMantExp(ys, -e)
	r := float(w).Add(float(w).Mul(xs, xs), float(w).Mul(ys, ys))
	r.Sqrt(r)
	x64, _ := xs.Float64()
	y64, _ := ys.Float64()
	t := float(w).SetFloat64(math.Atan2(y64, x64))
	q := constants{p: w}
	for bits := uint(45); bits < w; bits *= 3 {
		s, k := q.sincos(t)
		s.Mul(s, xs)
		k.Mul(k, ys)
		k.Sub(k, s)
		t = float(w).Add(t, k.Quo(k, r))
	}
	return t
}

func exponent(x *big.Float) int {
	if x.Sign() == 0 {
		return math.MinInt32
	}
	return x.MantExp(nil)
}
