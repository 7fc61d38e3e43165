package latex

import (
	"errors"
	"slices"
)

// Limits on input. They are far above any honest answer and keep the worst case within milliseconds.
const (
	maxBytes     = 100_000 // bytes of source
	maxTokens    = 8_000
	maxDepth     = 200    // depth of nesting
	maxDigits    = 20_000 // digits of one numeral
	maxTreeDepth = 400    // depth of a tree: a/b/c/... nests without brackets
	maxLetters   = 40     // letters of a word that may be a product of variables
	maxVariables = 8_000  // letters that stand for variables
	maxExp       = 5_000  // decimal exponent of 1e5
)

// errLimit is the error of Parse for a text that is too long, too deep, or has too large a numeral.
var errLimit = errors.New("latex: text exceeds the limits of the parser")

// errSyntax is the parser's error; the text is then kept as words.
var errSyntax = errors.New("latex: not an expression")

// deeper reports whether n is more than the given number of levels deep.
func deeper(n *Node, levels int) bool {
	return n != nil && (levels == 0 || slices.ContainsFunc(n.Args, func(arg *Node) bool { return deeper(arg, levels-1) }))
}
