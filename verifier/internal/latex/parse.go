package latex

import (
	"math/big"
	"onering/verifier/internal/rules"
	"slices"
	"strings"
)

// A Parsed is a text read as mathematics.
type Parsed struct {
	Tree      *Node
	Ambiguity ambiguity // other readings that the text allows
	Choice    string    // the letter of a leading "B." or "(B)" that more follows
	Chosen    *Node     // the text after the letter
	// Steps is the work of parsing: every byte and token that was read, each time.
	Steps int
}

// Parse reads src, LaTeX or plain text without its math delimiters, in one
// reading. A text that is not an expression becomes a Text node (never an error);
// an empty one gives a nil tree. The only error is errLimit, of a text past a limit.
func Parse(src string, reading Reading) (result Parsed, err error) {
	if len(src) > maxBytes {
		return Parsed{}, errLimit
	}
	tokens, ambiguity, steps, err := lex(src, reading)
	result.Steps = steps
	if err != nil {
		return result, err
	}
	result.Ambiguity, result.Choice = ambiguity, choice(tokens)
	p := newParser(tokens, reading)
	tree, err := p.top()
	result.Steps += p.steps
	result.Ambiguity.Units = p.lettersAsUnits
	if err == errLimit || deeper(tree, maxTreeDepth) {
		return Parsed{Steps: result.Steps}, errLimit
	}
	if err != nil { // errSyntax
		// Parsing changed the tokens, so the words are taken from a fresh cut. It cannot fail where the first did not.
		tokens, _, steps, _ = lex(src, reading)
		result.Steps += steps
		tree = textOf(tokens)
	}
	result.Tree = tree
	if result.Choice != "" {
		result.Chosen, steps = chosen(src, reading)
		result.Steps += steps
	}
	return result, nil
}

// chosen returns the tree of the text after the label of an option, B. or (B), and the number of steps.
func chosen(src string, reading Reading) (*Node, int) {
	tokens, _, steps, _ := lex(src, reading) // as lex did before, so without an error
	label := 2                               // tokens of B.
	if tokens[0].is("(") {
		label = 3
	}
	rest := slices.Clone(tokens[label:]) // parsing changes tokens
	p := newParser(tokens[label:], reading)
	tree, err := p.top()
	if err != nil {
		tree = textOf(rest)
	}
	return tree, steps + p.steps
}

// newParser returns a parser of tokens, which it changes.
func newParser(tokens []token, reading Reading) *parser {
	return &parser{tokens: partStatements(tokens), noUnitLetters: reading.Letters}
}

// A parser is a recursive descent over tokens. It gives up by panicking with an error, which top turns into one.
type parser struct {
	tokens         []token
	pos            int
	depth          int
	steps          int  // number of tokens read
	lettersTaken   int  // letters that were taken as variables
	openBars       int  // open | that the next | may close
	openBrackets   int  // open ( and [
	inSet          bool // in \{\}: a colon or bar begins a condition
	noUnitLetters  bool // letters of a formula are not units
	lettersAsUnits bool // letters of a formula were taken as units
}

func isTextWord(t token) bool { return t.kind == word && t.inText }

// partStatements turns wide spaces between two statements with relations into semicolons, x = 1 \quad y = 2, and drops
// other wide spaces. It also writes connectives of other languages in English: 1\text{ et }2.
func partStatements(tokens []token) []token {
	related := false // a relation since the last separator
	depth := 0
	out := tokens[:0] // writing never overtakes reading
	for i, t := range tokens {
		depth += t.nesting()
		switch {
		case t.kind == quad:
			relationAhead := i+2 < len(tokens) && tokens[i+1].kind == word && isRelation(tokens[i+2].text) // y =
			if n := len(out); related && relationAhead && depth == 0 && n > 0 && !out[n-1].is(",") {
				out = append(out, token{kind: sign, text: ";", at: t.at})
				related = false
			}
			continue
		case isTextWord(t) && joints[strings.ToLower(t.text)] != "" && i > 0 && i+1 < len(tokens) &&
			!isTextWord(tokens[i-1]) && !isTextWord(tokens[i+1]) && tokens[i+1].kind != end: // it is alone between formulas
			t.text = joints[strings.ToLower(t.text)]
			related = false
		case t.is(","), t.is(";"), t.kind == word && (t.text == "or" || t.text == "and"):
			related = false
		case t.kind == sign && isRelation(t.text):
			related = true
		}
		out = append(out, t)
	}
	return out
}

