// Package ball computes with real and complex numbers known to within a radius: every
// result encloses the exact value. So a comparison can prove two numbers different, and
// can distinguish "equal to 50 digits" from "not enough digits".
//
// An operation that has no result at the precision gives up the whole evaluation: it
// panics with one of the errors of this package, which [Try] returns.
package ball

import (
	"errors"
	"math"
	"math/big"
)

// ErrUndecided is the error of an operation whose result depends on a sign that the
// precision does not decide (a branch cut, a pole, a step).
var ErrUndecided = errors.New("ball: undecided at this precision")

// ErrUndefined is the error of an operation without a value (1/0, log 0).
var ErrUndefined = errors.New("ball: undefined")

// ErrRange is the error of an operation whose result or argument is too large.
var ErrRange = errors.New("ball: out of range")

// maxExponent bounds binary exponents, far inside big.Float's.
const maxExponent = 1 << 27

// A Real is an interval of reals: mid ± rad. The zero value is exactly zero.
type Real struct {
	mid *big.Float // nil means zero
	rad mag
}

// mag is an upper bound m * 2^e of a magnitude, 0.5 <= m < 1, or 0.
type mag struct {
	m float64
	e int
}

// up is a little more than one: it covers the rounding of float64 operations.
const up = 1 + 1e-14

func newMag(f float64, e int) mag { return mag{f * up, e}.normal() }

func (a mag) add(b mag) mag {
	switch {
	case a.m == 0:
		return b
	case b.m == 0:
		return a
	}
	if a.e < b.e {
		a, b = b, a
	}
	if a.e-b.e > 60 {
		return newMag(a.m*up, a.e)
	}
	return newMag(a.m+math.Ldexp(b.m, b.e-a.e), a.e)
}

func (a mag) mul(b mag) mag { return newMag(a.m*b.m, a.e+b.e) }

func (a mag) quo(b mag) mag { return newMag(a.m/b.m, a.e-b.e) }

func (a mag) sqrt() mag {
	if a.e%2 != 0 {
		return newMag(math.Sqrt(a.m/2), (a.e+1)/2)
	}
	return newMag(math.Sqrt(a.m), a.e/2)
}

// less reports whether a < b.
func (a mag) less(b mag) bool {
	switch {
	case b.m == 0:
		return false
	case a.m == 0:
		return true
	case a.e != b.e:
		return a.e < b.e
	}
	return a.m < b.m
}

// above is an upper bound of |x|, below a lower one.
func above(x *big.Float) mag {
	if x == nil || x.Sign() == 0 {
		return mag{}
	}
	m := new(big.Float)
	e := x.MantExp(m)
	f, _ := m.Float64()
	return newMag(math.Abs(f), e)
}

func below(x *big.Float) mag {
	a := above(x)
	return mag{a.m * (1 - 1e-13), a.e}.normal()
}

func (a mag) normal() mag {
	if a.m == 0 {
		return mag{}
	}
	m, shift := math.Frexp(a.m)
	return mag{m, a.e + shift}
}

// A Context holds the precision and the constants computed at it. It is for
// one goroutine.
type Context struct {
	Prec   uint // bits of mantissas
	pi     *big.Float
	ln2    *big.Float
	Budget *int // counts down with the work; ErrRange once it is spent
}

// A failure is the panic value of an operation without a result.
type failure struct{ error }

// Try returns what evaluate computes, or the error with which an operation of it gave up.
func Try[T any](evaluate func() T) (result T, err error) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(failure)
			if !ok {
				panic(r)
			}
			err = f.error
		}
	}()
	return evaluate(), nil
}

// Fail aborts the evaluation that Try began.
func Fail(err error) { panic(failure{err}) }

// FailIf gives it up where something is wrong.
func FailIf(wrong bool, err error) {
	if wrong {
		Fail(err)
	}
}

// charge takes the cost of n operations at the precision from the budget.
func (c *Context) charge(n int) {
	if c.Budget == nil {
		return
	}
	words := int(c.Prec) / 64
	*c.Budget -= n * (1 + words/4 + words*words/500) // a product of long numbers is more than linear
	FailIf(*c.Budget < 0, ErrRange)
}

// newFloat is a float at the precision.
func (c *Context) newFloat() *big.Float { return new(big.Float).SetPrec(c.Prec) }

