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

// A size is an upper bound of a magnitude, as its binary logarithm: -Inf is zero. Sizes
// multiply by +, divide by - and have their roots by / 2.
type size float64

// none is the size of zero.
var none = size(math.Inf(-1))

// slack covers the rounding of one operation on sizes.
const slack = 1e-6

// plus is the size of a sum.
func (s size) plus(t size) size {
	if s < t {
		s, t = t, s
	}
	if t == none {
		return s
	}
	return s + size(math.Log2(1+math.Exp2(float64(t-s)))) + slack
}

// sizeOf is the size of x. Less 2 slack it is a lower bound.
func sizeOf(x *big.Float) size {
	if x.Sign() == 0 {
		return none
	}
	m := new(big.Float)
	e := x.MantExp(m)
	f, _ := m.Float64()
	return size(e) + size(math.Log2(math.Abs(f))) + slack
}

// A Real is an interval of reals: mid ± 2^rad. The zero value is exactly zero.
type Real struct {
	mid *big.Float // nil means zero
	rad size
}

var zero = new(big.Float)

func (a Real) float() *big.Float {
	if a.mid == nil {
		return zero
	}
	return a.mid
}

func (a Real) radius() size {
	if a.mid == nil {
		return none
	}
	return a.rad
}

// A Context holds the precision and pi computed at it. It is for one goroutine.
type Context struct {
	Prec   uint // bits of mantissas
	pi     *big.Float
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
	words := int(c.Prec) / 64
	*c.Budget -= n * (1 + words/4 + words*words/500) // a product of long numbers is more than linear
	FailIf(*c.Budget < 0, ErrRange)
}

// newFloat is a float at the precision.
func (c *Context) newFloat() *big.Float { return new(big.Float).SetPrec(c.Prec) }

// rounded is x, the result of one operation at the precision, with the radius that it would have exactly.
func (c *Context) rounded(x *big.Float, rad size) Real {
	if x.Acc() != big.Exact {
		rad = rad.plus(sizeOf(x) - size(c.Prec))
	}
	return Real{x, rad}
}

// Rat is r, rounded.
func (c *Context) Rat(r *big.Rat) Real {
	x := c.newFloat().SetRat(r)
	if !r.IsInt() { // whose last step, a division, is all that Acc tells of
		return Real{x, sizeOf(x) - size(c.Prec) + 1}
	}
	return c.rounded(x, none)
}

// Int is n exactly.
func (c *Context) Int(n int64) Real { return Real{c.newFloat().SetInt64(n), none} }

// Exact reports whether a is one number.
func (a Real) Exact() bool { return a.radius() == none }

// IsZero reports whether a is exactly zero.
func (a Real) IsZero() bool { return a.Exact() && a.float().Sign() == 0 }

// ContainsZero reports whether a may be zero.
func (a Real) ContainsZero() bool {
	return a.float().Sign() == 0 || a.radius() >= sizeOf(a.float())-2*slack
}

// KnownSign is the sign of a, 0 if a may be zero.
func (a Real) KnownSign() int {
	if a.ContainsZero() {
		return 0
	}
	return a.float().Sign()
}

// Sign is the sign of a. It fails with ErrUndecided if a may be zero but is not exactly zero.
func (c *Context) Sign(a Real) int {
	FailIf(a.ContainsZero() && !a.IsZero(), ErrUndecided)
	return a.KnownSign()
}

// Neg is -a.
func (c *Context) Neg(a Real) Real { return Real{c.newFloat().Neg(a.float()), a.radius()} }

// Add is a + b.
func (c *Context) Add(a, b Real) Real {
	x := add(c.newFloat(), a.float(), b.float())
	if negligible(a.float(), b.float(), c.Prec) != nil {
		return Real{x, a.radius().plus(b.radius()).plus(sizeOf(x) - size(c.Prec))}
	}
	return c.rounded(x, a.radius().plus(b.radius()))
}

