package verifier

import (
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strings"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
	"onering/verifier/internal/rules"
)

// A quantity is an expression without its per cent sign, degree sign and units.
type quantity struct {
	value   *latex.Node
	percent bool
	degree  bool
	units   []unitPower
}

// A unitPower is one unit and its exponent.
type unitPower struct {
	name  string // name as in latex; #noun for a counted noun
	power int
}

// quantityOf splits n into its number, its units and the sign behind it. A product, a quotient or a sum is split only if
// a unit stands in it (a product also for a per cent sign); a sum if all its terms have units of one dimension, as 5 ft 6
// in. What is not split is a value without units.
func (c *comparer) quantityOf(n *latex.Node) quantity {
	switch n.Op {
	case latex.Percent:
		return quantity{value: n.Args[0], percent: true}
	case latex.Degree:
		return quantity{value: n.Args[0], degree: true}
	case latex.Neg:
		q := c.quantityOf(n.Args[0])
		if q.percent || q.degree || q.units != nil {
			q.value = &latex.Node{Op: latex.Neg, Args: []*latex.Node{q.value}}
			return q
		}
	case latex.Mul:
		if !n.Contains(latex.Unit) && !n.Contains(latex.Percent) {
			break
		}
		return c.splitProduct(n)
	case latex.Div:
		if !n.Contains(latex.Unit) {
			break
		}
		num, den := c.quantityOf(n.Args[0]), c.quantityOf(n.Args[1])
		if den.percent || den.degree { // only the numerator's sign is the quotient's
			den = quantity{value: n.Args[1]} // 10 m/5 % is 200 m
		}
		num.value = &latex.Node{Op: latex.Div, Args: []*latex.Node{num.value, den.value}}
		for _, u := range den.units {
			num.units = append(num.units, unitPower{u.name, -u.power})
		}
		return num
	case latex.Add:
		if n.Contains(latex.Unit) {
			if q, ok := c.splitSum(n); ok {
				return q
			}
		}
	case latex.Unit, latex.Pow:
		if u, ok := c.unitPowerOf(n); ok {
			return quantity{value: integer(1), units: []unitPower{u}}
		}
	}
	return quantity{value: n}
}

// splitProduct splits the product n into units and other factors, of which the last may have a per cent or degree sign.
func (c *comparer) splitProduct(n *latex.Node) quantity {
	q := quantity{}
	var factors []*latex.Node // but units
	for i, arg := range n.Args {
		if u, ok := c.unitPowerOf(arg); ok {
			q.units = append(q.units, u)
			continue
		}
		if (arg.Op == latex.Mul || arg.Op == latex.Div) && arg.Contains(latex.Unit) {
			inner := c.quantityOf(arg) // 30 (miles/hour)
			q.units = append(q.units, inner.units...)
			arg = inner.value
		}
		if arg.Op == latex.Percent && i == len(n.Args)-1 {
			q.percent = true
			arg = arg.Args[0]
		}
		if arg.Op == latex.Degree && i == len(n.Args)-1 {
			q.degree = true
			arg = arg.Args[0]
		}
		factors = append(factors, arg)
	}
	switch len(factors) {
	case 0:
		q.value = integer(1)
	case 1:
		inner := c.quantityOf(factors[0])
		inner.units = append(inner.units, q.units...)
		inner.percent, inner.degree = inner.percent || q.percent, inner.degree || q.degree
		return inner
	default:
		q.value = &latex.Node{Op: latex.Mul, Args: factors}
	}
	return q
}

// unitPowerOf reads n as a unit to an integer power.
func (c *comparer) unitPowerOf(n *latex.Node) (unitPower, bool) {
	switch n.Op {
	case latex.Unit:
		return unitPower{n.Name, 1}, true
	case latex.Pow:
		if !n.Args[0].Contains(latex.Unit) {
			return unitPower{}, false
		}
		u, ok := c.unitPowerOf(n.Args[0])
		k, okK := c.algebra.Integer(n.Args[1])
		if ok && okK && k > -100 && k < 100 {
			return unitPower{u.name, u.power * k}, true
		}
	}
	return unitPower{}, false
}

// withUnitLetters is q, the quantity that n is, with the letters after its number read as units,
// 10 m/s, where all of them are units.
func (c *comparer) withUnitLetters(n *latex.Node, q quantity) quantity {
	var symbols quantity
	if len(q.units) > 0 || q.percent || q.degree || !c.unitLetters(n, 1, &symbols) || len(symbols.units) == 0 || symbols.value == nil {
		return q
	}
	return symbols
}