// rounding is the error of one rounded operation with result x.
func (c *Context) rounding(x *big.Float) mag {
	if x.Sign() == 0 {
		return mag{}
	}
	return mag{0.5, x.MantExp(nil) - int(c.Prec) + 1}
}

// rounded is x, the result of an operation, with the radius that it would have exactly.
func (c *Context) rounded(x *big.Float, rad mag) Real {
	if x.Acc() != big.Exact {
		rad = rad.add(c.rounding(x))
	}
	return Real{mid: x, rad: rad}
}

// Rat is r, rounded.
func (c *Context) Rat(r *big.Rat) Real {
	if r.Sign() == 0 {
		return Real{}
	}
	x := c.newFloat().SetRat(r)
	if x.Acc() == big.Exact && r.IsInt() {
		return Real{mid: x}
	}
	return Real{mid: x, rad: c.rounding(x)}
}

// Int is n exactly.
func (c *Context) Int(n int64) Real {
	if n == 0 {
		return Real{}
	}
	return Real{mid: c.newFloat().SetInt64(n)}
}

func (a Real) float() *big.Float {
	if a.mid == nil {
		return new(big.Float)
	}
	return a.mid
}

// Exact reports whether a is one number.
func (a Real) Exact() bool { return a.rad.m == 0 }

// IsZero reports whether a is exactly zero.
func (a Real) IsZero() bool { return a.rad.m == 0 && (a.mid == nil || a.mid.Sign() == 0) }

// ContainsZero reports whether a may be zero.
func (a Real) ContainsZero() bool {
	if a.mid == nil || a.mid.Sign() == 0 {
		return true
	}
	return !a.rad.less(below(a.mid))
}

// KnownSign is the sign of a, 0 if a may be zero.
func (a Real) KnownSign() int {
	if a.ContainsZero() {
		return 0
	}
	return a.mid.Sign()
}

// Sign is the sign of a. It fails with ErrUndecided if a may be zero but is not exactly zero.
func (c *Context) Sign(a Real) int {
	FailIf(a.ContainsZero() && !a.IsZero(), ErrUndecided)
	return a.KnownSign()
}

// Exponent is the least k with |a| < 2^k at the middle, 0 for zero.
func (a Real) Exponent() int { return a.float().MantExp(nil) }

// Neg is -a.
func (c *Context) Neg(a Real) Real {
	if a.mid == nil {
		return a
	}
	return Real{mid: c.newFloat().Neg(a.mid), rad: a.rad}
}

// Add is a + b.
func (c *Context) Add(a, b Real) Real {
	if a.mid == nil && a.rad.m == 0 {
		return b
	}
	if b.mid == nil && b.rad.m == 0 {
		return a
	}
	if small := negligible(a.float(), b.float(), c.Prec); small != nil {
		if small == a.mid {
			a, b = b, a
		}
		return Real{mid: a.mid, rad: a.rad.add(b.rad).add(above(b.mid))}
	}
	x := c.newFloat().Add(a.float(), b.float())
	return c.rounded(x, a.rad.add(b.rad))
}

// negligible returns x or y if it is too small to change the other at the precision, else
// nil.
func negligible(x, y *big.Float, prec uint) *big.Float {
	if x.Sign() == 0 || y.Sign() == 0 {
		return nil
	}
	d, gap := x.MantExp(nil)-y.MantExp(nil), int(2*prec)+256
	switch {
	case d > gap:
		return y
	case d < -gap:
		return x
	}
	return nil
}

// add sets z to x + y. A big.Float is aligned with its summand bit by bit, so 1 +
// 2^-1000000 would temporarily take a million bits; a negligible summand is left out.
func add(z, x, y *big.Float) *big.Float {
	switch negligible(x, y, z.Prec()) {
	case nil:
		return z.Add(x, y)
	case x:
		return z.Set(y)
	}
	return z.Set(x)
}

// sub sets z to x - y as add does.
func sub(z, x, y *big.Float) *big.Float { return add(z, x, new(big.Float).Neg(y)) }

// Sub is a - b.
func (c *Context) Sub(a, b Real) Real { return c.Add(a, c.Neg(b)) }

// Mul is a b.
func (c *Context) Mul(a, b Real) Real {
	if a.IsZero() || b.IsZero() {
		return Real{}
	}
	x := c.newFloat().Mul(a.float(), b.float())
	return c.rounded(x, above(a.mid).mul(b.rad).add(above(b.mid).mul(a.rad)).add(a.rad.mul(b.rad)))
}

