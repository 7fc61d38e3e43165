package tokenize

import (
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// A bpe turns one piece of text into ids by byte-pair encoding: each byte is a symbol, and of all neighbouring
// pairs the one that was learned first (the lowest rank; the leftmost of several) becomes one symbol, until no
// pair is in the list of merges. It is safe for concurrent use once it is built.
type bpe struct {
	bytes       [256]int32       // id of each byte; -1 if the vocabulary lacks it
	ranks       map[uint64]int32 // pair(left, right) -> rank
	merged      []int32          // rank -> id of the merged symbol
	wholePieces map[string]int32 // pieces that become one id without merging; nil unless ignore_merges
	unk         int32            // id for a byte that the vocabulary lacks; -1 drops it, as the reference does
	fuseUnk     bool             // one unk for a sequence of such bytes

	charIDs      map[string]int32 // tokens of characters, for a vocabulary whose symbols are not bytes; else nil
	byteFallback bool             // a character without a token becomes tokens of its bytes

	seed  maphash.Seed
	cache []atomic.Pointer[cached]
}

// The cache is a table with the last piece of each hash. Its size is bounded (about
// 6 MB when full). It needs no locks: all writers of a piece write the same ids.
const (
	maxCache   = 1 << 16 // pieces, for a vocabulary of any size
	cachePiece = 64      // bytes; longer pieces seldom repeat
)

type cached struct {
	piece string
	ids   []int32
}

func newBPE() *bpe {
	b := &bpe{unk: -1, seed: maphash.MakeSeed()}
	for i := range b.bytes {
		b.bytes[i] = -1
	}
	return b
}

// startCache makes the cache for a vocabulary of n tokens.
func (b *bpe) startCache(n int) {
	size := 256
	for size < n && size < maxCache {
		size *= 2
	}
	b.cache = make([]atomic.Pointer[cached], size)
}

func pair(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// rank returns the rank of the merge of left and right, noRank if there is none.
func (b *bpe) rank(left, right int32) int32 {
	if rank, ok := b.ranks[pair(left, right)]; ok {
		return rank
	}
	return noRank
}

const noRank = math.MaxInt32

// append appends the ids of piece: those of the cache, if they are there. A single byte and a long piece are not.
func (b *bpe) append(dst []int32, piece string) []int32 {
	if len(piece) == 1 && b.bytes[piece[0]] >= 0 {
		return append(dst, b.bytes[piece[0]])
	}
	if len(piece) > cachePiece {
		return b.encode(dst, piece)
	}
	slot := &b.cache[maphash.String(b.seed, piece)&uint64(len(b.cache)-1)]
	if c := slot.Load(); c != nil && c.piece == piece {
		return append(dst, c.ids...)
	}
	start := len(dst)
	dst = b.encode(dst, piece)
	// Clone, so that the cache does not keep the whole text in memory.
	slot.Store(&cached{strings.Clone(piece), slices.Clone(dst[start:])})
	return dst
}

// encode appends the ids of a piece that the cache does not have: its one id with ignore_merges, or the ids of its
// symbols (characters or bytes), merged.
func (b *bpe) encode(dst []int32, piece string) []int32 {
	if id, ok := b.wholePieces[piece]; ok {
		return append(dst, id)
	}
	start, wasUnk := len(dst), false
	if b.charIDs != nil {
		return b.merge(b.characters(dst, piece), start)
	}
	for i := range len(piece) {
		id := b.bytes[piece[i]]
		isUnk := id < 0
		if isUnk {
			id = b.unk
		}
		if id >= 0 && !(isUnk && wasUnk && b.fuseUnk) { // without a token for unknown bytes they are left out
			dst = append(dst, id)
		}
		wasUnk = isUnk
	}
	return b.merge(dst, start)
}

// merge merges the symbols of dst from start on.
func (b *bpe) merge(dst []int32, start int) []int32 {
	ids := dst[start:]
	if len(ids) <= shortPiece {
		ids = b.mergeShort(ids)
	} else {
		ids, _ = b.mergeLong(ids)
	}
	return dst[:start+len(ids)]
}

// characters appends the symbols of a piece for a vocabulary of characters.
func (b *bpe) characters(dst []int32, piece string) []int32 {
	wasUnk := false
	for i := 0; i < len(piece); {
		_, n := utf8.DecodeRuneInString(piece[i:])
		c := piece[i : i+n]
		i += n
		id, ok := b.charIDs[c]
		if ok {
			dst, wasUnk = append(dst, id), false
			continue
		}
		if b.byteFallback {
			if all, ok := b.byteTokens(dst, c); ok {
				dst, wasUnk = all, false
				continue
			}
		}
		if b.unk >= 0 && !(wasUnk && b.fuseUnk) {
			dst = append(dst, b.unk)
		}
		wasUnk = true
	}
	return dst
}

// byteTokens appends the tokens of the bytes of a character, if there are all.
func (b *bpe) byteTokens(dst []int32, c string) ([]int32, bool) {
	for i := range len(c) {
		id, ok := b.charIDs[fmt.Sprintf("<0x%02X>", c[i])]
		if !ok {
			return nil, false
		}
		dst = append(dst, id)
	}
	return dst, true
}

// knows reports whether every character of s has a token or tokens of its bytes.
func (b *bpe) knows(s string) bool {
	for _, r := range s {
		if _, ok := b.charIDs[string(r)]; !ok {
			if _, ok := b.byteTokens(nil, string(r)); !ok || !b.byteFallback {
				return false
			}
		}
	}
	return true
}

// Up to this many symbols, a search through all pairs is faster than a heap.
const shortPiece = 40

// mergeShort merges ids in place; it searches all pairs for each merge.
func (b *bpe) mergeShort(ids []int32) []int32 {
	var ranks [shortPiece]int32 // ranks[i] of (ids[i], ids[i+1])
	for i := 0; i+1 < len(ids); i++ {
		ranks[i] = b.rank(ids[i], ids[i+1])
	}
	for len(ids) > 1 {
		best, at := int32(noRank), 0
		for i, rank := range ranks[:len(ids)-1] {
			if rank < best {
				best, at = rank, i
			}
		}
		if best == noRank {
			break
		}
		ids[at] = b.merged[best]
		copy(ids[at+1:], ids[at+2:])
		copy(ranks[at:], ranks[at+1:len(ids)-1])
		ids = ids[:len(ids)-1]
		if at > 0 {
			ranks[at-1] = b.rank(ids[at-1], ids[at])
		}
		if at+1 < len(ids) {
			ranks[at] = b.rank(ids[at], ids[at+1])
		}
	}
	return ids
}

// mergeLong merges ids in place in O(n log n): the symbols are a linked list, the pairs are a heap ordered by
// rank and place. A heap entry is ignored if the pair at its place has changed. The second result is how many
// pairs were ranked; each costs at most one operation of the heap.
func (b *bpe) mergeLong(ids []int32) (merged []int32, ranked int) {
	n := len(ids)
	next, prev := make([]int32, n), make([]int32, n)
	ranks := make([]int32, n) // rank of the pair that begins at the symbol; noRank if there is none
	heap := make(pairHeap, 0, n)
	rate := func(i int32) {
		ranked++
		ranks[i] = noRank
		if next[i] < int32(n) {
			if ranks[i] = b.rank(ids[i], ids[next[i]]); ranks[i] != noRank {
				heap.push(uint64(ranks[i])<<32 | uint64(i))
			}
		}
	}
	for i := range n {
		next[i], prev[i] = int32(i+1), int32(i-1)
	}
	for i := range n {
		rate(int32(i))
	}
	for len(heap) > 0 {
		top := heap.pop()
		rank, at := int32(top>>32), int32(uint32(top))
		if ranks[at] != rank {
			continue // the pair has changed since
		}
		gone := next[at]
		ids[at], ids[gone] = b.merged[rank], -1
		ranks[gone] = noRank
		next[at] = next[gone]
		if next[at] < int32(n) {
			prev[next[at]] = at
		}
		rate(at)
		if prev[at] >= 0 {
			rate(prev[at])
		}
	}
	return slices.DeleteFunc(ids, func(id int32) bool { return id < 0 }), ranked
}

// A pairHeap holds rank<<32 | place, the smallest first.
type pairHeap []uint64

// push adds v to the heap.
func (h *pairHeap) push(v uint64) {
	a := append(*h, v)
	i := len(a) - 1
	for i > 0 {
		up := (i - 1) / 2
		if a[up] <= v {
			break
		}
		a[i], i = a[up], up
	}
	a[i] = v
	*h = a
}

// pop removes and returns the smallest element of a heap that is not empty.
func (h *pairHeap) pop() uint64 {
	a := *h
	top, v := a[0], a[len(a)-1]
	a = a[:len(a)-1]
	for i := 0; len(a) > 0; {
		down := 2*i + 1
		if down+1 < len(a) && a[down+1] < a[down] {
			down++
		}
		if down >= len(a) || v <= a[down] {
			a[i] = v
			break
		}
		a[i], i = a[down], down
	}
	*h = a
	return top
}
