package verifier

import (
	"cmp"
	"slices"
	"strings"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
	"onering/verifier/internal/rules"
)

// An assignment is an equation that gives a value to a name: x = 3, f(x) = x^2, AB = 2+2 = 4, x = 1/3 ≈ 0.33.
type assignment struct {
	name   *latex.Node
	value  *latex.Node // the last part joined by =
	approx *latex.Node // the part after ≈, nil if there is none
}

// assignmentOf reads n as an assignment: a chain of = and ≈ with a name at its left, or 5 = x.
func assignmentOf(n *latex.Node) (assignment, bool) {
	if n == nil || n.Op != latex.Rel {
		return assignment{}, false
	}
	last, approx := -1, -1 // the last arguments behind = and behind ≈
	for i, op := range n.Ops {
		switch op {
		case "=":
			if approx < 0 { // what follows a rounded value is rounded
				last = i + 1
			}
		case "~": // ≈
			approx = i + 1
		default:
			return assignment{}, false
		}
	}
	as := assignment{}
	if approx >= 0 {
		as.approx = n.Args[approx]
	}
	if last < 0 {
		last = approx
	}
	as.name, as.value = n.Args[0], n.Args[last]
	if isName(as.name) {
		return as, true
	}
	if len(n.Args) == 2 && isName(n.Args[1]) && n.Ops[0] == "=" && len(algebra.Variables(n.Args[0])) == 0 {
		return assignment{name: n.Args[1], value: n.Args[0]}, true
	}
	return assignment{}, false
}

// valueOf returns the value of an assignment; it returns anything else unchanged.
func valueOf(n *latex.Node) *latex.Node {
	if as, ok := assignmentOf(n); ok {
		return as.value
	}
	return n
}

// isName reports whether n names a quantity: x, f(x), AB, |AB|, \angle A, A:B, (x,y), \sin A.
func isName(n *latex.Node) bool {
	switch n.Op {
	case latex.Sym, latex.Index, latex.App, latex.Text:
		return true
	case latex.Const:
		return n.Name == "e" || n.Name == "i" // used as letters: e = 1/2 is an eccentricity
	case latex.Abs, latex.Opaque, latex.Func:
		return n.Args[0] != nil && isName(n.Args[0]) // an opaque node may lack its first part
	case latex.Bracket, latex.Ratio, latex.Div, latex.Union, latex.Intersect, latex.Without:
		return n.Every(isName)
	case latex.Mul:
		// Capitals side by side are points or a function before its argument: AB, P(A), W(n).
		hasCapital := false
		for i, arg := range n.Args {
			if !isName(arg) && !(i > 0 && arg.Op == latex.Rel) { // P(X > 3)
				return false
			}
			hasCapital = hasCapital || arg.Op == latex.Sym && arg.Name[0] < 'a'
		}
		return hasCapital && n.Args[0].Op == latex.Sym
	}
	return false
}

// isPlainName reports whether another name may replace n, as x = 3 for y = 3.
func isPlainName(n *latex.Node) bool {
	switch n.Op {
	case latex.Sym: // but a derivative has no other name
		return !strings.HasSuffix(n.Name, "'")
	case latex.Index, latex.App, latex.Text, latex.Mul:
		return true
	}
	return false
}

// isCompoundName reports whether n is a sum, product or quotient of names without numbers: m+n, xy, AB/CD.
func isCompoundName(n *latex.Node) bool {
	if isName(n) {
		return true
	}
	switch n.Op {
	case latex.Add, latex.Mul, latex.Div, latex.Neg:
		return n.Every(isCompoundName)
	}
	return false
}

