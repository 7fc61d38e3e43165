package tokenize

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A cutter returns the next piece of s at or behind i, which is less than len(s). The text
// between i and start is left out; without a further piece, start and end are len(s).
type cutter func(s string, i int) (start, end int)

// A finder returns the leftmost match in s at or behind from; without one, start and end are len(s).
type finder func(s string, from int) (start, end int)

// The patterns of well-known tokenizers. In cutQwen, each alternative of qwenPattern has a comment.
const (
	qwenPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	gptPattern  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

// newFinder returns the finder of an expression.
func newFinder(pattern string) (finder, error) {
	if pattern == qwenPattern {
		return func(s string, i int) (start, end int) { return i, cutQwen(s, i) }, nil
	}
	p, err := compile(pattern)
	if err != nil {
		return nil, err
	}
	return p.find, nil
}

// literalFinder returns the finder of a text.
func literalFinder(text string) finder {
	return func(s string, from int) (start, end int) {
		if at := strings.Index(s[from:], text); at >= 0 {
			return from + at, from + at + len(text)
		}
		return len(s), len(s)
	}
}

// isolated cuts before and behind each match.
func (find finder) isolated(s string, i int) (start, end int) {
	end, _ = find.part(s, i)
	return i, end
}

// part returns the end of the match at i, or of the text at i before the next match.
func (find finder) part(s string, i int) (end int, match bool) {
	start, end := find(s, i)
	if start > i {
		return start, false
	}
	return end, true
}

// cutter returns what a Split stage does with the matches, by the behaviors of the
// reference; with invert, the texts between the matches count as matches.
func (find finder) cutter(behavior string, invert bool) (cutter, error) {
	// joined cuts parts, each a match or a text between two: with first, a match and the text behind it are one piece,
	// without it a text and the match behind it.
	joined := func(first bool) cutter {
		return func(s string, i int) (start, end int) {
			end, match := find.part(s, i)
			if end < len(s) && match == first {
				if after, next := find.part(s, end); next != first {
					end = after
				}
			}
			return i, end
		}
	}
	switch behavior {
	case "Isolated":
		return find.isolated, nil
	case "MergedWithPrevious":
		return joined(invert), nil
	case "MergedWithNext":
		return joined(!invert), nil
	case "Contiguous":
		return func(s string, i int) (start, end int) {
			end, match := find.part(s, i)
			for next := match; end < len(s) && next == match; {
				var after int
				if after, next = find.part(s, end); next == match {
					end = after
				}
			}
			return i, end
		}, nil
	case "Removed":
		return func(s string, i int) (start, end int) {
			for ; i < len(s); i = end {
				var match bool
				if end, match = find.part(s, i); match == invert {
					return i, end
				}
			}
			return i, i
		}, nil
	}
	return nil, fmt.Errorf("the behavior %q of Split is not known (have Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous)", behavior)
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

// kindOf returns the kind of a character, as the classes of the reference's pattern have it.
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

// cutQwen returns the end of the match of qwenPattern at i (it matches at every place), written by hand because it is
// many times faster than any expression (see the package comment).
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

// cutSpace is cutQwen for white space that no earlier alternative of qwenPattern matches.
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