// joints are connectives of other languages between two formulas.
var joints = map[string]string{
	"et": "and", "und": "and", "y": "and", "e": "and", "и": "and", "en": "and", "och": "and", "ja": "and",
	"oder": "or", "ou": "or", "o": "or", "или": "or", "または": "or", "또는": "or", "と": "and", "와": "and", "과": "and",
}

// cur is the token at the position.
func (p *parser) cur() *token {
	p.steps++
	return &p.tokens[p.pos]
}

// ahead is the token n after the current one; past the end it is the end.
func (p *parser) ahead(n int) *token {
	p.steps++
	return &p.tokens[min(p.pos+n, len(p.tokens)-1)]
}

// advance passes the current token.
func (p *parser) advance() {
	if p.pos < len(p.tokens)-1 {
		p.pos++
	}
}

// accept passes the sign s if it is next.
func (p *parser) accept(s string) bool {
	if p.cur().is(s) {
		p.advance()
		return true
	}
	return false
}

// expect passes the sign s or gives up.
func (p *parser) expect(s string) { p.failIf(!p.accept(s)) }

func (p *parser) fail() { panic(errSyntax) }

// failIf gives up if the condition holds: the text is not mathematics.
func (p *parser) failIf(wrong bool) {
	if wrong {
		p.fail()
	}
}

// enter counts the depth of nested calls, which ends the parsing at a limit; the returned function ends the call.
func (p *parser) enter() (leave func()) {
	if p.depth++; p.depth > maxDepth {
		panic(errLimit)
	}
	return func() { p.depth-- }
}

// top parses all tokens. The error is errSyntax, where they are not mathematics, or errLimit.
func (p *parser) top() (tree *Node, err error) {
	defer func() {
		if r := recover(); r == errSyntax || r == errLimit {
			err = r.(error)
		} else if r != nil {
			panic(r)
		}
	}()
	tree = p.statementsOrStack()
	p.failIf(p.cur().kind != end)
	return tree, nil
}

// listOf is a list of items; nil of none, and a single item itself.
func listOf(items []*Node, joint string) *Node {
	switch len(items) {
	case 0:
		return nil
	case 1:
		return items[0]
	}
	return &Node{Op: List, Name: joint, Args: items}
}

// statements parses statements with separators between them, to the end or a closing delimiter. They become a list
// whose Name is the last "and" or "or" between them, else a comma, or a formula of logic if all are propositions
// joined by signs (\land). A single statement is returned without a list, and nil if there is none.
func (p *parser) statements() *Node {
	defer p.enter()()
	var items []*Node
	var signs []string // the connectives between the items that are signs
	joint := ","
	for {
		for j := p.separator(); j != ""; j = p.separator() { // one more, behind that which ended the last round: ", and"
			if j != "," {
				joint = j
			}
		}
		if p.atListEnd() {
			break
		}
		w := strings.ToLower(p.cur().text)
		remark := p.cur().kind == word && conditional[w] && w != "if" && w != "when"
		if remark && len(items) > 0 {
			p.skipEnding() // f(x) = cx, where c is a constant
			continue
		}
		items = append(items, p.statement())
		if p.cur().is("(") && p.ahead(2).is("in") && p.domainAhead() { // (k ∈ Z)
			p.advance()
			items = append(items, p.statement())
			p.accept(")")
		}
		p.skipEnding()
		if p.atListEnd() {
			break
		}
		symbolic := p.cur().symbolic
		j := p.separator()
		switch j {
		case "":
			p.fail()
		case "and", "or":
			joint = j
		}
		if symbolic {
			signs = append(signs, j)
		}
	}
	if len(items) > 1 && len(signs) == len(items)-1 && !slices.ContainsFunc(items, func(n *Node) bool { return !isProposition(n) }) {
		return connected(items, signs)
	}
	return listOf(items, joint)
}

// isProposition reports whether n may be joined by connectives: a letter, or propositions.
func isProposition(n *Node) bool {
	return rules.On("connectives") && (n.Op == Logic || n.Op == Sym && !n.Words)
}

// connected joins propositions by signs, of which "and" binds more closely.
func connected(items []*Node, signs []string) *Node {
	groups := [][]*Node{items[:1:1]} // capped, so that append does not write over items
	for i, s := range signs {
		last := len(groups) - 1
		if s == "and" {
			groups[last] = append(groups[last], items[i+1])
		} else {
			groups = append(groups, []*Node{items[i+1]})
		}
	}
	join := func(name string, args []*Node) *Node {
		if len(args) == 1 {
			return args[0]
		}
		return &Node{Op: Logic, Name: name, Args: args}
	}
	var all []*Node
	for _, group := range groups {
		all = append(all, join("and", group))
	}
	return join("or", all)
}