// unitLetters multiplies q by n to a power, a product or quotient of a number before letters that are units; it reports
// whether n is one, and else leaves q half multiplied. A product of letters has its spelling as its name: km.
func (c *comparer) unitLetters(n *latex.Node, power int, q *quantity) bool {
	if _, _, known := unitNamed(n.Name); known && (n.Op == latex.Sym || n.Op == latex.Mul) {
		q.units = append(q.units, unitPower{n.Name, power})
		return true
	}
	switch {
	case len(algebra.Variables(n)) == 0 && len(q.units) == 0 && power > 0 && n.Op.Scalar() && !n.Is(latex.Const): // 5 km, not km 5
		if q.value != nil {
			n = product(q.value, n)
		}
		q.value = n
		return true
	case n.Op == latex.Mul:
		return n.Every(func(arg *latex.Node) bool { return c.unitLetters(arg, power, q) })
	case n.Op == latex.Div:
		return c.unitLetters(n.Args[0], power, q) && c.unitLetters(n.Args[1], -power, q)
	case n.Op == latex.Pow:
		e, ok := c.algebra.Integer(n.Args[1])
		return ok && e >= -9 && e <= 9 && c.unitLetters(n.Args[0], power*e, q)
	}
	return false
}

// lettersAreUnits reports whether the letters behind a number are units that nobody means as
// variables, or stand behind a power of ten.
func (c *comparer) lettersAreUnits(n *latex.Node) bool {
	var symbols quantity
	if !n.Contains(latex.Sym) || !c.unitLetters(n, 1, &symbols) || symbols.value == nil {
		return false
	}
	scientific := symbols.value.Any(func(m *latex.Node) bool { return m.Op == latex.Pow && m.Args[0].Is(latex.Num) })
	return scientific || certain[strings.ReplaceAll(fmt.Sprint(symbols.units), " ", "")]
}

// certain are units in letters that nobody means as variables.
var certain = latex.SetOf("[{Omega1}] [{m2}] [{m3}] [{m1}{s-1}] [{m1}{s-2}] [{km1}{h-1}]")

// splitSum adds quantities of one dimension, 5 feet 6 inches or 3 cm + 4 cm, in the units of the first. ok is false if a
// term has no known unit, or another dimension.
func (c *comparer) splitSum(n *latex.Node) (total quantity, ok bool) {
	var dim dimension
	var unit *big.Rat
	terms := &latex.Node{Op: latex.Add}
	for i, arg := range n.Args {
		q := c.quantityOf(arg)
		size, d, ok := measure(q.units)
		if !ok || len(q.units) == 0 || q.percent || q.degree {
			return quantity{}, false
		}
		if i == 0 {
			total.units, dim, unit = q.units, d, size
		} else if d != dim {
			return quantity{}, false
		}
		scale := algebra.Rational(new(big.Rat).Quo(size, unit))
		terms.Args = append(terms.Args, &latex.Node{Op: latex.Mul, Args: []*latex.Node{q.value, scale}})
	}
	total.value = terms
	return total, true
}

// unitNodes are units as factors.
func unitNodes(units []unitPower) []*latex.Node {
	var out []*latex.Node
	for _, u := range units {
		out = append(out, &latex.Node{Op: latex.Pow, Args: []*latex.Node{{Op: latex.Unit, Name: u.name}, integer(int64(u.power))}})
	}
	return out
}

// scalars compares numbers and expressions, with or without units. C_n^k and C(n,k) are read as numbers of combinations
// where this may matter, and letters behind a number as units if the other side has units, or nobody means them otherwise.
func (c *comparer) scalars(g, a *latex.Node) bool {
	if g.Op == latex.Num && a.Op == latex.Num { // most answers
		return c.expressions(g, a)
	}
	// C_n^k on one side only is a number of combinations; on both C may be a variable.
	if inG, inA := namesCount(g), namesCount(a); inG != inA || !g.Contains(latex.App) || !a.Contains(latex.App) {
		g, a = withCombinations(g, inG != inA), withCombinations(a, inG != inA)
	}
	x, y := c.quantityOf(g), c.quantityOf(a)
	if (len(x.units) == 0) != (len(y.units) == 0) {
		x, y = c.withUnitLetters(g, x), c.withUnitLetters(a, y)
	} else if len(y.units) == 0 && len(algebra.Variables(g)) == 0 && c.lettersAreUnits(a) {
		y = c.withUnitLetters(a, y) // 5 m^2 against 5
	} else if len(x.units) == 0 && len(algebra.Variables(a)) == 0 && c.lettersAreUnits(g) {
		x = c.withUnitLetters(g, x)
	}
	switch {
	case x.percent != y.percent:
		return c.percent(x, y)
	case x.degree != y.degree:
		return c.degrees(x, y)
	case len(x.units) == 0 && len(y.units) == 0:
		return c.expressions(x.value, y.value)
	}
	return c.withUnits(x, y)
}