// relations compares where an equation, an inequality or a membership is involved. Two relations are compared with each
// other. Of one, the first that it has of these is compared with the other side: the value of an assignment, the residue
// class of a congruence, the set of a membership, the set of inequalities, the result of equations, an enumerated set.
func (c *comparer) relations(g, a *latex.Node) bool {
	g, a = normalRelation(g), normalRelation(a)
	for _, n := range [...]*latex.Node{g, a} {
		if n.Op == latex.Rel && !c.agrees(n) {
			return c.decide(false, "the parts of a chain differ")
		}
	}
	if g.Op == latex.Rel && a.Op == latex.Rel {
		return c.twoRelations(g, a)
	}
	rel, other := swapped(a.Op == latex.Rel, g, a)
	if other.Op == latex.Set && len(other.Args) == 1 && c.depth == 1 { // at depth 1, g and a are the whole texts
		other = other.Args[0] // x = 0 and {0}
	}
	if as, ok := assignmentOf(rel); ok && (!isListLike(other) || as.value.Op == latex.Set) { // x = 1 is not 1, 2
		if isOption(as.name) && isOption(as.value) && isOption(other) {
			return c.decide(false, "two options") // A = B says that A is B, and chooses neither
		}
		if c.equalGoldFirst(rel == g, as.value, other) {
			return true
		}
		return as.approx != nil && isDecimal(other) && c.equalGoldFirst(rel == g, as.approx, other) // x = 4/3 ≈ 1.33 and 1.33
	}
	if last := rel.Args[len(rel.Args)-1]; onlyRelation(rel, "==") && last.Op == latex.Mod {
		return c.equalGoldFirst(rel == g, last, other) // x ≡ 3 (mod 7)
	}
	subject := rel.Args[0]
	mayMeanInteger := subject.Is(latex.Sym) && strings.Contains("klmnp", subject.Name) // letters that are used for integers
	if other.Op == latex.Named && other.Name == "Z+" && onlyRelation(rel, ">=") && mayMeanInteger {
		return c.equalGoldFirst(rel == g, rel.Args[1], integer(1)) // n >= 1 and Z+
	}
	if in, ok := membership(rel); ok {
		if in.Op == latex.Set && len(in.Args) == 1 && other.Op.Scalar() {
			in = in.Args[0] // x ∈ {5}
		}
		return c.equalGoldFirst(rel == g, in, other)
	}
	if verdict, ok := c.regions(g, a); ok {
		return verdict
	}
	if isEquation(rel) && other.Op.Scalar() {
		return c.conclusion(rel, other, rel == g)
	}
	end := rel.Args[len(rel.Args)-1] // the last part of a chain
	isEnumerated := end.Is(latex.Set) || end.Is(latex.Bracket)
	namesSet := subject.Is(latex.SetBuilder) || !subject.Contains(latex.Num) && subject.Contains(latex.Sym)
	if isEquation(rel) && isEnumerated && namesSet { // A - B = {1,2}
		return c.equalGoldFirst(rel == g, end, other)
	}
	if interval := asBracket(rel); interval != rel && other.Op == latex.Bracket {
		return c.equalGoldFirst(rel == g, interval, other) // a < x < b, x > a
	}
	return c.decide(false, "a relation against something else")
}

// conclusion compares the result of a chain of equations, rel, with an expression; fromGold says that rel is of the gold.
// The result is the last value if both sides are numbers, if an answer says what was asked for, or if an identity is stated.
func (c *comparer) conclusion(rel, other *latex.Node, fromGold bool) bool {
	last, end := lastValue(rel), rel.Args[len(rel.Args)-1] // they differ where ≈ is the last relation
	before := rel.Args[:len(rel.Args)-1]
	constant := len(algebra.Variables(last)) == 0
	switch {
	case len(algebra.Variables(before...)) == 0 && constant:
		return c.equalGoldFirst(fromGold, last, other) || // 2+3 = 5
			end != last && isDecimal(other) && c.equalGoldFirst(fromGold, end, other) // 2/3 ≈ 0.67
	case !fromGold && constant && !isZero(c, last) && isAskedFor(rel.Args[0]):
		return c.equalGoldFirst(false, last, other) // x^2+y^2 = 7, asked for x^2+y^2
	case last == end && c.isIdentity(rel):
		return c.equalGoldFirst(fromGold, last, other) // (x+1)^2 = x^2+2x+1
	}
	return c.decide(false, "an equation against an expression")
}

