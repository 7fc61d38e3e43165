package latex

import (
	"math/big"
	"onering/verifier/internal/rules"
	"slices"
	"strings"
)

// unitNames map spellings to units, between which the verifier converts. Metric handles units with prefixes.
var unitNames = map[string]string{
	"inch": "in", "inche": "in", "in": "in", "foot": "ft", "feet": "ft", "ft": "ft", "yard": "yd", "yd": "yd", "mile": "mi", "mi": "mi", "nauticalmile": "nmi",
	"sec": "s", "second": "s", "min": "min", "minute": "min", "h": "h", "hr": "h", "hour": "h", "day": "day",
	"week": "week", "wk": "week", "month": "month", "year": "yr", "yr": "yr",
	"gm": "g", "gms": "g", "kilo": "kg", "ton": "ton", "tonne": "t", "metricton": "t", "lb": "lb", "pound": "lb", "ounce": "oz", "oz": "oz",
	"l": "L", "cc": "mL", "gallon": "gal", "gal": "gal", "quart": "qt", "qt": "qt", "pint": "pt", "cup": "cup", "fluidounce": "floz", "floz": "floz",
	"tablespoon": "tbsp", "tbsp": "tbsp", "teaspoon": "tsp", "tsp": "tsp", "hectare": "ha", "ha": "ha", "acre": "acre",
	"mph": "mph", "kph": "kph", "kmh": "kph", "kmph": "kph", "lightyear": "ly", "ly": "ly", "au": "au", "AU": "au",
	"arcsec": "arcsec", "arcsecond": "arcsec", "arcmin": "arcmin", "arcminute": "arcmin", "mas": "mas",
	"atm": "atm", "atmosphere": "atm", "mmHg": "mmHg", "torr": "mmHg", "Torr": "mmHg", "decibel": "dB", "M": "M?",
	"rad": "rad", "radian": "rad", "sr": "sr", "steradian": "sr", "angstrom": "angstrom", "Å": "angstrom",
	"å": "angstrom", "kb": "kB", "KB": "kB", "mb": "MB", "gb": "GB", "tb": "TB", "byte": "byte",
	"texteuro": "EUR", "GBP": "GBP", "EUR": "EUR", "INR": "rupee", "Rs": "rupee", "JPY": "yen", "KRW": "KRW",
	"VND": "VND", "TRY": "TRY", "CNY": "yuan", "RMB": "yuan", "dollar": "USD", "usd": "USD", "USD": "USD",
	"buck": "USD", "cent": "cent", "euro": "EUR", "eur": "EUR", "yuan": "yuan", "rmb": "yuan", "rupee": "rupee", "yen": "yen", "ruble": "ruble",
	"米": "m", "厘米": "cm", "毫米": "mm", "分米": "dm", "千米": "km", "公里": "km", "克": "g", "千克": "kg", "公斤": "kg",
	"毫克": "mg", "吨": "t", "噸": "t", "升": "L", "毫升": "mL", "秒": "s", "分钟": "min", "分鐘": "min",
	"小时": "h", "小時": "h", "时": "h", "時間": "h", "天": "day", "周": "week", "年": "yr", "元": "yuan", "美元": "USD",
	"円": "yen", "メートル": "m", "センチメートル": "cm", "センチ": "cm", "キロメートル": "km", "グラム": "g", "キログラム": "kg",
	"미터": "m", "센티미터": "cm", "킬로미터": "km", "그램": "g", "킬로그램": "kg", "초": "s", "분": "min", "시간": "h", "метр": "m",
	"метра": "m", "метров": "m", "см": "cm", "км": "km", "кг": "kg",
}

// metricSymbols are units that take a prefix, and metricWords their names.
var (
	metricSymbols = SetOf("m g s l L N J W Pa Hz V A K mol eV C F H T Wb cal B b bps bar pc Wh ohm Omega lm lx cd Bq Sv Gy")
	metricWords   = map[string]string{
		"meter": "m", "metre": "m", "gram": "g", "gramme": "g", "second": "s", "liter": "L", "litre": "L", "newton": "N",
		"joule": "J", "watt": "W", "pascal": "Pa", "hertz": "Hz", "volt": "V", "ampere": "A", "amp": "A",
		"kelvin": "K", "mole": "mol", "electronvolt": "eV", "coulomb": "C", "farad": "F", "henry": "H", "tesla": "T",
		"weber": "Wb", "calorie": "cal", "byte": "B", "bit": "b", "bar": "bar", "parsec": "pc", "watthour": "Wh", "ohm": "ohm", "siemen": "S",
	}
	symbolPrefixes = map[string]string{"P": "P", "T": "T", "G": "G", "M": "M", "k": "k", "K": "k", "h": "h",
		"d": "d", "c": "c", "m": "m", "u": "u", "mu": "u", "n": "n", "p": "p", "f": "f"}
	wordPrefixes = map[string]string{"peta": "P", "tera": "T", "giga": "G", "mega": "M", "kilo": "k", "hecto": "h",
		"deci": "d", "centi": "c", "milli": "m", "micro": "u", "nano": "n", "pico": "p", "femto": "f"}
)

