package data

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A Filter is a condition on rows.
type Filter struct {
	match   func(Object) bool
	columns []string
}

// ParseFilter parses a condition such as
//
//	level in 3..5
//	gsm8k_split == "train" and not (source in ["a", "b"] or level < 2.5)
//
// Comparisons are == != < <= > >=, "in" and "not in" with a range (which
// includes both ends) or a list, and "contains" for a part of a text. They are
// joined by and, or, not and parentheses. A column may be a path with dots; a name
// that is not a word is written in backquotes. Values are numbers, texts in single
// or double quotes, true, false and null.
//
// A number is compared with a number, with a text that is a number, and with a
// text whose last word is a number ("Level 5"). Other comparisons between values of
// different kinds are false, as are all comparisons with a missing value but == and
// !=. A list passes == and "in" if one of its elements does. != and "not in" are
// the negations of == and "in".
//
// The module expr-lang/expr has nearly this grammar, but reads the \b of "\boxed" and the
// \f of "\frac" as control characters, and binds "not" more tightly than "==".
func ParseFilter(text string) (*Filter, error) {
	p := &filterParser{text: text}
	p.scan()
	match := p.parseOr()
	if p.tok.kind != endToken {
		p.fail("%s is left over", p.tok)
	}
	if p.err != nil {
		return nil, p.err
	}
	return &Filter{match, p.columns}, nil
}

// Match says whether the condition holds for a row.
func (f *Filter) Match(row Object) bool { return f.match(row) }

// Columns returns the columns that the condition names.
func (f *Filter) Columns() []string { return slices.Clone(f.columns) }

type tokenKind byte

const (
	endToken    tokenKind = iota
	wordToken             // a column, or a keyword of the language
	columnToken           // a column in backquotes
	textToken             // a text in quotes
	numToken              // a number
	punctToken            // an operator or a bracket
)

type token struct {
	kind tokenKind
	text string
	at   int
}

func (t token) String() string {
	if t.kind == endToken {
		return "the end"
	}
	return strconv.Quote(t.text)
}

// A filterParser is a recursive descent over the grammar
//
//	or      = and { "or" and }
//	and     = not { "and" not }
//	not     = "not" not | "(" or ")" | compare
//	compare = column op value | column ["not"] "in" ( value ".." value | list )
//
// depth bounds the nesting.
type filterParser struct {
	text    string
	at      int
	tok     token
	depth   int
	columns []string
	err     error // the first error
}

type condition = func(Object) bool

// A FilterError says where the text of a filter cannot be understood, and why.
type FilterError struct {
	Filter string
	Byte   int // position in the text, from 1
	Reason error
}

func (e *FilterError) Error() string { return "data: " + e.Problem() }

// Problem is the error's text without the name of the package.
func (e *FilterError) Problem() string {
	return fmt.Sprintf("filter %q, at byte %d: %v", e.Filter, e.Byte, e.Reason)
}

func (e *FilterError) Unwrap() error { return e.Reason }

// fail records the first error at the present token, and skips to the end of the text,
// which ends the parsing.
func (p *filterParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = &FilterError{p.text, p.tok.at + 1, fmt.Errorf(format, args...)}
	}
	p.at, p.tok = len(p.text), token{at: len(p.text)}
}

// scan reads the next token into p.tok.
func (p *filterParser) scan() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
	p.tok = token{at: p.at}
	rest := p.text[p.at:]
	if rest == "" {
		return
	}
	take := func(kind tokenKind, n int) {
		p.tok.kind, p.tok.text = kind, rest[:n]
		p.at += n
	}
	switch c := rest[0]; {
	case c == '"' || c == '\'' || c == '`':
		p.scanQuoted(c)
		return
	case c >= '0' && c <= '9' || c == '-' || c == '+':
		take(numToken, numberLength(rest))
		if _, err := strconv.ParseFloat(p.tok.text, 64); err != nil {
			p.fail("%q is not a number", p.tok.text)
		}
		return
	}
	for _, op := range []string{"..", "==", "!=", "<=", ">=", "<", ">", "(", ")", "[", "]", ","} {
		if strings.HasPrefix(rest, op) {
			take(punctToken, len(op))
			return
		}
	}
	n := strings.IndexFunc(rest, func(r rune) bool { return !(unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '.') })
	if n < 0 {
		n = len(rest)
	}
	switch {
	case n > 0:
		take(wordToken, n)
	case rest[0] == '=':
		p.fail(`"=" is written "=="`)
	default:
		p.fail("%q is not understood", string([]rune(rest)[0]))
	}
}

