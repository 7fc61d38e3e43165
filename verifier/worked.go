package verifier

import (
	"math/big"
	"slices"
	"strings"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
)

// A form is how far an expression is worked out.
type form uint8

const (
	unfinished form = iota // not a number, or a number that is still to be computed
	label                  // a unit or words: no number
	rational               // a worked-out number without roots, constants and functions
	irrational             // a worked-out number with them
)

// workedOut says whether the answer is worked out as far as the gold. It requires nothing
// if the gold has no worked-out numbers. See Verifier.WorkedOut for the rules.
func workedOut(gold, answer *latex.Node, goldText, answerText string) bool {
	if gold == nil || answer == nil {
		return true // their texts decided: the answer is a numeral, or the gold's own text
	}
	g := worker{beside: isBeside(goldText), functions: map[string]bool{}}
	for m := range gold.All() {
		if m.Op == latex.Func {
			g.functions[m.Name] = true
		}
	}
	want := g.form(gold)
	if want != rational && want != irrational {
		return true
	}
	a := worker{beside: isBeside(answerText), functions: g.functions}
	got := a.form(answer)
	return got == rational || got == irrational && want == irrational
}

// isBeside says whether the terms of a sum in the text can only be juxtaposed, as in 1
// 1/2 and in 2 hours 30 minutes.
func isBeside(text string) bool { return !strings.Contains(text, "+") }

// deepest bounds the depth of trees that are looked at.
const deepest = 200

// A worker decides how far trees are worked out.
type worker struct {
	beside    bool            // sums are juxtaposed terms
	functions map[string]bool // functions that the gold contains
	depth     int
}

func (w *worker) form(n *latex.Node) form {
	if n == nil || w.depth > deepest {
		return unfinished
	}
	w.depth++
	defer func() { w.depth-- }()
	switch n.Op {
	case latex.Num:
		return rational
	case latex.Const:
		return irrational
	case latex.Unit, latex.Text:
		return label
	case latex.Neg, latex.Percent, latex.Degree:
		return w.form(n.Args[0])
	case latex.Add:
		return w.sum(n.Args)
	case latex.Mul:
		return w.product(n)
	case latex.Div:
		return w.quotient(n.Args[0], n.Args[1])
	case latex.Pow:
		return w.power(n.Args[0], n.Args[1])
	case latex.Root:
		return w.root(n.Args[0], n.Args[1])
	case latex.Func:
		if w.functions[n.Name] && w.all(n.Args) != unfinished {
			return irrational
		}
	case latex.Rel:
		return w.relation(n)
	case latex.PlusMinus, latex.MinusPlus, latex.List, latex.Set, latex.Bracket, latex.Ratio, latex.Matrix, latex.Union:
		return w.all(n.Args)
	}
	return unfinished
}

// all returns the form of a list: unfinished if one element is.
func (w *worker) all(list []*latex.Node) form {
	f := label
	for _, x := range list {
		if x == nil {
			continue // ±3
		}
		y := w.form(x)
		if y == unfinished {
			return unfinished
		}
		f = max(f, y)
	}
	return f
}

// relation takes of a chain of equations its worked-out part, and of other
// relations all parts without variables.
func (w *worker) relation(n *latex.Node) form {
	equations := !slices.ContainsFunc(n.Ops, func(op string) bool { return op != "=" })
	best := unfinished
	for _, x := range n.Args {
		if x.Contains(latex.Sym) || x.Contains(latex.App) {
			continue
		}
		f := w.form(x)
		switch {
		case f == unfinished && !equations:
			return unfinished
		case best == unfinished, equations && f != unfinished && f < best, !equations && f > best:
			best = f
		}
	}
	return best
}

// sum is worked out if none of its terms can be added: one rational number and irrational
// ones that differ. A number and a fraction, and amounts in several units, may be
// juxtaposed.
func (w *worker) sum(terms []*latex.Node) form {
	numbers, kinds := 0, map[string]bool{}
	for _, t := range terms {
		switch w.form(t) {
		case rational:
			numbers++
		case irrational:
			kind := irrationalPart(t)
			if kinds[kind] {
				return unfinished
			}
			kinds[kind] = true
		default:
			return unfinished
		}
	}
	switch {
	case numbers <= 1 && len(kinds) > 0:
		return irrational
	case numbers == len(terms) && w.beside && !slices.ContainsFunc(terms, func(t *latex.Node) bool { return t.Op == latex.Neg }):
		return rational
	}
	return unfinished
}

