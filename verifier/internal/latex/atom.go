package latex

import (
	"cmp"
	"math/big"
	"strings"
	"unicode/utf8"
)

// atom parses a number, a name, a bracketed expression, or a command with its arguments.
func (p *parser) atom() *Node {
	defer p.enter()()
	t := p.cur()
	switch t.kind {
	case number:
		return p.numeral()
	case word:
		return p.word()
	case command:
		return p.command()
	case sign:
		switch t.text {
		case "(", "[", "<:": // <: is \langle
			return p.bracketed()
		case "{":
			if p.ahead(1).is("}") { // {} is nothing
				p.pos += 2
				return p.atom()
			}
			return p.group()
		case "{:": // \{
			return p.set()
		case "|", "l|": // | and \left|
			return p.absolute()
		case "||":
			return p.norm()
		case "_", "^": // of _5C_2
			return p.choose()
		}
	}
	p.fail()
	return nil
}

// numeral takes the number at the position.
func (p *parser) numeral() *Node {
	n := p.cur().num
	p.advance()
	return &Node{Op: Num, Rat: n.value, Digits: n.digits, Places: n.places}
}

// argument parses one argument of a command: a group, or the next token as
// TeX takes it (one digit, one letter, one command).
func (p *parser) argument() *Node {
	defer p.enter()()
	t := p.cur()
	switch t.kind {
	case number:
		if len(t.num.text) < 2 { // one digit, or not digits alone
			return p.numeral()
		}
		// Take the first digit and leave the rest as the token at the position (places = -1: it has no point).
		first, rest := t.num.text[0], t.num.text[1:]
		v, _ := new(big.Rat).SetString(rest)
		t.num = &numeral{value: v, digits: len(strings.TrimLeft(rest, "0")), places: -1, digitsOnly: true, text: rest}
		t.spaceBefore = false // between the digits is none
		return integer(int64(first - '0'))
	case word:
		if t.inText || t.inRoman {
			return p.word()
		}
		return p.letter()
	case command:
		return p.command()
	case sign:
		switch t.text {
		case "{":
			return p.group()
		case "(", "[":
			return p.bracketed()
		case "-": // \frac-12 is rare, x^-1 common
			p.advance()
			return negated(p.argument())
		case "l|", "|":
			return p.absolute()
		case "{:":
			return p.set()
		}
	}
	p.fail()
	return nil
}

// inBrackets calls parse for the content of brackets: no bar outside of them is closed in it, and no set's condition begins.
func (p *parser) inBrackets(parse func() *Node) *Node {
	bars, inSet := p.openBars, p.inSet
	p.openBars, p.inSet = 0, false
	n := parse()
	p.openBars, p.inSet = bars, inSet
	return n
}

// group parses {...}, with \over or \choose inside.
func (p *parser) group() *Node {
	p.expect("{")
	n := p.inBrackets(p.statementsOrStack)
	p.expect("}")
	p.failIf(n == nil)
	return n
}

// statementsOrStack parses statements, or two with \over or \choose between them.
func (p *parser) statementsOrStack() *Node {
	n := p.statements()
	if t := p.cur(); t.cmd("over") || t.cmd("choose") || t.cmd("atop") {
		op := Div
		if !t.cmd("over") {
			op = Binom
		}
		p.advance()
		m := p.statements()
		p.failIf(n == nil || m == nil)
		n = &Node{Op: op, Args: []*Node{n, m}}
	}
	return n
}

// bracketed parses (...), [...], half-open intervals and <...>, as a Bracket of the elements between commas. Any other
// content of round or square brackets is returned without them; in <...> it is the one element, elsewhere no mathematics.
func (p *parser) bracketed() *Node {
	open := p.cur().text
	p.advance()
	p.openBrackets++
	n := p.inBrackets(p.statementsOrStack) // nil if nothing is in them
	p.openBrackets--
	shut := p.cur().text
	switch {
	case p.cur().kind != sign:
		p.fail()
	case open == "<:" && shut == ":>":
		open, shut = "<", ">"
	case shut != ")" && shut != "]" || open == "<:":
		p.fail()
	}
	p.advance()
	switch {
	case n == nil:
		p.fail()
	case n.Op != List || n.Name != ",":
		if open == "(" && shut == ")" || open == "[" && shut == "]" {
			return n
		}
		if open == "<" {
			return &Node{Op: Bracket, Name: "<>", Args: []*Node{n}}
		}
		p.fail()
	}
	return &Node{Op: Bracket, Name: open + shut, Args: n.Args}
}

