// Package algebra decides whether two expressions are equal.
//
// It asks, in this order:
//
//  1. Are both rational constants? Then exact arithmetic decides.
//  2. Are they equal as formulas? Both are evaluated at random points of a finite field, every function application
//     standing for an unknown of its own. Equal values mean equal formulas (Schwartz and Zippel: the chance of an
//     accident is the degree over 2^61). Where only + - * / and integer powers of variables occur, different values
//     prove that they differ.
//  3. Are they equal as numbers? Both are evaluated in ball arithmetic, with variables at seeded points. Disjoint balls
//     prove that they differ; overlapping ones must agree in some 24 digits at every point where both are defined over
//     the reals.
//
// So decimals are exact numbers (0.333 is not 1/3), there is no absolute tolerance, and no rounding error can make equal
// numbers differ.
package algebra

import (
	"math/big"

	"onering/verifier/internal/latex"
)

// An outcome is the result of a comparison.
type outcome uint8

const (
	unequal outcome = iota
	Equal
	undecided // it could not be decided; counts as different
	Limit     // telling would have cost too much
)

// A Checker compares expressions within one budget of work. It is for one goroutine and one verdict.
type Checker struct {
	budget int
}

// work is the budget of one Checker, in units of roughly 100 ns.
const work = 60_000

// NewChecker returns a Checker with the whole budget.
func NewChecker() *Checker { return &Checker{budget: work} }

// Steps is how much of the budget is used, in its units.
func (c *Checker) Steps() int { return work - c.budget }

// Spent reports whether the budget is used up.
func (c *Checker) Spent() bool { return c.budget < 0 }

// Equal compares two scalar expressions and names the rule that decided.
func (c *Checker) Equal(a, b *latex.Node) (outcome, string) {
	x, errX := c.rational(a, nil)
	y, errY := c.rational(b, nil)
	if errX == nil && errY == nil {
		if x.Cmp(y) == 0 {
			return Equal, "the same rational number"
		}
		return unequal, "different rational numbers"
	}
	if errX == errUndefined || errY == errUndefined {
		return undecided, "undefined"
	}
	if errX == errLimit || errY == errLimit { // such as 10^(10^6)
		return c.compareHuge(a, b)
	}
	same, conclusive := c.formulas(a, b)
	switch {
	case same && conclusive && height(a) <= mostBits && height(b) <= mostBits: // the field tells such sizes apart
		return Equal, "the same formula"
	case same:
		return c.confirmByNumbers(a, b)
	case conclusive:
		return unequal, "different rational functions"
	}
	return c.numbers(a, b)
}

// compareHuge compares numbers that are too large to write out, in the field, whose verdict of difference is certain.
func (c *Checker) compareHuge(a, b *latex.Node) (outcome, string) {
	if same, conclusive := c.formulas(a, b); same {
		return Equal, "the same formula"
	} else if conclusive {
		return unequal, "different numbers"
	}
	return Limit, "a number too large to compute"
}

// Rational is the value of a rational constant.
func (c *Checker) Rational(n *latex.Node) (*big.Rat, bool) {
	r, err := c.rational(n, nil)
	return r, err == nil
}

// Integer is the value of an integer constant that fits an int.
func (c *Checker) Integer(n *latex.Node) (int, bool) {
	r, err := c.rational(n, nil)
	if err != nil || !r.IsInt() || !r.Num().IsInt64() {
		return 0, false
	}
	return int(r.Num().Int64()), true
}
