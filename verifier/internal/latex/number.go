package latex

import (
	"math/big"
	"onering/verifier/internal/rules"
	"regexp"
	"strconv"
	"strings"
)

// A comma says how commas between digits are read.
type comma uint8

const (
	thousands comma = iota // 1,234 is a number where its groups allow it
	Separator              // 1,234 is two numbers
	Decimal                // 1,5 is one and a half
)

// A Reading decides what a text leaves open.
type Reading struct {
	Comma comma
	// Letters reads letters beside a number in a formula as variables, never as units.
	Letters bool
}

// ambiguity says which other readings a text allows.
type ambiguity struct {
	Thousands bool // commas count as thousands separators
	Decimal   bool // a comma could be a decimal comma
	Units     bool // letters of a formula count as a unit
}

// number reads the numeral at the position, with its separators, decimal point, repetend and exponent, and emits it.
func (l *lexer) number() {
	start := l.pos
	if start >= l.itemsUntil { // no earlier call has found that the commas ahead separate the items of a list
		l.readCommas() // sets thousandsAhead where commas part thousands
	}
	whole, digitsOnly := strings.ReplaceAll(l.thousandsAhead, ",", ""), false
	l.pos += len(l.thousandsAhead)
	if l.thousandsAhead == "" {
		whole, digitsOnly = l.wholePart()
	}
	l.thousandsAhead = ""
	n := numeral{places: -1, digitsOnly: digitsOnly} // -1: without a point
	var fraction string
	if l.decimalPoint() {
		if l.pos++; l.src[l.pos-1] == '{' { // {,}
			l.pos += len(",}")
		}
		fraction = l.digits()
		n.places, n.digitsOnly = len(fraction), false
	}
	if len(whole)+len(fraction) > maxDigits {
		l.err = errLimit
		return
	}
	mantissa := whole + fraction
	n.digits = len(strings.TrimLeft(mantissa, "0"))
	if n.digitsOnly {
		n.text = whole
	}
	integer, _ := new(big.Int).SetString(mantissa, 10)
	n.value = new(big.Rat).SetInt(integer)
	if fraction != "" {
		n.value.SetFrac(integer, tenTo(len(fraction)))
	}
	if r := l.repetend(fraction); r != nil && rules.On("repetends") {
		n.value.Add(n.value, r)
		n.places, n.digits, n.digitsOnly = -1, 0, false // an exact number, as a fraction is
	} else {
		l.exponent(&n)
	}
	if l.peek(0) == '.' && (l.peek(1) == '/' || l.peek(1) == '*') {
		l.pos++ // 1./3
	}
	l.emit(token{kind: number, num: &n, inText: l.inText, at: start})
}

// joinDigits makes one numeral of integers that are set side by side without a space,
// though in groups: 5{7} is 57, unless the 5 is an argument or an exponent.
func (l *lexer) joinDigits() {
	// size is how many tokens an integer at i takes, with its braces; 0 if there is none, or if it is not the first and
	// white space precedes it.
	size := func(i int, first bool) int {
		t := l.tokens[i]
		if t.spaceBefore && !first {
			return 0
		}
		switch {
		case t.kind == number && t.num.digitsOnly:
			return 1
		case t.is("{") && i+2 < len(l.tokens):
			inside, shut := l.tokens[i+1], l.tokens[i+2]
			if inside.kind == number && inside.num.digitsOnly && shut.is("}") && !inside.spaceBefore && !shut.spaceBefore {
				return 3
			}
		}
		return 0
	}
	out := l.tokens[:0] // writing never overtakes reading
	for i := 0; i < len(l.tokens); {
		t, n := l.tokens[i], size(i, true)
		if n == 0 || size(i+n, false) == 0 || len(out) > 0 && !separates(out[len(out)-1]) {
			out = append(out, t)
			i++
			continue
		}
		digits := ""
		for n > 0 && len(digits) < maxDigits {
			digits += l.tokens[i+n/2].num.text // the one token, or that between the braces
			i += n
			n = size(i, false)
		}
		v, _ := new(big.Int).SetString(digits, 10)
		t.kind, t.text = number, ""
		t.num = &numeral{value: new(big.Rat).SetInt(v), digits: len(strings.TrimLeft(digits, "0")), places: -1, digitsOnly: true, text: digits}
		out = append(out, t)
	}
	l.tokens = out
}

// separates reports whether a numeral after t is independent: t does not take it as an
// argument, and does not end an argument.
func separates(t token) bool {
	return t.kind == newline || t.kind == quad || t.kind == sign && separating[t.text]
}

var separating = SetOf("+ - * / = < > <= >= ~ ( [ { {: , ; : +-")

