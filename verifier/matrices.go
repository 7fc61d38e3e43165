package verifier

import (
	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
)

// matrices compares where a matrix is involved: products and the like are
// computed, a determinant is a number, a row or column is a vector, I is the
// identity.
func (c *comparer) matrices(g, a *latex.Node) bool {
	x, y := c.computed(g), c.computed(a)
	if x.Is(latex.Matrix) && y != nil && !y.Contains(latex.Matrix) {
		y = c.asMatrix(y, x)
	} else if y.Is(latex.Matrix) && x != nil && !x.Contains(latex.Matrix) {
		x = c.asMatrix(x, y)
	}
	if c.limited {
		return c.say(false, "matrices too large to compute with")
	}
	if x == nil || y == nil {
		return c.elementwise(g, a, "matrices")
	}
	switch {
	case x.Op == latex.Matrix && y.Op == latex.Matrix:
		if x.Cols != y.Cols || len(x.Args) != len(y.Args) {
			return c.say(false, "matrices of different shapes")
		}
		return c.inOrder(x.Args, y.Args, "matrices with equal entries")
	case x.Op == latex.Matrix || y.Op == latex.Matrix:
		if x.Op == latex.List || y.Op == latex.List || x.Op == latex.Bracket || y.Op == latex.Bracket {
			return c.listAndTuple(x, y)
		}
		if m, n := one(x), one(y); m != nil && n != nil {
			return c.equal(m, n)
		}
		m, n := swapped(y.Op == latex.Matrix, x, y)
		if n = c.vectorOf(n, m); n != nil {
			return c.inOrder(m.Args, n.Args, "a matrix or vector by its entries")
		}
		return c.say(false, "a matrix against something else")
	}
	return c.scalars(x, y)
}

// asMatrix reads I in n as the identity of m's shape and [[1,2],[3,4]] as a matrix; it
// returns anything else unchanged.
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

// vectorOf writes 3i + 4j as a vector as long as m, and a zero as a matrix of m's shape; nil
// if n is neither.
func (c *comparer) vectorOf(n, m *latex.Node) *latex.Node {
	if n.Op == latex.Num && n.Rat.Sign() == 0 {
		return m.Mapped(func(*latex.Node) *latex.Node { return n })
	}
	if tuple := c.components(n, m); tuple != n {
		return tuple
	}
	return nil
}

