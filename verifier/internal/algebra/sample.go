package algebra

import (
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"onering/verifier/internal/ball"
	"onering/verifier/internal/latex"
)

// Precisions to try, in bits, and the agreement that counts as equality.
var precisions = [...]uint{160, 480, 1600}

const agreement = 80

// numbers compares a and b numerically: once if they are constants, else at points. Steps and corners that points may miss
// have to be the same on both sides.
func (c *Checker) numbers(a, b *latex.Node) (outcome, string) {
	s := survey(a, b)
	if s.hasInfinity {
		return undecided, "infinite"
	}
	if len(s.names) == 0 {
		switch c.samePoint(a, b, s, nil) { // nil: no variable needs a value
		case pointEqual:
			return Equal, "the same number"
		case pointDifferent:
			return unequal, "different numbers"
		case pointLimit:
			return Limit, "numbers too large to compute"
		}
		return undecided, "numbers that could not be told apart"
	}
	a, b, ok := c.withoutSteps(a, b)
	if !ok {
		return undecided, "a step or a corner on one side only"
	}
	return (&trial{c: c, a: a, b: b, s: survey(a, b)}).verdict()
}

// A trial compares two expressions with variables at points.
type trial struct {
	c      *Checker
	a, b   *latex.Node
	s      variables
	counts [pointLimit + 1]int // the points of each outcome
}

// differ reports whether the two differ at one of the points, and counts the outcomes at those before. It stops where the
// budget ends.
func (t *trial) differ(points func() []*point) bool {
	if t.c.budget < 0 {
		return false // verdict sees that it is used up
	}
	for _, at := range points() {
		outcome := t.c.samePoint(t.a, t.b, t.s, at)
		if outcome == pointDifferent {
			return true
		}
		t.counts[outcome]++
		if t.c.budget < 0 {
			return false
		}
	}
	return false
}

// verdict tries fractions first, unless only natural numbers make sense. If the sides are defined at fewer than three of
// them, as in (-1)^n, or have steps, it tries natural numbers. Sides that no precision can distinguish, such as sines of
// 10^1000 x, do not count as equal.
func (t *trial) verdict() (outcome, string) {
	const different, unclear = "different values at some point", "expressions that could not be told apart"
	if len(t.s.integer) == 0 {
		if t.differ(t.s.fractions) {
			return unequal, different
		}
		if t.counts[pointUndecided] > 0 || t.counts[pointOneSided] > 0 && t.counts[pointEqual] == 0 && !t.hasIntegerNames() { // never both defined
			return undecided, unclear
		}
		if t.counts[pointEqual] < 3 && t.counts[pointLimit] > 0 {
			return Limit, "values too large to compute"
		}
	}
	if (len(t.s.integer) > 0 || t.counts[pointEqual] < 3 || t.s.hasSteps) && t.differ(t.s.naturals) {
		return unequal, different
	}
	switch { // five points suffice, or three if fractions were among them
	case t.c.budget < 0:
		return Limit, "expressions too costly to evaluate"
	case t.counts[pointEqual] >= 5 || t.counts[pointEqual] >= 3 && len(t.s.integer) == 0:
		return Equal, "the same value at every point tried"
	case t.counts[pointLimit] > 0:
		return Limit, "values too large to compute"
	}
	return undecided, "expressions that could not be evaluated"
}

// hasIntegerNames reports whether all variables are letters that usually stand for integers.
func (t *trial) hasIntegerNames() bool {
	return !slices.ContainsFunc(t.s.names, func(name string) bool { return !integerName(name) })
}

// confirmByNumbers compares numerically what is equal as a formula: an expression that is nowhere defined equals
// nothing, and large integers may be equal only in a field. Without numeric values the formulas decide.
func (c *Checker) confirmByNumbers(a, b *latex.Node) (outcome, string) {
	s := survey(a, b)
	if s.hasInfinity {
		return Equal, "the same formula"
	}
	// Mostly the first point decides, so the others are made on demand.
	sets := []func() []*point{s.fractions, s.naturals}
	if len(s.names) == 0 { // one evaluation, without a point
		sets = []func() []*point{func() []*point { return []*point{nil} }}
	}
	for _, points := range sets {
		for _, at := range points() {
			switch c.samePoint(a, b, s, at) {
			case pointEqual, pointUndecided, pointNoNumber, pointLimit: // nothing contradicts
				return Equal, "the same formula"
			case pointDifferent:
				return unequal, "different values at some point"
			}
			if c.budget < 0 {
				return Limit, "expressions too costly to evaluate"
			}
		}
	}
	return undecided, "defined nowhere"
}

