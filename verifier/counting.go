package verifier

import (
	"strings"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
	"onering/verifier/internal/rules"
)

// withCombinations is n with C(n,k), P(n,k) and, where scripts says so, C_n^k and A_n^k
// as the numbers of combinations and arrangements that they are.
func withCombinations(n *latex.Node, scripts bool) *latex.Node {
	if n == nil || !rules.On("counting") || !n.Contains(latex.App) && !(scripts && n.Contains(latex.Pow)) {
		return n
	}
	out := n.Mapped(func(arg *latex.Node) *latex.Node { return withCombinations(arg, scripts) })
	name, from := "", []*latex.Node(nil)
	switch {
	case n.Op == latex.App && len(n.Args) == 2 && n.Name != "A" && len(algebra.Variables(n.Args...)) == 0: // A(5,2) is a point
		name, from = n.Name, out.Args
	case n.Op == latex.Pow && scripts:
		if name, from = subscripted(n.Args[0]); from != nil {
			from = []*latex.Node{from[0], out.Args[1]}
		}
	}
	if from == nil || from[0].Is(latex.Num) && from[1].Is(latex.Num) && from[0].Rat.Cmp(from[1].Rat) < 0 {
		return out // also where C(1,2) is a point and C_1^2 a square
	}
	switch binomial := (&latex.Node{Op: latex.Binom, Args: from}); name {
	case "C":
		return binomial
	case "P", "A":
		return product(binomial, &latex.Node{Op: latex.Fact, Args: from[1:]})
	}
	return out
}

// subscripted splits a name with a subscript, C_n or C_10, into the name and the subscript.
func subscripted(n *latex.Node) (string, []*latex.Node) {
	switch n.Op {
	case latex.Index:
		return n.Name, n.Args
	case latex.Sym:
		name, digits, ok := strings.Cut(n.Name, "_")
		if p, err := latex.Parse(digits, latex.Reading{}); ok && err == nil && p.Tree.Is(latex.Num) {
			return name, []*latex.Node{p.Tree}
		}
	}
	return "", nil
}

// namesCount reports whether n has C or A with a subscript, where the letter may be a variable.
func namesCount(n *latex.Node) bool {
	return n.Any(func(n *latex.Node) bool {
		name, _ := subscripted(n)
		return name == "C" || name == "A"
	})
}