// hasNames reports whether n cannot be computed, since it has a letter, a function without a formula or an integral.
func hasNames(n *latex.Node) bool {
	return len(algebra.Variables(n)) > 0 || n.Contains(latex.App) || n.Contains(latex.Opaque) || n.Contains(latex.Mod) && n.Contains(latex.Sym)
}

// isAskedFor reports whether n may be the quantity that a problem asks for, rather than a
// side of an unsolved equation, such as 2x or x-5.
func isAskedFor(n *latex.Node) bool {
	if isCompoundName(n) && n.Op != latex.Neg || len(algebra.Variables(n)) > 1 || n.Contains(latex.App) {
		return n.Op != latex.Neg // x+y, 2x+3y, f(2), but not -x
	}
	switch n.Op {
	case latex.Pow: // |z|^2, \sigma^2, C_{12}^1
		name, _ := subscripted(n.Args[0])
		return n.Args[0].Op == latex.Abs || n.Args[0].Name == "sigma" || name == "C" || name == "A"
	case latex.Fact, latex.Floor, latex.Ceil, latex.Abs, latex.Func, latex.Opaque, latex.Mod, latex.App, latex.Sum, latex.Prod:
		return true
	case latex.Add:
		return reciprocal(n)
	}
	return false
}

// reciprocal reports whether n is a sum of powers of a letter and of its reciprocal: x+1/x.
func reciprocal(n *latex.Node) bool {
	inverse := func(n *latex.Node) bool {
		return n.Op == latex.Div && n.Args[0].Is(latex.Num) || n.Op == latex.Pow && n.Args[1].Is(latex.Neg)
	}
	return len(algebra.Variables(n)) == 1 && slices.ContainsFunc(n.Args, inverse)
}

// isIdentity reports whether the parts of a chain of equations are equal for all values of
// their letters. An operation, such as an integral, is assumed to equal the part after it.
func (c *comparer) isIdentity(chain *latex.Node) bool {
	for i, r := range chain.Args[1:] {
		l := chain.Args[i]
		if !l.Op.Scalar() || !r.Op.Scalar() {
			return false
		}
		if i == 0 && isOperation(l) && !isOperation(r) { // it cannot be computed here
			continue
		}
		if outcome, _ := c.algebra.Equal(l, r); outcome != algebra.Equal {
			return false
		}
	}
	return true
}

// isOperation reports whether n is an integral, a limit, a derivative, or a sum with letters in its bounds.
func isOperation(n *latex.Node) bool {
	switch n.Op {
	case latex.Opaque:
		return n.Args[0] != nil
	case latex.Add:
		return n.Contains(latex.Dots)
	case latex.Sum, latex.Prod:
		return len(algebra.Variables(n)) > 0
	case latex.Mul: // the operator d/dx before its function
		return n.Args[0].Op == latex.Sym && strings.HasPrefix(n.Args[0].Name, "d()/d(")
	}
	return false
}

// isOption reports whether n is a letter that options are called by.
func isOption(n *latex.Node) bool {
	return n.Op == latex.Sym && len(n.Name) == 1 && n.Name[0] >= 'A' && n.Name[0] <= 'J'
}

