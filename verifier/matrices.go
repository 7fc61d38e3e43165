package verifier

import (
	"slices"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
)

// matrices compares where a matrix is involved: a row or column is a vector, I is the identity. Products with numbers and
// matrices are computed; what cannot be is compared entry by entry, as it is written.
func (c *comparer) matrices(g, a *latex.Node) bool {
	x, y := c.computed(g), c.computed(a) // nil: cannot be computed, or, with c.limited set, is too large
	if x.Is(latex.Matrix) && y != nil && !y.Contains(latex.Matrix) {
		y = c.asMatrix(y, x)
	} else if y.Is(latex.Matrix) && x != nil && !x.Contains(latex.Matrix) {
		x = c.asMatrix(x, y)
	}
	if c.limited {
		return c.decide(false, "matrices too large to compute with")
	}
	if x == nil || y == nil {
		return c.elementwise(g, a, "matrices")
	}
	switch {
	case x.Op == latex.Matrix && y.Op == latex.Matrix:
		if x.Cols != y.Cols || len(x.Args) != len(y.Args) {
			return c.decide(false, "matrices of different shapes")
		}
		return c.inOrder(x.Args, y.Args, "matrices with equal entries")
	case x.Op == latex.Matrix || y.Op == latex.Matrix:
		if x.Op == latex.List || y.Op == latex.List || x.Op == latex.Bracket || y.Op == latex.Bracket {
			return c.listAndTuple(x, y)
		}
		return c.decide(false, "a matrix against something else")
	}
	return c.scalars(x, y)
}

// asMatrix reads I in n as the identity of m's shape, and [[1,2],[3,4]] as a matrix of m's shape; it returns anything else
// unchanged.
func (c *comparer) asMatrix(n, m *latex.Node) *latex.Node {
	if one := identity(m); one != nil && mentions(n, &latex.Node{Op: latex.Sym, Name: "I"}) {
		if product := c.computed(n.Replaced(latex.Sym, "I", one)); product != nil {
			return product
		}
	}
	if n.Op != latex.Bracket || n.Name != "[]" || len(n.Args)*m.Cols != len(m.Args) {
		return n
	}
	out := &latex.Node{Op: latex.Matrix, Cols: m.Cols}
	for _, row := range n.Args {
		if row.Op != latex.Bracket || row.Name != "[]" || len(row.Args) != m.Cols {
			return n
		}
		out.Args = append(out.Args, row.Args...)
	}
	return out
}

// identity is the identity of m's shape, nil if m is not square.
func identity(m *latex.Node) *latex.Node {
	if m.Cols*m.Cols != len(m.Args) {
		return nil
	}
	out := &latex.Node{Op: latex.Matrix, Cols: m.Cols, Args: make([]*latex.Node, len(m.Args))}
	for i := range out.Args {
		out.Args[i] = integer(0)
		if i/m.Cols == i%m.Cols {
			out.Args[i] = integer(1)
		}
	}
	return out
}

// computed is n with the factors of its matrices multiplied out: a matrix, or n itself if it has none; nil for other
// operations and determinants, which are compared as written, and for a matrix that is too large, where it sets c.limited.
func (c *comparer) computed(n *latex.Node) *latex.Node {
	if n == nil || !n.Contains(latex.Matrix) || n.Op == latex.Bracket || n.Op == latex.List {
		return n
	}
	c.steps += len(n.Args)
	switch n.Op {
	case latex.Matrix:
		if c.limited = c.limited || len(n.Args) > maxEntries || c.steps > maxCompareSteps; c.limited || n.Name == "|" {
			return nil
		}
		return n
	case latex.Neg:
		return c.scaled(n.Args[0], integer(-1))
	case latex.Div:
		return c.scaled(n.Args[0], &latex.Node{Op: latex.Div, Args: []*latex.Node{integer(1), n.Args[1]}})
	case latex.Mul:
		total := n.Args[0]
		for _, arg := range n.Args[1:] {
			switch first, second := total.Contains(latex.Matrix), arg.Contains(latex.Matrix); {
			case first && second:
				total = c.times(c.computed(total), c.computed(arg))
			case first:
				total = c.scaled(total, arg)
			case second:
				total = c.scaled(arg, total)
			default:
				total = product(total, arg)
			}
			if total == nil {
				return nil
			}
		}
		return total
	}
	return nil
}

// times is the product of two matrices; nil if they do not fit.
func (c *comparer) times(x, y *latex.Node) *latex.Node {
	if !x.Is(latex.Matrix) || !y.Is(latex.Matrix) || x.Cols*y.Cols != len(y.Args) {
		return nil
	}
	out := &latex.Node{Op: latex.Matrix, Cols: y.Cols}
	for i := range len(x.Args) / x.Cols * y.Cols {
		sum := &latex.Node{Op: latex.Add}
		for k := range x.Cols {
			sum.Args = append(sum.Args, product(x.Args[i/y.Cols*x.Cols+k], y.Args[k*y.Cols+i%y.Cols]))
		}
		c.steps += x.Cols
		out.Args = append(out.Args, sum)
	}
	return out
}

// scaled is a matrix times factors; nil if m is not a matrix, or a factor is one.
func (c *comparer) scaled(m *latex.Node, factors ...*latex.Node) *latex.Node {
	if m = c.computed(m); !m.Is(latex.Matrix) || product(factors...).Contains(latex.Matrix) {
		return nil
	}
	return m.Mapped(func(entry *latex.Node) *latex.Node {
		scaled := product(append(slices.Clone(factors), entry)...)
		if r, ok := c.algebra.Rational(scaled); ok {
			return algebra.Rational(r)
		}
		return scaled
	})
}

func product(factors ...*latex.Node) *latex.Node {
	return &latex.Node{Op: latex.Mul, Args: factors}
}