// numberLength returns how many bytes of s are a number; a ".." that follows
// is not part of it.
func numberLength(s string) int {
	n := 1
	for n < len(s) {
		c := s[n]
		exponent := c|0x20 == 'e' || (c == '+' || c == '-') && s[n-1]|0x20 == 'e'
		point := c == '.' && !strings.HasPrefix(s[n:], "..")
		if !(c >= '0' && c <= '9' || exponent || point) {
			break
		}
		n++
	}
	return n
}

// scanQuoted reads a text, or in backquotes a column, into p.tok. A backslash escapes the quote and itself.
func (p *filterParser) scanQuoted(quote byte) {
	var b strings.Builder
	for i := p.at + 1; i < len(p.text); i++ {
		c := p.text[i]
		if c == '\\' && i+1 < len(p.text) && (p.text[i+1] == quote || p.text[i+1] == '\\') {
			i++
			b.WriteByte(p.text[i])
			continue
		}
		if c != quote {
			b.WriteByte(c)
			continue
		}
		p.tok.text, p.tok.kind = b.String(), textToken
		if quote == '`' {
			p.tok.kind = columnToken
		}
		p.at = i + 1
		return
	}
	p.fail("the quote %c is not closed", quote)
}

func (p *filterParser) isWord(text string) bool {
	return p.tok.kind == wordToken && p.tok.text == text
}

func (p *filterParser) isPunct(text string) bool {
	return p.tok.kind == punctToken && p.tok.text == text
}

func (p *filterParser) parseOr() condition {
	left := p.parseAnd()
	for p.isWord("or") {
		p.scan()
		a, b := left, p.parseAnd()
		left = func(o Object) bool { return a(o) || b(o) }
	}
	return left
}

func (p *filterParser) parseAnd() condition {
	left := p.parseNot()
	for p.isWord("and") {
		p.scan()
		a, b := left, p.parseNot()
		left = func(o Object) bool { return a(o) && b(o) }
	}
	return left
}

// parseNot parses a comparison, a condition in parentheses, or not before either.
func (p *filterParser) parseNot() condition {
	if p.depth++; p.depth > 100 {
		p.fail("nested too deeply")
	}
	defer func() { p.depth-- }()
	switch {
	case p.isWord("not"):
		p.scan()
		inner := p.parseNot()
		return func(o Object) bool { return !inner(o) }
	case p.isPunct("("):
		p.scan()
		inner := p.parseOr()
		p.expect(")")
		return inner
	}
	return p.parseComparison()
}

func (p *filterParser) expect(punct string) {
	if !p.isPunct(punct) {
		p.fail("%q is wanted, not %s", punct, p.tok)
		return
	}
	p.scan()
}

// parseComparison parses COLUMN OPERATOR VALUE, the operator perhaps with not before it. After an error, which
// p.fail records, it goes on: fail has moved to the end of the text, and only the first error counts.
func (p *filterParser) parseComparison() condition {
	isName := p.tok.kind == wordToken || p.tok.kind == columnToken
	if !isName || p.isWord("and") || p.isWord("or") || p.isWord("in") {
		p.fail("a column is wanted, not %s", p.tok)
		return nil
	}
	column := p.tok.text
	if !slices.Contains(p.columns, column) {
		p.columns = append(p.columns, column)
	}
	p.scan()
	op, negate := p.tok, p.isWord("not")
	if negate {
		p.scan()
		op = p.tok
		if !p.isWord("in") && !p.isWord("contains") {
			p.fail(`"in" is wanted after "not", not %s`, p.tok)
		}
	}
	if !slices.Contains(operators, op.text) || op.kind != wordToken && op.kind != punctToken {
		p.fail("an operator %q is wanted, not %s", operators, op)
	}
	p.scan()
	test := p.parseTest(op.text)
	negate = negate || op.text == "!="
	return func(o Object) bool {
		v, _ := lookup(o, column)
		return test(v) != negate
	}
}