// normalRelation writes f(x) ≡ 0 and f: x ↦ x^2 with an equals sign, and B ⊃ A as A ⊂ B; it returns anything else, such as
// a congruence, unchanged.
func normalRelation(n *latex.Node) *latex.Node {
	if n.Op == latex.Rel && onlyRelation(n, "mapsto") {
		f, x := &latex.Node{Name: "f"}, n.Args[0] // x ↦ x^2 without a name is taken for f
		if x.Op == latex.Ratio && len(x.Args) == 2 {
			f, x = x.Args[0], x.Args[1]
		}
		return &latex.Node{Op: latex.Rel, Ops: []string{"="}, Args: []*latex.Node{{Op: latex.App, Name: f.Name, Args: []*latex.Node{x}}, n.Args[1]}}
	}
	if n.Op == latex.Rel && (onlyRelation(n, "supset") || onlyRelation(n, "supseteq")) {
		return &latex.Node{Op: latex.Rel, Ops: []string{strings.Replace(n.Ops[0], "sup", "sub", 1)}, Args: []*latex.Node{n.Args[1], n.Args[0]}}
	}
	if n.Op != latex.Rel || !onlyRelation(n, "==") || n.Contains(latex.Mod) {
		return n
	}
	return &latex.Node{Op: latex.Rel, Ops: []string{"="}, Args: n.Args}
}

// equalGoldFirst compares x and y, of which x is a part of the gold if goldFirst, else y is.
func (c *comparer) equalGoldFirst(goldFirst bool, x, y *latex.Node) bool {
	return c.equal(swapped(!goldFirst, x, y))
}

func isZero(c *comparer, n *latex.Node) bool {
	r, ok := c.algebra.Rational(n)
	return ok && r.Sign() == 0
}

// isEquation reports whether all relations of n are = or ≈.
func isEquation(n *latex.Node) bool {
	return !slices.ContainsFunc(n.Ops, func(op string) bool { return op != "=" && op != "~" })
}

// lastValue returns the last part of a chain of equations before ≈, unless that part is
// the name of the value after it.
func lastValue(n *latex.Node) *latex.Node {
	for i, op := range n.Ops {
		if op == "~" && (i > 0 || len(algebra.Variables(n.Args[0])) == 0) {
			return n.Args[i]
		}
	}
	return n.Args[len(n.Args)-1]
}

// membership is S of x ∈ S.
func membership(n *latex.Node) (*latex.Node, bool) {
	if len(n.Ops) == 1 && n.Ops[0] == "in" && isName(n.Args[0]) {
		return n.Args[1], true
	}
	return nil, false
}

// twoRelations compares two relations by the first kind that both are of: assignments, memberships, progressions,
// equations, chains of equations, inequalities, sets of numbers, or else part by part.
func (c *comparer) twoRelations(g, a *latex.Node) bool {
	asG, okG := assignmentOf(g)
	asA, okA := assignmentOf(a)
	if okG && okA {
		return c.assignments(g, a, asG, asA)
	}
	inG, okG := membership(g)
	inA, okA := membership(a)
	if okG && okA {
		return c.equal(inG, inA)
	}
	if verdict, ok := c.progressions(g, a); ok {
		return verdict
	}
	if onlyRelation(g, "=") && onlyRelation(a, "=") {
		return c.equations(g, a)
	}
	chain := len(g.Ops) > 1 || len(a.Ops) > 1
	if chain && isEquation(g) && isEquation(a) && len(algebra.Variables(lastValue(g), lastValue(a))) == 0 {
		return c.equal(lastValue(g), lastValue(a))
	}
	if isInequality(g) && isInequality(a) {
		return c.inequalities(g, a)
	}
	if verdict, ok := c.regions(g, a); ok {
		return verdict
	}
	return c.sameChain(g, a)
}

// progressions compares x \equiv 1 \pmod 3 with x = 3k+1.
func (c *comparer) progressions(g, a *latex.Node) (verdict, ok bool) {
	class, formula := swapped(onlyRelation(a, "=="), g, a)
	as, ok := assignmentOf(formula)
	if last := class.Args[len(class.Args)-1]; ok && onlyRelation(class, "==") && last.Op == latex.Mod {
		if letters := algebra.Variables(as.value); len(letters) == 1 {
			k := &latex.Node{Op: latex.Sym, Name: letters[0]}
			sum := &latex.Node{Op: latex.Add, Args: []*latex.Node{last.Args[0], product(last.Args[1], k)}}
			return c.sameProgression(sum, as.value, k), true
		}
	}
	return false, false
}