// negligible returns x or y if it is too small to change the other at the precision, else nil.
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
	x := c.newFloat().Mul(a.float(), b.float())
	return c.rounded(x, (sizeOf(a.float()) + b.radius()).plus(sizeOf(b.float())+a.radius()).plus(a.radius()+b.radius()))
}

// Quo is a / b.
func (c *Context) Quo(a, b Real) Real {
	FailIf(c.Sign(b) == 0, ErrUndefined)
	x := c.newFloat().Quo(a.float(), b.float())
	// |a/b - x| <= (ra + |x| rb) / (|b| - rb)
	return c.rounded(x, a.radius().plus(sizeOf(x)+b.radius())-lower(b))
}

// lower is a lower bound of |b|, which does not contain zero.
func lower(b Real) size {
	least := sizeOf(b.float()) - 2*slack
	return least + size(math.Log2(1-math.Exp2(float64(b.radius()-least)))) - slack
}

// Abs is |a|.
func (c *Context) Abs(a Real) Real { return Real{c.newFloat().Abs(a.float()), a.radius()} }

// Sqrt is the root of a. It is undefined for negative numbers, and undecided where the radius is more than half of a.
func (c *Context) Sqrt(a Real) Real {
	if a.IsZero() {
		return a
	}
	c.charge(8)
	if a.ContainsZero() {
		return Real{new(big.Float), sizeOf(a.float()).plus(a.radius()) / 2} // somewhere in 0 ± sqrt(|mid| + rad)
	}
	FailIf(a.float().Sign() < 0, ErrUndefined)
	FailIf(a.radius() >= sizeOf(a.float())-1, ErrUndecided)
	x := c.newFloat().Sqrt(a.float())
	return Real{x, (sizeOf(x) - size(c.Prec)).plus(a.radius() - sizeOf(x) + 2*slack)} // 2 sqrt(low) >= sqrt(mid) for a rad < 3/4 mid
}

// Differ reports whether a and b are proved to be different numbers, and if not, whether their
// radii are below 2^-bits of scale (and of the numbers), so that they may be called equal.
func (c *Context) Differ(a, b Real, scale Real, bits int) (different, tight bool) {
	d := c.Sub(a, b)
	if !d.ContainsZero() {
		return true, true
	}
	widest := max(sizeOf(a.float()), sizeOf(b.float()))
	if a.ContainsZero() || b.ContainsZero() {
		widest = max(widest, sizeOf(scale.float()))
	}
	return false, d.Exact() || d.rad < widest-size(bits)
}

// lostBits is how many bits a summand must keep above the precision to count: what
// happens to a sum later, as a high power of it, costs it some of its last bits.
const lostBits = 40

// Swallows reports whether b is not zero and too small to change a at the precision: it
// is near the radius of a, or near the last bits of a.
func (c *Context) Swallows(a, b Real) bool {
	return !b.ContainsZero() && sizeOf(b.float()) < max(a.radius()+lostBits/4, sizeOf(a.float())-size(c.Prec)+lostBits)
}

// Larger returns a or b, whichever has the larger middle in magnitude.
func (a Real) Larger(b Real) Real {
	if sizeOf(a.float()) < sizeOf(b.float()) {
		return b
	}
	return a
}

// Floor is the largest integer not above a.
func (c *Context) Floor(a Real) Real {
	FailIf(sizeOf(a.float()) > 4096, ErrRange)
	low, _ := a.float().Int(nil)
	if a.float().Sign() < 0 && !a.float().IsInt() {
		low.Sub(low, big.NewInt(1))
	}
	for i := range int64(2) { // the steps around a must lie outside its radius
		step := new(big.Float).SetInt(new(big.Int).Add(low, big.NewInt(i)))
		FailIf(!a.Exact() && (Real{sub(new(big.Float).SetPrec(c.Prec+guard), a.float(), step), a.radius()}).ContainsZero(), ErrUndecided)
	}
	return c.Rat(new(big.Rat).SetInt(low))
}