// irrationalPart is a term without its rational factor, as a text.
func irrationalPart(n *latex.Node) string {
	switch {
	case n.Op == latex.Neg:
		return irrationalPart(n.Args[0])
	case n.Op == latex.Div && n.Args[1].Is(latex.Num):
		return irrationalPart(n.Args[0])
	case n.Op == latex.Func:
		return n.Name // two logarithms are one
	case n.Op == latex.Mul:
		var parts []string
		for _, x := range n.Args {
			if plain := (&worker{}).form(x); plain != rational {
				parts = append(parts, irrationalPart(x))
			}
		}
		slices.Sort(parts)
		return strings.Join(parts, " ")
	}
	return n.String()
}

// product is worked out with at most one rational factor, a power of ten, and one root.
func (w *worker) product(n *latex.Node) form {
	if n.Name != "" {
		return unfinished
	}
	numbers, tens, roots, f := 0, 0, 0, label
	for _, x := range n.Args {
		y := w.form(x)
		switch {
		case y == unfinished:
			return unfinished
		case y == rational && x.Op == latex.Pow && x.Args[0].Is(latex.Num) && x.Args[0].Rat.Cmp(big.NewRat(10, 1)) == 0: // scientific notation
			tens++
		case y == rational:
			numbers++
		case x.Op == latex.Root:
			roots++
		}
		f = max(f, y)
	}
	if numbers > 1 || tens > 1 || roots > 1 {
		return unfinished
	}
	return f
}

// quotient is worked out if it does not come out even: of whole numbers, or with
// something irrational. A number by a unit is one of that unit.
func (w *worker) quotient(a, b *latex.Node) form {
	x, y := w.form(a), w.form(b)
	switch {
	case x == unfinished || y == unfinished || x == label && y != label:
		return unfinished
	case y == label:
		return x
	case x == rational && y == rational:
		p, q := whole(a), whole(b)
		if p == nil || q == nil || q.Sign() == 0 || new(big.Int).Rem(p, q).Sign() == 0 {
			return unfinished
		}
		return rational
	}
	return irrational
}

// whole returns the value of a numeral that is a whole number, nil for other nodes.
func whole(n *latex.Node) *big.Int {
	if n.Op == latex.Neg {
		if x := whole(n.Args[0]); x != nil {
			return new(big.Int).Neg(x)
		}
		return nil
	}
	if n.Op != latex.Num || !n.Rat.IsInt() {
		return nil
	}
	return n.Rat.Num()
}

// power is worked out for a power of ten, of pi and e, of a number with a fraction
// as exponent, and of a unit.
func (w *worker) power(base, exponent *latex.Node) form {
	x, y := w.form(base), w.form(exponent)
	switch {
	case x == unfinished || y == unfinished || y == label:
		return unfinished
	case x == label:
		return label
	case base.Op == latex.Const && base.Name != "i":
		return irrational
	case base.Is(latex.Num) && whole(exponent) != nil && base.Rat.Cmp(big.NewRat(10, 1)) == 0:
		return rational
	case base.Is(latex.Num) && exponent.Op == latex.Div && y == rational:
		return irrational
	}
	return unfinished
}

// root is worked out unless its value is rational.
func (w *worker) root(radicand, index *latex.Node) form {
	k := whole(index)
	switch w.form(radicand) {
	case irrational:
		return irrational
	case rational:
		if k == nil || !k.IsInt64() || k.Int64() < 2 || k.Int64() > 64 {
			return unfinished
		}
	default:
		return unfinished
	}
	value := &latex.Node{Op: latex.Root, Args: []*latex.Node{absolute(radicand), index}}
	if _, comesOut := algebra.NewChecker().Rational(value); comesOut {
		return unfinished
	}
	return irrational
}
