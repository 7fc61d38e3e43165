package eval

// A Vote is a response's answer; "" abstains, as do truncated responses.
type Vote struct {
	Answer string
	Right  bool
}

// Majority says whether the answer that most votes agree on is right. Answers
// agree if they are equal or same says so of the group's first answer; same may
// be nil. Of groups of one size the one that began first wins. Where all
// abstain the answer is wrong.
//
// A group is as right as its first answer: a verifier may accept one spelling
// of an answer and not another.
func Majority(votes []Vote, same func(a, b string) bool) bool {
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
