package tokenize

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits so that a hostile pattern cannot take all memory or time.
const (
	maxProgram = 20000 // instructions, and copies made for counted repeats
	maxNesting = 100
	maxRepeat  = 1000
	// itemsPerStep items of a class count as an instruction, since each is tried.
	itemsPerStep = 16
)

// A compiler parses an expression into parts, which then write the program from its
// end to its beginning: each part needs to know the instruction after it. It gives up by
// panicking with a badPattern, which compile returns as an error.
type compiler struct {
	rest  string // text that is not parsed yet
	depth int    // depth of groups
	fold  bool   // inside (?i: )
	prog  []inst
	size  int // instructions, and copies of parts
	items int // number of items of the class parsed last
}

// A part writes instructions that continue at next and returns the first of them.
type part func(next int) (start int)

// A badPattern says what is wrong with an expression.
type badPattern string

func fail(format string, args ...any) { panic(badPattern(fmt.Sprintf(format, args...))) }

// failIf calls fail if the condition holds.
func failIf(wrong bool, format string, args ...any) {
	if wrong {
		fail(format, args...)
	}
}

// compile parses expr; errors quote it.
func compile(expr string) (p *pattern, err error) {
	c := &compiler{rest: expr}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case badPattern:
			p, err = nil, fmt.Errorf("pattern %.200q, offset %d: %s", expr, len(expr)-len(c.rest), string(r))
		default:
			panic(r)
		}
	}()
	whole := c.alternatives()
	if c.rest != "" {
		fail("unexpected %q", c.rest[:1])
	}
	p = &pattern{start: whole(c.emit(inst{op: opMatch}))} // it writes the program, from its end
	if c.size > maxProgram {
		return nil, fmt.Errorf("pattern %.200q: longer than %d instructions", expr, maxProgram)
	}
	p.prog = c.prog
	p.pool.New = func() any { return newMachine(p) }
	return p, nil
}

// emit adds an instruction and returns its index; above the limit it only counts.
func (c *compiler) emit(in inst) int {
	if c.size += 1 + in.items/itemsPerStep; c.size > maxProgram {
		return 0
	}
	c.prog = append(c.prog, in)
	return len(c.prog) - 1
}

func (c *compiler) accept(prefix string) bool {
	rest, ok := strings.CutPrefix(c.rest, prefix)
	c.rest = rest
	return ok
}

// alternatives parses a|b|c up to a closing parenthesis or the end.
func (c *compiler) alternatives() part {
	c.depth++
	failIf(c.depth > maxNesting, "nested deeper than %d", maxNesting)
	defer func() { c.depth-- }()
	var choices []part
	for {
		choices = append(choices, c.sequence())
		if !c.accept("|") {
			break
		}
	}
	return func(next int) int {
		last := len(choices) - 1
		start := choices[last](next)
		for i := last - 1; i >= 0; i-- {
			start = c.emit(inst{op: opSplit, x: choices[i](next), y: start})
		}
		return start
	}
}

// sequence parses atoms with their quantifiers, up to | or a closing parenthesis.
func (c *compiler) sequence() part {
	var parts []part
	for c.rest != "" && c.rest[0] != '|' && c.rest[0] != ')' {
		parts = append(parts, c.quantified(c.atom()))
	}
	return func(next int) int {
		for i := len(parts) - 1; i >= 0; i-- {
			next = parts[i](next)
		}
		return next
	}
}