// A variables describes the contents of a pair of expressions.
type variables struct {
	nodes       []*latex.Node // number of surveyed nodes, whose texts seed the points
	names       []string
	integer     map[string]bool // variables that get only natural numbers
	hasI        bool            // i occurs
	hasInfinity bool
	hasSteps    bool // floors and the like: more points are needed
	// hasBars says that an absolute value of something with variables occurs, so negative
	// values matter: both sides have to be defined at the same points.
	hasBars bool
	digits  int // digits of the longest numeral
	factors map[string]bool
}

// survey describes the contents of nodes: their variables, those that only make sense as natural numbers, such as n in n!,
// and what else decides at which points they are compared. The index of a sum is no variable.
func survey(nodes ...*latex.Node) variables {
	s := variables{nodes: nodes, integer: map[string]bool{}, factors: factorLetters(nodes...)}
	seen := map[string]bool{}
	// discrete says that n stands where only natural numbers make sense, bound has the indices of the sums around it.
	var walk func(n *latex.Node, discrete bool, bound []string)
	walk = func(n *latex.Node, discrete bool, bound []string) {
		if n == nil {
			return
		}
		switch n.Op {
		case latex.Num:
			s.digits = max(s.digits, n.Digits)
		case latex.Sym:
			if slices.Contains(bound, n.Name) {
				return
			}
			if !seen[n.Name] {
				seen[n.Name] = true
				s.names = append(s.names, n.Name)
			}
			if discrete {
				s.integer[n.Name] = true
			}
		case latex.Const:
			s.hasI = s.hasI || n.Name == "i"
			s.hasInfinity = s.hasInfinity || n.Name == "infty"
		case latex.Fact, latex.Fact2:
			discrete = true
		case latex.Binom:
			discrete, s.hasSteps = true, true
		case latex.Abs:
			s.hasBars = s.hasBars || hasSymbol(n)
		case latex.Floor, latex.Ceil:
			s.hasSteps = true
			for _, arg := range n.Args {
				walk(arg, discrete || integerNames(arg), bound)
			}
			return
		case latex.Sum, latex.Prod:
			walk(n.Args[2], true, bound)
			if high := n.Args[3]; !high.Is(latex.Const) { // an infinite series is compared as a formula
				walk(high, true, bound)
			}
			walk(n.Args[0], discrete, append(bound[:len(bound):len(bound)], n.Args[1].Name)) // a copy: siblings share bound
			return
		case latex.Func:
			switch n.Name {
			case "gcd", "lcm":
				discrete, s.hasSteps = true, true
			case "max", "min":
				s.hasSteps = true
			}
		case latex.Opaque, latex.Mod:
			// Compared as a formula; its variables stay inside.
			return
		case latex.App: // of h(a+b), where h is a factor
			if s.factors[n.Name] && !seen[n.Name] {
				seen[n.Name] = true
				s.names = append(s.names, n.Name)
			}
		}
		for _, arg := range n.Args {
			walk(arg, discrete, bound)
		}
	}
	for _, n := range nodes {
		walk(n, false, nil)
	}
	return s
}

// ordinary is the size up to which points lie densely.
const ordinary = 24

// isStepOrCorner reports whether n has letters, and a step or a corner, or is defined for natural
// numbers only: a term of it may vanish at all points that are tried.
func isStepOrCorner(n *latex.Node) bool {
	switch n.Op {
	case latex.Floor, latex.Ceil, latex.Abs, latex.Fact, latex.Fact2, latex.Binom, latex.Sum, latex.Prod:
		return hasSymbol(n)
	case latex.Func:
		return hasSymbol(n) && (n.Name == "gcd" || n.Name == "lcm" || n.Name == "max" || n.Name == "min" || n.Name == "sgn")
	case latex.Root: // of a square
		return n.Args[0].Is(latex.Pow) && hasSymbol(n)
	case latex.Pow: // 0^|x-pi|
		return n.Args[0].Is(latex.Num) && n.Args[0].Rat.Sign() == 0 && hasSymbol(n.Args[1])
	}
	return false
}