// choose parses _5C_2 and ^5C_2, the number of combinations, and the same with P.
func (p *parser) choose() *Node {
	p.advance()
	n := p.argument()
	t := p.cur()
	p.failIf(t.kind != word || t.text != "C" && t.text != "P" || !p.ahead(1).is("_"))
	p.pos += 2
	return p.chosenOf(t.text, n, p.argument())
}

// chosenOf is the number of combinations (C) or arrangements (P) of k of n things.
func (p *parser) chosenOf(sign string, n, k *Node) *Node {
	binomial := &Node{Op: Binom, Args: []*Node{n, k}}
	if sign == "P" {
		return &Node{Op: Mul, Args: []*Node{binomial, {Op: Fact, Args: []*Node{k}}}}
	}
	return binomial
}

// set parses \{...\}: elements, or an element and a condition behind | or a colon. A brace at the end may be missing.
// Braces around a system of equations or cases make no set.
func (p *parser) set() *Node {
	p.expect("{:")
	bars, inSet := p.openBars, p.inSet
	p.openBars, p.inSet = 0, true // a bar or a colon begins the condition, whatever is open outside
	n := p.elements()
	if n != nil && (p.accept("|") || p.accept(":")) {
		p.inSet = false
		condition := p.statements()
		p.failIf(condition == nil)
		n = &Node{Op: SetBuilder, Args: []*Node{n, condition}}
	}
	p.openBars, p.inSet = bars, inSet
	p.failIf(!p.accept(":}") && (n == nil || p.cur().kind != end)) // \left\{ of cases has no other brace
	switch {
	case n == nil:
		return &Node{Op: Named, Name: "empty"}
	case n.Op == SetBuilder || n.Op == Cases:
		return n
	case n.Op == Matrix && n.Cols == 1: // \left\{\begin{array}...: a system
		return &Node{Op: List, Name: "and", Args: n.Args}
	case n.Op == List:
		return &Node{Op: Set, Args: n.Args}
	}
	return &Node{Op: Set, Args: []*Node{n}}
}

// elements parses statements up to the end of a list, a bar or a colon, as statements does: nil is none, one is no list.
func (p *parser) elements() *Node {
	defer p.enter()()
	var items []*Node
	for {
		for p.separator() != "" {
		}
		if p.atListEnd() || p.cur().is("|") || p.cur().is(":") {
			break
		}
		items = append(items, p.statement())
		if p.atListEnd() || p.cur().is("|") || p.cur().is(":") {
			break
		}
		p.failIf(p.separator() == "")
	}
	return listOf(items, ",")
}

// absolute parses |...|.
func (p *parser) absolute() *Node {
	p.advance()
	inSet := p.inSet
	p.inSet = false
	p.openBars++
	n := p.sets()
	p.openBars--
	p.inSet = inSet
	p.failIf(!p.accept("|") && !p.accept("r|"))
	return &Node{Op: Abs, Args: []*Node{n}}
}

// norm parses ||...||.
func (p *parser) norm() *Node {
	p.expect("||")
	bars := p.openBars
	p.openBars = 1
	n := p.sum()
	p.openBars = bars
	p.expect("||")
	return &Node{Op: Func, Name: "norm", Args: []*Node{n}}
}

// letter takes the first letter of the word at the position, a variable or one of the constants e and i, and leaves the
// rest of the word as the token there. A word that begins with a letter beyond ASCII is taken whole.
func (p *parser) letter() *Node {
	t := p.cur()
	if p.lettersTaken++; p.lettersTaken > maxVariables {
		panic(errLimit)
	}
	name := t.text
	if len(name) > 1 && name[0] < utf8.RuneSelf {
		t.text, t.isRest, t.spaceBefore = name[1:], true, false
		name = name[:1]
	} else {
		p.advance()
	}
	if name == "e" || name == "i" {
		return &Node{Op: Const, Name: name}
	}
	return &Node{Op: Sym, Name: name}
}

// functionLetters are the letters that are functions if a bracket follows.
const functionLetters = "fghFGH"

