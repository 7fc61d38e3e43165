package latex

import "math/big"

// kind is the kind of a token.
type kind uint8

const (
	end     kind = iota
	number       // num
	word         // a run of letters; text or roman say where it stood
	command      // text is the name without its backslash
	sign         // one character of punctuation, or a relation by its name
	newline      // \\
	quad         // \quad: perhaps between two statements
)

// A token is one lexical element.
type token struct {
	kind        kind
	text        string
	num         *numeral
	spaceBefore bool // white space precedes it
	inText      bool // it is inside \text{}: words are words
	inRoman     bool // it is inside \mathrm{} or the like
	at          int  // byte offset in the source
	isRest      bool // the rest of a word whose first letters were used
	symbolic    bool // a connective written as a sign, \land
	isCross     bool // a product written as a cross, \times
}

func (t token) is(text string) bool { return t.kind == sign && t.text == text }

// cmd reports whether t is the command \name.
func (t token) cmd(name string) bool { return t.kind == command && t.text == name }

// A numeral is a number as written.
type numeral struct {
	value      *big.Rat
	digits     int    // number of significant digits
	places     int    // digits after the point; -1 without a point
	digitsOnly bool   // an unsigned integer without separators ...
	text       string // ... and its digits
}

// nesting is 1 for a bracket that opens, -1 for one that closes, 0 for other tokens.
func (t token) nesting() int {
	switch {
	case t.is("("), t.is("["), t.is("{"), t.is("{:"):
		return 1
	case t.is(")"), t.is("]"), t.is("}"), t.is(":}"):
		return -1
	}
	return 0
}
