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

// lists compares if one side is a list. A list without brackets is several answers, whose order does not matter
// but whose number does; against a tuple its order counts. In a set repetitions do not count.
func (c *comparer) lists(g, a *latex.Node) bool {
	g, a = excluded(g), excluded(a)
	if verdict, ok := c.regions(g, a); ok {
		return verdict
	}
	if (g.Op == latex.List) != (a.Op == latex.List) {
		g, a = lettered(g, a), lettered(a, g)
	}
	switch {
	case g.Op == latex.List && a.Op == latex.List:
		return c.twoLists(g, a)
	case g.Op == latex.Set && a.Op == latex.Set, g.Op == latex.Set && a.Op == latex.List, g.Op == latex.List && a.Op == latex.Set:
		return c.twoSets(values(g), values(a))
	case c.depth == 1 && g.Op == latex.Set && len(g.Args) == 1 && isElement(g.Args[0]) && isElement(a):
		return c.equal(g.Args[0], a) // {5} and 5: a solution set and its element
	case c.depth == 1 && a.Op == latex.Set && len(a.Args) == 1 && isElement(a.Args[0]) && isElement(g):
		return c.equal(g, a.Args[0])
	case g.Op == latex.Bracket || a.Op == latex.Bracket || g.Op == latex.Matrix || a.Op == latex.Matrix:
		return c.listAndTuple(g, a)
	case g.Op == latex.Text || a.Op == latex.Text:
		return c.texts(g, a)
	case g.Op == latex.Union || a.Op == latex.Union:
		return c.sets(g, a)
	case g.Op == latex.List && a.Op.Scalar(), g.Op.Scalar() && a.Op == latex.List:
		return c.repeated(g, a)
	}
	return c.say(false, "a list against one value")
}

// lettered returns a word such as BC as the list of its letters if list is a list of as many
// options. It returns anything else unchanged.
func lettered(word, list *latex.Node) *latex.Node {
	if word.Op != latex.Mul && word.Op != latex.Text || len(word.Name) != len(list.Args) || !list.Every(isOption) {
		return word
	}
	letters := &latex.Node{Op: latex.List, Name: ","}
	for _, letter := range strings.Split(strings.ToUpper(word.Name), "") {
		letters.Args = append(letters.Args, &latex.Node{Op: latex.Sym, Name: letter})
	}
	return letters
}

// unremarked is a list of one statement and remarks about its letters, such as x ∈ R, as
// the statement alone, if other has no remarks. The remarks of a gold are memberships; an
// answer may also say that a letter for an integer is above a bound: n >= 1.
func (c *comparer) unremarked(n, other *latex.Node, isGold bool) *latex.Node {
	if n.Op != latex.List || other.Op == latex.List {
		return n
	}
	var statement *latex.Node
	var remarks []*latex.Node
	for _, arg := range n.Args {
		aboutLetter := arg.Op == latex.Rel && len(arg.Ops) == 1 && arg.Args[0].Op == latex.Sym
		member := aboutLetter && arg.Ops[0] == "in" && arg.Args[1].Op == latex.Named
		above := aboutLetter && (arg.Ops[0] == ">=" || arg.Ops[0] == ">") && strings.Contains("klmnpq", arg.Args[0].Name)
		if member || above && !isGold {
			remarks = append(remarks, arg.Args[0])
		} else if statement != nil {
			return n
		} else {
			statement = arg
		}
	}
	aboutOther := func(name *latex.Node) bool {
		return !mentions(valueOf(statement), name) && !isAssigned(statement, name)
	}
	if statement == nil || slices.ContainsFunc(remarks, aboutOther) {
		return n
	}
	return statement
}

// isAssigned reports whether a statement gives a value to name.
func isAssigned(statement, name *latex.Node) bool {
	as, ok := assignmentOf(statement)
	return ok && as.name.Op == latex.Sym && as.name.Name == name.Name
}

