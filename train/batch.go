package train

import (
	"cmp"
	"slices"

	"onering/runtime"
)

// microBatches splits the sequences of an optimizer step into groups of at
// most tokens tokens each; a longer sequence goes alone. Sequences that are
// live (their weights may differ from zero) and others never share a group, so
// that dead ones cost no backward pass. Within each kind they are sorted by
// length, which keeps rows of one group alike and attention cheap.
func microBatches(sequences []runtime.Sequence, live []bool, tokens int) [][]int {
	order := make([]int, len(sequences))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if live[a] != live[b] {
			if live[a] {
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
		if i == 0 || sum+n > tokens || live[s] != live[order[i-1]] {
			out, sum = append(out, nil), 0
		}
		out[len(out)-1] = append(out[len(out)-1], s)
		sum += n
	}
	return out
}
