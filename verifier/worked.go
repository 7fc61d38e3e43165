package verifier

import (
	"math/big"
	"slices"
	"strings"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
)

// workedOut says whether the answer is worked out if the gold is: see Verifier.WorkedOut.
func workedOut(gold, answer *latex.Node, goldText, answerText string) bool {
	if gold == nil || answer == nil {
		return true // their texts decided: the answer is a numeral, or the gold's own text
	}
	return !isWorked(gold, goldText) || isWorked(answer, answerText)
}

// isWorked reports whether n, whose whole text is given, is one numeral, fraction or root, as Verifier.WorkedOut says.
func isWorked(n *latex.Node, text string) bool {
	worked := func(n *latex.Node) bool { return n == nil || isWorked(n, text) }
	switch n.Op {
	case latex.Num:
		return true
	case latex.Neg, latex.Percent, latex.Degree, latex.PlusMinus, latex.List, latex.Set, latex.Bracket, latex.Ratio, latex.Matrix, latex.Union:
		return n.Every(worked)
	case latex.Rel: // one part of a chain is enough
		return slices.ContainsFunc(n.Args, worked)
	case latex.Add: // 1 1/2, 2 hours 30 minutes
		return !strings.Contains(text, "+") && n.Every(func(term *latex.Node) bool { return term.Op != latex.Neg && worked(term) && !term.Contains(latex.Root) })
	case latex.Mul:
		kinds := map[latex.Op]int{} // how many powers of ten, roots and numbers; two of a kind are left to multiply
		for _, x := range n.Args {
			switch {
			case isPowerOfTen(x):
				kinds[latex.Pow]++
			case x.Op == latex.Root && worked(x):
				kinds[latex.Root]++
			case x.Contains(latex.Unit):
			case worked(x):
				kinds[latex.Num]++
			default:
				return false
			}
		}
		return max(kinds[latex.Pow], kinds[latex.Root], kinds[latex.Num]) < 2
	case latex.Div:
		if n.Args[1].Contains(latex.Unit) {
			return worked(n.Args[0])
		}
		p, q := wholeNumber(n.Args[0]), wholeNumber(n.Args[1])
		comesOut := p == nil || q == nil || q.Sign() == 0 || new(big.Int).Rem(p, q).Sign() == 0 // or is no fraction
		return !comesOut || n.Contains(latex.Root) && n.Every(worked)
	case latex.Root:
		_, comesOut := algebra.NewChecker().Rational(n)
		return !comesOut && n.Every(worked)
	}
	return isPowerOfTen(n)
}

// isPowerOfTen reports whether n is a power of ten, as in scientific notation.
func isPowerOfTen(n *latex.Node) bool {
	return n.Op == latex.Pow && n.Args[0].Is(latex.Num) && n.Args[0].Rat.Cmp(big.NewRat(10, 1)) == 0 && wholeNumber(n.Args[1]) != nil
}

// wholeNumber returns the value of a numeral that is a whole number, nil for other nodes.
func wholeNumber(n *latex.Node) *big.Int {
	if n.Op == latex.Num && n.Rat.IsInt() {
		return n.Rat.Num()
	}
	if n.Op == latex.Neg {
		if x := wholeNumber(n.Args[0]); x != nil {
			return new(big.Int).Neg(x)
		}
	}
	return nil
}
