package grammar

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// A Grammar is a Form over a vocabulary. It is safe for concurrent use.
type Grammar struct {
	vocabulary *Vocabulary
	nodes      []node
	class      [256]uint8 // bytes of one class are read by the same nodes
	classes    int

	mu       sync.Mutex
	states   map[string]*state
	frames   map[frame]*frame
	number   int // of the newest frame
	failed   error
	setBytes int // bytes of sets
	start    *state
}

// A frame is a rule that is being read: the node behind its call, and the rule that calls it. nil is the text itself.
type frame struct {
	outer  *frame
	behind int
	depth  int
	number int // 0 in the key under which frames are found
}

// An item is a node at which the next token may be read.
type item struct {
	node  int
	frame *frame
}

// A state has all that may follow a text.
type state struct {
	items   []item
	ends    bool     // the text may end here
	next    []*state // by class of the next byte, as far as they were asked for
	allowed []uint64 // ids that may follow, nil until asked for
	all     bool     // all ids may follow
}

// Limits of the automaton. Nesting ends at maxDepth, which readers of JSON still take.
const (
	maxDepth  = 48
	maxItems  = 1 << 14 // of a state, with what leads to them
	maxStates = 1 << 14
	maxSets   = 16 << 20 // bytes of the sets of tokens that states keep
)

// Grammar makes the Grammar of a form. A form of which the vocabulary can write no text is refused.
func (v *Vocabulary) Grammar(f Form) (*Grammar, error) {
	b := &builder{vocabulary: v, rules: map[any]int{}}
	first := f(b, b.add(node{kind: end})) // f adds the nodes that read it, before this end of the text
	if b.err != nil {
		return nil, b.err
	}
	if !prune(b.nodes)[first] {
		return nil, errors.New("no text has this form: what it asks for contradicts itself, or nests without an end")
	}
	g := &Grammar{vocabulary: v, nodes: b.nodes}
	g.classify()
	g.forgetStates()                          // makes the empty tables, too
	g.start = g.closure([]item{{first, nil}}) // nil: in no rule
	_, _, err := g.Begin().Next()             // fails if no token begins a text
	return g, err
}

// prune takes from forks the ways on which no text comes to an end, and reports from which nodes one does: from an end,
// from a fork with such a way, and from another node before one of these, if the rule that it calls has an end, too.
func prune(nodes []node) []bool {
	ends := make([]bool, len(nodes))
	for more := true; more; {
		more = false
		for i, n := range nodes {
			is := n.kind == end || n.kind == fork && slices.ContainsFunc(n.forks, func(to int) bool { return ends[to] }) ||
				n.kind != fork && n.kind != end && ends[n.next] && (n.kind != call || ends[n.first])
			more = more || is && !ends[i]
			ends[i] = ends[i] || is
		}
	}
	for i := range nodes {
		nodes[i].forks = slices.DeleteFunc(nodes[i].forks, func(to int) bool { return !ends[to] })
	}
	return ends
}

// classify sets the classes of bytes.
func (g *Grammar) classify() {
	var begins [257]bool
	for _, n := range g.nodes {
		if n.kind == aByte {
			begins[n.lo], begins[int(n.hi)+1] = true, true
		}
	}
	for c := range 256 {
		if begins[c] && c > 0 {
			g.classes++
		}
		g.class[c] = uint8(g.classes)
	}
	g.classes++
}

// forgetStates drops all states but those that matchers hold.
func (g *Grammar) forgetStates() {
	for _, s := range g.states {
		s.next, s.allowed = nil, nil
	}
	g.states, g.frames, g.setBytes = map[string]*state{}, map[frame]*frame{}, 0
}

// closure returns the state of items and of all that follows from them without reading: the ways of forks, the rules that
// are called and what stands behind rules that end. It keeps no second state with equal items: g.states has them by a
// key. It sets g.failed if the state is too large.
func (g *Grammar) closure(pending []item) *state {
	s, seen := &state{}, map[item]bool{}
	for len(pending) > 0 {
		if len(seen) > maxItems {
			g.failed = errLarge
			break
		}
		x := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if seen[x] {
			continue
		}
		seen[x] = true
		switch n := &g.nodes[x.node]; n.kind {
		case fork:
			for _, to := range n.forks {
				pending = append(pending, item{to, x.frame})
			}
		case call:
			if inner, ok := g.enter(x.frame, n.next); ok { // else rules nest too deep, and this way ends
				pending = append(pending, item{n.first, inner})
			}
		case end:
			if x.frame == nil { // the end of the text itself, not of a rule
				s.ends = true
			} else {
				pending = append(pending, item{x.frame.behind, x.frame.outer})
			}
		default: // it reads a byte or a mark
			s.items = append(s.items, x)
		}
	}
	// The key: whether the text may end, and the sorted items.
	slices.SortFunc(s.items, func(a, b item) int { return cmp.Or(a.node-b.node, a.frame.id()-b.frame.id()) })
	key := []byte{0}
	if s.ends {
		key[0] = 1
	}
	for _, x := range s.items {
		key = binary.AppendUvarint(binary.AppendUvarint(key, uint64(x.node)), uint64(x.frame.id()))
	}
	if known := g.states[string(key)]; known != nil {
		return known
	}
	g.states[string(key)] = s
	return s
}

func (f *frame) id() int {
	if f == nil {
		return 0
	}
	return f.number
}