// excluded writes x != 0, 1 as x != 0 and x != 1; it returns anything else unchanged.
func excluded(n *latex.Node) *latex.Node {
	if n.Op != latex.List || n.Args[0].Op != latex.Rel || !single(n.Args[0], "!=") || !isName(n.Args[0].Args[0]) {
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

// repeated compares a list with one value, which every element must have.
func (c *comparer) repeated(g, a *latex.Node) bool {
	list, one := swapped(a.Op == latex.List, g, a)
	if list.Name == "and" && list.Contains(latex.Unit) && one.Contains(latex.Unit) {
		// 5 hours and 30 minutes is one duration.
		if q, ok := c.splitSum(&latex.Node{Op: latex.Add, Args: list.Args}); ok {
			total := product(append([]*latex.Node{q.value}, unitNodes(q.units)...)...)
			return c.pair(list == g, total, one)
		}
	}
	whole, part := list.Args[0], list.Args[1]
	isMixed := whole.Is(latex.Num) && whole.Rat.IsInt() && part.Is(latex.Div) && isProper(part)
	if list.Name == "and" && len(list.Args) == 2 && isMixed {
		return c.pair(list == g, &latex.Node{Op: latex.Add, Args: list.Args}, one) // 11 and 5/6
	}
	for _, x := range values(list) {
		if !c.pair(list == g, x, one) {
			return c.say(false, "a list against one value")
		}
	}
	return c.say(true, "one value said several times")
}

// isProper reports whether a quotient is one of two whole numbers below 1.
func isProper(n *latex.Node) bool {
	p, q := whole(n.Args[0]), whole(n.Args[1])
	return p != nil && q != nil && p.Sign() > 0 && p.Cmp(q) < 0
}

// values returns the elements of a list or set; if all are assignments to one name, the assigned values.
func values(n *latex.Node) []*latex.Node {
	out := make([]*latex.Node, len(n.Args))
	first := ""
	for i, arg := range n.Args {
		as, ok := assignmentOf(arg)
		if !ok {
			return n.Args
		}
		name := as.name.String()
		if i == 0 {
			first = name
		} else if baseName(name) != baseName(first) {
			return n.Args
		}
		out[i] = as.value
	}
	return out
}

// twoLists compares two lists without brackets. A list of numbers means all of them, with
// "or" or "and" between them, but "Alice or Bob" is not "Alice and Bob".
func (c *comparer) twoLists(g, a *latex.Node) bool {
	named := func(n *latex.Node) bool { return n.Op != latex.Text && !isOption(n) }
	if g.Name != a.Name && g.Name != "," && a.Name != "," && !slices.ContainsFunc(g.Args, named) {
		return c.say(false, "alternatives against all of them")
	}
	if either := g.Name == "or"; either != (a.Name == "or") && (namedDistinctly(g) || g.Name != "," && a.Name != "," &&
		slices.ContainsFunc(g.Args, isInequality)) {
		return c.say(false, "alternatives against all of them")
	}
	if x, ok := assignmentOf(g.Args[0]); ok {
		if y, ok := assignmentOf(a.Args[0]); ok && !namedDistinctly(g) && otherQuantity(x.name, y.name) {
			return c.say(false, "different things named")
		}
	}
	if verdict, ok := c.ranging(g, a); ok {
		return verdict
	}
	namedG, namedA := namedDistinctly(g), namedDistinctly(a)
	switch {
	case namedG && namedA && sameNames(g, a):
		return c.byName(g, a)
	case namedG && namedA:
		return c.inOrder(g.Args, a.Args, "named values in order")
	case (namedG || namedA) && g.Every(isAssignment) && a.Every(isAssignment):
		return c.say(false, "one name with several values against several names")
	case namedG && !anyNamed(a) || namedA && !anyNamed(g):
		return c.inOrder(valuesOf(byAlphabet(g.Args)), valuesOf(byAlphabet(a.Args)), "named values and a list in order")
	case len(g.Args) == len(a.Args):
		return c.match(values(g), values(a), "the same values in some order")
	}
	return c.twoSets(values(g), values(a)) // an element was repeated
}

// ranging compares statements about every k of a set, "x = 2k\pi, k ∈ Z". The letter k may differ.
func (c *comparer) ranging(g, a *latex.Node) (verdict, ok bool) {
	restG, setG, k := ranged(g)
	restA, setA, n := ranged(a)
	if setG == nil || setA == nil || setG.Name != setA.Name {
		return false, false
	}
	if k.Name != n.Name && mentions(restA, k) {
		return c.say(false, "statements over different variables"), true
	}
	restA = restA.Replaced(latex.Sym, n.Name, k)
	return c.equal(restG, restA) || setG.Name == "Z" && c.sameProgression(valueOf(restG), valueOf(restA), k), true
}

// ranged splits "x = 2k\pi, k ∈ Z" into the statement, the set and the variable; set is
// nil where n says nothing of the kind.
func ranged(n *latex.Node) (rest, set, variable *latex.Node) {
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

// unranged compares a statement about all integers k with one that omits "k ∈ Z", as is
// common: x = 2n\pi has one letter in k's place.
func (c *comparer) unranged(g, a *latex.Node) (verdict, ok bool) {
	list, other := swapped(a.Op == latex.List, g, a)
	if list.Op != latex.List || other.Op == latex.List || len(list.Args) != 2 {
		return false, false
	}
	rest, set, k := ranged(list)
	if set == nil || set.Name != "Z" {
		return false, false
	}
	letter := ""
	for _, name := range algebra.Variables(valueOf(other)) {
		if name != k.Name && mentions(valueOf(rest), &latex.Node{Op: latex.Sym, Name: name}) {
			continue
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
	return c.pair(list == g, rest, other) || c.sameProgression(valueOf(rest), valueOf(other), k), true
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
	linear := func(n *latex.Node) (first, step *latex.Node, ok bool) {
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
			return c.say(true, "the same progression")
		}
	}
	return false
}

// byName compares two lists of assignments to the same names.
func (c *comparer) byName(g, a *latex.Node) bool {
	for _, x := range g.Args {
		as, _ := assignmentOf(x)
		for _, y := range a.Args {
			if other, _ := assignmentOf(y); other.name.String() == as.name.String() && !c.equal(as.value, other.value) {
				return false
			}
		}
	}
	return c.say(true, "the same value for every name")
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

// sameNames reports whether two lists of assignments have the same names.
func sameNames(g, a *latex.Node) bool {
	names := func(list *latex.Node) (names []string) {
		for _, arg := range list.Args {
			as, _ := assignmentOf(arg)
			names = append(names, as.name.String())
		}
		slices.Sort(names)
		return names
	}
	return slices.Equal(names(g), names(a))
}

// inOrder compares two sequences element by element.
func (c *comparer) inOrder(g, a []*latex.Node, rule string) bool {
	if len(g) != len(a) {
		return c.say(false, rule+": different lengths")
	}
	for i := range g {
		if !c.equal(g[i], a[i]) {
			return false
		}
	}
	return c.say(true, rule)
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
			return c.say(false, "an element of the gold's list is not in the answer's")
		}
	}
	return c.say(true, rule)
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
			return c.say(false, "an element of the gold's set is not in the answer's")
		}
	}
	for _, x := range a {
		if !in(x, g) {
			return c.say(false, "an element of the answer's set is not in the gold's")
		}
	}
	return c.say(true, "the same set")
}

// byAlphabet sorts values by their names, if these are consecutive letters of the
// alphabet: y = 2, x = 1 is (1,2). Otherwise it changes nothing.
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
			return c.say(false, "alternatives against a tuple")
		}
	}
	x, okX := sequence(g)
	y, okY := sequence(a)
	if !okX || !okY {
		return c.say(false, "a list against something else")
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
	if g.Op == latex.Bracket && a.Op == latex.Bracket {
		alike := g.Name == a.Name
		if !alike {
			_, okG := sequence(g)
			_, okA := sequence(a)
			alike = okG && okA
		}
		if !alike {
			return c.say(false, "different brackets")
		}
		return c.inOrder(g.Args, a.Args, "equal components")
	}
	x, okX := sequence(g)
	y, okY := sequence(a)
	if okX && okY {
		return c.inOrder(x, y, "equal components")
	}
	return c.say(false, "a tuple or interval against something else")
}
