package tokenize

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// An addedToken is an entry of added_tokens in tokenizer.json: a text that is found
// before the text around it is split, and becomes one id.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no word character is next to it
	LStrip     bool   `json:"lstrip"`      // includes the white space before it
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"` // searched in the normalized text
	Special    bool   `json:"special"`    // left out by Decode with skipSpecial
}

// An addedSet finds added tokens in a text: the leftmost, and of several that begin
// there the longest.
type addedSet struct {
	tokens []addedToken
	// A trie: edges[node<<8|byte] is the next node, token[node] the token that
	// ends at node or -1; node 0 is the root.
	edges map[int]int
	token []int
	first [256]bool // bytes that begin a token
}

func (a *addedSet) add(t addedToken) {
	if a.edges == nil {
		a.edges, a.token = map[int]int{}, []int{-1}
	}
	node := 0
	for i := range len(t.Content) {
		edge := node<<8 | int(t.Content[i])
		next, ok := a.edges[edge]
		if !ok {
			next = len(a.token)
			a.edges[edge], a.token = next, append(a.token, -1)
		}
		node = next
	}
	a.first[t.Content[0]] = true
	a.token[node] = len(a.tokens)
	a.tokens = append(a.tokens, t)
}

// find returns the first token at or after from, its start and end; ok is false if
// there is none.
func (a *addedSet) find(s string, from int) (t *addedToken, start, end int, ok bool) {
	for start = from; start < len(s); start++ {
		if !a.first[s[start]] {
			continue
		}
		for i, node := start, 0; i < len(s); {
			next, edge := a.edges[node<<8|int(s[i])]
			if !edge {
				break
			}
			i, node = i+1, next
			if n := a.token[node]; n >= 0 {
				t, end = &a.tokens[n], i
			}
		}
		if t != nil {
			return t, start, end, true
		}
	}
	return nil, 0, 0, false
}

// split calls, in order, between for the texts around the added tokens of s that
// are not empty, and found for the tokens.
func (a *addedSet) split(s string, between func(string), found func(id int32)) {
	done := 0
	for from := 0; len(a.tokens) > 0; {
		t, start, end, ok := a.find(s, from)
		if !ok {
			break
		}
		from = end
		if t.SingleWord && (endsWithWord(s[:start]) || startsWithWord(s[end:])) {
			continue
		}
		if t.LStrip {
			start = max(done, len(strings.TrimRightFunc(s[:start], unicode.IsSpace)))
		}
		if t.RStrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
		}
		if start > done {
			between(s[done:start])
		}
		found(t.ID)
		done = end
	}
	if done < len(s) {
		between(s[done:])
	}
}

func endsWithWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && isWord(r)
}

func startsWithWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isWord(r)
}

// isWord is \w as the reference defines it for added tokens (UTS 18), except for
// marks that Go's version of Unicode does not have yet.
func isWord(r rune) bool {
	return unicode.Is(letters, r) || unicode.Is(numbers, r) && !unicode.Is(unicode.No, r) ||
		unicode.In(r, unicode.M, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}