// word parses what a run of letters begins: a word that mathematics knows, a phrase of ordinary words, a function with
// its arguments, or the first letter of the run, a variable.
func (p *parser) word() *Node {
	t := p.cur()
	w := t.text
	if !t.isRest { // a rest of letters is no word
		if n := p.namedWord(w); n != nil {
			return n
		}
	}
	switch {
	case w == "m" && p.ahead(1).cmd("angle"): // the measure of an angle
		p.advance()
		return p.command()
	case len(w) == 1 && t.inText:
		if next := p.ahead(1); next.kind == word && !connective(next) && next.inText {
			return p.text()
		}
		if before := p.previous(); w == "i" && (before.kind == number || before.is("+") || before.is("-")) {
			break // 3 + 4\text{i}
		}
		p.advance()
		return &Node{Op: Sym, Name: w, Words: true}
	case !t.isRest && (t.inText || t.inRoman && len(w) > 1 || !looksLikeLetters(w, p.ahead(1)) || p.proseAhead()):
		return p.text()
	}
	n := p.letter()
	if n.Name == "P" && p.cur().is("(") { // a probability
		if event := p.event(); event != nil {
			return event
		}
	}
	if n.Op == Sym && strings.Contains(functionLetters, n.Name) {
		if p.inverseAhead() && p.ahead(5).is("(") { // f^{-1}(x)
			p.pos += 5
			return p.application(n.Name + "^-1")
		}
		if p.cur().is("(") {
			return p.application(n.Name)
		}
	}
	ofNumber := p.ahead(1).kind == number && p.ahead(2).is(")") // A(1,2), I(0): nobody writes a product so
	if n.Op == Sym && p.cur().is("(") && (ofNumber || p.commaAhead() || p.namedAhead()) {
		return p.application(n.Name)
	}
	return n
}

// inverseAhead reports whether ^{-1} is next.
func (p *parser) inverseAhead() bool {
	one := p.ahead(3)
	return p.ahead(0).is("^") && p.ahead(1).is("{") && p.ahead(2).is("-") && one.kind == number && one.num.text == "1" && p.ahead(4).is("}")
}

// event parses the brackets behind the P of a probability, P(A \mid B), as part of its name, if they hold an event: words,
// a relation, a bar or an operation of sets. It returns nil, and passes nothing, if they hold an expression.
func (p *parser) event() *Node {
	depth, described := 0, p.previous().kind == command // all of \Pr are events
	for i := p.pos; i < len(p.tokens)-1; i++ {
		switch t := p.tokens[i]; {
		case t.is("("), t.is("["):
			depth++
		case t.is(")"), t.is("]"):
			depth--
		case t.kind == word && t.inText, t.kind == sign && (isRelation(t.text) || t.text == "|" || t.text == "cap" || t.text == "cup" || t.text == ":"):
			described = true
		}
		if depth > 0 {
			continue
		}
		if !described {
			return nil
		}
		n := &Node{Op: Sym, Name: "P" + textOf(p.tokens[p.pos:i+1]).Name}
		p.pos = i + 1
		return n
	}
	return nil
}

// namedAhead reports whether one letter or number in brackets and an equals sign follow: y(x) =.
func (p *parser) namedAhead() bool {
	t := p.ahead(1)
	return (t.kind == number || t.kind == word && len(t.text) == 1) && p.ahead(2).is(")") && p.ahead(3).is("=")
}

// proseAhead reports whether the word at the position begins a phrase of ordinary words, "no real solutions", though
// nothing marks it as words: a word of four letters or more that names nothing follows.
func (p *parser) proseAhead() bool {
	t, next := p.cur(), p.ahead(1)
	if len(t.text) < 2 || next.kind != word || !next.spaceBefore || len(next.text) < 4 || connective(next) {
		return false
	}
	_, fn := functions[next.text]
	_, letter := greek[next.text]
	return !fn && !letter && next.text != "sqrt" && next.text[1] >= 'a'
}

// previous returns the token before the current one.
func (p *parser) previous() *token {
	if p.pos == 0 {
		return &token{}
	}
	return &p.tokens[p.pos-1]
}

// commaAhead reports whether the bracket that opens at the position holds a comma of its own within 200 tokens.
func (p *parser) commaAhead() bool {
	depth := 0
	for _, t := range p.tokens[p.pos:min(p.pos+200, len(p.tokens))] {
		switch depth += t.nesting(); {
		case depth == 0:
			return false
		case depth == 1 && (t.is(",") || t.is(";")):
			return true
		}
	}
	return false
}

