package grammar

import (
	"slices"
	"unicode"
)

// Forms of JSON. Between its marks stand at most a blank, or the beginning of a line, so that a
// model neither stays there nor has to write all in one line.
var (
	space = rule("space", OneOf(empty, literal(" "), Join(literal("\n"), repeat(characters([]rune{' ', ' ', '\t', '\t'}, plain), 0, 20, empty))))
	comma = Join(literal(","), space)
	colon = Join(literal(":"), space)

	character = rule("character", characters([]rune{0, unicode.MaxRune}, inString))
	text      = quotedForm(repeat(character, 0, -1, empty))
	number    = mustRegexp(`-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?`)
	boolean   = OneOf(literal("true"), literal("false"))
	null      = literal("null")
)

func mustRegexp(expression string) Form {
	f, err := Regexp(expression)
	if err != nil {
		panic(err)
	}
	return f
}

func quotedForm(inside Form) Form { return Join(literal(`"`), inside, literal(`"`)) }

// value is any JSON value.
func value(b *builder, next int) int {
	return rule("value", func(b *builder, next int) int {
		return OneOf(list("{", "}", pair(text, value), 0, -1), list("[", "]", value, 0, -1), text, number, boolean, null)(b, next)
	})(b, next)
}

func pair(key, value Form) Form { return Join(key, colon, value) }

// list is from least to most items between brackets.
func list(opens, closes string, item Form, least, most int) Form {
	var some []Form
	if least <= 0 {
		some = append(some, literal(closes))
	}
	if most != 0 {
		some = append(some, Join(repeat(item, max(least, 1), most, comma), space, literal(closes)))
	}
	return Join(literal(opens), space, OneOf(some...))
}

// A property is a member of an object with a known name.
type property struct {
	name     string
	required bool
	pair     Form // with its name
}

// A punctuation is what stands around members and between them.
type punctuation struct{ opens, between, closes, closesEmpty Form }

var braces = punctuation{Join(literal("{"), space), comma, Join(space, literal("}")), literal("}")}

// members are properties, in their order.
func (p punctuation) members(properties []property) Form {
	return func(b *builder, next int) int {
		none, some := p.closesEmpty(b, next), p.closes(b, next) // where nothing was written yet, and behind a pair
		for _, x := range slices.Backward(properties) {
			first := x.pair(b, some)
			later := p.between(b, first)
			if !x.required {
				first, later = b.fork(first, none), b.fork(later, some)
			}
			none, some = first, later
		}
		return p.opens(b, none)
	}
}