// atListEnd reports whether the current token ends a list.
func (p *parser) atListEnd() bool {
	switch t := p.cur(); {
	case t.kind == end || t.kind == command && closingCommands[t.text]:
		return true
	case t.is("]"):
		return p.openBrackets > 0 || p.pos > 0 // otherwise ]a, b[
	case t.is("|"):
		return p.openBars > 0
	default:
		return t.is(")") || t.is("}") || t.is(":}") || t.is(":>") || t.is("r|")
	}
}

var closingCommands = SetOf("end rfloor rceil over choose atop")

// Signs and words that separate statements, and what each means.
var (
	separatingSigns = map[string]string{",": ",", ";": ",", "&": "and"}
	separatingWords = map[string]string{"or": "or", "或": "or", "或者": "or", "and": "and", "和": "and", "与": "and"}
)

// separator passes a separator and returns it as ",", "and" or "or", or "" if there is none.
func (p *parser) separator() (joint string) {
	switch t := p.cur(); t.kind {
	case newline:
		joint = ","
	case sign:
		joint = separatingSigns[t.text]
	case word:
		joint = separatingWords[strings.ToLower(t.text)]
	}
	if joint != "" {
		p.advance()
	}
	return joint
}

// skipEnding skips the end of a statement: a full stop, and a condition in words ("for all x", "where c is constant"),
// which is not compared. It gives up the text where the condition may change the answer or name another one.
func (p *parser) skipEnding() {
	for p.cur().is(".") || p.cur().is("!") || p.cur().is("?") {
		if n := p.ahead(1); n.kind != end && n.kind != newline && !n.is("}") && !n.is(",") && n.kind != word && !n.cmd("end") {
			return // it ends no sentence
		}
		p.advance()
	}
	if !rules.On("endings") {
		return
	}
	t := p.cur()
	if p.domainAhead() || t.cmd("forall") || p.afterthoughtAhead() {
		p.pos = len(p.tokens) - 1 // to the end: the remark says nothing else
		return
	}
	if begin := strings.ToLower(t.text); t.kind == word && conditional[begin] {
		depth, hasFormula, changes := 0, false, false
		for p.advance(); p.cur().kind != end && (depth > 0 || !p.atListEnd()); p.advance() {
			t := p.cur()
			w := strings.ToLower(t.text)
			hasFormula = hasFormula || t.kind == number && begin != "with" || t.kind == command || t.kind == sign && isRelation(t.text) ||
				t.kind == word && !t.inText && len(t.text) == 1
			changes = changes || t.kind == word && len(t.text) > 1 && t.text != "is" && t.text != "are" && changesNumber(w)
			depth += t.nesting()
			// "4 if n is even, 5 if n is odd" or "5 otherwise" is two answers.
			p.failIf(t.kind == word && (w == begin && w != "with" || alternatives[w] || begin == "with" && len(w) > 1 && changesNumber(w)))
		}
		// A condition in words alone may change the answer: yes if nope, even if odd, 5 with the sign changed.
		p.failIf(!hasFormula && (changes || begin == "with" || begin == "if"))
	}
}

// alternatives are words that give another value under other conditions.
var alternatives = SetOf("otherwise else elsewhere")

// conditional are words that begin a condition after a statement.
var conditional = SetOf("for where when with if such since because")

// skipRelation skips = or ≈ before a statement without a left side, and reports whether it was
// ≈. Other relations need a left side.
func (p *parser) skipRelation() bool {
	rel, ok := p.relation()
	p.failIf(ok && rel != "=" && rel != "~" && rel != "sim")
	return ok && rel != "="
}

// statement parses a relation, a chain of them, or a bare expression, and skips words before its sides. Of a
// statement, an arrow and a conclusion it returns the conclusion, or an implication if both are propositions.
func (p *parser) statement() *Node {
	defer p.enter()()
	about := p.skipFillers()              // about: words or ≈ say that the next value is rounded
	for p.accept("=>") || p.accept("&") { // & aligns the lines of an environment
	}
	var args []*Node
	var ops []string
	about = p.skipRelation() || about
	for {
		about = p.skipFillers() || about
		args = append(args, rounded(p.sets(), about))
		for p.cur().is("&") && isRelation(p.ahead(1).text) {
			p.advance()
		}
		arrow := p.cur().text
		if p.cur().is("=>") || p.cur().is("<=>") || p.cur().is("<==") {
			// The conclusion follows, and alone is the answer: 2x = 4 => x = 2.
			p.advance()
			if len(ops) == 0 && isProposition(args[0]) && !p.atListEnd() {
				return implication(arrow, args[0], p.statement())
			}
			p.failIf(arrow == "<==")
			if p.atListEnd() {
				break
			}
			p.failIf(len(ops) == 0 && args[0].Op.Scalar() && isConstant(args[0])) // 5 => 7
			return p.statement()
		}
		if p.cur().kind == newline && p.ahead(1).is("&") {
			p.advance() // an aligned chain goes on
		}
		for p.cur().is("&") && isRelation(p.ahead(1).text) {
			p.advance()
		}
		if value := p.roundedBehind(); value != nil { // 7/3 (about 2.33)
			args, ops = append(args, value), append(ops, "~")
		}
		rel, ok := p.relation()
		if !ok {
			break
		}
		p.accept("&")
		if p.atListEnd() && rel == "=" {
			break // x = : the other side is missing
		}
		ops, about = append(ops, rel), rel == "~"
		if len(ops) > 100 {
			panic(errLimit)
		}
	}
	if len(args) == 1 && len(ops) == 0 {
		return args[0]
	}
	return p.chain(args, ops)
}

// chain makes one node of args with the relations ops between them, such as a < b < c. A \pmod m at its end goes to the
// other sides too, and an arrow between two propositions is an implication.
func (p *parser) chain(args []*Node, ops []string) *Node {
	p.failIf(len(args) == len(ops)) // a relation at the end without a side
	if len(ops) == 1 && ops[0] == "to" && isProposition(args[0]) && isProposition(args[1]) {
		return implication("=>", args[0], args[1])
	}
	n := &Node{Op: Rel, Args: args, Ops: ops}
	p.modulus(n)
	return n
}

// implication is p => q, or the reverse or both as the arrow says. If q is not a proposition, it is q, a conclusion.
func implication(arrow string, p, q *Node) *Node {
	switch {
	case !isProposition(q):
		return q
	case arrow == "<==":
		p, q = q, p
	}
	return &Node{Op: Logic, Name: map[string]string{"=>": "implies", "<==": "implies", "<=>": "iff"}[arrow], Args: []*Node{p, q}}
}

// roundedBehind parses a rounded value in brackets, 7/3 (about 2.33); nil if there is none.
func (p *parser) roundedBehind() *Node {
	if !p.roundedAhead() {
		return nil
	}
	p.advance()
	p.skipFillers()
	n := rounded(p.sets(), true)
	p.expect(")")
	return n
}

// roundedAhead reports whether a rounded value follows in brackets.
func (p *parser) roundedAhead() bool {
	t, next := p.ahead(1), p.ahead(2)
	return p.cur().is("(") && (t.kind == word && rounding[strings.ToLower(t.text)] && (next.kind == number || next.kind == command) || t.is("~"))
}

// rounded marks n by the name "~", if n is a numeral and about says that ≈ or "about" precedes it.
func rounded(n *Node, about bool) *Node {
	if !about || n.Op != Num && (n.Op != Neg || n.Args[0].Op != Num) {
		return n
	}
	marked := *n
	marked.Name = "~"
	return &marked
}

// isRelation reports whether a sign's text is a relation.
func isRelation(s string) bool { return relationSigns[s] }

var relationSigns = SetOf("= < > <= >= != ~ == sim cong in notin ni subset subseteq supset supseteq parallel perp propto to mapsto << >> nmid")

// relation passes a relation sign and returns it.
func (p *parser) relation() (string, bool) {
	t := p.cur()
	if negated := map[string]string{"=": "!=", "in": "notin"}[p.ahead(1).text]; t.cmd("not") && p.ahead(1).kind == sign && negated != "" {
		p.pos += 2
		return negated, true
	}
	if p.copulaAhead() {
		p.advance()
		if p.phraseAhead([]string{"equal", "to"}) {
			p.pos += 2
		}
		return "=", true
	}
	if t.kind != sign || !isRelation(t.text) {
		return "", false
	}
	rel := t.text
	p.advance()
	p.failIf(rel == "=" && p.cur().is(":")) // a definition
	return rel, true
}

// modulus gives the \pmod m at the end of a congruence, which its last side has, to the sides before == or = too.
func (p *parser) modulus(n *Node) {
	last := len(n.Args) - 1
	if n.Args[last].Is(Mod) && len(n.Args) > 1 {
		m := n.Args[last].Args[1]
		for i, arg := range n.Args[:last] {
			if !arg.Is(Mod) && (n.Ops[i] == "==" || n.Ops[i] == "=") {
				n.Args[i] = &Node{Op: Mod, Args: []*Node{arg, m}}
			}
		}
	}
}

// sets parses operands of unions, intersections and differences of sets, from left to right, or one operand alone.
func (p *parser) sets() *Node {
	left := p.ratio()
	for {
		var op Op
		switch t := p.cur(); {
		case t.is("cup"):
			op = Union
		case t.is("cap"):
			op = Intersect
		case t.is("setminus"):
			op = Without
		case t.kind == word && t.text == "U" && isSet(left) && (p.ahead(1).is("(") || p.ahead(1).is("[") || p.ahead(1).is("{:")): // (0,1) U (2,3)
			op = Union
		case t.is("-") && isSet(left) && p.ahead(1).is("{:"): // R - \{0\}
			op = Without
		default:
			return left
		}
		p.failIf(isNumeral(left)) // x < 1 \cup x > 3 is no union of numbers
		p.advance()
		right := p.ratio()
		if left.Op == op && op != Without {
			left.Args = append(left.Args, right)
		} else {
			left = &Node{Op: op, Args: []*Node{left, right}}
		}
	}
}

// isSet reports whether n is written as a set.
func isSet(n *Node) bool {
	switch n.Op {
	case Set, SetBuilder, Named, Union, Intersect, Without:
		return true
	case Bracket:
		return len(n.Args) == 2
	}
	return false
}

// ratio parses a:b:c, 3 to 4, and the time of day, 5 pm or 9:15, or else a sum alone. A time without am or pm has the
// ratio as its argument, since it may be one.
func (p *parser) ratio() *Node {
	first := p.sum()
	hours := first.Is(Num) && first.Places < 0 && p.previous().kind == number // a numeral without a point
	if half := p.daytimeAhead(); hours && half != "" {
		if clock := clockOf([]*Node{first}, half); clock != nil {
			p.advance()
			return clock
		}
	}
	if t := p.cur(); t.kind == word && t.text == "to" && first.Op.Scalar() && p.ahead(1).kind == number {
		p.advance() // 3 to 4
		return &Node{Op: Ratio, Args: []*Node{first, p.sum()}}
	}
	if p.inSet || !p.cur().is(":") || p.ahead(1).is("=") {
		return first
	}
	args := []*Node{first}
	mayBeTime := true // two digits follow each colon
	for p.cur().is(":") && !p.ahead(1).is("=") {
		p.advance()
		if p.atListEnd() {
			return first // "Answer:"
		}
		t := p.cur()
		mayBeTime = mayBeTime && t.kind == number && len(t.num.text) == 2
		args = append(args, p.sum())
	}
	half := p.daytimeAhead()
	if half != "" {
		p.advance()
	}
	ratio := &Node{Op: Ratio, Args: args}
	if mayBeTime {
		if n := clockOf(args, half); n != nil {
			n.Args = []*Node{ratio}
			return n
		}
	}
	p.failIf(half != "") // 25:10 pm
	return ratio
}

// daytimeAhead is the half of the day that the word after a time names.
func (p *parser) daytimeAhead() string {
	if t := p.cur(); t.kind == word && (t.text == "am" || t.text == "pm") {
		return t.text
	}
	return ""
}

// clockOf returns the time of day of args, hours, minutes and seconds, in minutes after midnight, or nil if it is not a
// time of day. half is "am", "pm" or "" where the text does not say.
func clockOf(args []*Node, half string) *Node {
	if !rules.On("times") {
		return nil
	}
	minutes := new(big.Rat)
	unit := big.NewRat(60, 1) // of the next part, in minutes
	for i, arg := range args {
		if !arg.Is(Num) || !arg.Rat.IsInt() || arg.Rat.Sign() < 0 || i > 2 {
			return nil
		}
		if limit := [...]int64{24, 59, 59}[i]; arg.Rat.Cmp(big.NewRat(limit, 1)) > 0 {
			return nil
		}
		minutes.Add(minutes, new(big.Rat).Mul(arg.Rat, unit))
		unit = new(big.Rat).Quo(unit, big.NewRat(60, 1))
	}
	noon := big.NewRat(12*60, 1)
	hour := args[0].Rat.Num().Int64()
	switch {
	case half == "":
	case hour == 0 || hour > 12:
		return nil
	case half == "am" && hour == 12:
		minutes.Sub(minutes, noon)
	case half == "pm" && hour < 12:
		minutes.Add(minutes, noon)
	}
	return &Node{Op: Clock, Rat: minutes, Name: half}
}
