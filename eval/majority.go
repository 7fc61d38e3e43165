package eval

import (
	"cmp"
	"slices"
)

// A voting is a response's answer; "" abstains, as do truncated responses that are
// not graded.
type voting struct {
	Answer string
	Right  bool
}

// majority says whether the answer that most votes agree on is right. A vote
// joins the group of an equal answer, else the first group for whose first answer
// same returns true; same may be nil. If the largest groups have the same size,
// the one that was begun first wins. If all abstain, the result is false.
//
// A group is right if its first answer is: a reward may accept one spelling of an
// answer and not another.
func majority(votes []voting, same func(a, b string) bool) bool {
	type group struct {
		first voting
		size  int
	}
	var groups []group
	of := map[string]int{} // answer -> group
	for _, v := range votes {
		if v.Answer == "" {
			continue
		}
		g, known := of[v.Answer]
		if !known {
			g = slices.IndexFunc(groups, func(g group) bool { return same != nil && same(g.first.Answer, v.Answer) })
			if g < 0 {
				g, groups = len(groups), append(groups, group{first: v})
			}
			of[v.Answer] = g
		}
		groups[g].size++
	}
	if len(groups) == 0 {
		return false
	}
	return slices.MaxFunc(groups, func(a, b group) int { return cmp.Compare(a.size, b.size) }).first.Right
}
