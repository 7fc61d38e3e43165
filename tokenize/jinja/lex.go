package jinja

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A kind is the kind of a token. Operators are their own kind: kind("==").
type kind string

const (
	kindData       kind = "data"
	kindBlockBegin kind = "begin of statement block"
	kindBlockEnd   kind = "end of statement block"
	kindVarBegin   kind = "begin of print statement"
	kindVarEnd     kind = "end of print statement"
	kindName       kind = "name"
	kindString     kind = "string"
	kindNumber     kind = "number"
	kindEOF        kind = "end of template"
)

type token struct {
	kind  kind
	text  string
	value Value // value of a number
	line  int
}

// A lexer cuts a template into tokens as jinja2's does with trim_blocks and lstrip_blocks: the newline after a
// block or comment goes, and so do blanks between the beginning of a line and a block or comment.
type lexer struct {
	src       string
	pos       int
	line      int
	lineStart bool // the previous text ends a line
	open      []byte
	tokens    []token
}

func lex(source string) []token {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.pos < len(l.src) {
		l.data()
	}
	l.add(kindEOF, "")
	return l.tokens
}

func (l *lexer) add(k kind, text string) {
	l.tokens = append(l.tokens, token{kind: k, text: text, line: l.line})
}

func (l *lexer) fail(format string, args ...any) { fail(l.line, format, args...) }

func (l *lexer) failIf(wrong bool, format string, args ...any) {
	failIf(wrong, l.line, format, args...)
}

// moveTo moves to a position, counting lines, and returns the text up to there.
func (l *lexer) moveTo(end int) string {
	text := l.src[l.pos:end]
	l.line += strings.Count(text, "\n")
	l.pos = end
	l.lineStart = strings.HasSuffix(text, "\n")
	return text
}

// data reads the text up to the next tag ({{, {% or {#), and then that whole tag.
func (l *lexer) data() {
	at := l.pos
	for ; at < len(l.src); at++ {
		if l.src[at] == '{' && at+1 < len(l.src) && strings.IndexByte("{%#", l.src[at+1]) >= 0 {
			break
		}
	}
	if at == len(l.src) {
		l.add(kindData, l.src[l.pos:])
		l.moveTo(at)
		return
	}
	begin, after := l.src[at:at+2], at+2
	sign := byte(0)
	if after < len(l.src) && (l.src[after] == '-' || l.src[after] == '+') {
		sign = l.src[after]
		after++
	}
	l.text(at, sign, begin != "{{")
	l.moveTo(after)
	switch {
	case begin == "{#":
		l.comment()
	case begin == "{%":
		l.failIf(strings.HasPrefix(l.src[l.spaces(after):], "raw"), "raw is not supported: no published chat template has it")
		l.add(kindBlockBegin, "")
		l.tagTokens("%}", kindBlockEnd)
	default:
		l.add(kindVarBegin, "")
		l.tagTokens("}}", kindVarEnd)
	}
}

// text adds the text before a tag, which begins at position at with sign (-, + or 0 for none); it trims what
// the sign, or the beginning of a block, removes.
func (l *lexer) text(at int, sign byte, block bool) {
	text := l.src[l.pos:at]
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, IsSpace)
	case sign != '+' && block:
		start := strings.LastIndexByte(text, '\n') + 1
		if (start > 0 || l.lineStart) && strings.TrimLeftFunc(text[start:], IsSpace) == "" {
			text = text[:start]
		}
	}
	if text != "" {
		l.add(kindData, text)
	}
	l.moveTo(at)
}

// spaces returns the end of the white space at position i.
func (l *lexer) spaces(i int) int {
	return len(l.src) - len(strings.TrimLeftFunc(l.src[i:], IsSpace))
}

// closes returns where the text goes on after the tag that end, such as %}, closes at position i; -1 if the tag does not
// end there. A - before end removes the white space behind the tag, and trim removes one newline, unless a + stands there.
func (l *lexer) closes(i int, end string, trim bool) int {
	rest := l.src[i:]
	switch {
	case strings.HasPrefix(rest, "-"+end):
		return l.spaces(i + 1 + len(end))
	case trim && strings.HasPrefix(rest, "+"+end):
		return i + 1 + len(end)
	case strings.HasPrefix(rest, end):
		i += len(end)
		if trim && i < len(l.src) && l.src[i] == '\n' {
			i++
		}
		return i
	}
	return -1
}

func (l *lexer) comment() {
	n := strings.Index(l.src[l.pos:], "#}")
	l.failIf(n < 0, "a comment has no end")
	at := l.pos + n
	if n > 0 && (l.src[at-1] == '-' || l.src[at-1] == '+') {
		at--
	}
	l.moveTo(l.closes(at, "#}", true))
}