// sameChain compares two chains of relations part by part.
func (c *comparer) sameChain(g, a *latex.Node) bool {
	if !slices.Equal(g.Ops, a.Ops) {
		return c.decide(false, "different relations")
	}
	return c.inOrder(g.Args, a.Args, "the same relation between equal sides")
}

// onlyRelation reports whether n has one relation, op.
func onlyRelation(n *latex.Node, op string) bool { return len(n.Ops) == 1 && n.Ops[0] == op }

// assignments compares the relation g, an assignment x = v, with a, an assignment y = w. It compares the values alone if
// another name may replace either, and else, or where the values differ, the equations: y = 1/x and x = 1/y.
func (c *comparer) assignments(g, a *latex.Node, x, y assignment) bool {
	crossed := mentions(y.value, x.name) || mentions(x.value, y.name)
	if otherQuantity(x.name, y.name) && !crossed {
		return c.decide(false, "different things named")
	}
	sameName := isSameName(x.name, y.name) || quantityNamed(x.name) != "" && quantityNamed(x.name) == quantityNamed(y.name)
	if sameName || !crossed && isPlainName(x.name) && isPlainName(y.name) {
		value := y.value
		if !sameName {
			if value = renamed(x.name, y.name, value); value == nil {
				return c.decide(false, "functions of different variables")
			}
		}
		if c.equal(x.value, value) {
			return true
		}
		if x.approx != nil && y.approx != nil && c.equal(x.approx, y.approx) && isDecimal(x.value) && isDecimal(y.value) {
			return true // x = 1.234 ≈ 1.2 and x = 1.23 ≈ 1.2
		}
		if !onlyRelation(g, "=") || !onlyRelation(a, "=") || !x.value.Op.Scalar() || !y.value.Op.Scalar() {
			return false
		}
	}
	if onlyRelation(g, "=") && onlyRelation(a, "=") {
		return c.equations(g, a)
	}
	return c.decide(false, "different equations")
}

// otherQuantity reports whether two names stand for different things.
func otherQuantity(x, y *latex.Node) bool {
	k, l := quantityNamed(x), quantityNamed(y)
	return rules.On("other names") && k != "" && l != "" && k[0] == l[0] && k != l
}

// quantityNamed returns what a name that no other may replace stands for, after a letter for its kind: c for a
// coordinate, s for a segment, a for an angle, f for the value of a function at a number. It is "" for other names.
func quantityNamed(n *latex.Node) string {
	if n.Op == latex.Abs {
		n = n.Args[0]
	}
	sorted := func(s string) string { // AB is BA
		b := []byte(s)
		slices.Sort(b)
		return string(b)
	}
	switch name, angle := strings.CutPrefix(n.Name, "angle "); {
	case n.Op == latex.Sym && len(name) == 1 && strings.Contains("xyz", name):
		return "c" + name
	case n.Op == latex.Sym && angle && len(name) == 3:
		return "a" + name[1:2] + sorted(name[:1]+name[2:]) // the vertex is the middle letter
	case len(figure(n)) == 2:
		return "s" + sorted(figure(n))
	case n.Op == latex.App && len(n.Args) == 1 && n.Args[0].Op == latex.Num:
		return "f" + n.String()
	}
	return ""
}

// isDecimal reports whether n is a numeral with digits after its point.
func isDecimal(n *latex.Node) bool { return n.Op == latex.Num && n.Places > 0 }

// isSameName reports whether two names are one; y(x) is y.
func isSameName(x, y *latex.Node) bool {
	function := func(f, name *latex.Node) bool {
		return f.Op == latex.App && name.Op == latex.Sym && f.Name == name.Name && len(f.Args) == 1 && f.Args[0].Op == latex.Sym
	}
	return x.String() == y.String() || function(x, y) || function(y, x)
}

