// Package scalar compares expressions by their values. Values are exact
// rationals where they can be, and otherwise complex balls: a centre and a
// proven radius, so that "different" is a proof and "equal" means agreement to
// more than 150 bits at every sample point. There is no tolerance.
package scalar

import (
	"errors"
	"math/big"
	"slices"
	"strconv"

	"onering/verifier/latex"
)

// Equal reports whether a and b are the same number, or the same function of
// their variables, and why. Variables are real; variables of which a factorial,
// a binomial, the limits of a sum or an exponent of a negative number is taken
// are whole. Functions are compared where both are defined. Different symbols
// are independent, units among them; an unknown function is equal to itself at
// equal arguments.
func Equal(a, b *latex.Node) (equal bool, reason string, err error) {
	work := &budget{maxSteps}
	if a == nil || b == nil {
		return false, "", ErrForeign
	}
	var s symbols
	s.collect(a, false)
	s.collect(b, false)
	if len(s.names) > maxSymbols {
		return false, "", ErrLimit
	}
	if len(s.names) == 0 {
		v := &evaluator{budget: work, at: point{}, maxBits: maxExactBits}
		same, how, err := v.compare(a, b)
		return same, how, outward(err)
	}
	return sample(a, b, &s, work)
}

// outward is the error that callers see; what is undefined is just not equal.
func outward(err error) error {
	if errors.Is(err, ErrLimit) || errors.Is(err, ErrForeign) {
		return err
	}
	return nil
}

// compare compares two values at one point. An error says that it could not;
// reason then says why too.
func (v *evaluator) compare(a, b *latex.Node) (bool, string, error) {
	x, errA := v.exact(a)
	y, errB := v.exact(b)
	for _, err := range [...]error{errA, errB} {
		if err != nil && !errors.Is(err, errInexact) {
			return false, err.Error(), err
		}
	}
	if errA == nil && errB == nil {
		if x.Cmp(y) == 0 {
			return true, "equal rationals", nil
		}
		return false, "different rationals", nil
	}
	for _, p := range [...]uint{256, 1024} {
		c := newCalc(p, v.budget)
		x, errA := v.approximate(c, a)
		y, errB := v.approximate(c, b)
		err := errors.Join(errA, errB)
		if errors.Is(err, errImprecise) && p == 256 {
			continue
		}
		if errA != nil {
			return false, errA.Error(), errA
		}
		if errB != nil {
			return false, errB.Error(), errB
		}
		if c.apart(x, y) {
			return false, "different values", nil
		}
		if sharp(x, 160) && sharp(y, 160) || p > 256 && tiny(x) && tiny(y) {
			return true, "values agree to " + strconv.Itoa(int(p)-100) + " bits", nil
		}
	}
	return false, errImprecise.Error(), errImprecise
}

// tiny reports whether a ball's radius is below 2^-400 of what it was computed
// from: only cancellation to 0 makes it blunt.
func tiny(a ball) bool { return a.rad.Sign() == 0 || a.rad.MantExp(nil) < -400 }

// Order compares two real constants: it is negative if a < b.
func Order(a, b *latex.Node) (int, error) {
	v := &evaluator{budget: &budget{maxSteps}, at: point{}, maxBits: maxExactBits}
	if a == nil || b == nil {
		return 0, ErrForeign
	}
	x, errA := v.exact(a)
	y, errB := v.exact(b)
	if errA == nil && errB == nil {
		return x.Cmp(y), nil
	}
	for _, p := range [...]uint{256, 1024} {
		c := newCalc(p, v.budget)
		x, err := v.approximate(c, a)
		if err != nil {
			return 0, blunt(err)
		}
		y, err := v.approximate(c, b)
		if err != nil {
			return 0, blunt(err)
		}
		if x.im != nil || y.im != nil {
			return 0, ErrForeign
		}
		if c.apart(x, y) {
			return x.re.Cmp(y.re), nil
		}
		if p > 256 && (sharp(x, 160) || tiny(x)) && (sharp(y, 160) || tiny(y)) {
			return 0, nil
		}
	}
	return 0, ErrLimit
}

// blunt is err for a caller that needs a value.
func blunt(err error) error {
	if err := outward(err); err != nil {
		return err
	}
	return ErrForeign
}

// Rational is the value of a where it is rational and can be computed exactly.
func Rational(a *latex.Node) (*big.Rat, bool) {
	v := &evaluator{budget: &budget{maxSteps}, at: point{}, maxBits: maxExactBits}
	r, err := v.exact(a)
	return r, err == nil
}

// Symbols are the names of the variables of a, sorted.
func Symbols(a *latex.Node) []string {
	var s symbols
	s.collect(a, false)
	var names []string
	for name, kind := range s.names {
		if kind&constant == 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
