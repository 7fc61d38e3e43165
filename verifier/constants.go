package verifier

import (
	"slices"
	"strings"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
)

// Free constants, as in the solution of a differential equation or an integral, may have any name: y = Ce^x is y =
// Ae^x. They are told by their letters, with any subscript: C, c, K and k; in an answer also A, B, D, M, a and b.

// mostConstants bounds the constants, all orders of which are tried.
const mostConstants = 3

// freeConstants returns the letters of an expression or equation that may be free constants: C, K and the others given.
// It returns none where they may be used otherwise, as in V = CR: no function is there, and no constant is added.
func freeConstants(n *latex.Node, others string) (names []string) {
	if as, ok := assignmentOf(n); ok {
		n = as.value
	}
	if n.Op == latex.Rel || !n.Op.Scalar() {
		return nil
	}
	for _, name := range algebra.Variables(n) {
		if base, _, _ := strings.Cut(name, "_"); strings.Contains("CcKk"+others, base) && len(base) == 1 {
			names = append(names, name)
		}
	}
	if len(names) == 0 || len(names) > mostConstants || len(names) == len(algebra.Variables(n)) {
		return nil // none, too many, or no variable is left beside them
	}
	ofFunction := n.Any(func(m *latex.Node) bool {
		return m.Op == latex.Func || m.Op == latex.Pow && len(algebra.Variables(m.Args[1])) > 0
	})
	if !ofFunction && !isSum(n, names[0]) {
		return nil
	}
	return names
}

// isSum reports whether name alone is a term of n: \sin x + C.
func isSum(n *latex.Node, name string) bool {
	return n.Op == latex.Add && !n.Every(func(term *latex.Node) bool { return term.Op != latex.Sym || term.Name != name })
}

// renamedConstants compares g and a with the constants of a called as those of g, in any order.
func (c *comparer) renamedConstants(g, a *latex.Node) bool {
	want := freeConstants(g, "")
	have := freeConstants(a, "ABDMab") // what answers also call them
	if len(want) == 0 || len(want) != len(have) {
		return false
	}
	// The new names are marked, so that C_1 and C_2 may change places.
	for i, name := range have {
		a = a.Replaced(latex.Sym, name, &latex.Node{Op: latex.Sym, Name: "constant" + string(rune('0'+i))})
	}
	var try func(a *latex.Node, left []string, at int) bool // gives the constants of a from at on the names left
	try = func(a *latex.Node, left []string, at int) bool {
		if len(left) == 0 {
			return c.equal(g, a)
		}
		for i, name := range left {
			rest := slices.Delete(slices.Clone(left), i, i+1)
			if try(a.Replaced(latex.Sym, "constant"+string(rune('0'+at)), &latex.Node{Op: latex.Sym, Name: name}), rest, at+1) {
				return true
			}
		}
		return false
	}
	return try(a, want, 0) && c.decide(true, "other names for the constants")
}
