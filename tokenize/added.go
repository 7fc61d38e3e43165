package tokenize

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An addedToken is an entry of added_tokens in tokenizer.json: a text that is searched
// before other text is split, and becomes one id.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only if no word character is next to it
	LStrip     bool   `json:"lstrip"`      // includes the white space before it
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"` // searched in the normalized text
	Special    bool   `json:"special"`    // left out by Decode with skipSpecial
}

// An addedSet finds added tokens in a text: the leftmost, and among several that begin there the longest. Its
// work is linear in the text for any tokens: it reads the text once, from its end, in an Aho-Corasick automaton
// of the reversed tokens, which knows at each place the longest token that begins there.
type addedSet struct {
	tokens     []addedToken
	number     map[string]int // a token's number by its text
	firstBytes [256]bool      // bytes with which tokens begin

	// The automaton: edges[node<<8|byte] is the next node, and node 0 the root, whose edges are in rootEdges too.
	edges     map[int]int32
	rootEdges [256]int32
	nodes     []addedNode
}

// An addedNode is a node of the automaton: the end of a token's text as far as it has been read.
type addedNode struct {
	parent, depth int32
	fail          int32 // the node of the longest shorter text that this one begins with
	token         int32 // the longest token that begins here, -1 for none
	edge          byte  // the edge from parent
}

// maxAddedText bounds the added tokens of a tokenizer, in bytes: each takes some 50
// bytes of the automaton. The largest in use have about 100,000.
const maxAddedText = 4 << 20

// has reports whether a token of this text was added.
func (a *addedSet) has(text string) bool {
	_, ok := a.number[text]
	return ok
}

// add adds a token; among several with the same text the last one counts. Call build afterwards.
func (a *addedSet) add(t addedToken) {
	if n, twice := a.number[t.Content]; twice {
		a.tokens[n] = t
		return
	}
	if a.number == nil {
		a.number = map[string]int{}
	}
	a.number[t.Content] = len(a.tokens)
	a.tokens = append(a.tokens, t)
}

// build makes the automaton: a tree of the tokens' texts from their ends, and then, for each node, where to go on if no
// edge has the next byte (fail) and the longest token that begins there.
func (a *addedSet) build() error {
	total := 0
	for _, t := range a.tokens {
		total += len(t.Content)
	}
	if total > maxAddedText {
		return fmt.Errorf("added tokens of %d bytes in all, more than the %d of any tokenizer", total, maxAddedText)
	}
	a.edges, a.nodes = map[int]int32{}, []addedNode{{token: -1}}
	deepest := int32(0)
	for number, t := range a.tokens {
		a.firstBytes[t.Content[0]] = true
		at := int32(0)
		for i := len(t.Content) - 1; i >= 0; i-- {
			edge := int(at)<<8 | int(t.Content[i])
			next, ok := a.edges[edge]
			if !ok {
				next = int32(len(a.nodes))
				a.edges[edge] = next
				a.nodes = append(a.nodes, addedNode{parent: at, depth: a.nodes[at].depth + 1, token: -1, edge: t.Content[i]})
				if at == 0 {
					a.rootEdges[t.Content[i]] = next
				}
			}
			at = next
		}
		a.nodes[at].token = int32(number)
		deepest = max(deepest, a.nodes[at].depth)
	}
	// A node's fail is the step of its parent's fail by the same byte. Shorter texts come first, as that needs theirs.
	byDepth := make([][]int32, deepest+1)
	for n, node := range a.nodes {
		byDepth[node.depth] = append(byDepth[node.depth], int32(n))
	}
	for _, level := range byDepth[1:] {
		for _, n := range level {
			node := &a.nodes[n]
			if node.parent != 0 { // else its fail is the root, 0
				node.fail, _ = a.step(a.nodes[node.parent].fail, node.edge)
			}
			if node.token < 0 {
				node.token = a.nodes[node.fail].token
			}
		}
	}
	return nil
}

// step returns the node after reading one more byte, and how many edges it tried.
func (a *addedSet) step(at int32, by byte) (next int32, tried int) {
	for at != 0 {
		tried++
		if next, ok := a.edges[int(at)<<8|int(by)]; ok {
			return next, tried
		}
		at = a.nodes[at].fail
	}
	return a.rootEdges[by], tried + 1
}

// A foundToken is a place in a text and the longest token that begins there.
type foundToken struct{ start, token int }

// find returns the places in s where tokens begin, the last one first, and how many edges it tried.
func (a *addedSet) find(s string) (found []foundToken, tried int) {
	first := 0
	for first < len(s) && !a.firstBytes[s[first]] {
		first++
	}
	at := int32(0)
	for i := len(s) - 1; i >= first; i-- {
		next, n := a.step(at, s[i])
		at, tried = next, tried+n
		if a.nodes[at].token >= 0 {
			found = append(found, foundToken{i, int(a.nodes[at].token)})
		}
	}
	return found, tried
}

// split calls, in order, between for the texts around the added tokens of s that
// are not empty, and found for the tokens.
func (a *addedSet) split(s string, between func(string), found func(id int32)) {
	done, searched := 0, 0 // the ends of what was given to between and found, and of the token that was looked at last
	blankEnd := 0          // the end of the white space that was skipped last, so that it is read once
	places, _ := a.find(s)
	for _, at := range slices.Backward(places) {
		t, start := &a.tokens[at.token], at.start
		if start < searched {
			continue // within the previous token
		}
		end := start + len(t.Content)
		searched = end
		if t.SingleWord && (endsWithWord(s[:start]) || startsWithWord(s[end:])) {
			continue
		}
		if t.LStrip && start > done {
			start = done + len(strings.TrimRightFunc(s[done:start], unicode.IsSpace))
		}
		if t.RStrip {
			if end >= blankEnd {
				blankEnd = len(s) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
			}
			end = blankEnd
		}
		if start > done {
			between(s[done:start])
		}
		found(t.ID)
		done = end // as in the reference, this may go back before white space that a token with RStrip has skipped
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