// Quo is a / b.
func (c *Context) Quo(a, b Real) Real {
	FailIf(c.Sign(b) == 0, ErrUndefined)
	if a.IsZero() {
		return Real{}
	}
	x := c.newFloat().Quo(a.float(), b.mid)
	// |a/b - x| <= (ra + |x| rb) / (|b| - rb)
	return c.rounded(x, a.rad.add(above(x).mul(b.rad)).quo(c.lower(b)))
}

// lower is a lower bound of |b|, which does not contain zero.
func (c *Context) lower(b Real) mag {
	low := below(b.mid)
	if b.rad.m == 0 {
		return low
	}
	d := low.e - b.rad.e
	if d > 60 {
		return mag{low.m * (1 - 1e-13), low.e}.normal()
	}
	return mag{(low.m - math.Ldexp(b.rad.m, -d)) * (1 - 1e-13), low.e}.normal()
}

// Abs is |a|.
func (c *Context) Abs(a Real) Real {
	if a.mid == nil {
		return a
	}
	return Real{mid: c.newFloat().Abs(a.mid), rad: a.rad}
}

// Sqrt is the root of a, which is not negative.
func (c *Context) Sqrt(a Real) Real {
	if a.IsZero() {
		return Real{}
	}
	c.charge(8)
	if a.ContainsZero() {
		// Somewhere in 0 ± sqrt(|mid| + rad).
		return Real{rad: above(a.mid).add(a.rad).sqrt()}
	}
	FailIf(a.mid.Sign() < 0, ErrUndefined)
	x := c.newFloat().Sqrt(a.mid)
	rad := c.rounding(x)
	if a.rad.m != 0 {
		rad = rad.add(a.rad.quo(c.lower(Real{mid: x}))) // 2 sqrt(low) >= sqrt(mid) for a rad < 3/4 mid
		FailIf(!a.rad.less(mag{below(a.mid).m, below(a.mid).e - 1}), ErrUndecided)
	}
	return Real{mid: x, rad: rad}
}

// PowInt is a^n.
func (c *Context) PowInt(a Real, n int64) Real {
	return power(c, a, c.Int(1), n, 2, c.Mul, c.Quo, func(x Real) []Real { return []Real{x} })
}

// power is x^n by squaring. A step has the cost of so many operations.
func power[T any](c *Context, x, one T, n int64, cost int, mul func(a, b T) T, quo func(a, b T) T, parts func(T) []Real) T {
	if n < 0 {
		return quo(one, power(c, x, one, -n, cost, mul, quo, parts))
	}
	result := one
	for n > 0 {
		c.charge(cost)
		if n&1 == 1 {
			result = mul(result, x)
		}
		if n >>= 1; n > 0 {
			x = mul(x, x)
		}
		for _, v := range append(parts(x), parts(result)...) {
			e := v.Exponent()
			FailIf(e > maxExponent || e < -maxExponent, ErrRange)
		}
	}
	return result
}

// Differ reports whether a and b are proved to be different numbers, and if
// not, whether their radii are below 2^-bits of scale (and of the numbers), so
// that they may be called equal.
func (c *Context) Differ(a, b Real, scale Real, bits int) (different, tight bool) {
	d := c.Sub(a, b)
	if !d.ContainsZero() {
		return true, true
	}
	widest := a.Larger(b)
	if a.ContainsZero() || b.ContainsZero() {
		widest = widest.Larger(scale)
	}
	size := above(widest.float())
	size.e -= bits
	return false, d.Exact() || d.rad.less(size)
}

// lostBits is how many bits a summand must keep above the precision to count: what
// happens to a sum later, as a high power of it, costs it some of its last bits.
const lostBits = 40

// Swallows reports whether b is not zero and too small to change a at the precision: it
// is near the radius of a, or near the last bits of a.
func (c *Context) Swallows(a, b Real) bool {
	if b.mid == nil || b.ContainsZero() {
		return false
	}
	size, noise := below(b.float()), a.rad
	noise.e += lostBits / 4
	if size.less(noise) {
		return true
	}
	return a.mid != nil && a.mid.Sign() != 0 && b.mid.MantExp(nil) < a.mid.MantExp(nil)-int(c.Prec)+lostBits
}

// Larger returns a or b, whichever has the larger middle in magnitude.
func (a Real) Larger(b Real) Real {
	if above(a.float()).less(above(b.float())) {
		return b
	}
	return a
}
