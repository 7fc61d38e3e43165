package verifier

import (
	"math/big"
	"strings"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
	"onering/verifier/internal/rules"
)

// A convention is a way in which an answer may differ from the gold without being wrong. One comparison uses at
// most one, the same for all elements of a list: otherwise an answer could be right for several golds.
type convention string

const (
	strict        convention = ""
	percentSign   convention = "a per cent sign on one side only"
	percentValue  convention = "a per cent value as a fraction"
	degreeSign    convention = "a degree sign on one side only"
	degreeValue   convention = "degrees as radians"
	unitOmitted   convention = "a unit on one side only"
	optionContent convention = "what stands after an option letter"
)

// relax uses a convention and notes it as the rule that decided. It fails where another one was used before.
func (c *comparer) relax(to convention) bool {
	if c.used != strict && c.used != to {
		return c.decide(false, "more than one convention would have to be relaxed")
	}
	c.used = to
	return c.decide(true, string(to))
}

// agrees reports whether the parts of a chain of equations with values agree: those joined by = are equal, and
// the part after ≈ is the part before it, rounded. A chain whose parts disagree gives several answers: "5 = 7", "7
// ≈ 2.5". The finder may have found only the end of a chain in running text, so parts of such a chain that are
// joined by = need not agree: the last one is the answer.
func (c *comparer) agrees(chain *latex.Node) bool {
	if !rules.On("chains") {
		return true
	}
	for i, op := range chain.Ops {
		l, r := chain.Args[i], chain.Args[i+1]
		if op == "~" && !(i == 0 && isName(l)) { // in "x ≈ 2.5" nothing is rounded: the number is the value of x
			if !c.approximates(l, r) {
				return false
			}
			continue
		}
		hasValue := func(n *latex.Node) bool { return n.Op.Scalar() && !isName(n) && !hasNames(n) }
		if op != "=" || !hasValue(l) || !hasValue(r) {
			continue
		}
		if !c.inRunningText && !(&comparer{algebra: c.algebra}).equal(l, r) { // a new one, so that c's rule and conventions stay
			return false
		}
	}
	return true
}

// approximates reports whether y is x rounded to the digits that y states, or x without
// the digits after them; where y is not a numeral, whether they differ by one per cent at most.
func (c *comparer) approximates(x, y *latex.Node) bool {
	if !x.Op.Scalar() || !y.Op.Scalar() || len(algebra.Variables(x, y)) > 0 {
		return false
	}
	exact, stated := c.quantityOf(x).value, c.quantityOf(y).value
	if lastPlace(stated) != nil {
		return c.states(stated, exact, true)
	}
	order, ok := c.algebra.Compare(absolute(algebra.Difference(exact, stated)), product(absolute(stated), algebra.Rational(big.NewRat(1, 100))))
	return ok && order <= 0
}

// states reports whether a numeral is x rounded to the digits that it states or, if cutOff says that this counts, x cut
// off after them.
func (c *comparer) states(numeral, x *latex.Node, cutOff bool) bool {
	d, step := absolute(algebra.Difference(x, numeral)), lastPlace(numeral)
	within := func(tolerance *latex.Node) (order int, ok bool) { return c.algebra.Compare(d, tolerance) }
	if step.Cmp(big.NewRat(1, 1)) > 0 { // zeros may be exact digits, so a twentieth is the most: 5 is not about 10
		if order, ok := within(product(absolute(numeral), algebra.Rational(big.NewRat(1, 20)))); !ok || order > 0 {
			return false
		}
	}
	if order, ok := within(algebra.Rational(new(big.Rat).Quo(step, big.NewRat(2, 1)))); ok && order <= 0 {
		return true
	}
	toZero, ok := c.algebra.Compare(absolute(numeral), absolute(x)) // cutting off makes no number larger
	order, near := within(algebra.Rational(step))
	return cutOff && ok && near && toZero <= 0 && order < 0
}

// lastPlace returns the value of a 1 in the last digit of a numeral, nil if n is no
// numeral. Zeros at the end of an integer may be rounded places.
func lastPlace(n *latex.Node) *big.Rat {
	if n = unsigned(n); n.Op != latex.Num || n.Places > 1000 {
		return nil
	}
	if n.Places > 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n.Places)), nil))
	}
	if !n.Rat.IsInt() {
		return nil
	}
	digits := n.Rat.Num().String()
	zeros := len(digits) - len(strings.TrimRight(digits, "0"))
	if zeros == len(digits) { // the number zero
		zeros = 0
	}
	return new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(min(zeros, 1000))), nil))
}
