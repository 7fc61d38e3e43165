package verifier

import (
	"slices"
	"strings"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
	"onering/verifier/internal/rules"
)

// isListLike reports whether n is a list or a set of elements.
func isListLike(n *latex.Node) bool { return n.Op == latex.List || n.Op == latex.Set }

// lists compares the gold answer g with the answer a, where one or both are lists or sets. A list has no brackets: it is
// several answers, whose order does not matter but whose number does; against a tuple its order counts. In a set
// repetitions do not count.
func (c *comparer) lists(g, a *latex.Node) bool {
	g, a = withEachExcluded(g), withEachExcluded(a) // x != 0, 1
	if verdict, ok := c.regions(g, a); ok {
		return verdict
	}
	if (g.Op == latex.List) != (a.Op == latex.List) {
		g, a = asOptionList(g, a), asOptionList(a, g) // BC becomes B, C if the other side is a list of two options
	}
	set, other := swapped(a.Op == latex.Set, g, a)
	switch {
	case g.Op == latex.List && a.Op == latex.List:
		return c.twoLists(g, a)
	case isListLike(g) && isListLike(a):
		return c.twoSets(values(g), values(a))
	case c.depth == 1 && set.Op == latex.Set && len(set.Args) == 1 && isElement(set.Args[0]) && isElement(other):
		return c.equalGoldFirst(set == g, set.Args[0], other) // {5} and 5, as whole texts (depth 1): a solution set and its element
	case g.Op == latex.Bracket || a.Op == latex.Bracket || g.Op == latex.Matrix || a.Op == latex.Matrix:
		return c.listAndTuple(g, a)
	case g.Op == latex.Text || a.Op == latex.Text:
		return c.texts(g, a)
	case g.Op == latex.Union || a.Op == latex.Union:
		return c.sets(g, a)
	case g.Op == latex.List && a.Op.Scalar(), g.Op.Scalar() && a.Op == latex.List:
		return c.listAndValue(g, a)
	}
	return c.decide(false, "a list against one value")
}

// asOptionList returns a word such as BC as the list of its letters if list is a list of as many
// options. It returns anything else unchanged.
func asOptionList(word, list *latex.Node) *latex.Node {
	if word.Op != latex.Mul && word.Op != latex.Text || len(word.Name) != len(list.Args) || !list.Every(isOption) {
		return word
	}
	letters := &latex.Node{Op: latex.List, Name: ","}
	for _, letter := range strings.Split(strings.ToUpper(word.Name), "") {
		letters.Args = append(letters.Args, &latex.Node{Op: latex.Sym, Name: letter})
	}
	return letters
}

// withoutRemarks takes the remarks, such as x ∈ R, out of a list of one statement and remarks about its letters, if other is
// no list. The remarks of a gold are memberships; an answer may also say that a letter for an integer is above a bound:
// n >= 1. Any other n is returned unchanged.
func (c *comparer) withoutRemarks(n, other *latex.Node, isGold bool) *latex.Node {
	if n.Op != latex.List || other.Op == latex.List {
		return n
	}
	var statement *latex.Node
	var letters []*latex.Node // of the remarks
	for _, arg := range n.Args {
		aboutLetter := arg.Op == latex.Rel && len(arg.Ops) == 1 && arg.Args[0].Op == latex.Sym
		isMembership := aboutLetter && arg.Ops[0] == "in" && arg.Args[1].Op == latex.Named
		isBound := aboutLetter && (arg.Ops[0] == ">=" || arg.Ops[0] == ">") && strings.Contains("klmnpq", arg.Args[0].Name)
		if isMembership || isBound && !isGold {
			letters = append(letters, arg.Args[0])
		} else if statement != nil { // two statements
			return n
		} else {
			statement = arg
		}
	}
	aboutOther := func(name *latex.Node) bool {
		return !mentions(valueOf(statement), name) && !isAssigned(statement, name)
	}
	if statement == nil || slices.ContainsFunc(letters, aboutOther) {
		return n
	}
	return statement
}

