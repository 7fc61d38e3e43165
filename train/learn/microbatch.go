package learn

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"

	"onering/runtime"
)

// microBatches cuts the sequences of a batch whose indexes are in own into micro-batches of at most limit tokens,
// counting a prefix once for each of its sequences. If apart is not 0, a micro-batch also has at most apart tokens,
// counting a prefix once, and the largest has as few as their number allows, unless that computes more prefixes twice.
// A longer sequence gets a micro-batch alone. A micro-batch has only live sequences or none, so the others cost no
// backward pass (live nil means that all are live). Sequences with one prefix are adjacent, so that a pass computes the
// prefix once. Each kind is sorted by the longest sequence with the same prefix and then by its own length, longest
// first: attention pads the rows of a micro-batch to one length, and later micro-batches fit into the memory of earlier
// ones.
func microBatches(sequences []runtime.Sequence, live []bool, own []int, limit, apart int) [][]int {
	alive := func(i int) bool { return live == nil || live[i] }
	order, groups := slices.Clone(own), prefixGroups(sequences, own, alive)
	slices.SortStableFunc(order, func(a, b int) int {
		if alive(a) != alive(b) {
			if alive(a) {
				return -1
			}
			return 1
		}
		x, y := groups[a], groups[b]
		return cmp.Or(cmp.Compare(y.longest, x.longest), cmp.Compare(x.first, y.first), cmp.Compare(len(sequences[b].Tokens), len(sequences[a].Tokens)))
	})
	cut := func(apart int) (out [][]int, total int) { // apart as above; total: tokens that are computed, with prefixes once a micro-batch
		sum, packed := 0, 0 // tokens of the micro-batch begun last, with a prefix counted for each sequence and once
		for i, s := range order {
			n := len(sequences[s].Tokens)
			adds := n // to packed
			if i > 0 && groups[s] == groups[order[i-1]] {
				adds -= len(sequences[s].Prefix())
			}
			if i == 0 || sum+n > limit || apart > 0 && packed+adds > apart || alive(s) != alive(order[i-1]) {
				out, sum, packed = append(out, nil), 0, 0
				adds = n // the new micro-batch computes the prefix anew
			}
			out[len(out)-1] = append(out[len(out)-1], s)
			sum, packed, total = sum+n, packed+adds, total+adds
		}
		return out, total
	}
	out, total := cut(apart)
	if apart > 0 && len(out) > 1 { // the smallest bound that gives as few micro-batches
		least := sort.Search(apart-1, func(n int) bool {
			more, _ := cut(n + 1)
			return len(more) <= len(out)
		})
		if even, computed := cut(least + 1); computed <= total {
			out = even
		}
	}
	return out
}

// A prefixGroup has the sequences of one kind (live or not) with the same prefix.
type prefixGroup struct{ first, longest int } // the first of them; the tokens of the longest

// prefixGroups returns by sequence the group of each one that own lists: those of own with one prefix that are all live,
// or all not. Others have nil.
func prefixGroups(sequences []runtime.Sequence, own []int, alive func(i int) bool) []*prefixGroup {
	type key struct {
		prefix string
		alive  bool
	}
	known, groups := make(map[key]*prefixGroup), make([]*prefixGroup, len(sequences))
	for _, i := range own {
		s := sequences[i]
		prefix, _ := binary.Append(nil, binary.NativeEndian, s.Prefix()) // as bytes: ids are no key of a map
		k := key{string(prefix), alive(i)}
		if known[k] == nil {
			known[k] = &prefixGroup{first: i}
		}
		groups[i] = known[k]
		groups[i].longest = max(groups[i].longest, len(s.Tokens))
	}
	return groups
}

// picked returns the elements of a list for the sequences of a micro-batch; nil for a nil list.
func picked[T any](list []T, group []int) (part []T) {
	if list == nil {
		return nil
	}
	for _, i := range group {
		part = append(part, list[i])
	}
	return part
}

// leavesOut says whether nothing of sequence i is computed.
func (b Batch) leavesOut(i int) bool {
	return b.LiveOnly && !b.live(i) || len(b.Sequences[i].Scored) == 0
}

// live says whether sequence i may have derivatives other than zero.
func (b Batch) live(i int) bool { return b.Live == nil || b.Live[i] }
