package latex

import (
	"math/big"
	"onering/verifier/internal/rules"
	"strings"
)

// sum parses terms with + - ± ∓ between them; a term after - becomes its negative.
func (p *parser) sum() *Node {
	defer p.enter()()
	terms := []*Node{p.term(p.leadingSign())}
	for {
		t := p.cur()
		op := t.text
		if t.kind != sign {
			break
		}
		if op != "+" && op != "-" && op != "+-" && op != "-+" {
			break
		}
		if op == "-" && p.ahead(1).is("{:") {
			break // a difference of sets
		}
		p.advance()
		p.failIf(p.atListEnd() || p.cur().is(",")) // no term follows the sign
		right := p.term("")
		switch op {
		case "+":
			terms = append(terms, right)
		case "-":
			terms = append(terms, negated(right))
		case "+-":
			terms = []*Node{{Op: PlusMinus, Args: []*Node{addition(terms), right}}}
		case "-+":
			terms = []*Node{{Op: MinusPlus, Args: []*Node{addition(terms), right}}}
		}
	}
	return addition(terms)
}

// leadingSign passes the sign before the first term, which may be a word before a number, and returns it; "" if none.
func (p *parser) leadingSign() string {
	for _, s := range [...]string{"-", "+", "+-", "-+"} {
		if p.accept(s) {
			return s
		}
	}
	if t, next := p.cur(), p.ahead(1); t.kind == word && (next.kind == number || next.kind == word && numberWords[strings.ToLower(next.text)] > 0) {
		switch t.text {
		case "minus", "negative":
			p.advance()
			return "-"
		case "plus", "positive":
			p.advance()
			return "+"
		}
	}
	return ""
}

// term parses a product behind a sign that leadingSign passed, and applies the sign to it.
func (p *parser) term(leadingSign string) *Node {
	n := p.product()
	switch leadingSign {
	case "-":
		if n.Op == Mod { // -4 (mod 7)
			return &Node{Op: Mod, Args: []*Node{negated(n.Args[0]), n.Args[1]}}
		}
		return negated(n)
	case "+-":
		return &Node{Op: PlusMinus, Args: []*Node{nil, n}}
	case "-+":
		return &Node{Op: MinusPlus, Args: []*Node{nil, n}}
	}
	return n
}

func negated(n *Node) *Node { return &Node{Op: Neg, Args: []*Node{n}} }

func addition(terms []*Node) *Node {
	if len(terms) == 1 {
		return terms[0]
	}
	return &Node{Op: Add, Args: terms}
}

func multiplication(factors []*Node) *Node {
	if len(factors) == 1 {
		return factors[0]
	}
	return &Node{Op: Mul, Args: factors}
}