// application parses the arguments of an unknown function.
func (p *parser) application(name string) *Node {
	arg := p.bracketed()
	if arg.Op == Bracket {
		return &Node{Op: App, Name: name, Args: arg.Args}
	}
	return &Node{Op: App, Name: name, Args: []*Node{arg}}
}

// looksLikeLetters reports whether a run of letters in mathematics is a product of variables rather than a word: it is
// short, in capitals, or a sign that begins right behind it belongs to its last letter. next is the token after it.
func looksLikeLetters(w string, next *token) bool {
	isUpper := !strings.ContainsFunc(w, func(r rune) bool { return r >= 'a' })
	return len(w) <= 3 || isUpper || len(w) <= 6 && !next.spaceBefore && (next.is("^") || next.is("_") || next.is("("))
}

// englishSigns are names of signs that are also words.
var englishSigns = SetOf("square triangle angle star diamond partial")

// namedWord parses the word w at the position with its arguments if it is a function, a constant, a Greek letter, a root,
// or begins a numeral that is spelled out. It is nil, with nothing passed, if w is none of these.
func (p *parser) namedWord(w string) *Node {
	t := p.cur()
	name, isFunction := functions[w]
	if isFunction && len(w) > 1 && p.ahead(1).kind != end || manyArguments[w] && p.ahead(1).is("(") { // not a word at the end
		p.advance()
		return p.function(cmp.Or(name, w)) // gcd and the like have no other name
	}
	switch w {
	case "pi", "Pi":
		p.advance()
		return &Node{Op: Const, Name: "pi"}
	case "oo": // infinity, but only as an end of an interval
		p.failIf(p.openBrackets == 0)
		fallthrough
	case "inf", "infty", "infinity", "Infinity":
		p.advance()
		return &Node{Op: Const, Name: "infty"}
	case "sqrt", "cbrt":
		p.advance()
		index := int64(2)
		if w == "cbrt" {
			index = 3
		}
		return &Node{Op: Root, Args: []*Node{p.rootArgument(), integer(index)}}
	case "abs", "floor", "ceil":
		if p.ahead(1).is("(") {
			p.advance()
			op := map[string]Op{"abs": Abs, "floor": Floor, "ceil": Ceil}[w]
			return &Node{Op: op, Args: []*Node{p.bracketed()}}
		}
	}
	if len(w) > 1 && !t.inText {
		if g, ok := greek[w]; ok && !englishSigns[w] { // not "angle" or "star"
			p.advance()
			return &Node{Op: Sym, Name: g}
		}
		// sinx, lnx: the function takes the letter
		for _, f := range [...]string{"sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "sqrt", "exp"} {
			if rest, ok := strings.CutPrefix(w, f); ok && len(rest) == 1 {
				t.text, t.isRest, t.spaceBefore = rest, true, false
				if f == "sqrt" {
					return &Node{Op: Root, Args: []*Node{p.rootArgument(), integer(2)}}
				}
				return p.function(functions[f])
			}
		}
	}
	if len(w) > 1 && (len(w) > 3 || t.inText || numberWords[strings.ToLower(w)] != 0) {
		return p.spelledNumber()
	}
	return nil
}

// rootArgument parses the radicand of sqrt or √ without braces: a whole numeral, not the one digit that TeX takes.
func (p *parser) rootArgument() *Node {
	if p.cur().kind == number {
		return p.numeral()
	}
	return p.argument()
}