// isAssigned reports whether a statement gives a value to name.
func isAssigned(statement, name *latex.Node) bool {
	as, ok := assignmentOf(statement)
	return ok && as.name.Op == latex.Sym && as.name.Name == name.Name
}

// withEachExcluded writes x != 0, 1 as x != 0 and x != 1; it returns anything else unchanged.
func withEachExcluded(n *latex.Node) *latex.Node {
	if n.Op != latex.List || n.Args[0].Op != latex.Rel || !onlyRelation(n.Args[0], "!=") || !isName(n.Args[0].Args[0]) {
		return n
	}
	out := &latex.Node{Op: latex.List, Name: "and", Args: []*latex.Node{n.Args[0]}}
	for _, arg := range n.Args[1:] {
		if !arg.Op.Scalar() {
			return n
		}
		out.Args = append(out.Args, &latex.Node{Op: latex.Rel, Ops: []string{"!="}, Args: []*latex.Node{n.Args[0].Args[0], arg}})
	}
	return out
}

// isElement reports whether n is not a set or list itself; {∅} is not ∅.
func isElement(n *latex.Node) bool {
	return n.Op.Scalar() || n.Op == latex.Text || n.Op == latex.Matrix || n.Op == latex.Ratio || n.Op == latex.Bracket && (n.Name == "()" || n.Name == "<>")
}

// listAndValue compares a list with one value, which every element must have, or their sum where "and" means that: 5 hours
// and 30 minutes, 11 and 5/6.
func (c *comparer) listAndValue(g, a *latex.Node) bool {
	list, one := swapped(a.Op == latex.List, g, a)
	listIsGold := list == g
	sum := &latex.Node{Op: latex.Add, Args: list.Args}
	if list.Name == "and" && list.Contains(latex.Unit) && one.Contains(latex.Unit) {
		if q, ok := c.splitSum(sum); ok {
			total := product(append([]*latex.Node{q.value}, unitNodes(q.units)...)...)
			return c.equalGoldFirst(listIsGold, total, one)
		}
	}
	whole, part := list.Args[0], list.Args[1] // a list has two elements or more
	isMixed := whole.Is(latex.Num) && whole.Rat.IsInt() && part.Is(latex.Div) && isProper(part)
	if list.Name == "and" && len(list.Args) == 2 && isMixed {
		return c.equalGoldFirst(listIsGold, sum, one)
	}
	for _, x := range values(list) {
		if !c.equalGoldFirst(listIsGold, x, one) {
			return c.decide(false, "a list against one value")
		}
	}
	return c.decide(true, "one value said several times")
}

// isProper reports whether a quotient is one of two whole numbers below 1.
func isProper(n *latex.Node) bool {
	p, q := wholeNumber(n.Args[0]), wholeNumber(n.Args[1])
	return p != nil && q != nil && p.Sign() > 0 && p.Cmp(q) < 0
}

// values returns the elements of a list or set; if all are assignments to one name, or to one with different subscripts
// (x_1 = 2, x_2 = 3), the assigned values.
func values(n *latex.Node) []*latex.Node {
	out := make([]*latex.Node, len(n.Args))
	first := ""
	for i, arg := range n.Args {
		as, ok := assignmentOf(arg)
		if !ok {
			return n.Args
		}
		name := baseName(as.name.String())
		if i > 0 && name != first {
			return n.Args
		}
		first, out[i] = name, as.value
	}
	return out
}

