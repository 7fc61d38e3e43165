package tokenize

import (
	"sync"
	"unicode/utf8"
)

// A pattern is a regular expression of a Split pre-tokenizer that has no cutter written by hand. It has what
// such expressions use and package regexp does not have: a lookahead of one character, and \p{L}, \p{N}, \s as
// in the reference. Matching is leftmost-first, as in Perl and Oniguruma, and takes time linear in the length
// of the text for every expression (a Pike machine: all threads advance through the text together).
//
// Other \p classes are those of Go's unicode package. Lazy and possessive quantifiers, anchors,
// back-references, lookbehind and longer lookahead are errors. Empty matches are ignored.
type pattern struct {
	prog  []inst
	start int
	pool  sync.Pool // a pool of *machine
}

type inst struct {
	op   op
	x, y int // the next instructions; y is tried second
	set  set
	// items is how many parts of set are tried, 0 for few.
	items int
}

type op uint8

const (
	opMatch  op = iota
	opChar      // a character of set, then x
	opSplit     // x, else y
	opAhead     // if the next character is in set, x
	opUnless    // unless the next character is in set, x
)

// A set says which characters belong to it.
type set func(r rune) bool

// find returns the leftmost match in s[from:]; without one, start and end are len(s).
func (p *pattern) find(s string, from int) (start, end int) {
	m := p.pool.Get().(*machine)
	defer p.pool.Put(m)
	return m.find(p, s, from)
}

// A machine holds the threads of one search, the preferred first.
type machine struct {
	now, next []thread // threads that wait at a character; threads past it, not followed yet
	seen      []int    // seen[pc] is the last position at which a thread reached pc
	path      []int    // instructions that are still to be followed
	read      int      // characters that were read, in all searches
}

// maxAhead is how many characters are read past a match to find a preferred one. An expression
// that wanted more, such as a(.*b)?, would read the text to its end for each of its pieces.
const maxAhead = 1024

type thread struct {
	pc, start int // start is where the thread's match begins
}

func newMachine(p *pattern) *machine { return &machine{seen: make([]int, len(p.prog))} }

// find is p.find: its threads read the characters of s[from:] together. As long as nothing matches, a thread begins at
// each character. After a match only the threads that are preferred to it go on, for at most maxAhead characters.
func (m *machine) find(p *pattern, s string, from int) (start, end int) {
	for i := range m.seen {
		m.seen[i] = -1
	}
	m.next = m.next[:0]
	start, end = len(s), len(s)
	for i, found, past := from, false, 0; ; past++ { // past counts characters behind the match
		ahead, size := rune(-1), 0
		if i < len(s) {
			ahead, size = utf8.DecodeRuneInString(s[i:])
		}
		m.now = m.now[:0]
		for _, t := range m.next {
			m.now = m.follow(p, m.now, t, i, ahead)
		}
		for n, t := range m.now {
			if p.prog[t.pc].op == opMatch {
				start, end, found, past = t.start, i, true, 0
				m.now = m.now[:n] // the remaining threads are less preferred
				break
			}
		}
		if !found {
			m.now = m.follow(p, m.now, thread{p.start, i}, i, ahead)
		}
		if size == 0 || found && (len(m.now) == 0 || past > maxAhead) {
			return start, end
		}
		m.read++
		i += size
		m.next = m.next[:0]
		for _, t := range m.now {
			if in := p.prog[t.pc]; in.set(ahead) {
				m.next = append(m.next, thread{in.x, t.start})
			}
		}
	}
}

// follow appends the threads that t becomes at position i without reading a
// character: one for each character or match instruction that it reaches.
func (m *machine) follow(p *pattern, threads []thread, t thread, i int, ahead rune) []thread {
	m.path = append(m.path[:0], t.pc)
	for len(m.path) > 0 {
		pc := m.path[len(m.path)-1]
		m.path = m.path[:len(m.path)-1]
		if m.seen[pc] == i {
			continue // a more preferred thread reached it already
		}
		m.seen[pc] = i
		switch in := p.prog[pc]; in.op {
		case opSplit:
			m.path = append(m.path, in.y, in.x) // x is on top, so it is followed first: it is preferred
		case opAhead:
			if ahead >= 0 && in.set(ahead) {
				m.path = append(m.path, in.x)
			}
		case opUnless:
			if ahead < 0 || !in.set(ahead) {
				m.path = append(m.path, in.x)
			}
		case opMatch:
			if i > t.start { // an empty match counts as none
				threads = append(threads, thread{pc, t.start})
			}
		default:
			threads = append(threads, thread{pc, t.start})
		}
	}
	return threads
}
