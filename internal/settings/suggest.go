package settings

import (
	"fmt"
	"strings"
)

// closest returns the candidate that word is probably a misspelling of: the one
// with the smallest edit distance, if at most a third of the letters differ, or
// else the first one that begins with word, of three letters or more. Case makes no difference.
func closest(word string, candidates []string) (string, bool) {
	best, found := "", false
	word = strings.ToLower(word)
	limit := max(1, len(word)/3)
	for _, c := range candidates {
		if d := editDistance(word, strings.ToLower(c)); d <= limit {
			best, found, limit = c, true, d-1
		}
	}
	for _, c := range candidates {
		if !found && len(word) >= 3 && strings.HasPrefix(strings.ToLower(c), word) {
			return c, true
		}
	}
	return best, found
}

// DidYouMean suggests the candidate that word is probably a misspelling of, as the end
// of a message. It returns "" if no candidate resembles word.
func DidYouMean(word string, candidates []string) string {
	if c, ok := closest(word, candidates); ok {
		return fmt.Sprintf("; did you mean %q?", c)
	}
	return ""
}

// editDistance counts the insertions, deletions, replacements and swaps of neighbours that turn a into b, byte by
// byte (optimal string alignment).
func editDistance(a, b string) int {
	// before, last and row are the table's rows i-2, i-1 and i.
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(replace, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