// percent compares two quantities of which one is p per cent, the other a plain number: this is p/100, or p if the sign
// was left out. If p is below 1 it must be p/100, since 0.5 is more likely 50% than 0.5%.
func (c *comparer) percent(x, y quantity) bool {
	if !rules.On("per cent") {
		return c.decide(false, "a per cent sign on one side only")
	}
	p, n := swapped(y.percent, x, y)
	if n.degree || len(n.units) > 0 || len(p.units) > 0 {
		return c.decide(false, "a per cent value against a quantity")
	}
	hundredth := &latex.Node{Op: latex.Percent, Args: []*latex.Node{p.value}}
	if c.expressions(hundredth, n.value) {
		return c.relax(percentValue)
	}
	if r, ok := c.algebra.Rational(p.value); ok && new(big.Rat).Abs(r).Cmp(big.NewRat(1, 1)) < 0 {
		return c.decide(false, "a per cent value against a number")
	}
	if c.expressions(p.value, n.value) {
		return c.relax(percentSign)
	}
	return false
}

// degrees compares two quantities of which one has a degree sign: the other is a temperature, an angle in another unit, or
// a plain number, of which the sign was left out or which is the angle in radians.
func (c *comparer) degrees(x, y quantity) bool {
	d, n := swapped(y.degree, x, y)
	if len(n.units) == 1 && (n.units[0].name == "degC" || n.units[0].name == "degF") {
		return c.expressions(d.value, n.value)
	}
	radians := &latex.Node{Op: latex.Degree, Args: []*latex.Node{d.value}}
	if len(n.units) == 1 && n.units[0] == (unitPower{"rad", 1}) {
		return c.expressions(radians, n.value)
	}
	if size, dim, ok := measure(n.units); ok && dim == base(angle) {
		return c.expressions(d.value, product(n.value, algebra.Rational(size)))
	}
	if len(n.units) > 0 {
		return c.decide(false, "degrees against another unit")
	}
	if rules.On("degrees") && c.expressions(d.value, n.value) {
		return c.relax(degreeSign)
	}
	return c.expressions(radians, n.value) && c.relax(degreeValue)
}

// withUnits compares quantities of which at least one has units. A unit that only one side names is ignored, unless it
// may change the number; units of one dimension are converted; counted nouns have to agree.
func (c *comparer) withUnits(x, y quantity) bool {
	saidX, saidY := x.takeNouns(), y.takeNouns() // the east of 5 km east, which leaves the units
	if rules.On("leftover words") && saidX != "" && saidY != "" && !sameNouns(saidX, saidY) {
		return c.decide(false, "different things said of a measure")
	}
	if len(x.units) == 0 || len(y.units) == 0 {
		units := append(x.units, y.units...) // of the one side that has some
		if slices.ContainsFunc(units, func(u unitPower) bool { return strings.HasSuffix(u.name, "?") }) {
			return c.decide(false, "a K or M that may be a thousand or a million")
		}
		if noun := nouns(units); noun != "" && !latex.Droppable(noun) {
			return c.decide(false, "a word that may change the number")
		}
		if len(units) == 1 && units[0].name == "'" { // 5'
			return c.decide(false, "a prime, which may be a derivative, on one side only")
		}
		if rules.On("units left out") && c.expressions(x.value, y.value) {
			return c.relax(unitOmitted)
		}
		q, plain := swapped(len(x.units) == 0, x, y) // 75 cents and 0.75
		if cents := slices.Equal(q.units, []unitPower{{"cent", 1}}); cents && plain.value.Places == 2 &&
			c.expressions(&latex.Node{Op: latex.Percent, Args: []*latex.Node{q.value}}, plain.value) {
			return c.relax(unitOmitted)
		}
		return false
	}
	nounsX, nounsY := nouns(x.units), nouns(y.units)
	if nounsX != "" || nounsY != "" {
		if !sameNouns(nounsX, nounsY) {
			return c.decide(false, "different things counted")
		}
		return c.expressions(x.value, y.value)
	}
	if t, u := x.kelvin(), y.kelvin(); t != nil && u != nil && !slices.Equal(x.units, y.units) {
		return c.expressions(t, u)
	}
	sizeX, dimX, okX := measure(x.units)
	sizeY, dimY, okY := measure(y.units)
	if okX && okY && dimX == dimY {
		scaled := func(v *latex.Node, size *big.Rat) *latex.Node {
			return &latex.Node{Op: latex.Mul, Args: []*latex.Node{v, algebra.Rational(size)}}
		}
		if c.expressions(scaled(x.value, sizeX), scaled(y.value, sizeY)) {
			return c.decide(true, "the same quantity")
		}
		return c.decide(false, "different quantities")
	}
	if !(okX && okY) && slices.Equal(x.units, y.units) {
		return c.expressions(x.value, y.value)
	}
	return c.decide(false, "units of different kinds")
}

