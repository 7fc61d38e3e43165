package verifier

import (
	"math/big"
	"slices"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
	"onering/verifier/internal/rules"
)

// A comparer decides whether the trees of an answer and of a gold mean the same. It
// serves one pair and holds the pair's budget of work.
type comparer struct {
	algebra       *algebra.Checker
	rule          string // the rule that decided last
	limited       bool   // a comparison was given up as too costly
	depth         int
	steps         int
	used          convention // the conventions on which the verdict so far depends
	inRunningText bool       // the answer stood in running text with more, not in a box or a formula
	// tolerance of decimals relative to the gold; nil compares them to the digits that they state.
	tolerance *big.Rat
	workedOut bool // see Verifier.WorkedOut
}

// decide notes rule as the one that decided, for the explanation, and returns the verdict.
func (c *comparer) decide(verdict bool, rule string) bool {
	c.rule = rule
	return verdict
}

// swapped returns x and y, in reverse order if so says.
func swapped[T any](so bool, x, y T) (T, T) {
	if so {
		return y, x
	}
	return x, y
}

// equal compares two trees. A comparison that fails has used no convention.
func (c *comparer) equal(g, a *latex.Node) bool {
	before := c.used
	if c.byKind(g, a) {
		return true
	}
	c.used = before
	return false
}

// A comparison is a rule for trees of some kinds.
type comparison struct {
	rule    string
	fits    func(g, a *latex.Node) bool
	compare func(c *comparer, g, a *latex.Node) bool
}

// kinds is the table of comparisons, of which the first that fits decides.
var kinds []comparison

func init() { // kinds cannot name its functions where it is declared: they compare parts by kinds, a cycle
	either := func(f func(n *latex.Node) bool) func(g, a *latex.Node) bool {
		return func(g, a *latex.Node) bool { return f(g) || f(a) }
	}
	is := func(ops ...latex.Op) func(g, a *latex.Node) bool { // either is of one of these kinds
		return either(func(n *latex.Node) bool { return slices.Contains(ops, n.Op) })
	}
	has := func(ops ...latex.Op) func(g, a *latex.Node) bool { // either is, or contains such a node
		return either(func(n *latex.Node) bool { return n.Contains(ops...) })
	}
	nested := func(g, a *latex.Node) bool {
		return g.Op == latex.Matrix && isNested(a) || a.Op == latex.Matrix && isNested(g)
	}
	kinds = []comparison{
		{"plus minus", has(latex.PlusMinus, latex.MinusPlus), (*comparer).signs},
		{"equations", is(latex.Rel), (*comparer).relations},
		{"lists", is(latex.List, latex.Set), (*comparer).lists},
		{"regions", either(isRegionLike), (*comparer).sets},
		{"matrices", nested, (*comparer).matrices},
		{"brackets", is(latex.Bracket), (*comparer).brackets},
		{"matrices", has(latex.Matrix), (*comparer).matrices},
		{"ratios", is(latex.Ratio, latex.Clock), (*comparer).ratios},
		{"words", is(latex.Text), (*comparer).texts},
		{"residues", is(latex.Mod), (*comparer).residues},
	}
}

// byKind compares g and a by the first rule of kinds that fits; other kinds are compared as expressions. Before, it writes
// vectors in one form, takes off remarks such as k ∈ Z, and decides propositions by their truth tables.
func (c *comparer) byKind(g, a *latex.Node) bool {
	if g == nil || a == nil {
		return c.decide(false, "nothing to compare")
	}
	c.steps++
	if c.depth++; c.depth > maxCompareDepth || c.steps > maxCompareSteps {
		c.limited = true
		c.depth--
		return c.decide(false, "too many parts to compare")
	}
	defer func() { c.depth-- }()
	g, a = untransposed(g), untransposed(a)
	if isTuple(g) != isTuple(a) { // (1,2) and i + 2j
		g, a = c.asComponents(g, a), c.asComponents(a, g)
	}
	if verdict, ok := c.forAllOmitted(g, a); ok {
		return verdict
	}
	if (g.Op == latex.List) != (a.Op == latex.List) {
		g, a = c.withoutRemarks(g, a, true), c.withoutRemarks(a, g, false)
	}
	if rules.On("truth tables") && (isLogic(g) || isLogic(a)) {
		if same, ok := c.sameTruth(g, a); ok {
			return c.decide(same, "the same truth table")
		}
	}
	for _, kind := range kinds {
		if kind.fits(g, a) && rules.On(kind.rule) {
			return kind.compare(c, g, a)
		}
	}
	if g.Contains(latex.Const) && !a.Contains(latex.Const) { // programs write the imaginary unit so: 2 + 5*I
		a = a.Replaced(latex.Sym, "I", &latex.Node{Op: latex.Const, Name: "i"})
	}
	return c.scalars(g, a)
}