// tagTokens reads the tokens of a block, or of a print statement, and its end, which becomes a token of a kind.
func (l *lexer) tagTokens(end string, kind kind) {
	for l.pos < len(l.src) {
		if after := l.closes(l.pos, end, kind == kindBlockEnd); after >= 0 && len(l.open) == 0 {
			l.add(kind, "")
			l.moveTo(after)
			return
		}
		if after := l.spaces(l.pos); after > l.pos {
			l.moveTo(after)
			continue
		}
		l.token()
	}
	if len(l.open) > 0 {
		l.fail("%q is never closed", l.open[len(l.open)-1])
	}
	l.fail("the template ends inside a tag; want %s", end)
}

// token reads one token inside a tag: a number, a name, a text in quotes or an operator.
func (l *lexer) token() {
	rest := l.src[l.pos:]
	r, _ := utf8.DecodeRuneInString(rest)
	switch {
	case '0' <= r && r <= '9':
		l.number()
	case isNameRune(r):
		n := strings.IndexFunc(rest, func(r rune) bool { return !isNameRune(r) })
		if n < 0 {
			n = len(rest)
		}
		if !unicode.IsLetter(r) && r != '_' && !unicode.Is(unicode.Nl, r) {
			l.fail("%q is not a name", rest[:n])
		}
		l.add(kindName, rest[:n])
		l.moveTo(l.pos + n)
	case r == '\'' || r == '"':
		l.string(byte(r))
	default:
		l.operator(rest)
	}
}

func isNameRune(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.M, r)
}

// operators are longest first.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}

// operator reads the longest operator that rest begins with, and matches brackets.
func (l *lexer) operator(rest string) {
	for _, op := range operators {
		if !strings.HasPrefix(rest, op) {
			continue
		}
		switch op {
		case "(", "[", "{":
			l.open = append(l.open, ")]}"[strings.Index("([{", op)])
		case ")", "]", "}":
			l.failIf(len(l.open) == 0 || l.open[len(l.open)-1] != op[0], "unexpected %q", op)
			l.open = l.open[:len(l.open)-1]
		}
		l.failIf(len(l.open) > maxNesting, "more than %d brackets open at once", maxNesting)
		l.add(kind(op), op)
		l.moveTo(l.pos + len(op))
		return
	}
	r, _ := utf8.DecodeRuneInString(rest)
	l.fail("unexpected %q", r)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// An integer, or a float in decimal digits.
var (
	integers = regexp.MustCompile(`^[0-9]+`)
	floats   = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?`)
)

// number reads an integer or a float.
func (l *lexer) number() {
	expr := floats
	if l.pos > 0 && l.src[l.pos-1] == '.' { // a.0.1 has no float
		expr = integers
	}
	text := expr.FindString(l.src[l.pos:])
	end, isFloat := l.pos+len(text), strings.ContainsAny(text, ".eE")
	next, _ := utf8.DecodeRuneInString(l.src[end:])
	l.failIf(isNameRune(next) && end < len(l.src), "a number that goes on with %q is not supported", next)
	t := token{kind: kindNumber, text: text, line: l.line}
	if isFloat {
		t.value, _ = strconv.ParseFloat(text, 64) // a float out of range is infinite, or 0
	} else {
		n, _ := new(big.Int).SetString(text, 10)
		l.failIf(len(text) > 1000 || text[0] == '0' && strings.Trim(text, "0") != "", "%q is not a number", text)
		t.value = shrink(n)
	}
	l.tokens = append(l.tokens, t)
	l.moveTo(end)
}

// string reads a literal in quotes.
func (l *lexer) string(quote byte) {
	i := l.pos + 1
	for ; i < len(l.src) && l.src[i] != quote; i++ {
		if l.src[i] == '\\' {
			i++
		}
	}
	l.failIf(i >= len(l.src), "a string has no end")
	l.add(kindString, l.unescape(l.src[l.pos+1:i]))
	l.moveTo(i + 1)
}

var escapes = map[byte]string{'\n': "", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v"}

// unescape replaces the escapes of a Python string literal (\n, \x41, \u0041); unknown ones stay as they are.
func (l *lexer) unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			out.WriteByte(s[i])
			i++
			continue
		}
		c := s[i+1] // it is there: string takes each \ with the byte behind it
		text, known := escapes[c]
		width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		switch {
		case known:
			out.WriteString(text)
			i += 2
		case width > 0:
			if i+2+width > len(s) {
				l.fail("\\%c wants %d hexadecimal digits", c, width)
			}
			n, err := strconv.ParseUint(s[i+2:i+2+width], 16, 32)
			l.failIf(err != nil || n > unicode.MaxRune, "\\%c wants %d hexadecimal digits of a character", c, width)
			out.WriteRune(rune(n))
			i += 2 + width
		case c == 'N' || '0' <= c && c <= '7':
			l.fail("\\%c is not supported; write \\u", c)
		default:
			out.WriteByte('\\')
			i++
		}
	}
	return out.String()
}

// IsSpace is str.isspace of Python for one character.
func IsSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }
