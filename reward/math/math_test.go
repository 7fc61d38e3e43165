package math

import (
	"context"
	"strings"
	"testing"

	"onering/data"
	"onering/reward"
	"onering/reward/rewardtest"
)

func TestConformance(t *testing.T) { rewardtest.Run(t, "math") }

// TestScore: 1 for any of the answers, unless the response is truncated; what
// could not be judged is told apart from what is wrong.
func TestScore(t *testing.T) {
	for _, tt := range []struct {
		name, response string
		answers        []string
		truncated      bool
		want           reward.Score
		reason         string // that the score's has in it
	}{
		{"right", `so \boxed{1/2}`, []string{"7", "0.5"}, false, reward.Score{Value: 1, Answer: "1/2"}, ""},
		{"wrong", `so \boxed{1/3}`, []string{"7", "0.5"}, false, reward.Score{Answer: "1/3"}, ""},
		{"right but truncated", `so \boxed{1/2}, and`, []string{"0.5"}, true, reward.Score{Answer: "1/2"}, ""},
		{"no answer", "", []string{"7"}, false, reward.Score{}, "no answer"},
		{"too long", strings.Repeat("x", 5<<20), []string{"7"}, false, reward.Score{Status: reward.Limit}, "too long"},
		{"nothing to grade with", `\boxed{7}`, nil, false, reward.Score{Status: reward.Error}, "gold is empty"},
	} {
		group := []reward.Sample{{Problem: data.Problem{Answers: tt.answers}, Response: tt.response, Truncated: tt.truncated}}
		scores, err := new(Rule).Score(context.Background(), group)
		if err != nil {
			t.Fatal(err)
		}
		got := scores[0]
		if !strings.Contains(got.Reason, tt.reason) {
			t.Errorf("%s: reason %q, want %q", tt.name, got.Reason, tt.reason)
		}
		if got.Value != tt.want.Value || got.Answer != tt.want.Answer || got.Status != tt.want.Status || got.Right() != (tt.want.Value == 1) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestSameAnswer(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{{"1/2", "0.5", true}, {"x=3", "3", true}, {"3", "4", false}, {"", "3", false}} {
		if got := new(Rule).SameAnswer(tt.a, tt.b); got != tt.same {
			t.Errorf("%q and %q: %v", tt.a, tt.b, got)
		}
	}
}
