package eval

import "testing"

func TestMajority(t *testing.T) {
	v := func(answers ...string) []voting {
		votes := make([]voting, len(answers))
		for i, a := range answers {
			votes[i] = voting{a, a == "1/2" || a == "0.5"}
		}
		return votes
	}
	same := func(a, b string) bool {
		halves := map[string]bool{"1/2": true, "0.5": true, ".5": true}
		return halves[a] && halves[b]
	}
	for _, tt := range []struct {
		name  string
		votes []voting
		same  func(a, b string) bool
		want  bool
	}{
		{"none", nil, same, false},
		{"all abstain", v("", ""), same, false},
		{"alone", v("1/2"), same, true},
		{"most win", v("7", "1/2", "1/2"), same, true},
		{"most are wrong", v("1/2", "7", "7"), same, false},
		{"tie goes to the first", v("1/2", "7"), same, true},
		{"tie goes to the first, wrong", v("7", "1/2"), same, false},
		{"spellings count together", v("7", "7", "1/2", "0.5", "1/2"), same, true},
		{"spellings apart without a verifier", v("7", "7", "1/2", "0.5"), nil, false},
		{"abstentions do not win", v("", "", "", "1/2"), same, true},
		{"a group is as right as its first", v(".5", "1/2", "7"), same, false},
		{"three ways", v("3", "1/2", "4", "0.5"), same, true},
	} {
		if got := majority(tt.votes, tt.same); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestMajorityAsksOnce: a verifier is slow, so the vote does not ask about an answer with
// the same spelling twice.
func TestMajorityAsksOnce(t *testing.T) {
	asked := 0
	votes := make([]voting, 100)
	for i := range votes {
		votes[i].Answer = string(rune('a' + i%3))
	}
	majority(votes, func(a, b string) bool { asked++; return false })
	if asked != 3 { // b:a, c:a, c:b
		t.Errorf("asked %d times, want 3", asked)
	}
}