// takeNouns takes the words that only describe a measure out of q's units, and returns them: the east of 5 km east.
func (q *quantity) takeNouns() string {
	measured := slices.ContainsFunc(q.units, func(u unitPower) bool { return u.name[0] != '#' })
	said := nouns(q.units)
	if !measured || said == "" || latex.Changes(said) {
		return ""
	}
	q.units = slices.DeleteFunc(slices.Clone(q.units), func(u unitPower) bool { return u.name[0] == '#' })
	return strings.TrimSpace(towards.Replace(said + " "))
}

// kelvin returns the value of a temperature in kelvin, nil for another quantity.
func (q *quantity) kelvin() *latex.Node {
	if len(q.units) != 1 || q.units[0].power != 1 {
		return nil
	}
	sum := func(n, d int64) *latex.Node {
		return &latex.Node{Op: latex.Add, Args: []*latex.Node{q.value, algebra.Rational(big.NewRat(n, d))}}
	}
	switch q.units[0].name {
	case "K", "K?":
		return q.value
	case "degC":
		return sum(27315, 100)
	case "degF":
		return product(algebra.Rational(big.NewRat(5, 9)), sum(45967, 100))
	}
	return nil
}

// nouns are the counted things among units.
func nouns(units []unitPower) string {
	var out []string
	for _, u := range units {
		if noun, ok := strings.CutPrefix(u.name, "#"); ok {
			out = append(out, noun)
		}
	}
	sort.Strings(out)
	return strings.Join(out, " ")
}

// isUnits reports whether a noun means unspecified units, square units or cubic units.
func isUnits(noun string) bool {
	return noun == "unit" || noun == "square unit" || noun == "cubic unit"
}

// sameNouns reports whether two counts may be of the same thing: the nouns agree, one is more specific, or one is
// unspecific: units, or "any", which stands for words such as ways.
func sameNouns(x, y string) bool {
	if isUnits(x) || isUnits(y) {
		return x == y || !isUnits(x) || !isUnits(y) // units are not square units, but may be anything else
	}
	if latex.Droppable(x) != latex.Droppable(y) {
		return false // 5 apples against 5 apples squared
	}
	if x == "any" || y == "any" {
		return true
	}
	if x == "" || y == "" || strings.Contains(x, " per ") != strings.Contains(y, " per ") {
		return false // 5 cm against 5 apples, 5 people against 5 people a day
	}
	in := func(a, b string) bool { // b has all words of a, and no other that turns the direction
		missing := latex.SetOf(a)
		for _, w := range strings.Fields(b) {
			if turning[w] && !missing[w] {
				return false
			}
			delete(missing, w)
		}
		return len(missing) == 0
	}
	x, y = towards.Replace(x+" "), towards.Replace(y+" ")
	return in(x, y) || in(y, x)
}

// towards writes a direction without its ending, and turning are words that make another direction of it.
var (
	towards = strings.NewReplacer("towards ", " ", "toward ", " ", "wards ", " ", "ward ", " ", "due ", " ", "to the ", " ", "direction ", " ")
	turning = latex.SetOf("away opposite counter anti against out behind below under")
)

// minimumDigits is how many significant digits a decimal needs to count as a rounded value.
const minimumDigits = 5

