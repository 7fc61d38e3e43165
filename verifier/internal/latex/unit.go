package latex

import (
	"math/big"
	"strings"
)

// unitNames are units by their spellings; verifier converts between them.
var unitNames = map[string]string{
	"mm": "mm", "millimeter": "mm", "millimetre": "mm", "cm": "cm", "centimeter": "cm", "centimetre": "cm", "dm": "dm", "m": "m", "meter": "m", "metre": "m",
	"km": "km", "kilometer": "km", "kilometre": "km", "nm": "nm", "nanometer": "nm", "nanometre": "nm", "inch": "in", "inche": "in", "in": "in", "foot": "ft", "feet": "ft", "ft": "ft", "yard": "yd", "yd": "yd",
	"mile": "mi", "mi": "mi",
	"s": "s", "sec": "s", "second": "s", "min": "min", "minute": "min", "h": "h", "hr": "h", "hour": "h", "day": "day", "week": "week", "month": "month", "year": "yr", "yr": "yr", "ms": "ms", "millisecond": "ms",
	"g": "g", "gram": "g", "gramme": "g", "kg": "kg", "kilogram": "kg", "kilo": "kg", "mg": "mg", "milligram": "mg", "ton": "ton", "tonne": "t", "lb": "lb", "pound": "lb", "ounce": "oz", "oz": "oz",
	"l": "L", "L": "L", "liter": "L", "litre": "L", "ml": "mL", "mL": "mL", "milliliter": "mL", "millilitre": "mL", "cc": "mL", "gallon": "gal", "gal": "gal", "quart": "qt", "pint": "pt", "cup": "cup",
	"hectare": "ha", "acre": "acre",
	"mph": "mph", "kph": "kph", "kmh": "kph", "kmph": "kph",
	"N": "N", "newton": "N", "J": "J", "joule": "J", "kJ": "kJ", "W": "W", "watt": "W", "kW": "kW", "Pa": "Pa", "pascal": "Pa", "kPa": "kPa", "V": "V", "volt": "V", "A": "A", "ampere": "A", "amp": "A",
	"Hz": "Hz", "hertz": "Hz", "kHz": "kHz", "K": "K", "kelvin": "K", "mol": "mol", "mole": "mol", "rad": "rad", "radian": "rad", "eV": "eV", "C": "C", "coulomb": "C", "ohm": "ohm", "cal": "cal", "calorie": "cal", "kcal": "kcal",
	"dollar": "USD", "usd": "USD", "USD": "USD", "buck": "USD", "cent": "cent", "euro": "EUR", "eur": "EUR", "yuan": "yuan", "rmb": "yuan", "rupee": "rupee", "yen": "yen", "ruble": "ruble",
}

// generic nouns count without saying what.
var genericNouns = map[string]bool{"unit": true, "square unit": true, "cubic unit": true, "sq unit": true, "su": true, "units2": true, "time": true, "way": true, "value": true, "total": true,
	"left": true, "left over": true, "remaining": true, "each": true, "exactly": true, "altogether": true, "apiece": true, "times as many": true, "times as much": true}

// unitOf is the unit that a word names, in the singular or the plural; "" if none.
func unitOf(w string) string {
	if u, ok := unitNames[w]; ok {
		return u
	}
	lower := strings.ToLower(w)
	if len(w) <= 2 {
		return "" // case matters in symbols
	}
	if u, ok := unitNames[lower]; ok {
		return u
	}
	if u, ok := unitNames[strings.TrimSuffix(lower, "s")]; ok && len(lower) > 3 || lower == "kgs" || lower == "lbs" || lower == "hrs" || lower == "cms" {
		return u
	}
	return ""
}

// suffix parses words after a value that are part of it: per cent, degrees,
// millions, units, counted nouns. It returns the factors with them, and whether
// the word was its concern at all; nil factors mean that the product ends.
func (p *parser) suffix(factors []*Node) ([]*Node, bool) {
	t := p.cur()
	if t.kind == sign && t.text == "-" && p.at(1).kind == word && !t.space && !p.at(1).space && unitOf(p.at(1).text) != "" && len(p.at(1).text) > 2 {
		p.advance() // 5-inch
		return p.suffix(factors)
	}
	if t.kind == sign && (t.text == "." || t.text == "\\") {
		return nil, false
	}
	if p.repeated(factors[len(factors)-1]) || p.remark() {
		return factors, true
	}
	if p.phrase([]string{"o'clock"}) {
		return nil, false
	}
	if t.kind != word || t.cut || connective(t) || t.text == "to" && p.at(1).kind == number {
		return nil, false
	}
	last := len(factors) - 1
	w := strings.ToLower(t.text)
	if !t.plain && !t.roman && len(t.text) == 1 {
		if sum := p.symbolSum(factors); sum != nil {
			return sum, true
		}
		return nil, false
	}
	switch w {
	case "percent", "pct", "percentage", "percents":
		p.advance()
		if next := strings.ToLower(p.cur().text); p.cur().kind == word && (next == "point" || next == "points") {
			p.advance()
		}
		factors[last] = &Node{Op: Percent, Args: []*Node{factors[last]}}
		return factors, true
	case "degrees", "degree", "deg":
		p.advance()
		if n := p.cur(); n.kind == word {
			switch strings.ToLower(n.text) {
			case "celsius", "c":
				p.advance()
				return append(factors, &Node{Op: Unit, Name: "degC"}), true
			case "fahrenheit", "f":
				p.advance()
				return append(factors, &Node{Op: Unit, Name: "degF"}), true
			}
		}
		factors[last] = &Node{Op: Degree, Args: []*Node{factors[last]}}
		return factors, true
	case "per":
		if n := p.at(1); n.kind == word && strings.EqualFold(n.text, "cent") {
			p.advance()
			p.advance()
			factors[last] = &Node{Op: Percent, Args: []*Node{factors[last]}}
			return factors, true
		}
	case "base":
		if digits := p.before(); digits.kind == number && digits.num.short && factors[last].Op == Num {
			p.advance() // 101 base 2
			if v := inBase(digits.num.text, p.base()); v != nil {
				p.skipArgument()
				factors[last] = &Node{Op: Num, Rat: v, Places: -1, Name: "base"}
				return factors, true
			}
			p.fail()
		}
	case "bp", "bps", "basis":
		if next := p.at(1); w == "basis" && (next.kind != word || next.text != "point" && next.text != "points") {
			break
		}
		if p.advance(); w == "basis" {
			p.advance()
		}
		return append(factors, &Node{Op: Num, Rat: big.NewRat(1, 10_000), Places: -1}), true
	case "ppm":
		p.advance()
		return append(factors, &Node{Op: Num, Rat: big.NewRat(1, 1_000_000), Places: -1}), true
	case "permille":
		p.advance()
		return append(factors, &Node{Op: Num, Rat: big.NewRat(1, 1000), Places: -1}), true
	case "squared", "cubed":
		if n := p.at(1); n.kind != word { // 5 squared, but not 5 squared metres
			p.advance()
			power := map[string]int64{"squared": 2, "cubed": 3}[w]
			factors[last] = &Node{Op: Pow, Args: []*Node{factors[last], integer(power)}}
			return factors, true
		}
	case "factorial":
		p.advance()
		factors[last] = &Node{Op: Fact, Args: []*Node{factors[last]}}
		return factors, true
	case "choose":
		p.advance()
		factors[last] = &Node{Op: Binom, Args: []*Node{factors[last], p.factor()}}
		return factors, true
	}
	if d, ok := fractionWords[w]; ok && (t.plain || t.space) && w != "half" && w != "quarter" && w != "second" {
		p.advance()
		factors[last] = &Node{Op: Div, Args: []*Node{factors[last], integer(d)}}
		return factors, true
	}
	if m, ok := multiplier(w); ok && (t.plain || t.space) {
		p.advance()
		return append(factors, integer(m)), true
	}
	if len(t.text) == 1 && (t.plain && t.text == "i" || t.roman) && (t.text == "i" || t.text == "e" || t.text == "d") {
		return nil, false
	}
	if _, fn := functions[t.text]; fn && len(t.text) > 1 {
		return nil, false
	}
	if _, fn := manyArguments[t.text]; fn && p.at(1).is("(") {
		return nil, false
	}
	if !t.plain && !t.roman {
		if unitOf(t.text) == "" || !isConstant(factors[last]) {
			squared := (w == "square" || w == "sq" || w == "cubic" || w == "cu") && (p.at(1).kind == word || p.at(1).is(".") && p.at(2).kind == word)
			if (looksLikeLetters(t.text, p.at(1)) && !p.prose() || p.isNamed(t.text)) && !squared || !t.space {
				return nil, false
			}
		} else if len(t.text) == 2 && !t.space && !isNumeral(factors[last]) {
			return nil, false
		}
	}
	units := p.units()
	if units == nil {
		return nil, false
	}
	// 5 feet 6 inches is a sum.
	if p.cur().kind == number && lastUnit(units) {
		next := p.postfix(p.atom())
		var more []*Node
		if t := p.cur(); t.kind == word && len(t.text) == 1 && unitOf(t.text) != "" { // 1 min 30 s
			more = []*Node{{Op: Unit, Name: unitOf(t.text)}}
			p.advance()
		} else if more = p.units(); more == nil {
			p.fail()
		}
		first := multiplication(append(factors, units...))
		second := multiplication(append([]*Node{next}, more...))
		return []*Node{{Op: Add, Args: []*Node{first, second}}}, true
	}
	return append(factors, units...), true
}

// symbolSum parses the rest of "2 h 30 min", whose first unit is a letter; nil if that is
// not what follows.
func (p *parser) symbolSum(factors []*Node) []*Node {
	symbol := unitOf(p.cur().text)
	if value, unit := p.at(1), p.at(2); symbol == "" || value.kind != number || unit.kind != word || unitOf(unit.text) == "" || !isConstant(factors[len(factors)-1]) {
		return nil
	}
	p.advance()
	second := multiplication([]*Node{p.numeral(), {Op: Unit, Name: unitOf(p.cur().text)}})
	p.advance()
	first := multiplication(append(factors, &Node{Op: Unit, Name: symbol}))
	return []*Node{{Op: Add, Args: []*Node{first, second}}}
}

// repeated passes a number in words in brackets that says n again, "5 (five)". It gives up
// at one that says another number.
func (p *parser) repeated(n *Node) bool {
	if next := p.at(1); !p.cur().is("(") || n.Op != Num || next.kind != word || numberWords[strings.ToLower(next.text)] == 0 {
		return false
	}
	p.advance()
	if said := p.spelledNumber(); said == nil || said.Op != Num || said.Rat.Cmp(n.Rat) != 0 {
		p.fail()
	}
	p.expect(")")
	return true
}

// remark passes words in brackets after a value, "5 (approximately)".
func (p *parser) remark() bool {
	if !p.cur().is("(") {
		return false
	}
	for i := 1; i < 8; i++ {
		t := p.at(i)
		if t.is(")") && i > 1 {
			p.pos += i + 1
			return true
		}
		if t.kind != word || len(t.text) < 2 || !t.plain && looksLikeLetters(t.text, p.at(i+1)) || t.text == "not" || t.text == "mod" {
			return false
		}
	}
	return false
}

// isNamed reports whether w is a word that mathematics knows.
func (p *parser) isNamed(w string) bool {
	_, g := greek[w]
	return g || w == "pi" || w == "sqrt" || w == "infinity" || w == "infty" || w == "abs"
}

func lastUnit(units []*Node) bool {
	n := units[len(units)-1]
	return n.Op == Unit && unitNames[n.Name] != "" || n.Op == Unit
}

// unitsAfterSign parses units after * or / if they stand there alone; nil if
// not.
func (p *parser) unitsAfterSign() *Node {
	t := p.cur()
	if t.kind != word || t.cut || !t.plain && !t.roman && (len(t.text) < 2 || unitOf(t.text) == "") || t.roman && unitOf(t.text) == "" {
		return nil
	}
	if unitOf(t.text) == "" && !t.plain {
		return nil
	}
	if units := p.unit(); units != nil {
		return units
	}
	return nil
}

