package algebra

import (
	"math/big"
	"slices"
	"strings"

	"onering/verifier/internal/ball"
	"onering/verifier/internal/latex"
)

// Precisions to try, in bits, and the agreement that counts as equality.
var precisions = [...]uint{160, 480, 1600}

const agreement = 80

// longNumeral is how many digits make it worth to look for a difference at the
// lowest precision first.
const longNumeral = 60

// numbers compares a and b numerically: once if they are constants, else at
// points.
func (c *Checker) numbers(a, b *latex.Node) (outcome, string) {
	s := survey(a, b)
	if s.infinite {
		return undecided, "infinite"
	}
	if len(s.names) == 0 {
		switch outcome := c.samePoint(a, b, s, nil); outcome {
		case pointEqual:
			return Equal, "the same number"
		case pointDifferent:
			return unequal, "different numbers"
		case pointLimit:
			return Limit, "numbers too large to compute"
		}
		return undecided, "numbers that could not be told apart"
	}
	c.thresholds(&s, a)
	c.thresholds(&s, b)
	return (&trial{c: c, a: a, b: b, s: s}).verdict()
}

// A trial compares two expressions with variables at points.
type trial struct {
	c    *Checker
	a, b *latex.Node
	s    variables
	met  [pointLimit + 1]int // the points of each outcome
}

// differ reports whether the two differ at one of the points. It stops where the budget
// ends.
func (t *trial) differ(points func() []*point) bool {
	if t.c.budget < 0 {
		return false
	}
	for _, at := range points() {
		outcome := t.c.samePoint(t.a, t.b, t.s, at)
		if outcome == pointDifferent {
			return true
		}
		if t.met[outcome]++; t.c.budget < 0 {
			return false
		}
	}
	return false
}

// verdict tries fractions first, unless only natural numbers make sense. If fractions
// leave both sides undefined, as in (-1)^n, it tries natural numbers. Sides that no
// precision can distinguish, such as sines of 10^1000 x, do not count as equal.
func (t *trial) verdict() (outcome, string) {
	const different, unreached, unclear = "different values at some point", "steps may lie where values are too large to compute", "expressions that could not be told apart"
	if len(t.s.integer) == 0 {
		if t.differ(t.s.fractions) {
			return unequal, different
		}
		if t.met[pointUndecided] > 0 || t.met[pointLone] > 0 && t.met[pointEqual] == 0 && !t.natural() {
			return undecided, unclear
		}
		if t.met[pointEqual] < 3 && t.met[pointLimit] > 0 {
			return Limit, "values too large to compute"
		}
	}
	if (len(t.s.integer) > 0 || t.met[pointEqual] < 3 || t.s.stepped) && t.differ(t.s.naturals) {
		return unequal, different
	}
	near, vague := t.met[pointEqual], t.met[pointLimit]+t.met[pointUndecided]
	if t.differ(t.s.beyond) {
		return unequal, different
	}
	// A step or a corner may lie where nothing can be computed: n! + floor(n/10^5).
	missed := t.s.unreachable || t.met[pointLimit]+t.met[pointUndecided] > vague || t.met[pointEqual] == near && len(t.s.constants) > 0
	if t.differ(t.s.farOut) {
		return unequal, different
	}
	switch {
	case t.c.budget < 0:
		return Limit, "expressions too costly to evaluate"
	case missed && (t.s.stepped || t.s.corners || t.s.root):
		return Limit, unreached
	case t.s.jumps:
		return undecided, unclear
	case t.met[pointEqual] >= 5 || t.met[pointEqual] >= 3 && len(t.s.integer) == 0:
		return Equal, "the same value at every point tried"
	case t.met[pointLimit] > 0:
		return Limit, "values too large to compute"
	}
	return undecided, "expressions that could not be evaluated"
}

// natural reports whether all variables are letters that usually stand for integers.
func (t *trial) natural() bool {
	return !slices.ContainsFunc(t.s.names, func(name string) bool { return !integerName(name) })
}