var operators = []string{"==", "!=", "<", "<=", ">", ">=", "in", "contains"}

// parseTest parses the right side of an operator and returns the test of a value. For != it
// returns the test of ==, which the caller negates.
func (p *filterParser) parseTest(op string) func(any) bool {
	if op == "in" {
		return p.parseMembership()
	}
	right := p.parseValue()
	switch op {
	case "==", "!=":
		return anyElement(func(v any) bool { return equal(v, right) })
	case "contains":
		part, ok := right.(string)
		if !ok {
			p.fail("contains needs a text in quotes")
		}
		return anyElement(func(v any) bool { s, ok := v.(string); return ok && strings.Contains(s, part) })
	}
	if _, ok := right.(bool); ok || right == nil {
		p.fail("%s needs a number or a text", op)
	}
	holds := map[string]func(order int) bool{
		"<": func(c int) bool { return c < 0 }, "<=": func(c int) bool { return c <= 0 },
		">": func(c int) bool { return c > 0 }, ">=": func(c int) bool { return c >= 0 },
	}[op]
	return func(v any) bool {
		c, ok := compareValues(v, right)
		return ok && holds(c)
	}
}

// parseMembership parses the list or range after "in".
func (p *filterParser) parseMembership() func(any) bool {
	if p.isPunct("[") {
		var list []any
		for more := true; more; more = p.isPunct(",") {
			p.scan()
			list = append(list, p.parseValue())
		}
		p.expect("]")
		return anyElement(func(v any) bool {
			return slices.ContainsFunc(list, func(x any) bool { return equal(v, x) })
		})
	}
	low := p.parseValue()
	p.expect("..")
	high := p.parseValue()
	if c, ok := compareValues(low, high); !ok || c > 0 {
		p.fail("%v..%v is not a range from a smaller to a larger value", low, high)
	}
	return anyElement(func(v any) bool {
		a, ok := compareValues(v, low)
		b, _ := compareValues(v, high)
		return ok && a >= 0 && b <= 0
	})
}

// parseValue parses a number, a text, true, false or null.
func (p *filterParser) parseValue() (v any) {
	switch t := p.tok; {
	case t.kind == numToken:
		v, _ = strconv.ParseFloat(t.text, 64)
	case t.kind == textToken:
		v = t.text
	case p.isWord("true"):
		v = true
	case p.isWord("false"):
		v = false
	case p.isWord("null"):
	case t.kind == wordToken:
		p.fail("a value is wanted, not %s (a text stands in quotes)", t)
	default:
		p.fail("a value is wanted, not %s", t)
	}
	p.scan()
	return v
}

// anyElement extends a test of elements to lists: a list passes if one of its elements does.
func anyElement(test func(any) bool) func(any) bool {
	return func(v any) bool {
		if list, ok := v.([]any); ok {
			return slices.ContainsFunc(list, test)
		}
		return test(v)
	}
}

// equal compares a row's value with a value of the filter: nil, bool, float64 or string.
func equal(v, right any) bool {
	if b, ok := right.(bool); ok {
		return v == b
	}
	if right == nil {
		return v == nil
	}
	c, ok := compareValues(v, right)
	return ok && c == 0
}

// compareValues compares a row's value with a number or text of the filter; ok is false
// if they are of different kinds.
func compareValues(v, right any) (result int, ok bool) {
	switch r := right.(type) {
	case float64:
		x, ok := Number(v)
		return cmp.Compare(x, r), ok && x == x
	case string:
		if s, ok := v.(string); ok {
			return strings.Compare(s, r), true
		}
	}
	return 0, false
}

// Number returns a row's value as a number. For a text of two words, such as "Level 5", the last one is the number.
func Number(v any) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case int64:
		return float64(x), true
	case uint64:
		return float64(x), true
	case string:
		words := strings.Fields(x)
		if len(words) == 0 || len(words) > 2 {
			return 0, false
		}
		f, err := strconv.ParseFloat(words[len(words)-1], 64)
		return f, err == nil
	}
	if s, ok := v.(interface{ Float64() (float64, error) }); ok { // values of type json.Number
		f, err := s.Float64()
		return f, err == nil
	}
	return 0, false
}
