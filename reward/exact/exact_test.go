package exact

import (
	"context"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"onering/data"
	"onering/reward"
	"onering/reward/rewardtest"
)

func TestConformance(t *testing.T) {
	rewardtest.Run(t, "exact")
	for name, set := range map[string]func(*rule){
		"last line": func(r *rule) { r.Where, r.After = "last_line", "####" },
		"boxed":     func(r *rule) { r.Where, r.Unicode = "boxed", "nfkc" },
		"tag":       func(r *rule) { r.Where, r.IgnoreCase, r.Whitespace = "tag", true, "remove" },
		"like SQuAD": func(r *rule) {
			r.IgnoreCase, r.IgnorePunctuation, r.IgnoreArticles, r.Whitespace = true, true, true, "collapse"
		},
	} {
		t.Run(name, func(t *testing.T) {
			rewardtest.RunNew(t, func() reward.Reward {
				r := newRule()
				set(r)
				return r
			})
		})
	}
}

func grade(t interface{ Fatal(...any) }, r *rule, response string, truncated bool, answers ...string) reward.Score {
	scores, err := r.Score(context.Background(), []reward.Sample{{Problem: data.Problem{Answers: answers}, Response: response, Truncated: truncated}})
	if err != nil {
		t.Fatal(err)
	}
	return scores[0]
}

func TestScore(t *testing.T) {
	for _, tt := range []struct {
		name, response string
		answers        []string
		want           float64
		reason         string
	}{
		{"right", "Paris\n", []string{"London", "Paris"}, 1, "the same text"},
		{"composed letters", "Cafe\u0301", []string{"Café"}, 1, "the same text"},
		{"another case", "paris", []string{"Paris"}, 0, "another text"},
		{"more than the answer", "Paris, France", []string{"Paris"}, 0, "another text"},
		{"both answers", "London Paris", []string{"London", "Paris"}, 0, "another text"},
		{"blank", " ", []string{"Paris"}, 0, "no answer in the response"},
		{"blank gold", " ", []string{" "}, 0, "the problem has no answer"},
	} {
		got := grade(t, newRule(), tt.response, false, tt.answers...)
		if got.Value != tt.want || got.Reason != tt.reason || (got.Status == reward.Error) != (tt.reason == "the problem has no answer") {
			t.Errorf("%s: %+v, want %v for %q", tt.name, got, tt.want, tt.reason)
		}
	}
	if got := grade(t, newRule(), "Paris", true, "Paris"); got.Value != 0 || got.Answer != "Paris" || got.Reason != "truncated" {
		t.Errorf("truncated: %+v", got)
	}
	if r := newRule(); !r.SameAnswer(" Paris", "Paris") || r.SameAnswer("Paris", "paris") || r.SameAnswer("", "") {
		t.Error("SameAnswer compares in another way")
	}
}

// TestOneAnswer: for any extraction and normalization, no response is right for two
// answers that differ.
func TestOneAnswer(t *testing.T) {
	words := []string{"4", "5", "-5", "a", "A", "the cat", "Cat", "cafe\u0301", "x²", "x2", ".", ""}
	joints := []string{"", " ", "\n", ", ", " or ", `\boxed{`, "}", "<answer>", "</answer>", "####", "\u200b"}
	rapid.Check(t, func(t *rapid.T) {
		r := newRule()
		r.Where = rapid.SampledFrom([]string{"whole", "last_line", "boxed", "tag"}).Draw(t, "extract")
		r.After = rapid.SampledFrom([]string{"", "####"}).Draw(t, "after")
		r.Whitespace = rapid.SampledFrom([]string{"keep", "trim", "collapse", "remove"}).Draw(t, "whitespace")
		r.Unicode = rapid.SampledFrom([]string{"none", "nfc", "nfkc"}).Draw(t, "unicode")
		r.IgnoreCase, r.IgnorePunctuation, r.IgnoreArticles = rapid.Bool().Draw(t, "case"), rapid.Bool().Draw(t, "punctuation"), rapid.Bool().Draw(t, "articles")
		pieces := rapid.SliceOfN(rapid.SampledFrom(append(words, joints...)), 1, 8).Draw(t, "pieces")
		response := strings.Join(pieces, "")
		a, b := rapid.SampledFrom(words).Draw(t, "a"), rapid.SampledFrom(words).Draw(t, "b")
		if r.Normal(a) == r.Normal(b) {
			t.Skip("the answers are one")
		}
		if grade(t, r, response, false, a).Right() && grade(t, r, response, false, b).Right() {
			t.Fatalf("%q is right for %q and for %q", response, a, b)
		}
	})
}