// quantified parses what may follow p: ? * + {m} {m,} {m,n}. A count becomes copies of p, least that must match and
// then those that may; no limit is a loop.
func (c *compiler) quantified(p part) part {
	least, most := 1, 1 // most < 0: no limit
	switch {
	case c.accept("?"):
		least = 0
	case c.accept("*"):
		least, most = 0, -1
	case c.accept("+"):
		most = -1
	case strings.HasPrefix(c.rest, "{"):
		counts, rest, ok := strings.Cut(c.rest[1:], "}")
		least, most, ok = repeatCounts(counts, ok)
		failIf(!ok, "want a repeat count of at most %d", maxRepeat)
		c.rest = rest
	default:
		return p
	}
	if c.rest != "" && strings.Contains("?*+{", c.rest[:1]) {
		fail("a quantifier after a quantifier (lazy, possessive) is not supported")
	}
	return func(next int) int {
		start := next
		if most < 0 {
			loop := c.emit(inst{op: opSplit, y: next})
			body := p(loop)
			if c.size <= maxProgram { // else the instruction was not written
				c.prog[loop].x = body
			}
			start = loop
		}
		for i := 0; i < most-least && c.size <= maxProgram; i++ {
			start = c.emit(inst{op: opSplit, x: p(start), y: next})
		}
		for i := 0; i < least && c.size <= maxProgram; i++ {
			c.size++ // a copy counts even if it has no instructions
			start = p(start)
		}
		return start
	}
}

// repeatCounts reads the counts of {m}, {m,} or {m,n}; most is -1 without a limit. closed says whether there was a }.
func repeatCounts(counts string, closed bool) (least, most int, ok bool) {
	low, high, isRange := strings.Cut(counts, ",")
	least, err := strconv.Atoi(low)
	most = least
	if isRange && err == nil {
		most = -1
		if high != "" {
			most, err = strconv.Atoi(high)
			closed = closed && most >= least
		}
	}
	return least, most, closed && err == nil && least >= 0 && least <= maxRepeat && most <= maxRepeat
}

// atom parses a group, a lookahead or one character.
func (c *compiler) atom() part {
	switch {
	case c.accept("(?!"):
		return c.lookahead(opUnless)
	case c.accept("(?="):
		return c.lookahead(opAhead)
	case c.accept("(?i:"):
		outer := c.fold
		c.fold = true
		p := c.group()
		c.fold = outer
		return p
	case c.accept("(?:"):
		return c.group()
	case strings.HasPrefix(c.rest, "(?"):
		fail("this kind of group is not supported")
	case c.accept("("):
		return c.group()
	}
	return c.one(opChar)
}

// one parses an expression for one character.
func (c *compiler) one(op op) part {
	s := c.character()
	items := c.items
	return func(next int) int { return c.emit(inst{op: op, set: s, items: items, x: next}) }
}

func (c *compiler) group() part {
	p := c.alternatives()
	failIf(!c.accept(")"), "missing )")
	return p
}

func (c *compiler) lookahead(op op) part {
	p := c.one(op)
	failIf(!c.accept(")"), "a lookahead must be of one character")
	return p
}

// character parses what matches one character: a class or a literal.
func (c *compiler) character() set {
	c.items = 0 // class counts its items
	failIf(c.rest == "", "unexpected end")
	switch c.rest[0] {
	case '[':
		c.rest = c.rest[1:]
		return c.class()
	case '.':
		c.rest = c.rest[1:]
		return not(only('\n'))
	case '^', '$', '*', '+', '?', '{', ')':
		fail("unexpected %q", c.rest[:1])
	case '\\':
		if s := c.escapedClass(); s != nil {
			return s
		}
	}
	return c.single(c.literalRune())
}

// class parses characters, ranges and escaped classes from behind "[" to "]". Oniguruma's && and nested classes are errors.
func (c *compiler) class() set {
	negated := c.accept("^")
	var sets []set
	for first := true; ; first = false {
		switch {
		case c.rest == "":
			fail("missing ]")
		case !first && c.accept("]"): // a first ] stands for itself
			union := func(r rune) bool { return slices.ContainsFunc(sets, func(s set) bool { return s(r) }) }
			if negated {
				return not(union)
			}
			return union
		case strings.HasPrefix(c.rest, "[") || strings.HasPrefix(c.rest, "&&"):
			fail("a class within a class is not supported")
		}
		c.items++
		failIf(c.items > maxProgram, "a class of more than %d items", maxProgram)
		if s := c.escapedClass(); s != nil {
			sets = append(sets, s)
			continue
		}
		low := c.literalRune()
		if len(c.rest) < 2 || c.rest[0] != '-' || c.rest[1] == ']' { // no range
			sets = append(sets, c.single(low))
			continue
		}
		c.rest = c.rest[1:]
		high := c.literalRune()
		if high < low {
			fail("empty range %q-%q", low, high)
		}
		sets = append(sets, c.between(low, high))
	}
}

