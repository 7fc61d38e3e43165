package verifier

import (
	"strings"

	"onering/verifier/latex"
)

// isDerivative reports whether n names a derivative by its differentials, which
// is not one of another name: dy/dx = 2x is not dx/dy = 2x.
func isDerivative(n *latex.Node) bool {
	return n.Op == latex.Sym && strings.HasPrefix(n.Name, "d(")
}

// primed writes dy/dx and a dotted x as y' and x', and second derivatives with
// two primes, for the comparison with a side that has no differentials and so
// does not say what the derivative is by.
func primed(n *latex.Node) *latex.Node {
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
	if len(n.Args) == 0 {
		return n
	}
	out := *n
	out.Args = make([]*latex.Node, len(n.Args))
	for i, arg := range n.Args {
		out.Args[i] = primed(arg)
	}
	return &out
}

// hasDerivative reports whether a derivative by its differentials stands in n.
func hasDerivative(n *latex.Node) bool {
	if n == nil || isDerivative(n) {
		return n != nil
	}
	for _, arg := range n.Args {
		if hasDerivative(arg) {
			return true
		}
	}
	return false
}
