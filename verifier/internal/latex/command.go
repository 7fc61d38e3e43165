package latex

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// command parses the command at the position with its arguments. It gives up the text at one that it does not know.
func (p *parser) command() *Node {
	defer p.enter()()
	t := p.cur()
	name := t.text
	p.advance()
	if g, ok := greek[name]; ok {
		return p.greek(g)
	}
	if f, ok := functions[name]; ok || manyArguments[name] {
		return p.function(cmp.Or(f, name))
	}
	if d, ok := decorations[name]; ok {
		return p.decorated(d)
	}
	if n, ok := leaves[name]; ok {
		return &n // each parse has its own
	}
	switch name {
	case "frac", "dfrac", "tfrac", "cfrac", "sfrac", "nicefrac", "xfrac", "flatfrac":
		return p.fraction()
	case "sqrt", "surd":
		return p.root(name)
	case "root": // \root 3 \of x is rare: refuse
		p.fail()
	case "binom", "dbinom", "tbinom":
		return &Node{Op: Binom, Args: []*Node{p.argument(), p.argument()}}
	case "mathbb", "Bbb":
		return p.blackboard()
	case "R", "Z", "N", "Q", "reals", "Reals":
		if len(name) > 1 {
			name = "R"
		}
		return p.numberSet(name)
	case "lfloor":
		return p.rounded(Floor, "rfloor")
	case "lceil":
		return p.rounded(Ceil, "rceil")
	case "sum":
		return p.series(Sum)
	case "prod":
		return p.series(Prod)
	case "int", "iint", "iiint", "oint", "lim", "limsup", "liminf", "sup", "inf":
		return p.limits(name)
	case "begin":
		return p.environment()
	case "overbrace", "underbrace":
		n := p.argument()
		p.failIf(p.cur().is("_") || p.cur().is("^")) // the text over the brace may be another answer
		return n
	case "overset", "underset":
		return p.annotated()
	case "substack":
		return p.argument()
	case "$", "textdollar", "dollar", "pounds", "euro", "texteuro", "currency", "rupee", "ruble", "KRW", "VND", "TRY":
		return p.money(name)
	case "Pr":
		if p.cur().is("(") || p.cur().is("[") {
			return p.event()
		}
		return &Node{Op: Sym, Name: "P"}
	case "neg", "lnot":
		return &Node{Op: Logic, Name: "not", Args: []*Node{p.factor()}}
	}
	p.fail()
	return nil
}

// leaves are the commands without arguments.
var leaves = map[string]Node{
	"pi": {Op: Const, Name: "pi"}, "infty": {Op: Const, Name: "infty"}, "infin": {Op: Const, Name: "infty"}, "imath": {Op: Const, Name: "i"},
	"jmath": {Op: Sym, Name: "j"}, "emptyset": {Op: Named, Name: "empty"}, "varnothing": {Op: Named, Name: "empty"},
	"varempty": {Op: Named, Name: "empty"}, "celsius": {Op: Unit, Name: "degC"}, "ldots": {Op: Dots}, "cdots": {Op: Dots}, "dots": {Op: Dots},
	"dotsc": {Op: Dots}, "dotsb": {Op: Dots}, "vdots": {Op: Dots}, "ddots": {Op: Dots}, "hdots": {Op: Dots},
}

// greek parses what stands behind a Greek letter, or behind a sign that is a name, if it belongs to the name: the points of
// \angle ABC, or the arguments of a function.
func (p *parser) greek(name string) *Node {
	if name == "angle" || name == "triangle" {
		braced := p.ahead(2).is("}") && p.accept("{")
		if t := p.cur(); t.kind == word && !connective(t) {
			p.advance()
			if braced {
				p.advance()
			}
			return &Node{Op: Sym, Name: name + " " + t.text}
		}
	}
	if p.cur().is("(") && (p.commaAhead() || p.namedAhead()) {
		return p.application(name)
	}
	return &Node{Op: Sym, Name: name}
}

