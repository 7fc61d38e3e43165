package latex

import "errors"

// Limits on what is read. They are far above any honest answer and keep the
// worst case within milliseconds.
const (
	maxBytes  = 100_000 // of source
	maxTokens = 8_000
	maxDepth  = 200    // of nesting
	maxDigits = 20_000 // of one numeral
	maxExp    = 5_000  // decimal exponent of 1e5
)

// ErrLimit is what Parse returns for a text that is too long, too deep, or
// holds too large a numeral.
var ErrLimit = errors.New("latex: text exceeds the limits of the parser")

// errSyntax is what the parser gives up with; the text is then kept as words.
var errSyntax = errors.New("latex: not an expression")