// escapedClass parses an escaped class such as \s or \p{L}; it returns nil if the next characters are not one.
func (c *compiler) escapedClass() set {
	switch {
	case c.accept(`\s`):
		return unicode.IsSpace
	case c.accept(`\S`):
		return not(unicode.IsSpace)
	case c.accept(`\d`):
		return in(unicode.Nd)
	case c.accept(`\D`):
		return not(in(unicode.Nd))
	case c.accept(`\p{`):
		return c.property(false)
	case c.accept(`\P{`):
		return c.property(true)
	}
	return nil
}

// property parses NAME} of \p{NAME}: a category or a script of Unicode.
func (c *compiler) property(negated bool) set {
	name, rest, ok := strings.Cut(c.rest, "}")
	failIf(!ok, "missing }")
	if strings.HasPrefix(name, "^") {
		name, negated = name[1:], !negated
	}
	var table *unicode.RangeTable
	switch name {
	case "L":
		table = letters // of the reference's version of Unicode, not of Go's
	case "N":
		table = numbers
	default:
		if table = unicode.Categories[name]; table == nil {
			table = unicode.Scripts[name]
		}
	}
	failIf(table == nil, "unknown class \\p{%.40s}", name)
	c.rest = rest
	if negated {
		return not(in(table))
	}
	return in(table)
}

// controls are the characters that a letter behind a backslash stands for.
var controls = map[rune]rune{'n': '\n', 'r': '\r', 't': '\t', 'v': '\v', 'f': '\f'}

// literalRune parses one character that stands for itself.
func (c *compiler) literalRune() rune {
	escaped := c.accept(`\`)
	r, n := utf8.DecodeRuneInString(c.rest)
	failIf(n == 0, "unexpected end")
	c.rest = c.rest[n:]
	if !escaped {
		return r
	}
	if control, ok := controls[r]; ok {
		return control
	}
	if r == 'x' || r == 'u' {
		return c.codePoint(r)
	}
	if r >= utf8.RuneSelf || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z' {
		fail("\\%c is not supported", r)
	}
	return r
}

// codePoint parses the rest of \xHH, \x{H...} or \uHHHH.
func (c *compiler) codePoint(kind rune) rune {
	digits := map[rune]int{'x': 2, 'u': 4}[kind]
	text, rest := "", ""
	if kind == 'x' && c.accept("{") {
		text, rest, _ = strings.Cut(c.rest, "}")
	} else if len(c.rest) >= digits {
		text, rest = c.rest[:digits], c.rest[digits:]
	}
	code, err := strconv.ParseUint(text, 16, 21)
	failIf(err != nil || !utf8.ValidRune(rune(code)), "bad code point \\%c%.40s", kind, text)
	c.rest = rest
	return rune(code)
}

// single returns the set of r, or of r in upper and lower case inside (?i: ).
func (c *compiler) single(r rune) set { return c.between(r, r) }

// between returns the set of low to high or, inside (?i: ), of all characters that fold to one of these.
func (c *compiler) between(low, high rune) set {
	if !c.fold {
		return func(r rune) bool { return low <= r && r <= high }
	}
	return func(r rune) bool {
		for f := unicode.SimpleFold(r); ; f = unicode.SimpleFold(f) {
			if low <= f && f <= high {
				return true
			}
			if f == r {
				return false
			}
		}
	}
}

func only(want rune) set { return func(r rune) bool { return r == want } }

func not(s set) set { return func(r rune) bool { return !s(r) } }

func in(t *unicode.RangeTable) set { return func(r rune) bool { return unicode.Is(t, r) } }