// twoLists compares two lists without brackets. A list of numbers means all of them, with "or" or "and" between them, but
// "Alice or Bob" is not "Alice and Bob", nor is "x = 1 or y = 2" both of these. Values with names are compared by name,
// or in the order of the names if one side has none; others in any order.
func (c *comparer) twoLists(g, a *latex.Node) bool {
	isWordOrOption := func(n *latex.Node) bool { return n.Op == latex.Text || isOption(n) }
	otherJoint := g.Name != a.Name && g.Name != "," && a.Name != "," // "and" against "or"; a comma may be either
	if otherJoint && g.Every(isWordOrOption) {
		return c.decide(false, "alternatives against all of them")
	}
	isOr, otherIsOr := g.Name == "or", a.Name == "or"
	if isOr != otherIsOr && (namedDistinctly(g) || otherJoint && slices.ContainsFunc(g.Args, isInequality)) {
		return c.decide(false, "alternatives against all of them")
	}
	if x, ok := assignmentOf(g.Args[0]); ok {
		if y, ok := assignmentOf(a.Args[0]); ok && !namedDistinctly(g) && otherQuantity(x.name, y.name) {
			return c.decide(false, "different things named")
		}
	}
	if verdict, ok := c.bothForAll(g, a); ok {
		return verdict
	}
	namedG, namedA := namedDistinctly(g), namedDistinctly(a)
	switch {
	case namedG && namedA:
		if verdict, ok := c.byName(g, a); ok {
			return verdict
		}
		return c.inOrder(g.Args, a.Args, "named values in order")
	case (namedG || namedA) && g.Every(isAssignment) && a.Every(isAssignment):
		return c.decide(false, "one name with several values against several names")
	case namedG && !anyNamed(a) || namedA && !anyNamed(g):
		return c.inOrder(valuesOf(byAlphabet(g.Args)), valuesOf(byAlphabet(a.Args)), "named values and a list in order")
	case len(g.Args) == len(a.Args):
		return c.match(values(g), values(a), "the same values in some order")
	}
	return c.twoSets(values(g), values(a)) // an element was repeated
}

// bothForAll compares statements about every k of a set, "x = 2k\pi, k ∈ Z". The letter k may differ.
func (c *comparer) bothForAll(g, a *latex.Node) (verdict, ok bool) {
	restG, setG, k := splitForAll(g)
	restA, setA, n := splitForAll(a)
	if setG == nil || setA == nil || setG.Name != setA.Name {
		return false, false
	}
	if k.Name != n.Name && mentions(restA, k) {
		return c.decide(false, "statements over different variables"), true
	}
	restA = restA.Replaced(latex.Sym, n.Name, k)
	return c.equal(restG, restA) || setG.Name == "Z" && c.sameProgression(valueOf(restG), valueOf(restA), k), true
}

// splitForAll splits "x = 2k\pi, k ∈ Z" into the statement, the set and the variable; set is
// nil where n says nothing of the kind.
func splitForAll(n *latex.Node) (rest, set, variable *latex.Node) {
	list := &latex.Node{Op: latex.List, Name: n.Name}
	for _, arg := range n.Args {
		if v, ok := rangingOver(arg); ok && set == nil {
			set, variable = arg.Args[1], v
			continue
		}
		list.Args = append(list.Args, arg)
	}
	if len(list.Args) == 1 {
		return list.Args[0], set, variable
	}
	return list, set, variable
}

// forAllOmitted compares a statement about all integers k with one that omits "k ∈ Z", as is common: x = 2n\pi has one letter
// in k's place, which is replaced by k. ok is false if g and a are no such statements.
func (c *comparer) forAllOmitted(g, a *latex.Node) (verdict, ok bool) {
	list, other := swapped(a.Op == latex.List, g, a)
	if list.Op != latex.List || other.Op == latex.List || len(list.Args) != 2 {
		return false, false
	}
	rest, set, k := splitForAll(list)
	if set == nil || set.Name != "Z" {
		return false, false
	}
	letter := "" // of other, in k's place
	for _, name := range algebra.Variables(valueOf(other)) {
		if name != k.Name && mentions(valueOf(rest), &latex.Node{Op: latex.Sym, Name: name}) {
			continue // both have it
		}
		if letter != "" || !strings.Contains("klmnpqj", name) {
			return false, false
		}
		letter = name
	}
	if letter == "" || valueOf(other).Op == latex.Sym {
		return false, false
	}
	other = other.Replaced(latex.Sym, letter, k)
	return c.equalGoldFirst(list == g, rest, other) || c.sameProgression(valueOf(rest), valueOf(other), k), true
}