// tenTo is 10^n.
func tenTo(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// digits passes a run of digits.
func (l *lexer) digits() string {
	start := l.pos
	for l.pos < len(l.src) && isDigit(l.src[l.pos]) {
		l.pos++
	}
	return l.src[start:l.pos]
}

// readCommas looks ahead at the digits from the position on and the commas between them, and settles what the commas
// are. If they part thousands, it sets thousandsAhead to all of it; if they separate the items of a list, itemsUntil to
// its end; neither if one is a decimal comma. The ambiguity says which other readings are possible.
func (l *lexer) readCommas() {
	i := l.pos
	for i < len(l.src) && (isDigit(l.src[i]) || l.src[i] == ',' && i+1 < len(l.src) && isDigit(l.src[i+1])) {
		i++
	}
	l.steps += i - l.pos
	digits := l.src[l.pos:i]
	if !strings.Contains(digits, ",") {
		return
	}
	if l.openBrackets == 0 && rules.On("separators") && isGrouped(digits) && l.reading.Comma == thousands {
		l.ambiguity.Thousands = true
		l.thousandsAhead = digits
		return
	}
	if strings.Count(digits, ",") == 1 {
		l.ambiguity.Decimal = true
		if l.reading.Comma == Decimal {
			return
		}
	}
	l.itemsUntil = i
}

// isGrouped reports whether digits are in groups of three, 1,234,567, or as in India, 12,34,567.
func isGrouped(digits string) bool {
	first, rest, _ := strings.Cut(digits, ",")
	if len(first) == 0 || len(first) > 3 || first[0] == '0' {
		return false
	}
	groups := strings.Split(rest, ",")
	last := len(groups) - 1
	for i, g := range groups {
		if want := len(groups[0]); i < last && len(g) != want || want < 2 || i == last && len(g) != 3 {
			return false
		}
	}
	return len(groups[0]) == 3 || len(first) <= 2
}

// separators may separate groups of three digits besides a comma.
var separators = [...]string{`{,}`, `\text{,}`, `,\!`, `\!,\!`, `\!,`, `{,\!}`, `\,`, `\;`, `\:`, `\ `, `{\,}`, `{ }`, "~", " ", "\u00a0", "\u2009", "\u202f", "'"}

// pointThousands matches groups of three digits with points, 1.234.567.
var pointThousands = regexp.MustCompile(`^(?:\.\d{3}){2,9}`)

// wholePart reads the digits before the point and the separators among them, and returns the digits. digitsOnly says
// that there were no separators.
func (l *lexer) wholePart() (digits string, digitsOnly bool) {
	start := l.pos
	first := l.digits()
	if start > 0 && l.src[start-1] == '_' || len(first) == 0 || len(first) > 3 || first[0] == '0' { // \log_10 100
		return first, true
	}
	groups := []byte(first)
	for {
		n := l.separator()
		if n == 0 || l.pos+n+3 > len(l.src) {
			break
		}
		g := l.src[l.pos+n : l.pos+n+3]
		if !isDigit(g[0]) || !isDigit(g[1]) || !isDigit(g[2]) {
			break
		}
		if after := l.pos + n + 3; after < len(l.src) && isDigit(l.src[after]) {
			break
		}
		l.pos += n + 3
		groups = append(groups, g...)
	}
	if m := pointThousands.FindString(l.src[l.pos:]); len(groups) == len(first) && m != "" && !isDigit(l.peek(len(m))) {
		l.pos += len(m)
		l.ambiguity.Decimal, l.itemsUntil = true, l.pos // a comma after them is a decimal comma
		groups = append(groups, strings.ReplaceAll(m, ".", "")...)
	}
	return string(groups), len(groups) == len(first)
}

// separator returns the length of the thousands separator at the position, 0 if there is none.
func (l *lexer) separator() int {
	rest := l.src[l.pos:]
	if strings.HasPrefix(rest, ",") && l.pos >= l.itemsUntil && l.reading.Comma == thousands && l.openBrackets == 0 {
		if tight, ok := strings.CutPrefix(rest, `,\!`); ok { // white space after it, which TeX ignores, also counts
			return len(rest) - len(strings.TrimLeft(tight, " "))
		}
		return 1
	}
	for _, s := range separators {
		if strings.HasPrefix(rest, s) {
			return len(s)
		}
	}
	return 0
}

// decimalPoint reports whether the position is at a decimal point of the number.
func (l *lexer) decimalPoint() bool {
	switch l.peek(0) {
	case '.':
		rest := l.src[l.pos+1:]
		return isDigit(l.peek(1)) || strings.HasPrefix(rest, `\overline`) || strings.HasPrefix(rest, `\bar`) || dotDigit(rest) > 0 ||
			strings.HasPrefix(rest, "(") && l.peek(2) != 0 && isDigit(l.peek(2)) && parenthesised(rest) != ""
	case '{': // 0{,}5, but not 1{,}2{,}3, a list
		return l.openBrackets == 0 && strings.HasPrefix(l.src[l.pos:], "{,}") && isDigit(l.peek(3)) &&
			!strings.HasPrefix(l.src[l.skipWhile(l.pos+3, isDigit):], "{,}")
	case ',':
		pointed := l.pos == l.itemsUntil && l.pos >= 4 && l.src[l.pos-4] == '.'
		return isDigit(l.peek(1)) && (pointed || l.reading.Comma == Decimal && l.pos >= l.itemsUntil)
	}
	return false
}

// repetend reads the mark of repeating decimals at the position: \overline{3}, \dot{3}, (3), or dots after digits that
// repeat. fraction is the digits between the point and there. It returns the value to add to the number, nil if there
// is no such mark.
func (l *lexer) repetend(fraction string) *big.Rat {
	rest := l.src[l.pos:]
	var period string
	switch {
	case strings.HasPrefix(rest, `\overline`), strings.HasPrefix(rest, `\bar`), strings.HasPrefix(rest, `\dot`):
		if fraction == "" && l.src[l.pos-1] != '.' {
			return nil // 3\overline{AB}
		}
		if n := dotDigit(rest); n > 0 {
			l.pos += n
			period = strings.Trim(rest[n-2:n], `t {}`) + l.dotted() // the digit of \dot{3}, \dot3 or \dot 3
			break
		}
		open := strings.IndexByte(rest, '{')
		shut := strings.IndexByte(rest, '}')
		if open < 0 || shut < open {
			return nil
		}
		period = strings.TrimSpace(rest[open+1 : shut])
		if period == "" || strings.Trim(period, "0123456789") != "" || len(period) > maxExp {
			return nil
		}
		l.pos += shut + 1
	case strings.HasPrefix(rest, "(") && (fraction != "" || l.src[l.pos-1] == '.'):
		if period = parenthesised(rest); period == "" {
			return nil
		}
		l.pos += len(period) + 2
	default:
		return l.dots(fraction)
	}
	return repeating(period, fraction)
}

// repeating is what 0.fraction period period ... adds to 0.fraction:
// period / (10^len(fraction) (10^len(period) - 1)).
func repeating(period, fraction string) *big.Rat {
	p, _ := new(big.Int).SetString(period, 10)
	nines := new(big.Int).Sub(tenTo(len(period)), big.NewInt(1))
	return new(big.Rat).SetFrac(p, nines.Mul(nines, tenTo(len(fraction))))
}

// dotted reads on from \dot{1} to the closing \dot{7} of \dot{1}4285\dot{7}.
func (l *lexer) dotted() string {
	start := l.pos
	more := l.digits()
	if rest := l.src[l.pos:]; dotDigit(rest) > 0 {
		n := dotDigit(rest)
		l.pos += n
		return more + strings.Trim(rest[n-2:n], `t {}`)
	}
	l.pos = start
	return ""
}

var (
	dotDigits = regexp.MustCompile(`^\\dot(?: ?\d|\{\d\})`)
	bracketed = regexp.MustCompile(`^\(\d{1,199}\)`)
)

// dotDigit is the length of a leading \dot{5}, \dot5 or \dot 5, 0 if s begins otherwise.
func dotDigit(s string) int { return len(dotDigits.FindString(s)) }

// parenthesised is the digits of a leading (digits), else "".
func parenthesised(s string) string { return strings.Trim(bracketed.FindString(s), "()") }

// dots reads an ellipsis after the decimals fraction. If they end with a period said twice, or three times if it is one
// digit (0.333..., 0.142857142857...), it returns the value of the digits that the ellipsis leaves out, else nil. An
// ellipsis at the end of the text is passed all the same.
func (l *lexer) dots(fraction string) (r *big.Rat) {
	rest := l.src[l.pos:]
	n := 0
	for _, s := range [...]string{"...", `\ldots`, `\dots`, `\cdots`, "…"} {
		if strings.HasPrefix(rest, s) {
			n = len(s)
		}
	}
	if n > 0 && fraction != "" && strings.Trim(rest[n:], " $}.") == "" {
		defer func() {
			if r == nil {
				l.pos += n // 2.83...: cut off
			}
		}()
	}
	if n == 0 || len(fraction) < 3 || len(fraction) > maxExp {
		return nil
	}
	for p := 1; 2*p <= len(fraction) && p <= 60; p++ { // the length of the period
		period := fraction[len(fraction)-p:]
		if !strings.HasSuffix(fraction, period+period) || p == 1 && !strings.HasSuffix(fraction, period+period+period) {
			continue
		}
		l.pos += n
		return repeating(period, fraction)
	}
	return nil
}

var exponents = regexp.MustCompile(`^[eE][+-]?\d+`)

// exponent reads the e-7 of 4.0e-7 and scales n by it. Letters or decimals behind it mean that e is a letter.
func (l *lexer) exponent(n *numeral) {
	i := len(exponents.FindString(l.src[l.pos:]))
	l.steps += i
	if i == 0 || isLetter(l.peek(i)) || l.peek(i) == '.' && isDigit(l.peek(i+1)) {
		return
	}
	text := l.src[l.pos+1 : l.pos+i]
	l.pos += i
	exp, err := strconv.Atoi(strings.TrimLeft(text, "+-"))
	if err != nil || exp > maxExp {
		l.err = errLimit
		return
	}
	scale := new(big.Rat).SetInt(tenTo(exp))
	if text[0] == '-' {
		scale.Inv(scale)
	}
	n.value.Mul(n.value, scale)
	n.digitsOnly = false
}