// product parses factors with * and / between them, or nothing, and the words behind them that belong to the value:
// units, millions, a modulus. A product of letters that stand alone, ab, has their word as its Name.
func (p *parser) product() *Node {
	defer p.enter()()
	start := p.pos
	letters := "" // the word of a product of letters, which parsing cuts
	if t := p.cur(); t.kind == word && !t.inText && len(t.text) > 1 {
		letters = t.text
	}
	if t := p.cur(); t.kind == word && p.ahead(1).kind == number && currencies[t.text] {
		p.advance() // USD 5
		return p.money(t.text)
	} else if t.kind == word && t.text == "Rs" && p.ahead(1).is(".") && p.ahead(2).kind == number {
		p.pos += 2
		return p.money(t.text)
	} else if t.kind == word && dollars[t.text] && p.ahead(1).cmd("$") {
		p.advance() // US$5
	}
	factors := []*Node{p.factor()}
	isInteger := p.isIntegerSince(start) // the last factor is an integer as written
	for {
		afterInteger := isInteger
		isInteger = false
		t := p.cur()
		switch {
		case t.is("*"):
			cross := t.isCross
			p.advance()
			p.failIf(p.atListEnd()) // no factor follows the sign
			if last := len(factors) - 1; isVector(factors[last]) {
				right := p.factor()
				if isVector(right) || factors[last].Name == "nabla" {
					factors[last] = vectorProduct(cross, factors[last], right)
				} else {
					factors = append(factors, right)
				}
				continue
			}
			if units := p.unitsAfterSign(); units != nil {
				factors = append(factors, units)
				continue
			}
			factors = append(factors, p.factor())
			continue
		case t.is("/"):
			p.advance()
			if units := p.unitsAfterSign(); units != nil {
				factors = append(factors, inverted(units))
				continue
			}
			denominator := p.factor()
			percent := denominator.Op == Percent && !p.previous().is(")")
			if percent { // 1/2% is a half of a per cent
				denominator = denominator.Args[0]
			}
			quotient := &Node{Op: Div, Args: []*Node{multiplication(factors), denominator}}
			if percent {
				quotient = &Node{Op: Percent, Args: []*Node{quotient}}
			}
			factors = []*Node{quotient}
			continue
		case p.skipInOrOutOf():
			factors = []*Node{{Op: Div, Args: []*Node{multiplication(factors), p.factor()}}}
			continue
		case afterInteger && p.mixedAhead():
			part := p.atom()
			if part.Is(Num) && p.accept("/") { // 1 1/10 in plain text
				part = &Node{Op: Div, Args: []*Node{part, p.atom()}}
			}
			last := len(factors) - 1
			factors[last] = p.postfix(&Node{Op: Add, Args: []*Node{factors[last], part}})
			continue
		case t.cmd("bmod"), t.cmd("mod"), t.kind == word && strings.EqualFold(t.text, "mod"), t.cmd("pmod"), t.is("(") &&
			p.ahead(1).kind == word && p.ahead(1).text == "mod":
			return p.mod(multiplication(factors))
		}
		k := p.ahead(1)
		chooses := t.kind == word && (t.text == "P" || t.text == "C") && !t.spaceBefore
		if afterInteger && chooses && k.kind == number && k.num.digitsOnly && !k.spaceBefore {
			p.advance() // 10P3
			return p.chosenOf(t.text, factors[len(factors)-1], p.numeral())
		}
		powerOfTen := k.kind == number && k.num.text == "10" && p.ahead(2).is("^")
		if t.kind == word && (t.text == "x" || t.text == "X") && powerOfTen && isNumeral(factors[len(factors)-1]) {
			p.advance() // 6.02 x 10^23
			factors, isInteger = append(factors, p.factor()), afterInteger
			continue
		}
		isTime := p.daytimeAhead() != "" && (p.tokens[max(p.pos-2, 0)].is(":") || p.pos == start+1 && afterInteger) // 9:15 pm, 5 pm
		if isTime || p.domainAhead() || p.roundedAhead() || p.copulaAhead() || p.afterthoughtAhead() {
			break
		}
		if n, ok := p.suffix(factors); ok {
			factors = n
			continue
		}
		if !p.startsFactor() || t.kind == word && t.text == "U" && isSet(factors[len(factors)-1]) {
			break
		}
		p.failIf(p.cur().kind == number && isNumeral(factors[len(factors)-1])) // two numbers side by side
		before := p.pos
		factors = append(factors, p.factor())
		isInteger = p.isIntegerSince(before)
	}
	n := multiplication(factors)
	if letters != "" && n.Op == Mul && p.pos == start+1 { // nothing but the letters of one token
		n.Name = letters
	}
	return n
}

// isVector reports whether n is written as a vector, so that × and · beside it are operators.
func isVector(n *Node) bool {
	return rules.On("vector products") && n.Op == Sym && (strings.HasPrefix(n.Name, "vec ") || strings.HasPrefix(n.Name, "hat ") || n.Name == "nabla") ||
		n.Op == Func && n.Name == "cross"
}

// vectorProduct is x × y or x · y, without arrows over x and y. y × x becomes -(x × y), with the operands in the order
// of their texts, so that both are one expression; nabla stays first.
func vectorProduct(cross bool, x, y *Node) *Node {
	for _, n := range [...]**Node{&x, &y} {
		if name, ok := strings.CutPrefix((*n).Name, "vec "); ok {
			*n = &Node{Op: Sym, Name: name}
		}
	}
	if !cross {
		return &Node{Op: Func, Name: "dot", Args: []*Node{x, y}}
	}
	if x.Name != "nabla" && y.String() < x.String() {
		return negated(&Node{Op: Func, Name: "cross", Args: []*Node{y, x}})
	}
	return &Node{Op: Func, Name: "cross", Args: []*Node{x, y}}
}

// domainAhead reports whether the text ends with a remark in brackets about a letter, (n >= 1) or (k is an integer),
// which begins with the letter, or with a condition in brackets, (where c is constant).
func (p *parser) domainAhead() bool {
	t, rel := p.ahead(1), p.ahead(2)
	if !p.cur().is("(") || t.kind != word {
		return false
	}
	inWords := rel.kind == word && (rel.text == "is" || rel.text == "any")
	isLimited := rel.is(">=") || rel.is(">") || rel.is("in") || rel.is("!=") || inWords
	isCondition := conditional[strings.ToLower(t.text)] && t.text != "if" && t.text != "when" && t.text != "with"
	if !isCondition && (len(t.text) != 1 || !isLimited) {
		return false
	}
	depth := 0
	for i := 0; i < 30; i++ {
		switch t := p.ahead(i); {
		case t.kind == end, inWords && t.kind == number: // (k is 5) is another value
			return false
		case t.is("("), t.is("{"):
			depth++
		case t.is(")"), t.is("}"):
			depth--
		}
		if depth == 0 {
			return p.ahead(i+1).kind == end || p.ahead(i+1).is(".")
		}
	}
	return false
}

// skipInOrOutOf passes the words of 1 in 6 or 3 out of 4.
func (p *parser) skipInOrOutOf() bool {
	n := 0
	if p.phraseAhead([]string{"in"}) {
		n = 1
	} else if p.phraseAhead([]string{"out", "of"}) {
		n = 2
	}
	if n == 0 || p.ahead(n).kind != number || p.previous().kind != number {
		return false
	}
	p.pos += n
	return true
}

// isIntegerSince reports whether the tokens since from are one integer as written.
func (p *parser) isIntegerSince(from int) bool {
	return p.pos == from+1 && p.tokens[from].kind == number && p.tokens[from].num.digitsOnly
}

func isNumeral(n *Node) bool {
	return n.Op == Num || n.Op == Pow && isNumeral(n.Args[1]) && n.Args[0].Op == Num
}

// integer is a numeral made by the parser.
func integer(n int64) *Node { return &Node{Op: Num, Rat: big.NewRat(n, 1), Places: -1} }

// mixedAhead reports whether the text after an integer makes a mixed number of it: the sign ½, or a proper fraction of
// two integers as written, 1/2, \frac12 or \frac{1}{2}.
func (p *parser) mixedAhead() bool {
	num, den := (*numeral)(nil), (*numeral)(nil)
	switch t := p.cur(); {
	case !rules.On("mixed numbers"):
		return false
	case t.kind == number && t.num.digits == 0 && t.num.places < 0 && !t.num.value.IsInt(): // ½ has no digits
		return true
	case t.kind == number && t.num.digitsOnly && p.ahead(1).is("/") && p.ahead(2).kind == number && p.ahead(2).num.digitsOnly:
		if !t.spaceBefore {
			return false
		}
		num, den = t.num, p.ahead(2).num
	case isFraction(t):
		if n := p.ahead(1); n.kind == number && n.num.digitsOnly && len(n.num.text) == 2 {
			return n.num.text[0] < n.num.text[1] // the 12 of \frac12 is still one token
		}
		i := 1 // the place of the next argument
		if num = p.bracedNumeral(&i); num == nil {
			return false
		}
		if den = p.bracedNumeral(&i); den == nil {
			return false
		}
	default:
		return false
	}
	return num.value.Cmp(den.value) < 0 && num.value.Sign() > 0
}

// bracedNumeral returns the integer, braced or bare, at token *i after the position, and moves *i past it; nil if there is none.
func (p *parser) bracedNumeral(i *int) *numeral {
	t := p.ahead(*i)
	if t.kind == number && t.num.digitsOnly {
		*i++
		return t.num
	}
	if t.is("{") && p.ahead(*i+1).kind == number && p.ahead(*i+1).num.digitsOnly && p.ahead(*i+2).is("}") {
		*i += 3
		return p.ahead(*i - 2).num
	}
	return nil
}

func isFraction(t *token) bool { return t.kind == command && fractions[t.text] }

// fractions are the commands of fractions.
var fractions = SetOf("frac dfrac tfrac cfrac sfrac nicefrac xfrac flatfrac")

// mod parses the modulus behind value, \pmod{m}, \bmod m or (mod m), and returns the residue class of both.
func (p *parser) mod(value *Node) *Node {
	var m *Node
	switch t := p.cur(); {
	case t.is("("):
		p.pos += 2
		m = p.sum()
		p.expect(")")
	case t.cmd("pmod"):
		p.advance()
		m = p.argument()
	default: // 2025 \bmod 1000
		p.advance()
		m = p.factor()
	}
	return &Node{Op: Mod, Args: []*Node{value, m}}
}

// factor parses a signed power.
func (p *parser) factor() *Node {
	defer p.enter()()
	switch {
	case p.accept("-"):
		return negated(p.factor())
	case p.accept("+"):
		return p.factor()
	case p.accept("+-"):
		return &Node{Op: PlusMinus, Args: []*Node{nil, p.factor()}}
	}
	return p.postfix(p.atom())
}

// startsFactor reports whether the current token begins a factor that is multiplied without a sign.
func (p *parser) startsFactor() bool {
	t := p.cur()
	switch t.kind {
	case number:
		return true
	case word:
		return !connective(t) && !(t.text == "to" && p.ahead(1).kind == number)
	case command:
		return !closingCommands[t.text] && !trailingCommands[t.text]
	}
	return t.is("(") || t.is("{") || t.is("l|") || t.is("[") && !p.ahead(1).is("]") || (t.is("|") || t.is("||")) && p.openBars == 0 && !p.inSet
}

// trailingCommands follow a factor and begin none.
var trailingCommands = SetOf("right circ degree degrees textdegree not forall pmod bmod mod")

// connective reports whether a word separates statements.
func connective(t *token) bool {
	s := strings.ToLower(t.text)
	return separatingWords[s] != "" || conditional[s] || t.inText && (s == "am" || s == "pm")
}

// postfix parses the text after an atom n: powers, subscripts, factorials, per cent and degree signs, primes, and the
// ending of 5th, which it skips. Each makes a node around what stands before it.
func (p *parser) postfix(n *Node) *Node {
	for {
		t := p.cur()
		switch {
		case t.is("{") && p.ahead(1).is("}"): // {} is nothing
			p.pos += 2
		case t.cmd("circ") && rules.On("compositions") && n.Op == Sym && (p.ahead(1).kind == word || p.ahead(1).kind == command):
			p.advance() // f \circ g
			n = &Node{Op: Func, Name: "composition", Args: []*Node{n, p.postfix(p.atom())}}
		case p.skipDegreeSign():
			n = p.degrees(n)
		case t.is("^"):
			p.advance()
			if p.skipOrdinal() { // 5^{th}
				continue
			}
			if prime := p.primes(); prime != "" {
				n = withPrimes(n, prime)
				continue
			}
			n = &Node{Op: Pow, Args: []*Node{n, p.exponent()}}
		case t.is("_"):
			p.advance()
			n = p.subscript(n)
		case t.is("!") && n.Op == Text:
			return n // Yes!
		case t.is("!"):
			p.advance()
			op := Fact
			if p.cur().is("!") && !p.cur().spaceBefore {
				p.advance()
				op = Fact2
			}
			n = &Node{Op: op, Args: []*Node{n}}
		case t.is("%") || t.cmd("percent"):
			p.advance()
			n = &Node{Op: Percent, Args: []*Node{n}}
		case t.is("'") || t.is("''"):
			if n.Op == Degree {
				return n // degrees did not take it for minutes
			}
			n = withPrimes(n, p.primes())
			if n.Op == Sym && strings.Contains(functionLetters, n.Name[:1]) && p.cur().is("(") {
				n = p.application(n.Name)
			}
		case t.kind == word && !t.spaceBefore && n.Op == Num && isOrdinal(t.text) && (t.inText || p.ahead(1).kind == end):
			p.advance()
		default:
			return n
		}
	}
}

