package eval

// A Vote is a response's answer; "" abstains, as do truncated responses.
type Vote struct {
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
func majority(votes []Vote, same func(a, b string) bool) bool {
	type group struct {
		first Vote
		size  int
	}
	var groups []group
	of := map[string]int{} // answer -> group
	best := -1
	for _, v := range votes {
		if v.Answer == "" {
			continue
		}
		g, known := of[v.Answer]
		if !known {
			for g = 0; g < len(groups); g++ {
				if same != nil && same(groups[g].first.Answer, v.Answer) {
					break
				}
			}
			if g == len(groups) {
				groups = append(groups, group{first: v})
			}
			of[v.Answer] = g
		}
		groups[g].size++
	}
	for g := range groups {
		if best < 0 || groups[g].size > groups[best].size {
			best = g
		}
	}
	return best >= 0 && groups[best].first.Right
}