// mostShifted is how many steps the beginnings of two progressions may be apart.
const mostShifted = 4

// sameProgression reports whether g and a take the same values for all integers k: both
// are linear in k with the same step, and differ by whole steps, as \pi/2 + k\pi and
// -\pi/2 + k\pi.
func (c *comparer) sameProgression(g, a, k *latex.Node) bool {
	if !rules.On("progressions") || !g.Op.Scalar() || !a.Op.Scalar() {
		return false
	}
	same := func(x, y *latex.Node) bool {
		outcome, _ := c.algebra.Equal(x, y)
		return outcome == algebra.Equal
	}
	sum := func(x, y *latex.Node) *latex.Node {
		return &latex.Node{Op: latex.Add, Args: []*latex.Node{x, y}}
	}
	linear := func(n *latex.Node) (first, step *latex.Node, ok bool) { // n is first + step k
		first = n.Replaced(latex.Sym, k.Name, integer(0))
		step = algebra.Difference(n.Replaced(latex.Sym, k.Name, integer(1)), first)
		return first, step, same(n, sum(first, product(step, k))) && !same(step, integer(0))
	}
	x, stepX, okX := linear(g)
	y, stepY, okY := linear(a)
	if !okX || !okY || !same(stepX, stepY) && !same(stepX, product(integer(-1), stepY)) {
		return false
	}
	for shift := int64(-mostShifted); shift <= mostShifted; shift++ {
		if same(x, sum(y, product(integer(shift), stepX))) {
			return c.decide(true, "the same progression")
		}
	}
	return false
}

// byName compares two lists of assignments, each to different names; ok is false if the names of both are not the same.
func (c *comparer) byName(g, a *latex.Node) (verdict, ok bool) {
	answers := map[string]*latex.Node{}
	for _, y := range a.Args {
		as, _ := assignmentOf(y)
		answers[as.name.String()] = as.value
	}
	var x, y []*latex.Node
	for _, arg := range g.Args {
		as, _ := assignmentOf(arg)
		x, y = append(x, as.value), append(y, answers[as.name.String()])
	}
	if len(x) != len(answers) || slices.Contains(y, nil) {
		return false, false
	}
	return c.inOrder(x, y, "the same value for every name"), true
}

// namedDistinctly reports whether every element of a list gives a value to a
// name of its own; x_1 and x_2 are roots of one x.
func namedDistinctly(n *latex.Node) bool {
	seen := map[string]bool{}
	return n.Every(func(arg *latex.Node) bool {
		as, ok := assignmentOf(arg)
		if !ok {
			return false
		}
		name := baseName(as.name.String())
		again := seen[name]
		seen[name] = true
		return !again
	})
}

// baseName is a name without its subscript.
func baseName(name string) string {
	for i := 1; i < len(name)-1; i++ {
		if name[i] == '_' && isDigit(name[i+1]) {
			return name[:i]
		}
	}
	return name
}

// isAssignment reports whether n gives a value to a name.
func isAssignment(n *latex.Node) bool {
	_, ok := assignmentOf(n)
	return ok
}

func anyNamed(n *latex.Node) bool { return slices.ContainsFunc(n.Args, isAssignment) }

// valuesOf are valueOf of all elements.
func valuesOf(elements []*latex.Node) []*latex.Node {
	return (&latex.Node{Args: elements}).Mapped(valueOf).Args
}

// inOrder compares two sequences element by element.
func (c *comparer) inOrder(g, a []*latex.Node, rule string) bool {
	if len(g) != len(a) {
		return c.decide(false, rule+": different lengths")
	}
	for i := range g {
		if !c.equal(g[i], a[i]) {
			return false
		}
	}
	return c.decide(true, rule)
}

