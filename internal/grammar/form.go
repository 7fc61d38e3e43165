// Package grammar says which tokens may follow, so that a model writes a text of a given form:
// JSON of a schema, a regular expression, a call of a function.
//
// A Form becomes an automaton over bytes with a stack, because JSON nests. Its states are made
// as they are reached, and each state keeps the set of tokens that lead on from it: the
// vocabulary, in the order of its bytes, is walked once for each state.
//
// The Go libraries for this bring a model server with them, or take schemas and no expressions
// (zerfoo); those of other languages (xgrammar, llguidance) are libraries to be built and loaded.
package grammar

import (
	"errors"
	"slices"
	"strings"
)

// A Form is a set of texts. It adds nodes that read one of them to an automaton, with the node
// that follows, and returns the first.
type Form func(b *builder, next int) int

// A node is one place in an automaton.
type node struct {
	kind   kind
	lo, hi byte  // for a byte, the bytes that are read
	token  int32 // for a mark, the one that is read; for any mark, one that is not, or -1
	first  int   // for a call, where the rule begins
	next   int
	forks  []int
}

type kind int

const (
	aByte   kind = iota
	aMark        // an added token, read whole
	anyMark      // any added token, but for one
	fork         // goes on at each of forks
	call         // reads a rule, then goes on
	end          // the end of a rule, or of the text
)

// A builder makes an automaton.
type builder struct {
	vocabulary *Vocabulary
	nodes      []node
	rules      map[any]int // first nodes of rules
	err        error
}

// maxNodes bounds an automaton: a text of up to 10,000 characters takes two nodes for each.
const maxNodes = 1 << 17

var errLarge = errors.New("it takes too large an automaton: state smaller bounds, or fewer alternatives")

func (b *builder) add(n node) int {
	if len(b.nodes) >= maxNodes {
		b.err = errLarge
		return 0
	}
	b.nodes = append(b.nodes, n)
	return len(b.nodes) - 1
}

// fork adds a node that goes on at each of several.
func (b *builder) fork(to ...int) int {
	if len(to) == 1 {
		return to[0]
	}
	return b.add(node{kind: fork, forks: to})
}

// empty reads nothing.
func empty(_ *builder, next int) int { return next }

// literal reads the bytes of a text.
func literal(text string) Form {
	return func(b *builder, next int) int {
		for i := len(text) - 1; i >= 0; i-- {
			next = b.add(node{lo: text[i], hi: text[i], next: next})
		}
		return next
	}
}

// Text reads a text as a tokenizer does, with the added tokens in it whole.
func Text(text string) Form {
	return func(b *builder, next int) int {
		for i := range text {
			if id, n := b.vocabulary.markAt(text[i:]); n > 0 {
				mark := b.add(node{kind: aMark, token: id, next: Text(text[i+n:])(b, next)})
				return literal(text[:i])(b, mark)
			}
		}
		return literal(text)(b, next)
	}
}

// OneOf reads a text of one of several forms.
func OneOf(list ...Form) Form {
	return func(b *builder, next int) int {
		var to []int
		for _, f := range list {
			to = append(to, f(b, next))
		}
		return b.fork(to...)
	}
}

// Join reads texts of several forms, one behind the other.
func Join(list ...Form) Form {
	return func(b *builder, next int) int {
		for _, f := range slices.Backward(list) {
			next = f(b, next)
		}
		return next
	}
}

// Repeat reads from least to most texts of a form, without a bound if most is negative, with others between them.
func (f Form) Repeat(least, most int, between Form) Form { return repeat(f, least, most, between) }

// repeat is Repeat. It builds most texts from the last to the first, and a fork that may end the repetition before each
// beyond least. Without a bound (most < 0) a loop for all further ones stands behind the first max(least, 1).
func repeat(of Form, least, most int, between Form) Form {
	return func(b *builder, next int) int {
		first, n := next, most
		if n < 0 {
			loop := b.add(node{kind: fork})
			further := Join(between, of)(b, loop)
			b.nodes[loop].forks = []int{further, next}
			first, n = loop, max(least, 1)
		}
		for ; n > 0 && b.err == nil; n-- { // builds text number n
			first = of(b, first)
			if n > 1 {
				first = between(b, first)
			}
			if n > least {
				first = b.fork(first, next)
			}
		}
		return first
	}
}

// rule reads a form whose nodes the whole automaton has once, under a name. It may be a part of itself.
func rule(name any, of Form) Form {
	return func(b *builder, next int) int {
		first, known := b.rules[name]
		if !known {
			first = b.add(node{kind: fork})
			b.rules[name] = first
			body := of(b, b.add(node{kind: end}))
			b.nodes[first].forks = []int{body}
		}
		return b.add(node{kind: call, first: first, next: next})
	}
}

// Until reads any text, and the mark that ends it.
func Until(mark string) Form {
	return func(b *builder, next int) int { return b.scan(mark, func(int) int { return next }) }
}

// Free reads any text. Where a mark stands in it, a text of a form follows.
func Free(mark string, inside Form) Form {
	return func(b *builder, next int) int {
		return b.scan(mark, func(again int) int { return inside(b, again) }, next)
	}
}

// others adds nodes that read one of the bytes that are not listed.
func (b *builder) others(bytes string, next int) (first []int) {
	from := 0
	for c := range 257 {
		if c < 256 && strings.IndexByte(bytes, byte(c)) < 0 {
			continue
		}
		if from < c {
			first = append(first, b.add(node{lo: byte(from), hi: byte(c - 1), next: next}))
		}
		from = c + 1
	}
	return first
}

// scan adds nodes that read any text up to a mark, and returns the first. follows gets that first node, for a loop, and
// returns the node behind the mark; the text may also go on at each of ends without a mark. A mark that is not an added
// token is found as by Knuth, Morris and Pratt: there is a node for each number of its bytes that were read.
func (b *builder) scan(mark string, follows func(first int) int, ends ...int) int {
	first := b.add(node{kind: fork})
	behind := follows(first)
	if id, n := b.vocabulary.markAt(mark); n == len(mark) { // the mark is an added token
		b.nodes[first].forks = append(ends, b.add(node{kind: anyMark, token: id, next: first}), // any mark but this one
			b.add(node{kind: aMark, token: id, next: behind}), b.add(node{hi: 255, next: first})) // 0 to 255: any byte
		return first
	}
	afterBytes := []int{first} // nodes by how many bytes of the mark end the text so far
	for range mark[1:] {
		afterBytes = append(afterBytes, b.add(node{kind: fork}))
	}
	afterBytes = append(afterBytes, behind)
	for have, from := range afterBytes[:len(mark)] {
		const noToken = -1                                                                           // that anyMark leaves out
		to := append(b.others(mark, first), b.add(node{kind: anyMark, token: noToken, next: first})) // what is not in the mark
		for _, c := range slices.Compact(slices.Sorted(slices.Values([]byte(mark)))) {               // each byte of the mark
			to = append(to, b.add(node{lo: c, hi: c, next: afterBytes[overlap(mark[:have]+string([]byte{c}), mark)]}))
		}
		b.nodes[from].forks = append(to, ends...)
	}
	return first
}

// overlap is the length of the longest end of text with which mark begins.
func overlap(text, mark string) int {
	n := min(len(text), len(mark))
	for !strings.HasSuffix(text, mark[:n]) {
		n--
	}
	return n
}
