package verifier

import (
	"math/big"
	"slices"
	"strings"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
	"onering/verifier/internal/rules"
)

// A convention is a way in which an answer may differ from the gold without being wrong.
// One comparison uses at most one, the same for all elements of a list: otherwise an
// answer could be right for several golds.
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

// relax uses a convention and notes it as the rule that decided. It fails where
// another one was used before.
func (c *comparer) relax(to convention) bool {
	if c.used != strict && c.used != to {
		return c.say(false, "more than one convention would have to be relaxed")
	}
	c.used = to
	return c.say(true, string(to))
}

// agrees reports whether the parts of a chain of equations with values agree: those
// joined by = are equal, and the part after ≈ is the part before it, rounded. A chain
// whose parts disagree gives several answers: 5 = 7, 7 ≈ 2.5. The finder may have found
// only the end of a chain in running text, so parts of such a chain that are joined by =
// need not agree: the last one is the answer.
func (c *comparer) agrees(chain *latex.Node) bool {
	if !rules.On("chains") {
		return true
	}
	for i, op := range chain.Ops {
		l, r := chain.Args[i], chain.Args[i+1]
		if op == "~" && !(i == 0 && isName(l)) {
			if !c.approximates(l, r) {
				return false
			}
			continue
		}
		if op != "=" || !l.Op.Scalar() || !r.Op.Scalar() || isName(l) || isName(r) || hasNames(l) || hasNames(r) {
			continue
		}
		if !c.prose && !(&comparer{algebra: c.algebra}).equal(l, r) {
			return false
		}
	}
	return true
}

// approximates reports whether y is x rounded to the digits that y states, or x without
// the digits after them; where y is no numeral, whether they differ by one per cent at most. Of tuples all
// elements have to be so.
func (c *comparer) approximates(x, y *latex.Node) bool {
	if x.Op == latex.Bracket && y.Op == latex.Bracket && len(x.Args) == len(y.Args) {
		return slices.EqualFunc(x.Args, y.Args, c.approximates)
	}
	if !x.Op.Scalar() || !y.Op.Scalar() || len(algebra.Variables(x, y)) > 0 {
		return false
	}
	q, p := c.quantityOf(x), c.quantityOf(y)
	unit := func(q quantity) *latex.Node { // what one unit of q's value is worth
		switch {
		case q.percent:
			return algebra.Rational(big.NewRat(1, 100))
		case q.degree && !p.degree:
			return &latex.Node{Op: latex.Degree, Args: []*latex.Node{integer(1)}}
		}
		return integer(1)
	}
	order := func(difference, tolerance *latex.Node) int {
		order, ok := c.algebra.Compare(difference, product(tolerance, unit(p)))
		if !ok {
			return 1
		}
		return order
	}
	within := func(difference, tolerance *latex.Node) bool { return order(difference, tolerance) <= 0 }
	exact, stated := product(q.value, unit(q)), product(p.value, unit(p))
	d := absolute(algebra.Difference(exact, stated))
	step := lastPlace(p.value)
	if step == nil {
		return within(d, product(absolute(p.value), algebra.Rational(big.NewRat(1, 100))))
	}
	if step.Cmp(big.NewRat(1, 1)) > 0 && !within(d, product(absolute(p.value), algebra.Rational(big.NewRat(1, 20)))) {
		return false // 5 is not about 10
	}
	if within(d, algebra.Rational(new(big.Rat).Mul(step, big.NewRat(1, 2)))) {
		return true
	}
	cut, ok := c.algebra.Compare(absolute(stated), absolute(exact))
	return ok && cut <= 0 && order(d, algebra.Rational(step)) < 0
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
