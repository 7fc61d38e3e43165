package latex

import (
	"cmp"
	"onering/verifier/internal/rules"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// lexer cuts a text into tokens. Mathematics and plain words have one grammar:
// dollars and other math delimiters are white space, \text{} marks its words.
type lexer struct {
	src            string
	reading        Reading
	pos            int
	tokens         []token
	space          bool // white space was passed since the last token
	braces         []brace
	mode                  // of the position
	openBrackets   int    // open (), [] and \{\}: there a comma separates
	doubledSlashes bool   // every command has two backslashes (escaped text)
	itemsUntil     int    // up to here commas between digits separate the items of a list
	thousandsAhead string // the digits and commas ahead, where these part thousands
	ambiguity      ambiguity
	steps          int // number of bytes read
	err            error
}

// A mode says whether the letters at a position are words, or upright letters of mathematics.
type mode struct{ inText, inRoman bool }

// A brace is an open { with its meaning.
type brace struct {
	kind    braceKind
	outside mode
}

type braceKind uint8

const (
	group  braceKind = iota // a {group}
	unseen                  // the braces of \text{}: no tokens
)

// lex returns the tokens of src, an end token last, which other readings the text allows, and the number of bytes
// read, as a measure of work. The error is errLimit, for too many tokens or too large a numeral.
func lex(src string, reading Reading) ([]token, ambiguity, int, error) {
	src = inDecimals(turnedRound(plainWidth(src))) // full-width characters to ASCII, ]0,1[ to (0,1), 1A3_{16} to 419
	// steps: these passes count as two readings of src. doubledSlashes: each command begins as \\frac does.
	l := &lexer{src: src, reading: reading, doubledSlashes: allDoubled(src), steps: 2 * len(src), tokens: make([]token, 0, 16)}
	for l.pos < len(l.src) && l.err == nil {
		if len(l.tokens) > maxTokens {
			return nil, l.ambiguity, l.steps, errLimit
		}
		before := l.pos
		l.next()
		l.steps += l.pos - before
	}
	l.emit(token{kind: end})
	l.joinDigits()
	return l.tokens, l.ambiguity, l.steps, l.err
}

// outward matches an interval whose brackets may be turned outwards, ]0,1[, or anything in brackets without a comma,
// so that the brackets of the latter are not taken for those of an interval.
var outward = regexp.MustCompile(`\[[^\[\],;]*\]|([\[\]])([^\[\],;(){}]*(?:\{[^\[\],;{}]*\}[^\[\],;(){}]*)*[,;][^\[\],;(){}]*(?:\{[^\[\],;{}]*\}[^\[\],;(){}]*)*)([\[\]])`)

// turnedRound writes round brackets for those of open intervals that are turned outwards: ]0,1[ is (0,1).
func turnedRound(src string) string {
	first, last := strings.IndexAny(src, "[]"), strings.LastIndexAny(src, "[]")
	if first < 0 || !rules.On("french intervals") || src[first] == '[' && src[last] == ']' { // mostly
		return src
	}
	return outward.ReplaceAllStringFunc(src, func(s string) string {
		if strings.ContainsAny(s, ",;") && s[0] == ']' {
			s = "(" + s[1:]
		}
		if last := len(s) - 1; strings.ContainsAny(s, ",;") && s[last] == '[' {
			s = s[:last] + ")"
		}
		return s
	})
}

// lettered matches a numeral that may have letters for digits, and its base from 10 to 39: 1A3_{16}.
var lettered = regexp.MustCompile(`(^|[^\\A-Za-z\d])(?:\\(?:text|mathrm)\{)?([\da-zA-Z]{2,40})\}?_\{?([123]\d)\}?`)

// inDecimals writes numerals with letters for digits in base ten: 1A3_{16} is 419. Those without letters stay, for
// the parser to read.
func inDecimals(src string) string {
	if !rules.On("bases") || !strings.Contains(src, "_") {
		return src
	}
	return lettered.ReplaceAllStringFunc(src, func(s string) string {
		m := lettered.FindStringSubmatch(s)
		base, _ := strconv.ParseInt(m[3], 10, 64)
		if v := inBase(m[2], base); v != nil && base <= 36 && strings.Trim(m[2], "0123456789") != "" {
			return m[1] + v.RatString()
		}
		return s
	})
}

// allDoubled reports whether src was escaped once too often: it has commands, and each begins with an even number of
// backslashes, as \\frac does.
func allDoubled(src string) bool {
	found := false
	for i := 0; i < len(src); i++ {
		if src[i] != '\\' {
			continue
		}
		after := i // the place behind the backslashes
		for after < len(src) && src[after] == '\\' {
			after++
		}
		if after < len(src) && isLetter(src[after]) {
			if (after-i)%2 == 1 {
				return false
			}
			found = true
		}
		i = after
	}
	return found
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

func (l *lexer) emit(t token) {
	t.spaceBefore = t.spaceBefore || l.space
	l.space = false
	l.tokens = append(l.tokens, t)
}

// emitSign emits a sign whose last byte was just passed, and counts the brackets inside of which a comma separates.
func (l *lexer) emitSign(s string) {
	l.countBracket(s)
	l.emit(token{kind: sign, text: s, at: l.pos})
}

func (l *lexer) countBracket(s string) {
	switch s {
	case "(", "[", "{:":
		l.openBrackets++
	case ")", "]", ":}":
		l.openBrackets = max(0, l.openBrackets-1)
	}
}

// peek is the byte n after the current one, 0 past the end.
func (l *lexer) peek(n int) byte {
	l.steps++
	if l.pos+n < len(l.src) {
		return l.src[l.pos+n]
	}
	return 0
}

// skipWhile returns the place after the bytes from i on for which in holds.
func (l *lexer) skipWhile(i int, in func(byte) bool) int {
	from := i
	for i < len(l.src) && in(l.src[i]) {
		i++
	}
	l.steps += i - from
	return i
}

// next reads one token in the mode of the position, or skips something. Braces, \text and \mathrm change the mode.
func (l *lexer) next() {
	c := l.src[l.pos]
	switch {
	case strings.IndexByte(" \t\n\r~$\x00\v\f", c) >= 0:
		l.pos++
		l.space = true
	case isDigit(c) || c == '.' && isDigit(l.peek(1)) && (l.pos == 0 || !isDigit(l.src[l.pos-1])):
		l.number()
	case isLetter(c):
		l.letters()
	case c == '\\':
		l.backslash()
	case c == '{' && l.peek(2) == '}' && strings.IndexByte(":=+-<>*/", l.peek(1)) >= 0: // 3{:}30 is set closely
		l.pos++
		l.punctuation(l.peek(0))
		l.pos++
	case c == '{':
		l.pos++
		l.braces = append(l.braces, brace{kind: group, outside: l.mode})
		l.emitSign("{")
	case c == '}':
		l.pos++
		if len(l.braces) == 0 {
			break // a stray brace
		}
		b := l.braces[len(l.braces)-1]
		l.braces = l.braces[:len(l.braces)-1]
		if b.kind == group {
			l.emitSign("}")
		}
		l.mode = b.outside
	case c < utf8.RuneSelf:
		l.punctuation(c)
	default:
		l.unicode()
	}
}

// afterValue reports whether a number or a bracket ends right here, so that a ! may be a factorial. After a number
// that is a sub- or superscript or stands behind letters, x_1!= 2, != is more likely a relation.
func (l *lexer) afterValue() bool {
	n := len(l.tokens) - 1
	if n < 0 || l.space {
		return false
	}
	t := l.tokens[n]
	return t.is(")") || t.kind == number && (n == 0 || !l.tokens[n-1].is("_") && !l.tokens[n-1].is("^") && l.tokens[n-1].kind != word)
}

// punctuation reads the ASCII sign c at the position, the signs that it begins, such as <= and ..., a comment behind a
// per cent sign, or a sign that counts as white space.
func (l *lexer) punctuation(c byte) {
	two := string([]byte{c, l.peek(1)})
	if two == "!=" && l.afterValue() { // 5!=120
		two = "!"
	}
	switch two {
	case "<=", ">=", "!=", "==", "=<", "=>", "->", "**", "/=": // not +- and ||: 3+-2 and ||x|-1| have two signs
		l.pos += 2
		l.emitSign(cmp.Or(map[string]string{"==": "=", "=<": "<=", "->": "to", "**": "^", "/=": "!="}[two], two))
		return
	}
	if strings.HasPrefix(l.src[l.pos:], "...") {
		for l.peek(0) == '.' {
			l.pos++
		}
		l.emit(token{kind: command, text: "ldots", at: l.pos})
		return
	}
	l.pos++
	switch c {
	case '%':
		if line, _, _ := strings.Cut(l.src[l.pos:], "\n"); l.space && strings.HasPrefix(line, " ") &&
			len(strings.TrimSpace(line)) > 1 && isLetter(line[1]) && !strings.ContainsAny(line, "0123456789\\") {
			l.pos += len(line) // a comment
			return
		}
	case '"', '`':
		l.space = true
		return
	case 0x7f:
		return
	}
	if c < ' ' {
		l.space = true
		return
	}
	l.emitSign(string(rune(c)))
}

// letters reads a run of letters: am or pm as one word however it is written, a unit with a point after each letter
// without the points, m.p.h., or else a word.
func (l *lexer) letters() {
	start := l.pos
	if m := meridiem.FindStringSubmatch(l.src[start:min(start+8, len(l.src))]); m != nil && (start == 0 || !isLetter(l.src[start-1])) {
		half := strings.ToLower(l.src[start:start+1]) + "m"
		l.pos += len(m[1] + m[2]) // one of these is empty
		l.emit(token{kind: word, text: half, inText: true, at: start})
		return
	}
	if m := initials.FindString(l.src[start:min(start+10, len(l.src))]); m != "" && unitOf(strings.ReplaceAll(m, ".", "")) != "" {
		l.pos += len(m)
		l.word(strings.ReplaceAll(m, ".", ""), true, start)
		return
	}
	for n := l.letter(start); n > 0; n = l.letter(start) {
		l.pos += n
	}
	l.word(l.src[start:l.pos], l.inText, start)
}

// letter is the length of a letter at the position, or of an apostrophe between the letters of a word that began at
// start; 0 for anything else. An apostrophe behind one letter of a formula is a prime: f'g.
func (l *lexer) letter(start int) int {
	c := l.peek(0)
	inWord := l.pos > start && (l.inText || l.pos > start+1)
	if isLetter(c) || c == '\'' && inWord && isLetter(l.peek(1)) {
		return 1
	}
	if c < utf8.RuneSelf {
		return 0
	}
	r, size := utf8.DecodeRuneInString(l.src[l.pos:])
	if !unicode.Is(unicode.Latin, r) {
		return 0
	}
	return size
}

// word emits a run of letters that begins at a place of the source, split where a connective was run into a name
// ("1orW"). inText says that it is a word and no product of letters.
func (l *lexer) word(text string, inText bool, at int) {
	if rest := strings.TrimPrefix(text, "or"); len(rest) == 1 && rest < "a" && len(text) == 3 && at > 0 && isDigit(l.src[at-1]) {
		l.emit(token{kind: word, text: "or", inText: true, at: at})
		text = rest
	}
	// So many letters are not a product of variables; as one, each letter would cost the length of the rest.
	inText = inText || len(text) > maxLetters
	l.emit(token{kind: word, text: text, inText: inText, inRoman: l.inRoman, at: at})
}

// initials matches an abbreviation with a point after each letter, m.p.h.
var initials = regexp.MustCompile(`^(?:[A-Za-z]\.){2,5}`)

// meridiem is a leading a.m. or p.m. however spelled.
var meridiem = regexp.MustCompile(`^(?:((?i:[ap]\. {0,2}m\.))|((?i:[ap](?:\. {0,2})?m))(?:$|[^A-Za-z]))`)

// backslash reads a command, an escaped sign, a new line, or a space that begins with a backslash.
func (l *lexer) backslash() {
	at := l.pos
	c := l.peek(1)
	if c == '\\' && l.doubledSlashes {
		// Of two backslashes the first is passed: \\frac is \frac, \\{ is \{. Of the four of a new line two are.
		if d := l.peek(2); isLetter(d) || d != 0 && d != '\\' && strings.IndexByte("{}$%,;:!|()[]", d) >= 0 {
			l.pos++
			at++
			c = d
		} else if d == '\\' && l.peek(3) == '\\' {
			l.pos += 2 // the new line begins at the first of the four
		}
	}
	if isLetter(c) {
		i := l.skipWhile(l.pos+1, isLetter)
		name := l.src[l.pos+1 : i]
		if !known(name) {
			name = knownPrefix(name) // \quadx is \quad and x; name stays if it begins with no command
			i = l.pos + 1 + len(name)
		}
		l.pos = i
		l.command(name, at)
		return
	}
	l.pos += 2
	switch c {
	case 0:
		l.pos = len(l.src)
	case '\\':
		l.pos += len(spacing.FindString(l.src[min(l.pos, len(l.src)):min(l.pos+12, len(l.src))]))
		l.emit(token{kind: newline, at: at}) // without the distance behind it, such as [2pt], of at most 12 bytes
	case '!':
		// 5\!7 is set as 57.
		l.space = l.space || at == 0 || !isDigit(l.src[at-1]) || !isDigit(l.peek(0))
	case ' ', '\n', '\t', ',', ';', ':', '>', '/', '-', '@', '_', '\'', '"', '=', '^', '.', '(', ')', '[', ']':
		l.space = true // \( \) \[ \] delimit mathematics
	case '{':
		l.emitSign("{:") // \{ and \} are printed braces; { and } group
	case '}':
		l.emitSign(":}")
	case '|':
		l.emitSign("||") // the bars of a norm
	case '$':
		l.emit(token{kind: command, text: "$", at: at})
	case '%', '&', '#', '<', '+', '*':
		l.emitSign(string(rune(c)))
	default:
		l.pos-- // a backslash before a digit or a letter beyond ASCII means nothing
		l.space = true
	}
}

// spacing is the [2pt] after a new line.
var spacing = regexp.MustCompile(`^\[[^\]]{0,8}[A-Za-z]{2}\]`)

// knownPrefix returns the longest prefix of name that is a command (\quadx), or name itself.
func knownPrefix(name string) string {
	for n := min(len(name)-1, 16); n >= 2; n-- {
		if known(name[:n]) {
			return name[:n]
		}
	}
	return name
}

// command acts on \name, which begins at a place of the source and ends at the position: it emits the command, or the
// sign or word that it stands for, changes the mode, or skips the command with its arguments.
func (l *lexer) command(name string, at int) {
	op := operators[name]
	arguments, isDropped := dropped[name]
	switch {
	case texts[name] || romans[name]:
		l.enterText(name)
	case name == "left" || name == "right":
		l.delimiter(name == "left")
	case name == "quad" || name == "qquad":
		l.space = true
		l.emit(token{kind: quad, at: at})
	case bolds[name] && boldLetter.MatchString(l.src[l.pos:]):
		l.emit(token{kind: command, text: "vec", at: at})
	case ignored[name]:
		l.space = true
	case name == "lbrace", name == "rbrace": // these alone of the operators count as brackets
		l.emitSign(op)
	case name == "AA":
		l.emit(token{kind: word, text: "Å", inText: true, at: at})
	case isDropped:
		for range arguments {
			l.skipGroup()
		}
		l.space = true
	case op == "or" || op == "and":
		l.emit(token{kind: word, text: op, inText: true, at: at, symbolic: true})
	case op != "" || relations[name] != "" || arrows[name] != "":
		l.emit(token{kind: sign, text: cmp.Or(op, relations[name], arrows[name]), at: at, isCross: name == "times"})
	default:
		l.emit(token{kind: command, text: name, inText: l.inText, at: at})
	}
}

// enterText enters the argument of \text, \mathrm and the like, up to whose closing brace it changes the mode. The
// braces leave no tokens unless they hold a sub- or superscript or an argument together.
func (l *lexer) enterText(name string) {
	i := l.skipWhile(l.pos, func(c byte) bool { return c == ' ' || c == '\n' })
	if i >= len(l.src) || l.src[i] != '{' {
		return // \mathrm x: the style of one letter does not matter
	}
	l.pos = i + 1
	b := brace{kind: unseen, outside: l.mode}
	if n := len(l.tokens); n > 0 {
		if t := l.tokens[n-1]; t.is("_") || t.is("^") || t.kind == command && takesArgument(&t) {
			b.kind = group
			l.emitSign("{")
		}
	}
	l.braces = append(l.braces, b)
	l.mode = mode{inText: texts[name], inRoman: romans[name]}
}

// bolds are styles of letters for vectors, and boldLetter matches one small letter as their argument.
var (
	bolds      = SetOf("mathbf boldsymbol bm pmb")
	boldLetter = regexp.MustCompile(`^ ?(?:[a-z](?:[^a-zA-Z]|$)|\{[a-z]\})`)
)

// takesArgument reports whether a group may follow a command.
func takesArgument(t *token) bool {
	return isFraction(t) || decorations[t.text] != "" || takingArguments[t.text]
}

var takingArguments = SetOf("sqrt binom dbinom tbinom begin end mathbb overset underset substack pmod")

// delimiter reads the delimiter after \left or \right if it means something else there than elsewhere. Any other is
// left to be read as the next token.
func (l *lexer) delimiter(left bool) {
	l.space = true
	l.pos = l.skipWhile(l.pos, func(c byte) bool { return c == ' ' || c == '\n' })
	for _, d := range delimiters {
		if !strings.HasPrefix(l.src[l.pos:], d.text) {
			continue
		}
		sign := d.right
		if left {
			sign = d.left
		}
		l.pos += len(d.text)
		if sign != "" { // a point stands for no delimiter
			l.emitSign(sign)
		}
		return
	}
}

// delimiters are those with another meaning after \left and \right than elsewhere, and the sign of each there.
var delimiters = [...]struct{ text, left, right string }{
	{".", "", ""}, {"<", "<:", ":>"}, {">", ":>", ":>"}, {"|", "l|", "r|"}, {`\|`, "||", "||"}, {`\vert`, "l|", "r|"},
}

// skipGroup passes one braced argument.
func (l *lexer) skipGroup() {
	i := l.skipWhile(l.pos, func(c byte) bool { return c == ' ' })
	if i >= len(l.src) || l.src[i] != '{' {
		return
	}
	l.pos = len(l.src)
	if shut := ClosingBrace(l.src, i); shut >= 0 {
		l.pos = shut + 1
	}
}

// ClosingBrace is the position of the brace that closes the one at s[open], -1
// if it stays open. Escaped braces do not count.
func ClosingBrace(s string, open int) int {
	depth := 0
	for i := open; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}