// primes passes a run of primes and returns it.
func (p *parser) primes() string {
	braced := p.ahead(1).is("'") && p.accept("{")
	s := ""
	for p.cur().is("'") || p.cur().is("''") {
		s += p.cur().text
		p.advance()
	}
	if braced {
		p.expect("}")
	}
	return s
}

// withPrimes is n with primes behind it: the derivative or the variant of a name, minutes or seconds of an angle for a
// numeral, else an expression that is compared as written.
func withPrimes(n *Node, primes string) *Node {
	switch n.Op {
	case Sym:
		return &Node{Op: Sym, Name: n.Name + primes}
	case App:
		return &Node{Op: App, Name: n.Name + primes, Args: n.Args}
	case Num: // minutes and seconds of an angle
		if unit := map[string]string{"'": "'", "''": "arcsec"}[primes]; unit != "" {
			return &Node{Op: Mul, Args: []*Node{n, {Op: Unit, Name: unit}}}
		}
	}
	return &Node{Op: Opaque, Name: primes, Args: []*Node{n}}
}

// skipOrdinal passes the th of 5^{\text{th}}.
func (p *parser) skipOrdinal() bool {
	i := 0
	if p.ahead(0).is("{") && p.ahead(2).is("}") {
		i = 1
	}
	if t := p.ahead(i); t.kind != word || !isOrdinal(t.text) {
		return false
	}
	p.pos += 1 + 2*i
	return true
}

func isOrdinal(s string) bool { return s == "th" || s == "st" || s == "nd" || s == "rd" }

// exponent parses the text after ^: a numeral, a group or an argument, any of them signed, and the exponent of that.
func (p *parser) exponent() *Node {
	defer p.enter()()
	var e *Node
	switch t := p.cur(); {
	case t.is("-"):
		p.advance()
		return negated(p.exponent())
	case t.kind == number:
		e = p.numeral()
	case t.is("{"):
		e = p.group()
	default:
		e = p.argument()
	}
	if p.accept("^") { // 9^9^9 in plain text
		e = &Node{Op: Pow, Args: []*Node{e, p.exponent()}}
	}
	// 2^3!4 has no meaning. Of 2^3^4!5 (e is a power) the call for the 4 has given up already.
	p.failIf(p.cur().is("!") && e.Op != Pow && p.previous().kind == number && p.ahead(1).kind == number)
	return e
}

// skipDegreeSign passes a degree sign in any spelling.
func (p *parser) skipDegreeSign() bool {
	isDegree := func(t *token) bool {
		return t.cmd("circ") || t.cmd("degree") || t.cmd("degrees") || t.cmd("textdegree")
	}
	i := 0
	if p.ahead(0).is("^") {
		i = 1
	}
	switch o := p.ahead(i); {
	case i == 1 && o.kind == word && o.text == "o" && p.previous().kind == number: // 60^o
		p.pos += 2
	case isDegree(p.ahead(i)):
		p.pos += i + 1
	case i == 1 && p.ahead(1).is("{") && isDegree(p.ahead(2)) && p.ahead(3).is("}"):
		p.pos += 4
	default:
		return false
	}
	return true
}

// degrees parses the text after the degree sign of n: the name of a temperature scale, which makes a unit of both, or
// minutes and seconds, which are added to n as parts of a degree.
func (p *parser) degrees(n *Node) *Node {
	if t := p.cur(); t.kind == word && (t.text == "C" || t.text == "F" || t.text == "K") {
		p.advance()
		return &Node{Op: Mul, Args: []*Node{n, {Op: Unit, Name: "deg" + t.text}}}
	}
	total := n
	for p.cur().kind == number {
		at, t := p.pos, p.cur()
		p.advance()
		p.accept("^") // 30^{\prime}
		parts := map[string]int64{"'": 60, "''": 3600}[p.primes()]
		if parts == 0 { // a number without primes is another value
			p.pos = at
			break
		}
		total = &Node{Op: Add, Args: []*Node{total, {Op: Div, Args: []*Node{{Op: Num, Rat: t.num.value, Places: -1}, integer(parts)}}}}
	}
	return &Node{Op: Degree, Args: []*Node{total}}
}