// expressions compares two expressions without units: as mathematics, and then, where one is a decimal, within the
// tolerance if one was asked for, else to the digits that it states.
func (c *comparer) expressions(g, a *latex.Node) bool {
	if x, y := algebra.Infinite(g), algebra.Infinite(a); x != 0 || y != 0 { // their signs, 0 for finite
		return c.decide(x == y, "infinity")
	}
	outcome, rule := c.algebra.Equal(g, a)
	if outcome == algebra.Limit {
		c.limited = true
	}
	if outcome == algebra.Equal {
		return c.decide(true, rule)
	}
	if c.tolerance != nil {
		return c.decide(c.near(g, a), "decimals and the tolerance")
	}
	if rules.On("rounding") && c.rounded(g, a) {
		return c.decide(true, "a decimal that rounds to the gold")
	}
	// A decimal answer is taken for the value of a rational gold only.
	if _, rational := c.algebra.Rational(g); rules.On("floating point") && (c.floated(g, a) || rational && c.floated(a, g)) {
		return c.decide(true, "equal as numbers in floating point")
	}
	if rules.On("rounding") && c.stated(g, a) {
		return c.decide(true, "equal to the digits that the decimal states")
	}
	return c.decide(false, rule)
}

// floated reports whether d is a decimal as floating point prints it, with 15 to 17
// significant digits, and x a number that arithmetic in floating point takes it for:
// 29.999999999999996 and 30. Such a decimal states some digits fewer than it shows.
func (c *comparer) floated(d, x *latex.Node) bool {
	if d.Op == latex.Neg {
		d, x = d.Args[0], &latex.Node{Op: latex.Neg, Args: []*latex.Node{x}}
	}
	if d.Op != latex.Num || d.Digits < 15 || d.Digits > 17 || d.Places < 1 || d.Places > 400 || len(algebra.Variables(x)) > 0 {
		return false
	}
	if n := unsigned(x); isDecimal(n) && n.Digits+3 > d.Digits {
		return false // both are decimals of as many digits
	}
	noise := new(big.Rat).Mul(d.Rat, big.NewRat(1, 1<<49)) // a float64 has 53 bits, of which arithmetic may lose some
	order, ok := c.algebra.Compare(absolute(algebra.Difference(x, d)), algebra.Rational(noise))
	return ok && order <= 0
}

// unsigned is n without the signs before it.
func unsigned(n *latex.Node) *latex.Node {
	for n.Op == latex.Neg {
		n = n.Args[0]
	}
	return n
}

// statedDigits is how many significant digits a decimal needs to count as an exact value.
const statedDigits = 6

// stated reports whether one side is a decimal of enough digits, the other an exact
// value, and the decimal is that value rounded or cut off: 0.0833333333333333 and 1/12,
// 0.666666 and 0.666667 for 2/3. A gold as floating point prints it is such a value, too.
func (c *comparer) stated(g, a *latex.Node) bool {
	decimal, exact := a, g
	// Both are decimals, and the gold has all digits of a float64.
	printed := unsigned(g).Digits >= 15 && isLongDecimal(g) && isLongDecimal(a) && unsigned(a).Digits <= 12
	if isLongDecimal(g) && !printed {
		decimal, exact = g, a
	}
	if !isLongDecimal(decimal) || !printed && isLongDecimal(exact) || len(algebra.Variables(exact)) > 0 {
		return false
	}
	if _, ok := c.algebra.Rational(exact); !ok && decimal == a && a.Name != "~" { // the mark of a numeral behind ≈
		return false // the gold is a closed form, and the answer does not say that it is rounded
	}
	return c.states(decimal, exact, true)
}

// isLongDecimal reports whether n is a decimal with enough digits to count as an exact value.
func isLongDecimal(n *latex.Node) bool {
	n = unsigned(n)
	return isDecimal(n) && n.Places <= 1000 && n.Digits >= statedDigits
}

// near reports whether g and a are numbers, one of them with a decimal, that differ by at most the tolerance times g.
func (c *comparer) near(g, a *latex.Node) bool {
	if !hasDecimal(g) && !hasDecimal(a) || len(algebra.Variables(g, a)) > 0 {
		return false
	}
	order, ok := c.algebra.Compare(absolute(algebra.Difference(g, a)), product(absolute(g), algebra.Rational(c.tolerance)))
	return ok && order <= 0
}

// hasDecimal reports whether n has a numeral with a decimal point.
func hasDecimal(n *latex.Node) bool {
	return n != nil && (isDecimal(n) || slices.ContainsFunc(n.Args, hasDecimal))
}

// rounded reports whether the gold is a decimal of at least five significant
// digits and the answer a longer one that rounds to it: 16386.17 and
// 16386.1744. Decimals are otherwise exact; in particular no decimal equals
// 1/3 or the root of 2.
func (c *comparer) rounded(g, a *latex.Node) bool {
	x, y := unsigned(g), unsigned(a)
	return x.Op == latex.Num && y.Op == latex.Num && x.Places >= 1 && x.Places <= 1000 && y.Places > x.Places && x.Digits >= minimumDigits && c.states(g, a, false)
}