// mentions reports whether name, without its primes, occurs in n: a variable, or the name of a sequence or a function.
func mentions(n, name *latex.Node) bool {
	if !name.Op.Scalar() || !n.Op.Scalar() {
		return false
	}
	bare := cmp.Or(strings.TrimRight(name.Name, "'"), name.Name)
	named := func(n *latex.Node) bool { return n.Op == latex.Sym || n.Op == latex.Index || n.Op == latex.App }
	return named(name) && n.Any(func(n *latex.Node) bool { return named(n) && n.Name == bare })
}

// renamed returns value, that of y = f(t), with the arguments of x = f(x) in place of those of y, whose names do not
// matter. If x and y are no functions of letters, it is unchanged. It is nil if the new name already occurs in value.
func renamed(x, y, value *latex.Node) *latex.Node {
	if x.Op != y.Op || x.Op != latex.App && x.Op != latex.Index || len(x.Args) != len(y.Args) {
		return value
	}
	for i := range x.Args {
		from, to := y.Args[i], x.Args[i]
		if from.Op != latex.Sym || to.Op != latex.Sym {
			return value
		}
		if from.Name != to.Name {
			if mentions(value, to) {
				return nil
			}
			value = value.Replaced(latex.Sym, from.Name, to)
		}
	}
	return value
}

// equations compares l = r with m = s: the differences of their sides must be numeric multiples. Any other factor may be
// zero and add solutions: xy = x is not y = 1. Identities, whose differences are zero, are compared side by side.
func (c *comparer) equations(g, a *latex.Node) bool {
	scalar := func(n *latex.Node) bool { return n.Op.Scalar() }
	if !g.Every(scalar) || !a.Every(scalar) || c.isIdentity(g) && c.isIdentity(a) {
		return c.sides(g, a)
	}
	x, y := algebra.Difference(g.Args[0], g.Args[1]), algebra.Difference(a.Args[0], a.Args[1])
	if _, ok := c.algebra.Proportional(x, y); ok && rules.On("equations") {
		return c.decide(true, "equations equal up to a factor")
	}
	if rules.On("fractions") && (c.solves(g, y) || c.solves(a, x)) {
		return c.decide(true, "an equation, and what it gives for a letter")
	}
	c.limited = c.limited || c.algebra.Spent()
	return c.decide(false, "different equations")
}

// solves reports whether equation gives the value of a letter by a division, y = 1/x, at which difference is
// zero: xy - 1, which is linear in the letter and so has no other zero.
func (c *comparer) solves(equation, difference *latex.Node) bool {
	as, ok := assignmentOf(equation)
	divides := func(n *latex.Node) bool { return n.Op == latex.Div && len(algebra.Variables(n.Args[1])) > 0 }
	if !ok || as.name.Op != latex.Sym || mentions(as.value, as.name) || !as.value.Any(divides) || difference.Any(divides) {
		return false
	}
	at := func(value *latex.Node) *latex.Node { return difference.Replaced(latex.Sym, as.name.Name, value) }
	same := func(x, y *latex.Node) bool {
		outcome, _ := c.algebra.Equal(x, y)
		return outcome == algebra.Equal
	}
	// A function D of y is linear if D(0) + D(2y) = 2 D(y). It then has one zero, unless D = D(0).
	doubled := &latex.Node{Op: latex.Add, Args: []*latex.Node{at(integer(0)), at(product(integer(2), as.name))}}
	return same(at(as.value), integer(0)) && same(doubled, product(integer(2), difference)) && !same(difference, at(integer(0)))
}

// sides compares two equations of things other than numbers side by side.
func (c *comparer) sides(g, a *latex.Node) bool {
	if c.equal(g.Args[0], a.Args[0]) && c.equal(g.Args[1], a.Args[1]) {
		return c.decide(true, "equations with equal sides")
	}
	return c.equal(g.Args[0], a.Args[1]) && c.equal(g.Args[1], a.Args[0])
}