// isNested reports whether n is written as a matrix by rows, [[1,2],[3,4]].
func isNested(n *latex.Node) bool {
	return n.Op == latex.Bracket && n.Name == "[]" && n.Args[0].Is(latex.Bracket)
}

// untransposed returns (1,2)^T as the vector (1,2), which also stands for a column; it
// returns anything else unchanged.
func untransposed(n *latex.Node) *latex.Node {
	if n.Op == latex.Pow && n.Args[1].Is(latex.Sym) && n.Args[1].Name == "T" {
		if row := n.Args[0]; row.Is(latex.Bracket) || row.Is(latex.Matrix) && row.Name == "" && row.Cols == len(row.Args) {
			return &latex.Node{Op: latex.Bracket, Name: "()", Args: row.Args}
		}
	}
	return n
}

// isTuple reports whether n is written by its components.
func isTuple(n *latex.Node) bool { return n.Op == latex.Bracket || n.Op == latex.Matrix }

// asComponents is n, a sum of multiples of the unit vectors i, j and k, as the tuple of its components, as long as the
// tuple other; anything else is unchanged. A component is n with 1 for its unit and 0 for the others.
func (c *comparer) asComponents(n, other *latex.Node) *latex.Node {
	mayBeSum := n.Op.Scalar() && n.Contains(latex.Sym, latex.Const) // either is enough
	fits := isTuple(other) && (len(other.Args) == 2 || len(other.Args) == 3)
	if !rules.On("unit vectors") || !mayBeSum || !fits {
		return n
	}
	const none = 3                     // not an axis: what is left of n is a constant term
	at := func(axis int) *latex.Node { // n where one unit is 1 and the others are 0
		m := n
		for i, unit := range [...]string{"i", "j", "k"} {
			value := integer(0)
			if i == axis {
				value = integer(1)
			}
			m = m.Replaced(latex.Sym, unit, value).Replaced(latex.Const, unit, value)
		}
		return m
	}
	tuple, sum := &latex.Node{Op: latex.Bracket, Name: "()"}, &latex.Node{Op: latex.Add}
	// The parser takes i for the imaginary unit, and j and k for letters.
	for i, unit := range []*latex.Node{{Op: latex.Const, Name: "i"}, {Op: latex.Sym, Name: "j"}, {Op: latex.Sym, Name: "k"}}[:len(other.Args)] {
		tuple.Args = append(tuple.Args, at(i))
		sum.Args = append(sum.Args, product(at(i), unit))
	}
	if outcome, _ := c.algebra.Equal(n, sum); outcome != algebra.Equal || !isZero(c, at(none)) { // it is no such sum
		return n
	}
	return tuple
}

// elementwise compares two nodes of one kind argument by argument.
func (c *comparer) elementwise(g, a *latex.Node, rule string) bool {
	if g.Op != a.Op || len(g.Args) != len(a.Args) || g.Cols != a.Cols || g.Op == latex.Matrix && g.Name != a.Name {
		return c.decide(false, rule+" of different shapes")
	}
	return c.inOrder(g.Args, a.Args, rule+" with equal parts")
}

// residues compares residue classes: equal moduli, and values whose difference is a multiple of it. For a modulus that
// only one side names, see residueOf.
func (c *comparer) residues(g, a *latex.Node) bool {
	if class, value := swapped(g.Op != latex.Mod, g, a); value.Op != latex.Mod {
		return c.residueOf(class, value)
	}
	if !c.equal(g.Args[1], a.Args[1]) {
		return c.decide(false, "different moduli")
	}
	m, ok := c.algebra.Rational(g.Args[1])
	d, okD := c.algebra.Rational(algebra.Difference(g.Args[0], a.Args[0]))
	if ok && okD && m.Sign() != 0 {
		return c.decide(d.Quo(d, m).IsInt(), "residue classes")
	}
	return c.equal(g.Args[0], a.Args[0])
}

// residueOf compares x mod m with a value without a modulus: the value must be
// x, if that is smaller than m, or x's remainder.
func (c *comparer) residueOf(class, value *latex.Node) bool {
	x, okX := c.algebra.Rational(class.Args[0])
	m, okM := c.algebra.Rational(class.Args[1])
	if !okX || !okM || !x.IsInt() || !m.IsInt() || m.Sign() <= 0 {
		return c.equal(class.Args[0], value)
	}
	rest := new(big.Rat).SetInt(new(big.Int).Mod(x.Num(), m.Num()))
	if c.equal(algebra.Rational(rest), value) {
		return c.decide(true, "a remainder")
	}
	return new(big.Rat).Abs(x).Cmp(m) < 0 && c.equal(class.Args[0], value)
}