// decorated parses the argument of an accent, and makes one name of both.
func (p *parser) decorated(accent string) *Node {
	if accent == "" { // \stackrel{above}{sign}
		return p.annotated()
	}
	// A word under an accent is one name: \overline{AB}.
	if p.cur().is("{") && p.ahead(1).kind == word && p.ahead(2).is("}") {
		name := p.ahead(1).text
		p.pos += 3
		return accented(accent, name)
	}
	arg := p.argument()
	if arg.Op == Sym || arg.Op == Const {
		return accented(accent, strings.TrimPrefix(arg.Name, "vec ")) // \hat{\mathbf{i}}
	}
	return &Node{Op: Opaque, Name: accent, Args: []*Node{arg}}
}

// accented is a name with an accent; a dotted one is a derivative.
func accented(accent, name string) *Node {
	if primes := map[string]string{"dot": "'", "ddot": "''"}[accent]; primes != "" {
		return &Node{Op: Sym, Name: name + primes}
	}
	return &Node{Op: Sym, Name: accent + " " + name}
}

// annotated parses the two arguments of \overset and the like: a mark, and the base that it stands over. A mark
// of letters or digits may be a second answer, so the formula is then no expression.
func (p *parser) annotated() *Node {
	from := p.pos
	p.argument()
	for _, t := range p.tokens[from:p.pos] {
		p.failIf(t.kind == number || t.kind == word)
	}
	return p.argument()
}

// fraction parses the two arguments of \frac. dy/dx is a derivative, not a quotient.
func (p *parser) fraction() *Node {
	if n := p.derivative(); n != nil {
		return n
	}
	num := p.unitGroup()
	if num == nil {
		num = p.argument()
	}
	den := p.unitGroup()
	if den == nil {
		den = p.argument()
	}
	return &Node{Op: Div, Args: []*Node{num, den}}
}

// derivative parses the arguments of \frac{d^n y}{d x^n}, and makes one name of them; nil, with nothing passed, if
// they are not a derivative. dy/dx is named y', whatever x is.
func (p *parser) derivative() *Node {
	at := p.pos
	partial := p.ahead(1).cmd("partial")
	var parts [2]string // y and x without the d before each
	for i := range parts {
		first, shut := p.ahead(1), p.pos
		for shut < len(p.tokens)-1 && !p.tokens[shut].is("}") {
			shut++
		}
		text := textOf(p.tokens[p.pos : shut+1])
		isD := first.cmd("partial") || first.kind == word && first.text[0] == 'd' && len(first.text) <= 3
		if !p.cur().is("{") || !p.tokens[shut].is("}") || !isD || text == nil || i == 1 && len(text.Name) < 2 {
			p.pos = at
			return nil
		}
		parts[i] = strings.TrimPrefix(strings.ReplaceAll(strings.ReplaceAll(text.Name, `\partial`, "d"), " ", ""), "d")
		p.pos = shut + 1
	}
	name := "d(" + parts[0] + ")/d(" + parts[1] + ")"
	if m := totalDerivative.FindStringSubmatch(name); m != nil && m[1] == m[3] && !partial {
		return &Node{Op: Sym, Name: m[2] + map[string]string{"": "'", "^2": "''"}[m[1]]}
	}
	return &Node{Op: Sym, Name: name}
}

// totalDerivative matches dy/dx and d^2y/dx^2 in its form.
var totalDerivative = regexp.MustCompile(`^d\((\^2)?(\w+)\)/d\(\w(\^2)?\)$`)

// root parses \sqrt[n]{x}, and the sign √ with its numeral.
func (p *parser) root(name string) *Node {
	index := integer(2)
	if p.accept("[") {
		index = p.sum()
		p.expect("]")
	}
	var x *Node
	switch {
	case p.cur().is("{"):
		x = p.group()
	case name == "surd": // √13
		x = p.rootArgument()
	default: // \sqrt13 is \sqrt{1}3
		x = p.argument()
	}
	return &Node{Op: Root, Args: []*Node{x, index}}
}

// blackboard parses the letter of \mathbb.
func (p *parser) blackboard() *Node {
	braced := p.accept("{")
	t := p.cur()
	p.failIf(t.kind != word)
	name := t.text
	p.advance()
	if braced {
		p.expect("}")
	}
	if len(name) != 1 || !strings.Contains("RZNQC", name) {
		return &Node{Op: Sym, Name: name}
	}
	return p.numberSet(name)
}

