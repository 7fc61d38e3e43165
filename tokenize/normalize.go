package tokenize

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc returns the NFC of s, which must be valid UTF-8, as the reference
// computes it. That is the NFC of x/text with two differences:
//
//   - the Unicode data of the reference are older and do not have the characters
//     in inert: they neither move nor compose, and marks do not move past them;
//   - x/text breaks up more than 30 marks in a row with U+034F (the Stream-Safe
//     format of UAX 15), the reference does not.
func nfc(s string) string {
	// Below U+0300 everything is in NFC; 0xCC begins the first character from there on.
	low := 0
	for low < len(s) && s[low] < 0xCC {
		low++
	}
	// A text that is in NFC for x/text is so for the reference, too: the inert
	// characters only split it into parts, and parts of a normal text are normal.
	if low == len(s) || norm.NFC.IsNormalString(s) {
		return s
	}
	dst := make([]byte, 0, len(s)+16)
	for i := 0; i < len(s); {
		normal := quickSpan(s, i) // the end of what is in NFC, whatever follows
		dst = append(dst, s[i:normal]...)
		if i = normal; i == len(s) {
			break
		}
		end, runes := cluster(s, i)
		switch {
		case runes == 0: // an inert character
			dst = append(dst, s[i:end]...)
		case runes <= safeCluster:
			dst = append(dst, norm.NFC.String(s[i:end])...)
		default:
			dst = appendCluster(dst, s[i:end])
		}
		i = end
	}
	return string(dst)
}

// quickSpan returns the end of a part of the text from i that is in NFC, whatever follows it.
func quickSpan(s string, i int) int {
	end := i + norm.NFC.QuickSpanString(s[i:])
	if end == len(s) {
		return end
	}
	// x/text also stops inside a long run of marks: go back to its beginning.
	for end > i && !boundary(s[end:]) {
		_, n := utf8.DecodeLastRuneInString(s[:end])
		end -= n
	}
	return end
}

// boundary reports whether the first character of s neither moves before the text in front of it nor composes with it.
func boundary(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return r < 0x300 || norm.NFC.PropertiesString(s).BoundaryBefore() || unicode.Is(inert, r)
}

// A cluster of this many characters has at most 3 times as many marks, under the 30 that x/text leaves together.
const safeCluster = 8

// cluster returns the end of the shortest text from i that normalizes by
// itself, and its length in characters; 0 for a single inert character.
func cluster(s string, i int) (end, runes int) {
	for end = i; end < len(s) && (runes == 0 || !boundary(s[end:])); runes++ {
		r, n := utf8.DecodeRuneInString(s[end:])
		end += n
		if runes == 0 && unicode.Is(inert, r) {
			return end, 0
		}
	}
	return end, runes
}

// appendCluster appends the NFC of one cluster of any length by the three steps of the Unicode Standard,
// section 3.11: decompose, sort the marks, compose. Single characters and pairs are x/text's.
func appendCluster(dst []byte, s string) []byte {
	type char struct {
		r   rune
		ccc uint8 // canonical combining class; 0 for a starter
	}
	var chars []char
	for _, r := range s {
		for _, d := range norm.NFD.String(string(r)) {
			chars = append(chars, char{d, norm.NFC.PropertiesString(string(d)).CCC()})
		}
	}
	for i := 0; i < len(chars); i++ {
		end := i
		for end < len(chars) && chars[end].ccc != 0 {
			end++
		}
		slices.SortStableFunc(chars[i:end], func(a, b char) int { return int(a.ccc) - int(b.ccc) })
		i = end
	}
	starter := -1 // index in out of the character with which marks compose
	out := chars[:0]
	for _, c := range chars {
		if starter >= 0 {
			// A mark that was kept blocks others of its class; classes ascend here.
			last := len(out) - 1
			if last == starter || out[last].ccc < c.ccc {
				if pair := []rune(norm.NFC.String(string([]rune{out[starter].r, c.r}))); len(pair) == 1 {
					out[starter].r = pair[0]
					continue
				}
			}
		}
		if c.ccc == 0 {
			starter = len(out)
		}
		out = append(out, c)
	}
	for _, c := range out {
		dst = utf8.AppendRune(dst, c.r)
	}
	return dst
}