// subscript parses the text after n_: the base of a numeral, whose value in base ten is returned, a mark that makes a
// unit of n, M_{\odot}, part of a name, or an index.
func (p *parser) subscript(n *Node) *Node {
	t := p.cur()
	if n.Op == Sym && (n.Name == "M" || n.Name == "L" || n.Name == "R") { // masses of the sun and the like
		i := 0 // the number of braces before the mark
		if t.is("{") {
			i = 1
		}
		mark := p.ahead(i).text
		if p.ahead(i).kind == command {
			mark = `\` + mark
		}
		if body := celestial[mark]; body != "" && (i == 0 || p.ahead(2).is("}")) {
			p.pos += 1 + 2*i
			return &Node{Op: Unit, Name: "#" + body + map[string]string{"M": " mass", "L": " luminosity", "R": " radius"}[n.Name]}
		}
	}
	if n.Op == Num && p.pos >= 2 {
		digits := p.tokens[p.pos-2]            // the numeral as written, before the _
		if p.pos >= 4 && digits.kind == sign { // (312)_4
			digits = p.tokens[p.pos-3]
		}
		if b := p.base(); b > 0 && digits.kind == number && digits.num.digitsOnly {
			if v := inBase(digits.num.text, b); v != nil {
				p.skipArgument()
				return &Node{Op: Num, Rat: v, Places: -1, Name: "base"} // -1: no point
			}
		}
		p.failIf(p.tokens[p.pos-2].kind == number) // 5_x is not mathematics
	}
	if !t.is("{") {
		return indexed(n, p.argument())
	}
	p.advance()
	sub := p.inBrackets(p.statements)
	p.expect("}")
	return indexed(n, sub)
}

// celestial are the marks of the sun and the earth in a subscript.
var celestial = map[string]string{`\odot`: "solar", "sun": "solar", "Sun": "solar", `\oplus`: "earth", "earth": "earth", "Earth": "earth"}

// indexed attaches a subscript to a name. Numbers and words become part of the
// name; anything with a variable in it stays an expression.
func indexed(n, sub *Node) *Node {
	if sub == nil {
		return n
	}
	name := ""
	switch {
	case sub.Op == Num && sub.Rat.IsInt():
		name = sub.Rat.Num().String()
	case sub.Op == Text || sub.Op == Sym && sub.Words:
		name = sub.Name
	case sub.Op == Mul && sub.Name != "":
		name = sub.Name
	}
	switch n.Op {
	case Sym:
		if name != "" {
			return &Node{Op: Sym, Name: n.Name + "_" + name}
		}
		return &Node{Op: Index, Name: n.Name, Args: []*Node{sub}}
	case Mul:
		return n
	}
	return &Node{Op: Opaque, Name: "_", Args: []*Node{n, sub}}
}

// base is the base from 2 to 36 that the subscript at the position names, in digits or in words, else 0. It passes nothing.
func (p *parser) base() int64 {
	if !rules.On("bases") {
		return 0
	}
	i := 0
	if p.ahead(0).is("{") {
		i = 1
	}
	t := p.ahead(i)
	if i > 0 && !p.ahead(i+1).is("}") {
		return 0
	}
	switch t.kind {
	case number:
		if t.num.digitsOnly && t.num.value.Cmp(big.NewRat(36, 1)) <= 0 && t.num.value.Cmp(big.NewRat(2, 1)) >= 0 {
			return t.num.value.Num().Int64()
		}
	case word:
		if b, ok := bases[strings.ToLower(t.text)]; ok {
			return b
		}
		if v := numberWords[strings.ToLower(t.text)]; v >= 2 && v <= 36 {
			return v
		}
	}
	return 0
}

// skipArgument skips a group without nested groups, or one token.
func (p *parser) skipArgument() {
	if p.cur().is("{") {
		for !p.cur().is("}") {
			p.advance()
		}
	}
	p.advance()
}

// inBase is the value of digits in base b, nil if a digit is too large or b is not a base.
func inBase(digits string, b int64) *big.Rat {
	v, ok := new(big.Int), b >= 2 && len(digits) <= 2000 && !strings.ContainsAny(digits, "+-")
	if ok {
		v, ok = v.SetString(digits, int(b))
	}
	if !ok {
		return nil
	}
	return new(big.Rat).SetInt(v)
}