// numberSet parses the sign after the name of a set of numbers, R^+ or Z_{>0}, and returns the set.
func (p *parser) numberSet(name string) *Node {
	i := 1 // the place of the sign
	if p.ahead(1).is("{") {
		i = 2
	}
	mark := p.ahead(i)
	if (p.cur().is("^") || p.cur().is("_")) && mark.kind == sign && numberSigns[mark.text] != "" {
		name += numberSigns[mark.text]
		for p.pos += i; i == 2 && !p.cur().is("}"); p.advance() { // the rest of {>0}
			p.failIf(p.cur().kind == end)
		}
		p.advance()
	}
	return &Node{Op: Named, Name: name}
}

// numberSigns are the signs that restrict a set of numbers, with 0 or without.
var numberSigns = map[string]string{"+": "+", "-": "-", "*": "*", ">": "+", "<": "-", "!=": "*", ">=": ">=", "<=": "<="}

// rounded parses up to the closing floor or ceiling sign.
func (p *parser) rounded(op Op, shut string) *Node {
	bars := p.openBars
	p.openBars = 0
	n := p.sum()
	p.openBars = bars
	p.failIf(!p.cur().cmd(shut))
	p.advance()
	return &Node{Op: op, Args: []*Node{n}}
}

// bounds parses the text below and above an operator, in either order. A missing bound is nil.
func (p *parser) bounds() (low, high *Node) {
	for {
		switch {
		case p.cur().is("_") && low == nil:
			p.advance()
			low = p.scriptArgument()
		case p.cur().is("^") && high == nil:
			p.advance()
			high = p.scriptArgument()
		default:
			return low, high
		}
	}
}

// series parses \sum_{k=a}^{b} term and \prod. With other bounds, k \in S, the parts are compared as written.
func (p *parser) series(op Op) *Node {
	low, high := p.bounds()
	term := p.product()
	isI := func(n *Node) bool { return n.Is(Const) && n.Name == "i" }
	if low.Is(Rel) && len(low.Args) <= 3 && slices.ContainsFunc(low.Args, isI) { // the index, not the imaginary unit
		term = term.Replaced(Const, "i", &Node{Op: Sym, Name: "i"})
	}
	if low.Is(Rel) && high != nil && len(low.Args) == 2 && low.Ops[0] == "=" && (low.Args[0].Op == Sym || isI(low.Args[0])) {
		return &Node{Op: op, Args: []*Node{term, {Op: Sym, Name: low.Args[0].Name}, low.Args[1], high}}
	}
	return &Node{Op: Opaque, Name: op.String(), Args: []*Node{term, low, high}}
}

// scriptArgument parses a sub- or superscript of an operator, relations included.
func (p *parser) scriptArgument() *Node {
	if p.cur().is("{") {
		return p.group()
	}
	return p.argument()
}

// limits parses an integral or a limit; its parts are compared as written.
func (p *parser) limits(name string) *Node {
	low, high := p.bounds()
	if p.atListEnd() || p.cur().kind == sign && isRelation(p.cur().text) { // x_{\sup}
		return &Node{Op: Sym, Name: name, Words: true}
	}
	return &Node{Op: Opaque, Name: name, Args: []*Node{p.product(), low, high}}
}

// money parses the amount after the sign or word of a currency, which was passed, and returns their product; without an
// amount the unit. The amount may be negative where the sign begins the text.
func (p *parser) money(name string) *Node {
	unit := &Node{Op: Unit, Name: unitOf(name)}
	switch {
	case name == "currency":
		unit.Name = "#any" // ¥ is a yen or a yuan: a noun that says nothing
	case unit.Name == "": // of $
		unit.Name = "USD"
	}
	if p.pos == 1 && p.cur().is("-") && p.ahead(1).kind == number {
		p.advance() // \$-50
		return negated(p.money(name))
	}
	if t := p.cur(); t.kind != number && !isFraction(t) && !t.is("{") {
		return unit
	}
	start := p.pos
	amount := p.postfix(p.atom())
	if p.isIntegerSince(start) && p.mixedAhead() {
		amount = addition([]*Node{amount, p.atom()})
	}
	return &Node{Op: Mul, Args: []*Node{amount, unit}}
}
