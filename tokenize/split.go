package tokenize

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A cutter returns the end of the piece of s that begins at i; i is less than len(s).
type cutter func(s string, i int) (end int)

// The patterns of well-known tokenizers. In cutQwen, each alternative of qwenPattern
// has a comment.
const (
	qwenPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	gptPattern  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

// newCutter returns the cutter of a Split pre-tokenizer with this pattern and the
// behavior Isolated: matches are pieces, and so are the texts between them.
func newCutter(pattern string) (cutter, error) {
	if pattern == qwenPattern {
		return cutQwen, nil
	}
	p, err := compile(pattern)
	if err != nil {
		return nil, err
	}
	return p.cutter(), nil
}

// literal returns the cutter of a Split whose pattern is a text.
func literal(text string) cutter {
	return func(s string, i int) int {
		switch at := strings.Index(s[i:], text); {
		case at < 0:
			return len(s)
		case at > 0:
			return i + at
		}
		return i + len(text)
	}
}

func (p *pattern) cutter() cutter {
	return func(s string, i int) int {
		start, end := p.find(s, i)
		if start > i {
			return start // the text before the match
		}
		return end
	}
}

// The kinds of characters that qwenPattern distinguishes.
type kind uint8

const (
	other   kind = iota // [^\s\p{L}\p{N}]
	letter              // \p{L}
	number              // \p{N}
	space               // \s but not newline
	newline             // [\r\n]
)

var asciiKinds = func() (kinds [utf8.RuneSelf]kind) {
	for c := range kinds {
		kinds[c] = kindOf(rune(c))
	}
	return kinds
}()

func kindOf(r rune) kind {
	switch {
	case r == '\r' || r == '\n':
		return newline
	case unicode.Is(letters, r):
		return letter
	case unicode.Is(numbers, r):
		return number
	case unicode.IsSpace(r): // the 25 characters of \s in the reference
		return space
	}
	return other
}

// kindAt returns the kind of the character at i and the index after it.
func kindAt(s string, i int) (kind, int) {
	if c := s[i]; c < utf8.RuneSelf {
		return asciiKinds[c], i + 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return kindOf(r), i + n
}

// skip returns the end of the run of characters of kind k at i.
func skip(s string, i int, k kind) int {
	for i < len(s) {
		got, after := kindAt(s, i)
		if got != k {
			break
		}
		i = after
	}
	return i
}

// cutQwen is the cutter of qwenPattern, written by hand because it is many times
// faster than any expression (see the package comment).
func cutQwen(s string, i int) int {
	k, after := kindAt(s, i)
	if s[i] == '\'' {
		// (?i:'s|'t|'re|'ve|'m|'ll|'d)
		if n := len(contraction.FindString(s[i:min(i+4, len(s))])); n > 0 {
			return i + n
		}
	}
	// [^\r\n\p{L}\p{N}]?\p{L}+
	if k == letter {
		return skip(s, after, letter)
	}
	// \p{N}
	if k == number {
		return after
	}
	if k != newline && after < len(s) {
		next, afterNext := kindAt(s, after)
		if next == letter {
			return skip(s, afterNext, letter)
		}
		// The space of  ?[^\s\p{L}\p{N}]+[\r\n]*
		if s[i] == ' ' && next == other {
			return skip(s, skip(s, afterNext, other), newline)
		}
	}
	if k == other {
		return skip(s, skip(s, after, other), newline)
	}
	return cutSpace(s, i)
}

// cutSpace is the cutter for white space that no earlier alternative of qwenPattern
// matches.
func cutSpace(s string, i int) int {
	end, afterNewline, last := i, 0, i
	for end < len(s) {
		k, after := kindAt(s, end)
		if k != space && k != newline {
			break
		}
		last, end = end, after
		if k == newline {
			afterNewline = end
		}
	}
	switch {
	case afterNewline > 0: // \s*[\r\n]+ ends after the last newline
		return afterNewline
	case end < len(s) && last > i: // \s+(?!\S) ends before the last space
		return last
	}
	return end // \s+
}

// contraction matches an English one. U+017F counts as an s in either case.
var contraction = regexp.MustCompile(`^(?i:'s|'t|'re|'ve|'m|'ll|'d)`)