// function parses the powers, base and argument of a known function whose name was passed. sin^{-1} is the inverse,
// sin^2 x the power of the value. Without an argument the name is a word, x_{\max}.
func (p *parser) function(name string) *Node {
	defer p.enter()()
	var base, power *Node
	script := p.scriptArgument
	if name == "log" {
		script = p.logBase
	}
	for {
		if p.cur().is("_") && base == nil {
			p.advance()
			base = script()
		} else if p.cur().is("^") && power == nil && !p.degreeAhead() {
			p.advance()
			power = p.exponent()
		} else {
			break
		}
	}
	if p.atListEnd() || p.cur().kind == sign && isRelation(p.cur().text) { // x_{\max}, \min = 12
		return &Node{Op: Sym, Name: name, Words: true}
	}
	if manyArguments[name] {
		if base != nil || !p.cur().is("(") && !p.cur().is("{:") { // \max_x f(x)
			return &Node{Op: Opaque, Name: name, Args: []*Node{p.product(), base}}
		}
		list := p.bracketed
		if p.cur().is("{:") { // \max\{1, 2\}
			list = p.set
		}
		arg := list()
		if arg.Op != Bracket && arg.Op != Set {
			arg = &Node{Args: []*Node{arg}}
		}
		return &Node{Op: Func, Name: name, Args: arg.Args}
	}
	arg := p.functionArgument()
	minusOne := power != nil && power.Op == Neg && power.Args[0].Op == Num && power.Args[0].Rat.Cmp(big.NewRat(1, 1)) == 0
	if inverse := "a" + name; minusOne && inverses[inverse] {
		return &Node{Op: Func, Name: inverse, Args: []*Node{arg}}
	}
	n := &Node{Op: Func, Name: name, Args: []*Node{arg}}
	switch {
	case name == "cis":
		cos, sin := &Node{Op: Func, Name: "cos", Args: n.Args}, &Node{Op: Func, Name: "sin", Args: n.Args}
		n = addition([]*Node{cos, multiplication([]*Node{{Op: Const, Name: "i"}, sin})})
	case base != nil && name == "log":
		n.Args = append(n.Args, base)
	case base != nil:
		n = &Node{Op: Opaque, Name: name, Args: []*Node{arg, base}}
	case name == "lg":
		n.Name = "log"
	}
	if power == nil {
		return n
	}
	return &Node{Op: Pow, Args: []*Node{n, power}}
}

// logBase parses the base of a logarithm: one digit, as in TeX, unless a separate
// argument follows the numeral (log_10 100).
func (p *parser) logBase() *Node {
	if p.cur().kind == number {
		if next := p.ahead(1); next.spaceBefore && next.kind != sign && next.kind != end || next.is("(") || next.is("{") {
			return p.numeral()
		}
	}
	return p.argument()
}

var inverses = SetOf("asin acos atan acot asec acsc asinh acosh atanh")

// degreeAhead reports whether ^\circ is next.
func (p *parser) degreeAhead() bool {
	return p.ahead(1).cmd("circ") || p.ahead(1).is("{") && p.ahead(2).cmd("circ")
}

// functionArgument parses the argument of sin and the like: a bracket, or the factors up to the next function or
// operator, sin 2x cos x. After constants a quotient belongs to it, sin pi/2, and a bracket after letters does not, sin x(y+1).
func (p *parser) functionArgument() *Node {
	t := p.cur()
	switch {
	case t.is("("), t.is("["):
		return p.bracketed()
	case t.is("{") && !p.ahead(1).is("}"):
		return p.postfix(p.group())
	case t.is("|"), t.is("l|"):
		return p.absolute()
	}
	lead := p.leadingSign()
	p.failIf(lead != "" && lead != "-")
	var factors []*Node
	constant := true // all factors are
	for {
		t := p.cur()
		if len(factors) > 0 {
			if !p.startsFactor() || t.kind == sign && !t.is("(") && !t.is("{") || p.startsFunction() {
				break
			}
			if t.kind == word && (t.inText || t.inRoman) {
				break
			}
			if t.is("(") && !constant || t.kind == number && isNumeral(factors[len(factors)-1]) {
				break
			}
		}
		f := p.postfix(p.atom())
		factors = append(factors, f)
		constant = constant && isConstant(f)
		if p.cur().is("/") && constant && (p.ahead(1).kind == number || p.ahead(1).cmd("pi")) {
			p.advance()
			factors = []*Node{{Op: Div, Args: []*Node{multiplication(factors), p.postfix(p.atom())}}}
		}
	}
	arg := multiplication(factors)
	if lead == "-" {
		arg = negated(arg)
	}
	return arg
}

// startsFunction reports whether a function's name is next.
func (p *parser) startsFunction() bool {
	t := p.cur()
	if t.kind != command && t.kind != word {
		return false
	}
	_, ok := functions[t.text]
	return ok && len(t.text) > 1 || t.kind == command && (t.text == "sum" || t.text == "prod" || t.text == "int" || t.text == "lim")
}

// isConstant reports whether n has no variables.
func isConstant(n *Node) bool { return !n.Contains(Sym, App, Index, Opaque) }