// Metric splits the name of a unit with a prefix into the power of ten of the prefix and the unit.
func Metric(name string) (power int, unit string, ok bool) {
	if len(name) < 2 {
		return 0, "", false
	}
	power, ok = map[byte]int{'P': 15, 'T': 12, 'G': 9, 'M': 6, 'k': 3, 'h': 2, 'd': -1, 'c': -2, 'm': -3, 'u': -6, 'n': -9, 'p': -12, 'f': -15}[name[0]]
	return power, name[1:], ok && metricSymbols[name[1:]]
}

// genericNouns count without saying what; a Unit of them is called "#any".
var genericNouns = SetOf("su time way value total left remaining each exactly altogether apiece")

// unitOf is the unit, by the name that the verifier knows, that a word or a symbol names, in the singular or the plural;
// "" if none.
func unitOf(w string) string {
	if u, ok := unitNames[w]; ok {
		return u
	}
	if u := prefixed(w, symbolPrefixes, func(w string) string {
		switch {
		case !metricSymbols[w]:
			return ""
		case w == "l":
			return "L"
		case w == "Omega":
			return "ohm"
		}
		return w
	}); u != "" {
		return u
	}
	lower := strings.ToLower(w)
	if len(w) <= 2 {
		return "" // case matters in symbols
	}
	single := lower
	if len(w) > 3 || slices.Contains([]string{"kgs", "lbs", "hrs", "cms", "yrs"}, lower) { // but gas is no plural
		single = strings.TrimSuffix(lower, "s")
	}
	for _, w := range [...]string{lower, single} {
		if u, ok := unitNames[w]; ok {
			return u
		}
		if u := prefixed(w, wordPrefixes, func(w string) string { return metricWords[w] }); u != "" {
			return u
		}
	}
	return map[string]string{"kg": "kg", "cm": "cm"}[single] // of kgs and cms, which have a prefix and a plural
}

// prefixed is the unit that w names with or without a prefix; "" if none. Words that may
// also be counted things (bars, bits) are units only with a prefix.
func prefixed(w string, prefixes map[string]string, unit func(string) string) string {
	if u := unit(w); u != "" && w != "bar" && w != "bit" && w != "B" && w != "b" && w != "byte" && w != "bps" {
		return u
	}
	for n := 1; n <= 5 && n < len(w); n++ {
		if p, u := prefixes[w[:n]], unit(w[n:]); p != "" && u != "" && (!strings.Contains("hdc", p) || strings.Contains("m g L B Pa", u)) {
			return p + u
		}
	}
	return ""
}