// isTame reports whether sampled points show every step and corner of n: the constants in it are ordinary, below a corner
// there is no other, and below a step there are only polynomials. belowCorner says that n stands below a step or a corner,
// belowStep below a step.
func (c *Checker) isTame(n *latex.Node, belowCorner, belowStep bool) bool {
	switch {
	case n == nil || n.Op == latex.Const && !belowStep:
		return true
	case !hasSymbol(n) && n.Op != latex.Sum && n.Op != latex.Prod:
		r, err := c.rational(n, nil)
		return err == nil && r.Num().CmpAbs(big.NewInt(ordinary)) <= 0 && r.Denom().Cmp(big.NewInt(ordinary)) <= 0
	case isStepOrCorner(n) && belowCorner:
		return false
	}
	belowCorner = belowCorner || isStepOrCorner(n)
	switch n.Op {
	case latex.Sym, latex.Add, latex.Mul, latex.Neg, latex.Abs, latex.Root:
	case latex.Sum, latex.Prod: // the term, and the bounds, which step
		return c.isTame(n.Args[0], false, belowStep) && c.isTame(n.Args[2], true, true) && c.isTame(n.Args[3], true, true)
	case latex.Floor, latex.Ceil, latex.Fact, latex.Fact2, latex.Binom:
		belowStep = true
	case latex.Pow, latex.Div:
		zero := n.Args[0].Is(latex.Num) && n.Args[0].Rat.Sign() == 0
		if belowStep && hasSymbol(n.Args[1]) || n.Op == latex.Pow && zero { // no polynomial, or 0^x, which jumps
			return false
		}
	case latex.Func:
		if belowStep {
			return false
		}
		belowStep = isStepOrCorner(n)
	default:
		return false
	}
	return n.Every(func(arg *latex.Node) bool { return c.isTame(arg, belowCorner, belowStep) })
}

// withoutSteps puts an unknown in the place of each term with steps (floor) or corners (|x|) that sampled
// points may miss. Its name is made of the term's value in a field, so that equal terms become one unknown.
// ok is false unless both sides have the same such terms.
func (c *Checker) withoutSteps(a, b *latex.Node) (x, y *latex.Node, ok bool) {
	const seed = 7 // any: it says which field and which values of the letters
	factors := factorLetters(a, b)
	var replaced func(n *latex.Node, seen map[string]bool) *latex.Node
	replaced = func(n *latex.Node, seen map[string]bool) *latex.Node {
		switch {
		case n == nil:
			return nil
		case !isStepOrCorner(n):
			return n.Mapped(func(arg *latex.Node) *latex.Node { return replaced(arg, seen) })
		case c.isTame(n, false, false): // as the whole of a term it stands below no other step or corner
			return n
		}
		f := formula{c: c, field: fieldFor(seed), seed: seed, factors: factors}
		name := "step " + strconv.FormatUint(f.value(n), 36)
		seen[name] = true
		return &latex.Node{Op: latex.Sym, Name: name}
	}
	inA, inB := map[string]bool{}, map[string]bool{} // the unknowns of each
	x, y = replaced(a, inA), replaced(b, inB)
	return x, y, maps.Equal(inA, inB)
}

// hasSymbol reports whether n contains a letter.
func hasSymbol(n *latex.Node) bool { return n.Contains(latex.Sym) }

// integerName reports whether a variable usually stands for integers.
func integerName(name string) bool { return strings.IndexByte("nmkNMKijpql", name[0]) >= 0 }

// integerNames reports whether integerName holds of all variables of n.
func integerNames(n *latex.Node) bool {
	return !n.Any(func(n *latex.Node) bool { return n.Op == latex.Sym && !integerName(n.Name) })
}

// at makes a point of a value for each variable.
func (s *variables) at(value func(i int) *big.Rat) *point {
	var p *point
	for i, name := range s.names {
		p = &point{name: name, value: value(i), next: p}
	}
	return p
}

// madeTranscendental makes the values of a point that are not integers transcendental.
func madeTranscendental(p *point) *point {
	for q := p; q != nil; q = q.next {
		if !q.value.IsInt() {
			q.logFactor = fraction(hashName(q.name, q.value.Num().Uint64()), 0, 1)
			q.logFactor.Quo(q.logFactor, big.NewRat(64, 1))
		}
	}
	return p
}

// fraction is a seeded fraction between low and low + span.
func fraction(seed uint64, low, span int) *big.Rat {
	h := mix(seed)
	return big.NewRat(int64(low)<<16+int64(h%uint64(span<<16))|1, 1<<16)
}

// fractions returns points with non-integer coordinates of several sizes, every variable positive at some and
// negative at others. Three have all coordinates below one, where arc functions are defined.
func (s *variables) fractions() []*point {
	seed := pairSeed(s.nodes...) // made of the expressions, so that nobody can choose the points
	var out []*point
	for round, size := range [...]struct{ low, span int }{{1, 2}, {0, 3}, {0, 1}, {0, 3}, {0, 1}, {2, 6}, {5, 20}, {0, 1}} {
		out = append(out, madeTranscendental(s.at(func(i int) *big.Rat {
			v := fraction(seed^uint64(round*1000+i), size.low, size.span)
			negative := false
			switch round {
			case 1:
				negative = i%2 == 0
			case 2:
				negative = true
			case 3:
				negative = i%2 == 1
			case 5:
				negative = i/2%2 == 0
			}
			if negative {
				v.Neg(v)
			}
			return v
		})))
	}
	return out
}

