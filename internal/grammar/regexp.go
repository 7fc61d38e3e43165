package grammar

import (
	"bytes"
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode"
)

// Regexp is the form of the texts that an expression matches from their beginning to their
// end, in the syntax of package regexp.
func Regexp(expression string) (Form, error) { return expressionForm(expression, true, plain) }

// An alphabet is how a range of characters is written.
type alphabet struct {
	name  string
	write func(b *builder, lo, hi rune, next int) (first []int)
}

var (
	plain    = alphabet{"plain", writePlain}
	inString = alphabet{"string", writeInString}
)

// writePlain writes characters as they are. Halves of surrogate pairs have no UTF-8.
func writePlain(b *builder, lo, hi rune, next int) (first []int) {
	for _, alike := range [][2]rune{{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, unicode.MaxRune}} { // as long
		if from, to := max(lo, alike[0]), min(hi, alike[1]); from <= to {
			first = append(first, b.encoded([]byte(string(from)), []byte(string(to)), next)...)
		}
	}
	return first
}

// encoded adds nodes that read the UTF-8 of the characters from lo to hi, whose encodings have the same length, or what
// is left of them behind equal first bytes. It returns the nodes that read the first bytes.
func (b *builder) encoded(lo, hi []byte, next int) []int {
	if len(lo) == 0 {
		return []int{next}
	}
	read := func(from, to byte, lo, hi []byte) int {
		return b.add(node{lo: from, hi: to, next: b.fork(b.encoded(lo, hi, next)...)})
	}
	if lo[0] == hi[0] {
		return []int{read(lo[0], lo[0], lo[1:], hi[1:])}
	}
	n := len(lo) - 1
	least, most := bytes.Repeat([]byte{0x80}, n), bytes.Repeat([]byte{0xbf}, n) // any bytes that go on a character
	first := []int{read(lo[0], lo[0], lo[1:], most), read(hi[0], hi[0], least, hi[1:])}
	if lo[0]+1 < hi[0] {
		first = append(first, read(lo[0]+1, hi[0]-1, least, most))
	}
	return first
}

// characters reads one character of some ranges, pairs of the first and the last. Many ranges become a rule, which the
// automaton has once.
func characters(ranges []rune, written alphabet) Form {
	one := func(b *builder, next int) int {
		var to []int
		for i := 0; i < len(ranges); i += 2 {
			to = append(to, written.write(b, ranges[i], ranges[i+1], next)...)
		}
		return b.fork(to...)
	}
	if len(ranges) <= 8 {
		return one
	}
	return rule(fmt.Sprint(written.name, ranges), one)
}

// expressionForm is the form of what an expression matches: of whole texts, or, if whole is false, of texts that
// have a match in them, and then ^ and $ are where a text begins and ends.
func expressionForm(expression string, whole bool, written alphabet) (Form, error) {
	re, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, err
	}
	return anchored(re, whole, written)
}

// anchored is the form of an expression that may have anchors at its ends; written says how a character is written, such
// as with JSON's escapes. Where an end has no anchor and whole is false, any text may stand beside the match.
func anchored(re *syntax.Regexp, whole bool, written alphabet) (Form, error) {
	switch re.Op {
	case syntax.OpCapture:
		return anchored(re.Sub[0], whole, written)
	case syntax.OpAlternate:
		return forms(re.Sub, OneOf, func(x *syntax.Regexp) (Form, error) { return anchored(x, whole, written) })
	}
	parts := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		parts = re.Sub
	}
	begins, ends := whole, whole // the match begins, or ends, the text
	for len(parts) > 0 && parts[0].Op == syntax.OpBeginText {
		begins, parts = true, parts[1:]
	}
	for n := len(parts) - 1; n >= 0 && parts[n].Op == syntax.OpEndText; n-- {
		ends, parts = true, parts[:n]
	}
	f, err := forms(parts, Join, func(x *syntax.Regexp) (Form, error) { return matched(x, written) })
	around := repeat(characters([]rune{0, unicode.MaxRune}, written), 0, -1, empty)
	if !begins {
		f = Join(around, f)
	}
	if !ends {
		f = Join(f, around)
	}
	return f, err
}

// forms combines the forms of several parts.
func forms[T any](parts []T, combine func(...Form) Form, of func(T) (Form, error)) (Form, error) {
	var list []Form
	for _, x := range parts {
		f, err := of(x)
		if err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	return combine(list...), nil
}

// matched is the form of a part of an expression, which has no anchors; written says how a character is written, such as
// with JSON's escapes.
func matched(re *syntax.Regexp, written alphabet) (Form, error) {
	part := func(x *syntax.Regexp) (Form, error) { return matched(x, written) }
	least, most := 0, -1 // of the repetitions, whose operators are the last cases; -1: no bound
	switch re.Op {
	case syntax.OpEmptyMatch:
		return empty, nil
	case syntax.OpLiteral:
		return forms(re.Rune, Join, func(r rune) (Form, error) {
			ranges := []rune{r, r} // and the other cases of r, if the expression does not tell them apart
			for other := unicode.SimpleFold(r); re.Flags&syntax.FoldCase != 0 && other != r; other = unicode.SimpleFold(other) {
				ranges = append(ranges, other, other)
			}
			return characters(ranges, written), nil
		})
	case syntax.OpCharClass:
		return characters(re.Rune, written), nil
	case syntax.OpAnyCharNotNL:
		return characters([]rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune}, written), nil
	case syntax.OpAnyChar:
		return characters([]rune{0, unicode.MaxRune}, written), nil
	case syntax.OpConcat:
		return forms(re.Sub, Join, part)
	case syntax.OpAlternate:
		return forms(re.Sub, OneOf, part)
	case syntax.OpCapture:
		return part(re.Sub[0])
	case syntax.OpStar:
	case syntax.OpPlus:
		least = 1
	case syntax.OpQuest:
		most = 1
	case syntax.OpRepeat:
		least, most = re.Min, re.Max
	default:
		return nil, fmt.Errorf("%q cannot stand inside an expression: ^ stands at its beginning and $ at its end, and \\b nowhere", re)
	}
	f, err := part(re.Sub[0])
	if err != nil {
		return nil, err
	}
	return repeat(rule(re.Sub[0], f), least, most, empty), nil // a rule: the automaton has the nodes of f once
}

// The characters that have a short form in JSON strings, and the letters of these forms.
const shortened, short = "\"\\\b\f\n\r\t", `"\bfnrt`

// writeInString writes characters as a JSON string has them: in their short form if they have
// one, and other control characters not at all.
func writeInString(b *builder, lo, hi rune, next int) (first []int) {
	for i, c := range shortened {
		if lo <= c && c <= hi {
			first = append(first, literal(`\`+short[i:i+1])(b, next))
		}
	}
	for _, free := range [][2]rune{{' ', '!'}, {'#', '['}, {']', unicode.MaxRune}} {
		if from, to := max(lo, free[0]), min(hi, free[1]); from <= to {
			first = append(first, writePlain(b, from, to, next)...)
		}
	}
	return first
}

// quoted is a text as JSON has it.
func quoted(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch i := strings.IndexRune(shortened, r); {
		case i >= 0:
			b.WriteString(`\` + short[i:i+1])
		case r < ' ':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}