// suffix parses words after a value that are part of it: per cent, degrees, millions, units, counted nouns. factors are
// those of the product so far. It returns them with the words in them; ok is false, with nothing passed, if other
// things follow.
func (p *parser) suffix(factors []*Node) (with []*Node, ok bool) {
	if !rules.On("units") {
		return nil, false
	}
	t := p.cur()
	next := p.ahead(1)
	hyphen := t.is("-") && !t.spaceBefore && !next.spaceBefore
	if hyphen && next.kind == word && unitOf(next.text) != "" && len(next.text) > 2 {
		p.advance() // 5-inch
		return p.suffix(factors)
	}
	if p.cur().is("(") && p.ahead(1).kind == word && p.ahead(1).text == "base" && factors[len(factors)-1].Op == Num {
		p.advance() // 23 (base 5)
		factors, _ = p.suffix(factors)
		p.expect(")")
		return factors, true
	}
	if n, at := factors[len(factors)-1], p.pos; n.Op == Num && p.accept("(") { // 5 (five): the number is said twice
		if said := p.spelledNumber(); said != nil && said.Op == Num && p.accept(")") {
			p.failIf(said.Rat.Cmp(n.Rat) != 0) // 5 (six)
			return factors, true
		}
		p.pos = at
	}
	if units, ok := p.bracketedUnits(); ok {
		return append(factors, units...), true
	}
	last := len(factors) - 1
	replaceLast := func(n *Node) ([]*Node, bool) {
		factors[last] = n
		return factors, true
	}
	if t.cmd("mu") {
		if name := p.unitName(); name != "" {
			return append(factors, &Node{Op: Unit, Name: name}), true
		}
	}
	if t.kind != word || t.isRest || connective(t) || t.text == "to" && p.ahead(1).kind == number { // isRest: letters left of a word
		return nil, false
	}
	w := strings.ToLower(t.text)
	if !t.inText && !t.inRoman && len(t.text) == 1 { // a variable
		return nil, false
	}
	switch w {
	case "percent", "pct", "percentage", "percents":
		p.advance()
		if p.phraseAhead([]string{"point"}) || p.phraseAhead([]string{"points"}) {
			p.advance()
		}
		return replaceLast(&Node{Op: Percent, Args: []*Node{factors[last]}})
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
		return replaceLast(&Node{Op: Degree, Args: []*Node{factors[last]}})
	case "per":
		if n := p.ahead(1); n.kind == word && strings.EqualFold(n.text, "cent") {
			p.pos += 2
			return replaceLast(&Node{Op: Percent, Args: []*Node{factors[last]}})
		}
	case "base":
		digits := p.previous()
		if digits.is("(") {
			digits = &p.tokens[p.pos-2]
		}
		if digits.kind == number && digits.num.digitsOnly && factors[last].Op == Num {
			p.advance() // 101 base 2
			if v := inBase(digits.num.text, p.base()); v != nil {
				p.skipArgument()
				return replaceLast(&Node{Op: Num, Rat: v, Places: -1, Name: "base"}) // -1: no point
			}
			p.fail()
		}
	case "ppm", "permille":
		p.advance()
		return append(factors, &Node{Op: Num, Rat: big.NewRat(1, map[string]int64{"ppm": 1_000_000, "permille": 1000}[w]), Places: -1}), true
	case "squared", "cubed":
		if n := p.ahead(1); n.kind != word { // 5 squared, but not 5 squared metres
			p.advance()
			power := map[string]int64{"squared": 2, "cubed": 3}[w]
			return replaceLast(&Node{Op: Pow, Args: []*Node{factors[last], integer(power)}})
		}
	case "factorial":
		p.advance()
		return replaceLast(&Node{Op: Fact, Args: []*Node{factors[last]}})
	case "choose":
		p.advance()
		return replaceLast(&Node{Op: Binom, Args: []*Node{factors[last], p.factor()}})
	}
	ambiguous := w == "half" || w == "quarter" || w == "second" // seconds and quarters are also counted
	if d, ok := fractionWords[w]; ok && (t.inText || t.spaceBefore) && !ambiguous {
		p.advance()
		return replaceLast(&Node{Op: Div, Args: []*Node{factors[last], integer(d)}})
	}
	if m, ok := multiplier(w); ok && (t.inText || t.spaceBefore) {
		p.advance()
		return append(factors, integer(m)), true
	}
	if (t.inText && t.text == "i") || t.inRoman && (t.text == "i" || t.text == "e" || t.text == "d") {
		return nil, false // upright constants, and the d of an integral
	}
	isFunction, many := p.isFunction(t.text), manyArguments[t.text] // many: gcd and the like want a bracket
	isLast := next.kind == end || next.is("}") || next.is(".") && p.ahead(2).kind == end
	if isFunction && (many && next.is("(") || !many && !isLast) {
		return nil, false // a logarithm, not logs
	}
	if !t.inText && !t.inRoman { // letters of a formula: a unit, or a product of variables
		isUnit := unitOf(t.text) != "" && isConstant(factors[last])
		p.lettersAsUnits = p.lettersAsUnits || isUnit
		if p.noUnitLetters || !isUnit {
			wordAhead := next.kind == word || next.is(".") && p.ahead(2).kind == word
			squared := wordAhead && (w == "square" || w == "sq" || w == "cubic" || w == "cu")
			formula := greek[t.text] != "" || mathWords[t.text] || looksLikeLetters(t.text, next) && !p.proseAhead() && !isFunction
			if formula && !squared || !t.spaceBefore { // no counted noun
				return nil, false
			}
		} else if len(t.text) == 2 && !t.spaceBefore && !isNumeral(factors[last]) { // \pi cm without a space
			return nil, false
		}
	}
	units := p.units()
	// 5 feet 6 inches is a sum.
	if p.cur().kind == number && units[len(units)-1].Op == Unit {
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

// bracketedUnits parses words in brackets after a value: what is counted, "12 (inches of snow)", or a remark,
// "5 (approximately)", which gives no units. ok is false, with nothing passed, if other text is there.
func (p *parser) bracketedUnits() (units []*Node, ok bool) {
	if !p.cur().is("(") {
		return nil, false
	}
	noun, isWords, i := "", false, 1 // isWords says that one of them is certainly no product of variables
	for ; !p.ahead(i).is(")"); i++ {
		t := p.ahead(i)
		w := singular(strings.ToLower(t.text))
		if i > 12 || t.kind != word || t.text == "not" || t.text == "mod" || len(w) == 1 && !t.inText {
			return nil, false
		}
		noun += " " + w
		isWords = isWords || t.inText || !looksLikeLetters(t.text, p.ahead(i+1)) || p.cur().spaceBefore &&
			(unitOf(t.text) != "" || len(w) == 3 && strings.Contains("aeiou", w[1:2])) // cm, cat
	}
	if !isWords {
		return nil, false
	}
	p.advance()
	u := p.unit() // nil unless the words begin with one
	for !p.accept(")") {
		p.advance()
	}
	switch noun = noun[1:]; { // without the space before the first word
	case u != nil:
		return []*Node{u}, true
	case noun == "twice", noun == "double root", !Droppable(noun) && !slices.ContainsFunc(strings.Fields(noun), changesNumber):
		return nil, true // a remark: (by symmetry)
	}
	return []*Node{{Op: Unit, Name: "#" + noun}}, true
}

// currencies are units before the amount, and dollars are those whose sign follows.
var (
	currencies = SetOf("USD EUR GBP JPY CNY RMB INR Rs")
	dollars    = SetOf("US NT HK A C S R")
)

// isFunction reports whether w names a function, which is an ordinary word where nothing follows it: 30 sec, 30 logs.
func (p *parser) isFunction(w string) bool {
	_, fn := functions[w]
	return len(w) > 1 && (fn || manyArguments[w] || w == "lim" || w == "sup" || w == "inf" || w == "deg")
}

// unitsAfterSign parses units after * or / if nothing else is there; else nil.
func (p *parser) unitsAfterSign() *Node {
	t := p.cur()
	if t.kind != word || t.isRest || !t.inText && (!t.inRoman && len(t.text) < 2 || unitOf(t.text) == "") {
		return nil
	}
	return p.unit()
}

// units parses a run of units and nouns, cm^2, miles per hour, m/s, students, and returns it as factors: each unit, those
// behind "per" and / inverted, then the words of the nouns together as one unit.
func (p *parser) units() []*Node {
	var out []*Node
	var noun []string
	more := "" // "more", "less" or "fewer", said among them
	for {
		t := p.cur()
		w := strings.ToLower(t.text)
		begun := len(out)+len(noun) > 0
		if per := t.kind == word && (w == "per" || w == "each"); per && len(out) > 0 && len(noun) == 0 && p.ahead(1).kind == word {
			p.advance()
			if u := p.unit(); u != nil {
				out = append(out, inverted(u))
			} else {
				noun = append(noun, w) // 5 kg per serving
			}
			continue
		}
		if len(out) > 0 {
			if below := p.unitsBelow(); below != nil {
				out = append(out, below...)
				continue
			}
		}
		if begun && p.skipJoint() {
			if w == "and" { // other joints, such as the point of sq. ft., leave no word
				noun = append(noun, w)
			}
			continue
		}
		if (t.kind != word || connective(t) || t.isRest) && !t.cmd("mu") && !t.cmd("Omega") {
			break
		}
		if inverse := p.ahead(2).is("-") || p.ahead(2).is("{") && p.ahead(3).is("-"); inverse && p.ahead(1).is("^") && len(out) > 0 {
			t.inRoman = true // so that unit takes a single letter for a unit: the h of km h^{-1}
		}
		if u := p.unit(); u != nil {
			if len(noun) == 0 {
				out = append(out, u)
			} else { // behind a noun a unit is one of its words
				noun = append(noun, singular(w))
			}
			continue
		}
		if t.kind != word {
			break
		}
		if w == "more" || w == "less" || w == "fewer" {
			more = w // 5 more apples
			p.advance()
			continue
		}
		p.failIf(!p.mayCount(w, begun)) // "7 is not the answer" counts nothing
		if len(w) == 1 && !t.inText && !t.inRoman && !t.spaceBefore {
			break // \text{cm}x
		}
		p.advance()
		noun = append(noun, singular(w))
	}
	return p.unitsAndNoun(out, noun, more)
}

// inverted is u to the power -1.
func inverted(u *Node) *Node { return &Node{Op: Pow, Args: []*Node{u, integer(-1)}} }

// unitsBelow parses / and the units after it as inverse units: for the /(kg·K) of J/(kg·K) kg^-1 and K^-1. It returns
// nil if no unit, brace or bracket with a word follows a /. It gives up the text if one does that cannot be read.
func (p *parser) unitsBelow() (units []*Node) {
	next := p.ahead(1)
	switch {
	case !p.cur().is("/"):
	case next.kind == word && unitOf(next.text) != "", next.is("{"):
		p.advance()
		u := p.unitSymbol() // it also takes the plain s of km/s, unlike unit in the bracket below
		p.failIf(u == nil)  // which panics: the text is no mathematics
		units = []*Node{inverted(u)}
	case next.is("(") && p.ahead(2).kind == word:
		for p.pos += 2; !p.accept(")"); p.accept("*") {
			u := p.unit() // with its power
			p.failIf(u == nil)
			units = append(units, inverted(u))
		}
	}
	return units
}

// skipJoint passes what stands between two words of a run: the signs of sq. ft. and the dogs' tails, or the
// "and" of feet and inches. An "and" that more than a word follows separates two answers.
func (p *parser) skipJoint() bool {
	t, next := p.cur(), p.ahead(1)
	sign := t.is(".") || t.is("'") || t.is("-") && !t.spaceBefore
	and := t.kind == word && strings.EqualFold(t.text, "and") && p.ahead(2).kind == end && !changesNumber(singular(strings.ToLower(next.text)))
	if next.kind != word || !sign && !and {
		return false
	}
	p.advance()
	return true
}

// mayCount reports whether the word w may belong to a counted noun: it makes no statement and no other number.
func (p *parser) mayCount(w string, after bool) bool {
	next := p.ahead(1)
	if w == "to" && after && next.kind == word && numberWords[strings.ToLower(next.text)] == 0 {
		return true // 5 ways to choose
	}
	if w == "times" && (next.kind == end || next.is(".") && p.ahead(2).kind == end || p.ahead(1).kind == word && p.ahead(1).text == "as") || after && w == "one" {
		return true
	}
	_, times := multiplier(w)
	return !assertive[w] && !times && numberWords[w] == 0
}

// unitsAndNoun returns units and the noun behind them as factors. The noun becomes one unit #noun; more, a word such as
// "less" or "", is its last word. Square units and the like become #square unit, and nouns that say nothing #any.
func (p *parser) unitsAndNoun(units []*Node, noun []string, more string) []*Node {
	if more != "" {
		noun = append(noun, more)
	}
	if len(noun) == 0 {
		return units
	}
	if len(units) == 0 && noun[0] == "time" {
		noun = noun[:1] // 5 times as many
	}
	name, power := strings.Join(noun, " "), int64(1)
	bare := true // units and their powers, nothing else
	for _, w := range noun {
		power = max(power, powerWords[w])
		bare = bare && (w == "unit" || powerWords[w] > 0)
	}
	if p.accept("^") { // units^2
		if e := p.exponent(); e.Is(Num) && e.Rat.IsInt() {
			power = e.Rat.Num().Int64()
		}
	}
	if bare && slices.Contains(noun, "unit") || name == "u" && power > 1 {
		name = map[int64]string{1: "unit", 2: "square unit", 3: "cubic unit"}[power]
	}
	if len(units) == 0 && genericNouns[noun[len(noun)-1]] {
		name = "any"
	}
	return append(units, &Node{Op: Unit, Name: "#" + name}) // 5 apples, 5 km east
}

// mathWords are words that mathematics knows, besides Greek letters.
var mathWords = SetOf("pi sqrt infinity infty abs")

// assertive are words that make a statement with the text after a number.
var assertive = SetOf(`
	is are was were be not isn't no never maybe perhaps possibly probably but than more less fewer greater except
	unless wrong incorrect false impossible to would should could can cannot then instead plus minus times`)

// powerWords are words for the power of a unit.
var powerWords = map[string]int64{"square": 2, "sq": 2, "squared": 2, "平方": 2, "cubic": 3, "cu": 3, "cubed": 3, "立方": 3}

// unit parses one known unit with its power, cm^2, square feet or 平方米; nil, with nothing passed, if there is none.
func (p *parser) unit() *Node {
	at, power := p.pos, int64(0) // power is 0 where no word says it
	if t := p.cur(); t.kind == word {
		power = powerWords[strings.ToLower(t.text)]
		for _, prefix := range [...]string{"平方", "立方"} {
			if rest, ok := strings.CutPrefix(t.text, prefix); ok && rest != "" {
				t.text, power = rest, powerWords[prefix]
				p.pos-- // the rest of the token is the unit, and the next step passes the word of a power
			}
		}
	}
	if power > 0 {
		p.pos++
		p.accept(".")
	}
	isTight := p.previous().kind == number && !p.cur().spaceBefore
	name := p.unitName()
	switch {
	case name == "":
		p.pos = at
		return nil
	case name == "K" && isTight:
		name = "K?" // 5K may be 5000
	}
	u := &Node{Op: Unit, Name: name}
	if n := p.cur(); power == 0 && n.kind == word && (n.text == "squared" || n.text == "cubed") {
		power = powerWords[n.text]
		p.advance()
	}
	if power > 0 {
		return &Node{Op: Pow, Args: []*Node{u, integer(power)}}
	}
	if p.cur().is("^") && !p.degreeAhead() {
		p.advance()
		return &Node{Op: Pow, Args: []*Node{u, p.exponent()}}
	}
	return u
}

// unitName passes the spelling of a unit, which may be two words (fluid ounces) or hold a Greek letter (\mu m, k\Omega),
// and returns the unit's name; "" if there is none.
func (p *parser) unitName() string {
	t, next, n := p.cur(), p.ahead(1), 1 // next is the second word, n the tokens before it
	if next.is("-") && !next.spaceBefore {
		next, n = p.ahead(2), 2
	} else if next.is(".") && !next.spaceBefore && strings.EqualFold(t.text, "fl") {
		next, n = p.ahead(2), 2
	}
	twoWords := t.kind == word && next.kind == word
	micro := t.cmd("mu") && next.kind == word && (next.inText || next.inRoman || p.previous().kind == number && len(next.text) == 1)
	ohms := next.cmd("Omega") && t.kind == word
	if twoWords && (t.inText || t.inRoman || next.spaceBefore) || micro || ohms {
		u := unitOf(t.text + next.text)
		areTwo := unitOf(t.text) != "" && unitOf(next.text) != "" && !ohms && !strings.EqualFold(t.text, "fl") // each is a unit
		short := len(t.text+next.text) <= 2 || twoWords && len(t.text) < 2                                     // letters of a formula
		if u != "" && !areTwo && !short {
			p.pos += n + 1
			return u
		}
	}
	if t.kind != word || len(t.text) == 1 && !t.inText && !t.inRoman {
		return ""
	}
	if t.text == "in" && next.kind == word && n == 1 && !afterInches[next.text] {
		return "" // 5 in total
	}
	if unitOf(t.text) != "" {
		p.advance()
	}
	return unitOf(t.text)
}

// afterInches are words after the inches of "5 in by 7 in".
var afterInches = SetOf("by per x and long wide high tall deep thick")

// unitSymbol is unit after a sign of division, where a single letter is one too: km/h, MeV/c^2.
func (p *parser) unitSymbol() *Node {
	t := p.cur()
	if t.kind != word || len(t.text) != 1 || t.inText || t.inRoman || p.ahead(1).is("^") {
		return p.unit()
	}
	p.advance()
	return &Node{Op: Unit, Name: unitOf(t.text)}
}

// unitGroup parses a braced unit in words, {\text{miles}}; nil if there is none.
func (p *parser) unitGroup() *Node {
	if t := p.ahead(1); !p.cur().is("{") || t.kind != word || !t.inText && !t.inRoman {
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

var irregular = map[string]string{"people": "person", "children": "child", "men": "man", "women": "woman",
	"vertices": "vertex", "dice": "die", "mice": "mouse", "basis": "basis"}

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
	case strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") && len(w) > 3:
		return w[:len(w)-1]
	}
	return w
}