// naturals returns points with natural coordinates in all orders. If only some variables
// must be natural numbers, the others are fractions half of the time.
func (s *variables) naturals() []*point {
	rounds := 12
	if s.hasSteps || len(s.integer) > 0 {
		rounds = 36
	}
	seed := pairSeed(s.nodes...)
	var out []*point
	for round := range rounds {
		out = append(out, madeTranscendental(s.at(func(i int) *big.Rat {
			if len(s.integer) > 0 && !s.integer[s.names[i]] && round%2 == 0 {
				return fraction(seed^uint64(round*77+i), 0, 3)
			}
			if i == 0 && round < 24 { // the first variable takes every number from 1 on
				return big.NewRat(int64(round+1), 1)
			}
			return big.NewRat(1+int64(mix(seed^uint64(round*131+i))%uint64(8+round/2)), 1)
		})))
	}
	if s.hasSteps {
		out = append(out, s.at(func(int) *big.Rat { return new(big.Rat) }))
	}
	return append(out, s.at(func(i int) *big.Rat { return big.NewRat(101+int64(i)*6, 1) })) // all large
}

type pointOutcome uint8

const (
	pointUndecided pointOutcome = iota
	pointEqual
	pointDifferent
	pointUndefined
	pointOneSided // one side is a number there, the other is not
	pointNoNumber // an unknown function, a matrix: something without a value
	pointLimit
)

// samePoint compares a and b, of which s is the survey, at one point, with growing precision; at is nil if they are
// constants, for which exact arithmetic was tried before.
func (c *Checker) samePoint(a, b *latex.Node, s variables, at *point) pointOutcome {
	// Where everything is rational, exact arithmetic is better and cheaper.
	if at != nil {
		x, errX := c.rational(a, at)
		y, errY := c.rational(b, at)
		switch {
		case errX == nil && errY == nil:
			if x.Cmp(y) == 0 {
				return pointEqual
			}
			return pointDifferent
		case errX == errUndefined || errY == errUndefined:
			return pointUndefined
		}
	}
	for _, prec := range precisions {
		prec += uint(4 * s.digits) // over 3.3 bits for each digit of the longest numeral
		outcome := c.evaluate(a, b, s, at, prec)
		if outcome != pointUndecided {
			return outcome
		}
		if c.budget < 0 {
			return pointLimit
		}
	}
	return pointUndecided
}

// evaluate compares a and b at one point and precision. Where only one side is defined over the reals, the outcome is
// pointOneSided, or pointDifferent if negative values matter.
func (c *Checker) evaluate(a, b *latex.Node, s variables, at *point, prec uint) pointOutcome {
	ctx := &ball.Context{Prec: prec, Budget: &c.budget}
	e := numeric{c: c, ball: ctx, at: at, factors: s.factors, complex: s.hasI}
	x, errX := e.try(a)
	leftX := e.leftReals
	e.leftReals = false // from here on it is about b
	y, errY := e.try(b)
	undefined := func(err error, left bool) bool {
		return err == ball.ErrUndefined || err == errUndefined || err == nil && left
	}
	oneDefined := undefined(errX, leftX) != undefined(errY, e.leftReals) && (errX == nil || errY == nil)
	if at != nil && !s.hasI && oneDefined {
		if s.hasBars { // with |x|, negative values matter
			return pointDifferent
		}
		return pointOneSided
	}
	for _, err := range [...]error{errX, errY} {
		switch err {
		case nil:
		case ball.ErrUndefined, errUndefined:
			return pointUndefined
		case errLimit, ball.ErrRange:
			return pointLimit
		case errNotANumber:
			return pointNoNumber
		default:
			return pointUndecided
		}
	}
	if at != nil && !s.hasI && (leftX || e.leftReals) { // a complex constant has a value, an expression in reals has none
		return pointUndefined
	}
	for _, pair := range [...][2]ball.Real{{x.Re, y.Re}, {x.Im, y.Im}} {
		different, tight := ctx.Differ(pair[0], pair[1], e.scale.Larger(x.Re.Larger(x.Im)), agreement)
		if different {
			return pointDifferent
		}
		if !tight || e.lostSummand { // equal so far, which proves nothing at this precision
			return pointUndecided
		}
	}
	return pointEqual
}
