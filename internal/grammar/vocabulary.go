package grammar

import (
	"bytes"
	"slices"
)

// A Vocabulary has the tokens of a model by their bytes. It is safe for concurrent use.
type Vocabulary struct {
	texts       [][]byte // by id; none for an id that no text has
	sorted      []int32  // the ids of ordinary tokens by their bytes
	sharedBytes []int    // how many bytes each of sorted shares with the one before
	marks       map[string]int32
	longest     int      // bytes of a mark
	withText    []uint64 // ids that may be drawn, but for those that end a text
	isMark      []uint64
}

// NewVocabulary makes a Vocabulary of n ids. token returns the bytes of one, and whether it is
// an added token, whose bytes are never read one by one; ends are ids that end a text.
func NewVocabulary(n int, token func(id int32) (text []byte, added bool), ends []int32) *Vocabulary {
	v := &Vocabulary{texts: make([][]byte, n), marks: map[string]int32{}, withText: newSet(n), isMark: newSet(n)}
	for id := range int32(n) {
		text, added := token(id)
		if len(text) == 0 || slices.Contains(ends, id) {
			continue
		}
		v.texts[id] = text
		put(v.withText, id)
		if !added {
			v.sorted = append(v.sorted, id)
			continue
		}
		put(v.isMark, id)
		v.marks[string(text)], v.longest = id, max(v.longest, len(text))
	}
	slices.SortFunc(v.sorted, func(a, b int32) int { return bytes.Compare(v.texts[a], v.texts[b]) })
	v.sharedBytes = make([]int, len(v.sorted))
	var all, before []byte // one piece of memory for all texts, in the order in which they are walked; the text before
	for i, id := range v.sorted {
		text, n := v.texts[id], 0
		for n < min(len(before), len(text)) && before[n] == text[n] {
			n++
		}
		all = append(all, text...)
		v.sharedBytes[i], v.texts[id], before = n, all[len(all)-len(text):], text
	}
	return v
}

// markAt returns the longest added token with which a text begins, and its length, 0 for none.
func (v *Vocabulary) markAt(text string) (id int32, n int) {
	for n := min(v.longest, len(text)); n > 0; n-- {
		if id, is := v.marks[text[:n]]; is {
			return id, n
		}
	}
	return 0, 0
}

// newSet returns an empty set of the ids below n, as bits.
func newSet(n int) []uint64 { return make([]uint64, (n+63)/64) }

func put(set []uint64, id int32) { set[id/64] |= 1 << (id % 64) }

func has(set []uint64, id int32) bool { return set[id/64]>>(id%64)&1 == 1 }