// enter returns the frame of a rule that is called in the frame outer, which goes on at the node behind the call. Equal
// frames are one. It returns false beyond maxDepth.
func (g *Grammar) enter(outer *frame, behind int) (*frame, bool) {
	if g.nodes[behind].kind == end { // as in a tail call: the outer rule ends where this one does
		return outer, true
	}
	f := frame{outer: outer, behind: behind, depth: 1} // without a number: the key
	if outer != nil {
		f.depth += outer.depth
	}
	if f.depth > maxDepth {
		return nil, false
	}
	if g.frames[f] == nil {
		g.number++
		numbered := f
		numbered.number = g.number
		g.frames[f] = &numbered
	}
	return g.frames[f], true
}

// step returns the state behind a byte, which s keeps for all bytes of its class.
func (g *Grammar) step(s *state, c byte) *state {
	if s.next == nil {
		s.next = make([]*state, g.classes)
	}
	k := g.class[c]
	if s.next[k] == nil {
		var to []item
		for _, x := range s.items {
			if n := &g.nodes[x.node]; n.kind == aByte && n.lo <= c && c <= n.hi {
				to = append(to, item{n.next, x.frame})
			}
		}
		s.next[k] = g.closure(to)
	}
	return s.next[k]
}

// isDead reports whether nothing leads to the state.
func (s *state) isDead() bool { return len(s.items) == 0 && !s.ends }

// findAllowed sets the ids that may follow a state: ordinary tokens whose bytes it reads, and added tokens (marks),
// which are read whole.
func (g *Grammar) findAllowed(s *state) {
	v := g.vocabulary
	s.allowed = newSet(len(v.texts))
	g.setBytes += 8 * len(s.allowed)
	readsBytes := false
	for _, x := range s.items {
		switch n := &g.nodes[x.node]; n.kind {
		case aByte:
			readsBytes = true
		case anyMark:
			for i, word := range v.isMark {
				s.allowed[i] |= word
			}
			if n.token >= 0 { // any mark but this one
				s.allowed[n.token/64] &^= 1 << (n.token % 64)
			}
		}
	}
	for _, x := range s.items { // in a second pass, since another item may have left the mark out
		if n := &g.nodes[x.node]; n.kind == aMark {
			put(s.allowed, n.token)
		}
	}
	if readsBytes {
		g.addOrdinary(s)
	}
	s.all = slices.Equal(s.allowed, v.withText) // withText: all tokens but those that end a text
}

// addOrdinary adds to s.allowed the ordinary tokens whose bytes the state reads. It reads them in the order of their bytes, so
// the states along what a token shares with the one before (v.sharedBytes) are known, and if one is dead, so is the token.
func (g *Grammar) addOrdinary(s *state) {
	v := g.vocabulary
	path := []*state{s} // the states along the token, as far as it is read
	dead := 0           // how many bytes of the newest token lead nowhere, 0 for none
	for i, id := range v.sorted {
		if dead > 0 && v.sharedBytes[i] >= dead {
			continue
		}
		path, dead = path[:v.sharedBytes[i]+1], 0
		for _, c := range v.texts[id][v.sharedBytes[i]:] {
			to := g.step(path[len(path)-1], c)
			if to.isDead() {
				dead = len(path)
				break
			}
			path = append(path, to)
		}
		if dead == 0 {
			put(s.allowed, id)
		}
	}
}

// A Matcher follows one text as it is written.
type Matcher struct {
	g  *Grammar
	at *state
}

// Begin begins a text.
func (g *Grammar) Begin() *Matcher { return &Matcher{g, g.start} }

// Next returns the ids that may follow, as a bit for each, nil for all, and whether the text
// may end. An error means that neither can be.
func (m *Matcher) Next() (allowed []uint64, ends bool, err error) {
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.at.isDead() {
		return nil, false, errors.New("grammar: a token was drawn that the form of the answer does not allow")
	}
	if m.at.allowed == nil {
		g.findAllowed(m.at)
	}
	switch {
	case g.failed != nil:
		return nil, false, g.failed
	case m.at.all:
		return nil, m.at.ends, nil
	case !m.at.ends && !slices.ContainsFunc(m.at.allowed, func(w uint64) bool { return w != 0 }):
		return nil, false, errors.New("grammar: no token of the model's vocabulary continues a text of this form")
	}
	return m.at.allowed, m.at.ends, nil
}

// Add adds a token to the text: an ordinary one by its bytes, an added one (a mark) whole.
func (m *Matcher) Add(id int32) {
	g, v := m.g, m.g.vocabulary
	g.mu.Lock()
	defer g.mu.Unlock()
	if int(id) >= len(v.texts) || !has(v.withText, id) {
		return // it has no text
	}
	if len(g.states) > maxStates || g.setBytes > maxSets { // they are made again as they are needed
		g.forgetStates()
	}
	if !has(v.isMark, id) {
		m.at = m.read(v.texts[id])
		return
	}
	var to []item
	for _, x := range m.at.items {
		if n := &g.nodes[x.node]; n.kind == aMark && n.token == id || n.kind == anyMark && n.token != id {
			to = append(to, item{n.next, x.frame})
		}
	}
	m.at = g.closure(to)
}

// read returns the state behind a text.
func (m *Matcher) read(text []byte) *state {
	s := m.at
	for _, c := range text {
		s = m.g.step(s, c)
	}
	return s
}

// Say adds a text that stands already.
func (m *Matcher) Say(text string) error {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if m.at = m.read([]byte(text)); m.at.isDead() {
		return fmt.Errorf("%.60q is not the beginning of a text of this form", text)
	}
	return nil
}
