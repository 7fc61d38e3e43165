package verifier

import (
	"strings"

	"onering/verifier/internal/latex"
)

// isDerivative reports whether n names a derivative by its differentials that has no
// other name: dy/dx = 2x is not dx/dy = 2x.
func isDerivative(n *latex.Node) bool {
	return n.Op == latex.Sym && strings.HasPrefix(n.Name, "d(")
}

// withPrimes writes dy/dx and a dotted x as y' and x', and second derivatives with two
// primes, for the comparison with a side that writes them differently and may leave out
// the variable.
func withPrimes(n *latex.Node) *latex.Node {
	if n == nil {
		return nil
	}
	if n.Op == latex.Sym {
		for mark, primes := range map[string]string{"dot ": "'", "ddot ": "''"} {
			if name, ok := strings.CutPrefix(n.Name, mark); ok {
				return &latex.Node{Op: latex.Sym, Name: name + primes}
			}
		}
		top, bottom, ok := strings.Cut(n.Name, ")/d(")
		if !ok {
			return n
		}
		name, primes := strings.TrimPrefix(top, "d("), "'"
		if second, ok := strings.CutPrefix(name, "^2"); ok && strings.HasSuffix(bottom, "^2)") {
			name, primes = second, "''"
		}
		return &latex.Node{Op: latex.Sym, Name: name + primes}
	}
	return n.Mapped(withPrimes)
}

// undifferentiated returns the name of the function in a derivative: x for x', for a
// dotted x and for dx/dt.
func undifferentiated(name string) string {
	if top, _, ok := strings.Cut(name, ")/d("); ok {
		name = strings.TrimPrefix(top, "d(")
	}
	name = strings.TrimPrefix(strings.TrimPrefix(name, "dot "), "ddot ")
	if base := strings.TrimRight(name, "'"); base != "" {
		return base
	}
	return name
}

// oneNotation writes the derivatives of g and a alike where they differ in it.
func oneNotation(g, a *latex.Node) (*latex.Node, *latex.Node) {
	d1, o1, p1 := notation(g)
	d2, o2, p2 := notation(a)
	if d1 == d2 && o1 == o2 && p1 == p2 {
		return g, a
	}
	return withPrimes(g), withPrimes(a)
}

// notation returns the ways in which derivatives are written in n.
func notation(n *latex.Node) (differentials, dots, primes bool) {
	for m := range n.All() {
		if m.Op == latex.Sym {
			differentials = differentials || isDerivative(m)
			dots = dots || strings.HasPrefix(m.Name, "dot ") || strings.HasPrefix(m.Name, "ddot ")
			primes = primes || strings.HasSuffix(m.Name, "'")
		}
	}
	return
}