// match reports whether the elements of two sequences of equal length can be paired so that each pair is equal.
func (c *comparer) match(g, a []*latex.Node, rule string) bool {
	used := make([]bool, len(a))
	for i, x := range g {
		found := false
		// Answers are mostly in the gold's order.
		for k := range a {
			j := (i + k) % len(a)
			if !used[j] && c.equal(x, a[j]) {
				used[j], found = true, true
				break
			}
			if c.limited {
				return false
			}
		}
		if !found {
			return c.decide(false, "an element of the gold's list is not in the answer's")
		}
	}
	return c.decide(true, rule)
}

// twoSets compares collections in which neither order nor repetition counts.
func (c *comparer) twoSets(g, a []*latex.Node) bool {
	in := func(x *latex.Node, set []*latex.Node) bool {
		for _, y := range set {
			if c.equal(x, y) {
				return true
			}
			if c.limited {
				return false
			}
		}
		return false
	}
	for _, x := range g {
		if !in(x, a) {
			return c.decide(false, "an element of the gold's set is not in the answer's")
		}
	}
	for _, x := range a {
		if !in(x, g) {
			return c.decide(false, "an element of the answer's set is not in the gold's")
		}
	}
	return c.decide(true, "the same set")
}

// byAlphabet sorts assignments by their names, if these are letters close together in the alphabet: y = 2, x = 1 is
// (1,2). It returns other values in their order.
func byAlphabet(values []*latex.Node) []*latex.Node {
	names := ""
	for _, n := range values {
		as, ok := assignmentOf(n)
		if !ok || as.name.Op != latex.Sym || len(as.name.Name) != 1 {
			return values
		}
		names += as.name.Name
	}
	if !neighbours(names) {
		return values
	}
	return slices.SortedFunc(slices.Values(values), func(x, y *latex.Node) int {
		p, _ := assignmentOf(x)
		q, _ := assignmentOf(y)
		return strings.Compare(p.name.Name, q.name.Name)
	})
}

// listAndTuple compares a list without brackets with a tuple: brackets may be
// dropped, order not. An interval, and a set in braces, are never a tuple.
func (c *comparer) listAndTuple(g, a *latex.Node) bool {
	for _, n := range [...]*latex.Node{g, a} {
		if n.Op == latex.List && (n.Name == "or" || anyNamed(n) && !namedDistinctly(n)) {
			return c.decide(false, "alternatives against a tuple")
		}
	}
	x, okX := sequence(g)
	y, okY := sequence(a)
	if !okX || !okY {
		return c.decide(false, "a list against something else")
	}
	return c.inOrder(valuesOf(byAlphabet(x)), valuesOf(byAlphabet(y)), "a tuple without its brackets")
}

// sequence are the elements of a list or tuple in order.
func sequence(n *latex.Node) ([]*latex.Node, bool) {
	switch n.Op {
	case latex.List:
		return n.Args, true
	case latex.Bracket:
		ok := n.Name == "()" || n.Name == "<>" || n.Name == "[]" && len(n.Args) > 2
		return n.Args, ok
	case latex.Matrix:
		return n.Args, n.Name == "" && (n.Cols == 1 || n.Cols == len(n.Args))
	case latex.App:
		return n.Args, len(n.Args) > 1 // A(1,2)
	}
	return nil, false
}

// brackets compares tuples, intervals and vectors.
func (c *comparer) brackets(g, a *latex.Node) bool {
	x, okX := sequence(g)
	y, okY := sequence(a)
	areBrackets := g.Op == latex.Bracket && a.Op == latex.Bracket
	switch {
	case okX && okY, areBrackets && g.Name == a.Name:
		return c.inOrder(x, y, "equal components")
	case areBrackets:
		return c.decide(false, "different brackets")
	}
	return c.decide(false, "a tuple or interval against something else")
}
