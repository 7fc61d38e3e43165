package runtime

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPairs: after each turn the sums of an index equal those of its rows, and an index
// that occurred n times occurs (n+1)/2 times.
func TestPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int64Range(0, 9), 0, 60).Draw(t, "ids")
		rows, total := make([]int64, len(ids)), make(map[int64]int64)
		for i, id := range ids {
			rows[i] = 1 << (i % 40)
			total[id] += rows[i]
		}
		for {
			left, right, paired, sums := pairs(ids)
			next, now := make([]int64, len(sums)), make(map[int64]int64)
			before, after := make(map[int64]int), make(map[int64]int)
			for _, id := range ids {
				before[id]++
			}
			for j, id := range sums {
				if ids[left[j]] != id || ids[right[j]] != id {
					t.Fatalf("sum %d of index %d has rows of %d and %d", j, id, ids[left[j]], ids[right[j]])
				}
				next[j] = rows[left[j]] + int64(paired[j])*rows[right[j]]
				now[id] += next[j]
				after[id]++
			}
			for id, n := range before {
				if now[id] != total[id] || after[id] != (n+1)/2 {
					t.Fatalf("index %d: sum %d in %d rows, want %d in %d", id, now[id], after[id], total[id], (n+1)/2)
				}
			}
			if len(sums) == len(ids) {
				break
			}
			ids, rows = sums, next
		}
		left := len(ids)
		if slices.Sort(ids); len(slices.Compact(ids)) != left {
			t.Fatalf("an index of %v is left twice", ids)
		}
	})
}