// one returns the entry of a matrix of one entry, nil for a larger matrix, and anything
// else unchanged.
func one(n *latex.Node) *latex.Node {
	if n.Op != latex.Matrix {
		return n
	}
	if len(n.Args) == 1 {
		return n.Args[0]
	}
	return nil
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

// computed is n with its matrix operations carried out: a matrix, or an
// expression without one; nil where the shapes do not fit.
func (c *comparer) computed(n *latex.Node) *latex.Node {
	if n == nil || !n.Contains(latex.Matrix) {
		return n
	}
	if c.steps++; c.steps > maxCompareSteps {
		c.limited = true
		return nil
	}
	switch n.Op {
	case latex.Matrix:
		if len(n.Args) > maxEntries {
			c.limited = true
			return nil
		}
		if n.Name == "|" {
			return c.determinant(n)
		}
		return n
	case latex.Neg:
		return c.matrixProduct(integer(-1), c.computed(n.Args[0]))
	case latex.Func:
		if n.Name == "det" && len(n.Args) == 1 {
			if m := c.computed(n.Args[0]); m.Is(latex.Matrix) {
				return c.determinant(m)
			}
		}
		return nil
	case latex.Div:
		if n.Args[1].Contains(latex.Matrix) {
			return nil
		}
		return c.matrixProduct(&latex.Node{Op: latex.Div, Args: []*latex.Node{integer(1), n.Args[1]}}, c.computed(n.Args[0]))
	case latex.Pow:
		return c.matrixPower(n)
	case latex.Add, latex.Mul:
		total := c.computed(n.Args[0])
		for _, arg := range n.Args[1:] {
			m := c.computed(arg)
			if total == nil || m == nil {
				return nil
			}
			if n.Op == latex.Add {
				total = c.matrixSum(total, m)
			} else {
				total = c.matrixProduct(total, m)
			}
		}
		return total
	case latex.Bracket, latex.List:
		return n
	}
	return nil
}

func product(factors ...*latex.Node) *latex.Node {
	return &latex.Node{Op: latex.Mul, Args: factors}
}

func (c *comparer) matrixSum(x, y *latex.Node) *latex.Node {
	if x.Op != latex.Matrix && y.Op != latex.Matrix {
		return &latex.Node{Op: latex.Add, Args: []*latex.Node{x, y}}
	}
	if x.Op != y.Op || x.Cols != y.Cols || len(x.Args) != len(y.Args) {
		return nil
	}
	out := &latex.Node{Op: latex.Matrix, Cols: x.Cols, Args: make([]*latex.Node, len(x.Args))}
	for i := range out.Args {
		out.Args[i] = c.folded(&latex.Node{Op: latex.Add, Args: []*latex.Node{x.Args[i], y.Args[i]}})
	}
	return out
}

// matrixProduct is the product of two matrices or expressions; nil if one of them is nil, or
// the shapes do not fit.
func (c *comparer) matrixProduct(x, y *latex.Node) *latex.Node {
	switch {
	case x == nil || y == nil:
		return nil
	case x.Op != latex.Matrix && y.Op != latex.Matrix:
		return product(x, y)
	case x.Op != latex.Matrix || y.Op != latex.Matrix:
		factor, m := swapped(x.Op == latex.Matrix, x, y)
		return m.Mapped(func(entry *latex.Node) *latex.Node { return c.folded(product(factor, entry)) })
	}
	rows, inner := len(x.Args)/x.Cols, x.Cols
	if len(y.Args)/y.Cols != inner {
		return nil
	}
	if c.steps += rows * y.Cols * inner; c.steps > maxCompareSteps {
		c.limited = true
		return nil
	}
	out := &latex.Node{Op: latex.Matrix, Cols: y.Cols}
	for i := range rows {
		for j := range y.Cols {
			sum := &latex.Node{Op: latex.Add}
			for k := range inner {
				sum.Args = append(sum.Args, product(x.Args[i*inner+k], y.Args[k*y.Cols+j]))
			}
			out.Args = append(out.Args, c.folded(sum))
		}
	}
	return out
}

// folded returns n as a numeral if it is rational. This keeps entries small, since those
// that stay expressions share their parts.
func (c *comparer) folded(n *latex.Node) *latex.Node {
	if r, ok := c.algebra.Rational(n); ok {
		return algebra.Rational(r)
	}
	nodes := 0
	if n.Any(func(*latex.Node) bool { nodes++; return nodes >= maxEntrySize }) {
		c.limited = true
		return integer(0)
	}
	return n
}

// matrixPower is a small power of a matrix, its transpose, or its inverse.
func (c *comparer) matrixPower(n *latex.Node) *latex.Node {
	m := c.computed(n.Args[0])
	if !m.Is(latex.Matrix) {
		return nil
	}
	if e := n.Args[1]; e.Op == latex.Sym && e.Name == "T" {
		rows := len(m.Args) / m.Cols
		out := &latex.Node{Op: latex.Matrix, Cols: rows}
		for j := range m.Cols {
			for i := range rows {
				out.Args = append(out.Args, m.Args[i*m.Cols+j])
			}
		}
		return out
	}
	k, ok := c.algebra.Integer(n.Args[1])
	if !ok || m.Cols*m.Cols != len(m.Args) {
		return nil
	}
	if k == -1 && m.Cols <= 4 {
		return c.inverse(m)
	}
	if k < 1 || k > 4 {
		return nil
	}
	total := m
	for range k - 1 {
		total = c.matrixProduct(total, m)
	}
	return total
}

// minor is m without row i and column j.
func minor(m *latex.Node, i, j int) *latex.Node {
	out := &latex.Node{Op: latex.Matrix, Cols: m.Cols - 1}
	for k, entry := range m.Args {
		if k/m.Cols != i && k%m.Cols != j {
			out.Args = append(out.Args, entry)
		}
	}
	return out
}

// determinant expands a square matrix of at most five rows by its first row; nil if m is
// no such matrix.
func (c *comparer) determinant(m *latex.Node) *latex.Node {
	if m.Cols*m.Cols != len(m.Args) || m.Cols > 5 {
		return nil
	}
	c.steps += 4
	switch m.Cols {
	case 0:
		return integer(1)
	case 1:
		return m.Args[0]
	}
	sum := &latex.Node{Op: latex.Add}
	for j := range m.Cols {
		term := product(m.Args[j], c.determinant(minor(m, 0, j)))
		if j%2 == 1 {
			term = product(integer(-1), term)
		}
		sum.Args = append(sum.Args, term)
	}
	return sum
}

// inverse is the adjugate over the determinant.
func (c *comparer) inverse(m *latex.Node) *latex.Node {
	det := c.determinant(m)
	out := &latex.Node{Op: latex.Matrix, Cols: m.Cols}
	for i := range m.Cols {
		for j := range m.Cols {
			cofactor := c.determinant(minor(m, j, i))
			if (i+j)%2 == 1 {
				cofactor = product(integer(-1), cofactor)
			}
			out.Args = append(out.Args, &latex.Node{Op: latex.Div, Args: []*latex.Node{cofactor, det}})
		}
	}
	return out
}
