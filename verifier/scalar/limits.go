package scalar

import "errors"

// Limits on the work of one comparison. A step is an operation on a number of
// up to 256 bits; longer ones count in proportion.
const (
	maxSteps     = 20_000
	maxExactBits = 1 << 17 // of an exact rational constant
	maxPointBits = 1 << 13 // of an exact value at a sample point
	maxTerms     = 2_000   // of a sum or product
	maxFactorial = 3_000
	maxSymbols   = 24
	maxExponent  = 1 << 28 // of the binary exponent of an approximate value
)

// Errors of Equal and Order.
var (
	// ErrLimit: the values would take too long to compute.
	ErrLimit = errors.New("scalar: too much to compute")
	// ErrForeign: one of the trees is not a scalar (a set, a text, a±b).
	ErrForeign = errors.New("scalar: not an expression with a value")
)

// What else an evaluation may end with instead of a value.
var (
	errUndefined = errors.New("undefined")      // 1/0, the logarithm of 0
	errNotReal   = errors.New("not real")       // where only reals are wanted
	errImprecise = errors.New("too imprecise")  // the precision does not decide
	errInexact   = errors.New("not a rational") // exact evaluation only
)

// A budget is what is left of the work.
type budget struct{ steps int }

// spend charges n operations on numbers of so many bits.
func (b *budget) spend(n int, bits int) error {
	b.steps -= n * (1 + bits/256)
	if b.steps < 0 {
		return ErrLimit
	}
	return nil
}

// spendExact charges an operation on rationals, whose cost is quadratic.
func (b *budget) spendExact(bits int, whole bool) error {
	w := bits / 256
	square := w * w / 64
	if whole {
		square /= 16
	}
	return b.spend(1+w+square, 0)
}