// units parses a run of units and nouns: cm^2, miles per hour, m/s, students.
func (p *parser) units() []*Node {
	var out []*Node
	var noun []string
	for {
		t := p.cur()
		if t.kind == word && !connective(t) && !t.cut {
			w := strings.ToLower(t.text)
			switch w {
			case "per", "each":
				if (len(out) > 0 || len(noun) > 0) && p.at(1).kind == word && len(noun) == 0 {
					p.advance()
					if u := p.unit(); u != nil {
						out = append(out, &Node{Op: Pow, Args: []*Node{u, integer(-1)}})
						continue
					}
				}
			}
			if u := p.unit(); u != nil && len(noun) == 0 {
				out = append(out, u)
				continue
			} else if u != nil {
				continue // "students per day" and the like: the noun is enough
			}
			if p.moreOf(w) {
				p.advance() // 5 more apples
				continue
			}
			if len(noun) > 0 && (w == "are" || w == "is" || w == "were") && p.phrase([]string{w, "left"}) && p.at(2).kind == end {
				p.pos += 2 // 5 apples are left
				continue
			}
			if _, times := multiplier(w); (assertive[w] || times || numberWords[w] > 0) && !(w == "times" && (p.at(1).kind == end || p.at(1).kind == word && p.at(1).text == "as")) {
				p.fail() // "7 is not the answer" counts nothing
			}
			if len(w) == 1 && !t.plain && !t.roman && !t.space {
				break // \text{cm}x
			}
			p.advance()
			noun = append(noun, singular(w))
			continue
		}
		if t.is(".") && len(out)+len(noun) > 0 && p.at(1).kind == word {
			p.advance() // sq. ft.
			continue
		}
		if t.is("-") && !t.space && len(out)+len(noun) > 0 && p.at(1).kind == word {
			p.advance()
			continue
		}
		if t.is("/") && len(out) > 0 && (p.at(1).kind == word && unitOf(p.at(1).text) != "" || p.at(1).is("{")) {
			p.advance()
			if u := p.unitSymbol(); u != nil {
				out = append(out, &Node{Op: Pow, Args: []*Node{u, integer(-1)}})
				continue
			}
			p.fail()
		}
		break
	}
	if len(noun) > 0 {
		if len(out) == 0 && noun[0] == "time" {
			noun = noun[:1] // 5 times as many
		}
		name := strings.Join(noun, " ")
		if p.accept("^") { // units^2
			if e := p.exponent(); name == "unit" && e.Is(Num) {
				name = map[string]string{"2": "square unit", "3": "cubic unit"}[e.Rat.RatString()]
			}
		}
		if len(out) == 0 {
			out = append(out, &Node{Op: Unit, Name: "#" + name})
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// moreOf reports whether the current word w is the "more" of "5 more apples": a noun that
// may be left out follows, and no "than".
func (p *parser) moreOf(w string) bool {
	noun := p.at(1)
	return w == "more" && noun.kind == word && Droppable(singular(strings.ToLower(noun.text))) && p.at(2).kind == end
}

// assertive are words that make a statement of what follows a number.
var assertive = setOf(`
	is are was were be not isn't no never maybe perhaps possibly probably but than more less fewer greater except
	unless wrong incorrect false impossible to would should could can cannot then instead plus minus times`)

// unit parses one known unit with its power; nil if there is none.
func (p *parser) unit() *Node {
	t := p.cur()
	if t.kind != word {
		return nil
	}
	at := p.pos
	power := int64(1)
	switch strings.ToLower(t.text) {
	case "square", "sq", "squared":
		power = 2
	case "cubic", "cu", "cubed":
		power = 3
	}
	if power > 1 {
		p.advance()
		p.accept(".")
		t = p.cur()
	}
	name := ""
	if t.kind == word {
		name = unitOf(t.text)
	}
	if name == "" || len(t.text) == 1 && !t.plain && !t.roman {
		p.pos = at
		return nil
	}
	p.advance()
	u := &Node{Op: Unit, Name: name}
	if power > 1 {
		return &Node{Op: Pow, Args: []*Node{u, integer(power)}}
	}
	if n := p.cur(); n.kind == word && (n.text == "squared" || n.text == "cubed") {
		p.advance()
		return &Node{Op: Pow, Args: []*Node{u, integer(map[string]int64{"squared": 2, "cubed": 3}[n.text])}}
	}
	if p.cur().is("^") && !p.degreeAhead() {
		p.advance()
		return &Node{Op: Pow, Args: []*Node{u, p.exponent()}}
	}
	return u
}

// unitSymbol is unit after a sign of division, where a single letter is one too: km/h.
func (p *parser) unitSymbol() *Node {
	t := p.cur()
	if t.kind != word || len(t.text) != 1 || t.plain || t.roman || p.at(1).is("^") {
		return p.unit()
	}
	p.advance()
	return &Node{Op: Unit, Name: unitOf(t.text)}
}

// unitGroup parses a braced unit in words, {\text{miles}}; nil if there is none.
func (p *parser) unitGroup() *Node {
	if t := p.at(1); !p.cur().is("{") || t.kind != word || !t.plain && !t.roman {
		return nil
	}
	at := p.pos
	p.advance()
	if u := p.unit(); u != nil && p.accept("}") {
		return u
	}
	p.pos = at
	return nil
}

var irregular = map[string]string{"people": "person", "children": "child", "men": "man", "women": "woman", "vertices": "vertex", "dice": "die", "mice": "mouse"}

// singular takes the plural ending off a noun.
func singular(w string) string {
	if s, ok := irregular[w]; ok {
		return s
	}
	switch {
	case strings.HasSuffix(w, "ies") && len(w) > 4:
		return w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "sses"), strings.HasSuffix(w, "xes"), strings.HasSuffix(w, "ches"), strings.HasSuffix(w, "shes"):
		return w[:len(w)-2]
	case strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && len(w) > 2:
		return w[:len(w)-1]
	}
	return w
}

// Generic reports whether a counted noun (a Unit's name with its # cut off)
// says nothing about what is counted.
func Generic(noun string) bool {
	if genericNouns[noun] {
		return true
	}
	if i := strings.LastIndexByte(noun, ' '); i >= 0 {
		return genericNouns[noun[i+1:]]
	}
	return false
}