// confirmed compares numerically what is equal as a formula: an expression that is
// nowhere defined equals nothing, and large integers may be equal only in a field.
// Without numeric values the formulas decide.
func (c *Checker) confirmed(a, b *latex.Node) (outcome, string) {
	s := survey(a, b)
	if s.infinite {
		return Equal, "the same formula"
	}
	// Mostly the first point decides, so the others are made on demand.
	sets := []func() []*point{s.fractions, s.naturals}
	if len(s.names) == 0 {
		sets = []func() []*point{func() []*point { return []*point{nil} }}
	}
	for _, points := range sets {
		for _, at := range points() {
			switch c.samePoint(a, b, s, at) {
			case pointEqual, pointUndecided, pointNoNumber, pointLimit:
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
	nodes    []*latex.Node // number of surveyed nodes, whose texts seed the points
	names    []string
	integer  map[string]bool // variables that get only natural numbers
	complex  bool            // i occurs
	infinite bool
	stepped  bool // floors and the like: more points are needed
	jumps    bool // a floor or a divisor may jump where no point lies: no points are enough
	// bars say that an absolute value of something with variables occurs, so negative
	// values matter: both sides have to be defined at the same points.
	bars    bool
	corners bool // an absolute value, or a sign, changes its formula somewhere
	digits  int  // digits of the longest numeral
	factors map[string]bool
	// constants are the larger constants in the expressions, rounded down, where steps
	// and corners may lie.
	constants []*big.Int
	// unreachable says that there is a constant too large for a point beyond it.
	unreachable bool
	// root and logarithm say that one occurs, which reaches a constant only far beyond
	// it.
	root, logarithm bool
}

// survey lists the variables of a and b and their places.
func survey(nodes ...*latex.Node) variables {
	s := variables{nodes: nodes, integer: map[string]bool{}, factors: factorLetters(nodes...)}
	seen := map[string]bool{}
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
			s.complex = s.complex || n.Name == "i"
			s.infinite = s.infinite || n.Name == "infty"
		case latex.Pow: // 0^|x-pi| jumps
			s.jumps = s.jumps || n.Args[0].Is(latex.Num) && n.Args[0].Rat.Sign() == 0 && hasSymbol(n.Args[1])
		case latex.Root: // of a square
			s.jumps = s.jumps || n.Args[0].Is(latex.Pow) && hidden(n.Args[0])
		case latex.Fact, latex.Fact2:
			discrete = true
		case latex.Binom:
			discrete, s.stepped = true, true
		case latex.Abs:
			s.bars, s.corners = s.bars || hasSymbol(n), s.corners || hasSymbol(n)
			s.jumps = s.jumps || hidden(n.Args[0])
		case latex.Floor, latex.Ceil:
			s.stepped, s.jumps = true, s.jumps || hasSymbol(n) && periods(n.Args[0]) == 0
			for _, arg := range n.Args {
				walk(arg, discrete || integerNames(arg), bound)
			}
			return
		case latex.Sum, latex.Prod:
			s.stepped = s.stepped || isLarge(n.Args[2]) || isLarge(n.Args[3])
			walk(n.Args[2], true, bound)
			if high := n.Args[3]; !high.Is(latex.Const) { // an infinite series is compared as a formula
				walk(high, true, bound)
			}
			walk(n.Args[0], discrete, append(bound[:len(bound):len(bound)], n.Args[1].Name))
			return
		case latex.Func:
			switch n.Name {
			case "gcd", "lcm":
				discrete, s.stepped, s.jumps = true, true, s.jumps || hasSymbol(n)
			case "max", "min":
				s.stepped = true
				s.jumps = s.jumps || slices.ContainsFunc(n.Args, hidden)
			case "sgn":
				s.corners = true
				s.jumps = s.jumps || hidden(n.Args[0])
			}
		case latex.Opaque, latex.Mod:
			// Compared as a formula; its variables stay inside.
			return
		case latex.App:
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

// isLarge reports whether a bound has a numeral beyond the ordinary points, so that a sum
// from it on is empty at them.
func isLarge(bound *latex.Node) bool {
	return bound != nil && (bound.Op == latex.Num && bound.Rat.Cmp(big.NewRat(ordinary, 1)) > 0 || bound.Op == latex.Pow || slices.ContainsFunc(bound.Args, isLarge))
}

// ordinary is the size up to which points lie densely.
const ordinary = 20

// mostPeriods is the longest period of a floor that points find all steps of.
const mostPeriods = 24

// periods is the number d where n is a polynomial in natural numbers over d, so that its
// floor takes polynomials in turn, d of them; 0 where n is nothing of the kind, or d
// exceeds mostPeriods.
func periods(n *latex.Node) int {
	switch n.Op {
	case latex.Num:
		if d := n.Rat.Denom(); d.IsInt64() && d.Int64() <= mostPeriods && n.Rat.Num().BitLen() < 64 {
			return int(d.Int64())
		}
	case latex.Sym:
		if integerNames(n) {
			return 1
		}
	case latex.Add, latex.Mul, latex.Neg, latex.Div, latex.Pow:
		d := 1
		for i, arg := range n.Args {
			part := periods(arg)
			if i > 0 && n.Op != latex.Add && n.Op != latex.Mul {
				if !arg.Is(latex.Num) || !arg.Rat.IsInt() || arg.Rat.Sign() <= 0 || arg.Rat.Num().Cmp(big.NewInt(mostPeriods)) > 0 {
					return 0
				}
				if part = int(arg.Rat.Num().Int64()); n.Op == latex.Pow && d == 1 {
					part = 1
				}
			}
			if d *= part; d == 0 || d > mostPeriods {
				return 0
			}
		}
		return d
	}
	return 0
}

// hidden reports whether n, whose sign makes a corner or a step, may change its sign
// between the points: a sum with a power, a function or another corner of letters and
// with a number that is tiny or large, as x^2-10^{-30}, or that is no integer beside a
// corner, as \frac{1}{9}-|x-\pi|.
func hidden(n *latex.Node) bool {
	switch n.Op {
	case latex.Mul, latex.Div, latex.Pow, latex.Neg, latex.Func:
		return slices.ContainsFunc(n.Args, hidden)
	case latex.Add:
		bent, corner, narrow, broken := false, false, false, false
		var walk func(n *latex.Node)
		walk = func(n *latex.Node) {
			letters := hasSymbol(n)
			switch n.Op {
			case latex.Num:
				narrow, broken = narrow || n.Rat.Num().BitLen() > 20 || n.Rat.Denom().BitLen() > 10, broken || !n.Rat.IsInt()
			case latex.Const:
				broken = true
			case latex.Pow, latex.Func, latex.Root:
				bent, broken = bent || letters, broken || !letters && n.Op != latex.Pow
				narrow = narrow || !letters && n.Op == latex.Pow && !(n.Args[1].Is(latex.Num) && n.Args[1].Rat.Num().BitLen() < 3)
			case latex.Div:
				broken = broken || !letters
			case latex.Abs:
				bent, corner = bent || letters, corner || letters
			}
			for _, arg := range n.Args {
				walk(arg)
			}
		}
		walk(n)
		return bent && narrow || corner && broken
	}
	return false
}

// hasSymbol reports whether n contains a letter.
func hasSymbol(n *latex.Node) bool { return n.Contains(latex.Sym) }

// Expressions are compared at points beyond their mostConstants largest constants, each
// of up to mostConstantBits bits.
const (
	mostConstants    = 3
	mostConstantBits = 1200
)

// thresholds notes the constants in n, where steps and corners may lie: numerals, powers
// and what else has a value without variables.
func (c *Checker) thresholds(s *variables, n *latex.Node) {
	if n == nil {
		return
	}
	if hasSymbol(n) || !n.Op.Scalar() {
		switch {
		case n.Op == latex.Root, n.Op == latex.Pow && !n.Args[1].Is(latex.Num):
			s.root = true
		case n.Op == latex.Func && (n.Name == "ln" || n.Name == "log" || n.Name == "lg"):
			s.logarithm = true
		}
		for _, arg := range n.Args {
			c.thresholds(s, arg)
		}
		return
	}
	r, err := c.rational(n, nil)
	if err == errIrrational {
		e := numeric{c: c, ball: &ball.Context{Prec: precisions[0], Budget: &c.budget}}
		if z, errValue := e.try(n); errValue == nil && z.IsReal() {
			if k := z.Re.Exponent(); max(k, -k) > mostConstantBits {
				s.unreachable = true
			} else if r, err = big.NewRat(1, 1), nil; k > 0 {
				r.SetInt(new(big.Int).Lsh(big.NewInt(1), uint(k)))
			} else {
				r.SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), uint(-k)))
			}
		}
	}
	switch {
	case err == nil:
		s.constant(r)
	case err == errLimit:
		s.unreachable = true
	}
}

// constant records a constant beyond the ordinary points, or one whose reciprocal is beyond them.
func (s *variables) constant(r *big.Rat) {
	if r.Sign() == 0 {
		return
	}
	for _, x := range [...]*big.Rat{r, new(big.Rat).Inv(r)} {
		k := floorRat(new(big.Rat).Abs(x))
		switch {
		case k.BitLen() > mostConstantBits:
			s.unreachable = true
		case k.Cmp(big.NewInt(ordinary)) > 0:
			s.constants = append(s.constants, k)
		}
	}
}

// beyond returns points beyond the constants: a step or a corner at a constant, at its
// square, or where a root or a logarithm reaches it lies between them and the ordinary
// points. A bump of width one may lie at the constant itself.
func (s *variables) beyond() []*point {
	largest := slices.SortedFunc(slices.Values(s.constants), func(x, y *big.Int) int { return y.Cmp(x) })
	largest = slices.CompactFunc(largest, func(x, y *big.Int) bool { return x.Cmp(y) == 0 })
	var sizes []*big.Int
	for i, k := range largest[:min(len(largest), mostConstants)] {
		square := new(big.Int).Mul(k, k)
		sizes = append(sizes, new(big.Int).Lsh(k, 1), new(big.Int).Add(square, k))
		if i == 0 && s.root {
			sizes = append(sizes, square.Mul(square, square))
		}
		if i > 0 || !s.logarithm {
			continue
		}
		if !k.IsInt64() || k.Int64() > mostConstantBits {
			s.unreachable = true
		} else {
			sizes = append(sizes, new(big.Int).Lsh(big.NewInt(1), uint(4*k.Int64())))
		}
	}
	out := s.outside(sizes, 0)
	if s.stepped || s.bars {
		for _, k := range largest[:min(len(largest), mostConstants)] {
			out = append(out, s.at(func(int) *big.Rat { return new(big.Rat).SetInt(k) }))
		}
	}
	return out
}

// farOut are points a million and a million million from zero.
func (s *variables) farOut() []*point {
	return s.outside([]*big.Int{big.NewInt(1_000_000), big.NewInt(1_000_000_000_000)}, 3*len(s.constants))
}

// outside are points of the given sizes with both signs, seeded by the pair and salt.
func (s *variables) outside(sizes []*big.Int, salt int) []*point {
	seed := pairSeed(s.nodes...)
	var out []*point
	for round, size := range sizes {
		for _, sign := range [...]int64{1, -1} {
			out = append(out, turned(s.at(func(i int) *big.Rat {
				// size plus up to size/2, and a little that is no integer
				h := mix(seed ^ uint64((salt+round)*1009+i))
				v := new(big.Rat).SetInt(new(big.Int).Add(size, new(big.Int).Div(new(big.Int).Mul(size, big.NewInt(int64(h%512))), big.NewInt(1024))))
				if len(s.integer) > 0 && s.integer[s.names[i]] {
					return v
				}
				v.Add(v, fraction(seed^h, 0, 1))
				if sign < 0 {
					v.Neg(v)
				}
				return v
			})))
			if len(s.integer) == len(s.names) {
				break // natural numbers have no sign
			}
		}
	}
	return out
}

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

// turned makes the values of a point that are no integers transcendental.
func turned(p *point) *point {
	for q := p; q != nil; q = q.next {
		if !q.value.IsInt() {
			q.turn = fraction(hashName(q.name, q.value.Num().Uint64()), 0, 1)
			q.turn.Quo(q.turn, big.NewRat(64, 1))
		}
	}
	return p
}

// fraction is a seeded fraction between low and low + span.
func fraction(seed uint64, low, span int) *big.Rat {
	h := mix(seed)
	return big.NewRat(int64(low)<<16+int64(h%uint64(span<<16))|1, 1<<16)
}

// fractions returns points with non-integer coordinates of several sizes, every variable
// positive at some and negative at others. Three have all coordinates below one, where
// arc functions are defined.
func (s *variables) fractions() []*point {
	seed := pairSeed(s.nodes...)
	var out []*point
	for round, size := range [...]struct{ low, span int }{{1, 2}, {0, 3}, {0, 1}, {0, 3}, {0, 1}, {2, 6}, {5, 20}, {0, 1}} {
		out = append(out, turned(s.at(func(i int) *big.Rat {
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
	if s.stepped || len(s.integer) > 0 {
		rounds = 36
	}
	seed := pairSeed(s.nodes...)
	var out []*point
	for round := range rounds {
		out = append(out, turned(s.at(func(i int) *big.Rat {
			if len(s.integer) > 0 && !s.integer[s.names[i]] && round%2 == 0 {
				return fraction(seed^uint64(round*77+i), 0, 3)
			}
			if i == 0 && round < 24 { // for a while every number is used
				return big.NewRat(int64(round+1), 1)
			}
			return big.NewRat(1+int64(mix(seed^uint64(round*131+i))%uint64(8+round/2)), 1)
		})))
	}
	if s.stepped {
		out = append(out, s.at(func(int) *big.Rat { return new(big.Rat) }))
	}
	return append(out, s.at(func(i int) *big.Rat { return big.NewRat(101+int64(i)*6, 1) }))
}

type pointOutcome uint8

const (
	pointUndecided pointOutcome = iota
	pointEqual
	pointDifferent
	pointUndefined
	pointLone     // one side is a number there, the other is not
	pointNoNumber // an unknown function, a matrix: something without a value
	pointLimit
)

// samePoint compares a and b at one point, with growing precision.
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
	if s.digits > longNumeral {
		// Few digits prove a difference, and only all of them equality.
		if outcome := c.evaluate(a, b, s, at, precisions[0]); outcome != pointEqual && outcome != pointUndecided {
			return outcome
		}
	}
	for _, prec := range precisions {
		prec += uint(4 * s.digits)
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

// evaluate compares a and b at one point and precision.
func (c *Checker) evaluate(a, b *latex.Node, s variables, at *point, prec uint) pointOutcome {
	ctx := &ball.Context{Prec: prec, Budget: &c.budget}
	e := numeric{c: c, ball: ctx, at: at, factors: s.factors, complex: s.complex}
	x, errX := e.try(a)
	leftX := e.left
	e.left = false
	y, errY := e.try(b)
	if undefined := func(err error, left bool) bool {
		return err == ball.ErrUndefined || err == errUndefined || err == nil && left
	}; at != nil && !s.complex && undefined(errX, leftX) != undefined(errY, e.left) && (errX == nil || errY == nil) {
		if s.bars {
			return pointDifferent
		}
		return pointLone
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
	if at != nil && !s.complex && (leftX || e.left) {
		return pointUndefined
	}
	for _, pair := range [...][2]ball.Real{{x.Re, y.Re}, {x.Im, y.Im}} {
		different, tight := ctx.Differ(pair[0], pair[1], e.scale.Larger(x.Re.Larger(x.Im)), agreement)
		if different {
			return pointDifferent
		}
		if !tight || e.swallowed {
			return pointUndecided
		}
	}
	return pointEqual
}
