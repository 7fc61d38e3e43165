package learn

import (
	"cmp"
	"slices"

	"onering/runtime"
)

// microBatches cuts those sequences of a batch that own lists into micro-batches of at most limit
// tokens each; a longer sequence goes alone. Sequences that are live and others
// never share a micro-batch, so the others cost no backward pass. Each kind is
// sorted by length, longest first: attention pads the rows of a micro-batch to
// one length, and later micro-batches fit into the memory of earlier ones. live
// nil means that all are.
func microBatches(sequences []runtime.Sequence, live []bool, own []int, limit int) [][]int {
	alive := func(i int) bool { return live == nil || live[i] }
	order := slices.Clone(own)
	slices.SortStableFunc(order, func(a, b int) int {
		if alive(a) != alive(b) {
			if alive(a) {
				return -1
			}
			return 1
		}
		return cmp.Compare(len(sequences[b].Tokens), len(sequences[a].Tokens))
	})
	var out [][]int
	sum := 0
	for i, s := range order {
		n := len(sequences[s].Tokens)
		if i == 0 || sum+n > limit || alive(s) != alive(order[i-1]) {
			out, sum = append(out, nil), 0
		}
		out[len(out)-1] = append(out[len(out)-1], s)
		sum += n
	}
	return out
}

// tokens counts the tokens of a micro-batch.
func tokens(sequences []runtime.Sequence, group []int) (n int) {
	for _, i := range group {
		n += len(sequences[i].Tokens)
	}
	return n
}

// live says whether sequence i may have derivatives other than zero.
func (b Batch) live(i int) bool { return b.Live == nil || b.Live[i] }
