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

// TestScore: a response that matches one of the answers scores 1, unless it is truncated;
// a response that could not be judged is told apart from a wrong one.
func TestScore(t *testing.T) {
	for _, tt := range []struct {
		name, response string
		answers        []string
		truncated      bool
		want           reward.Score
		reason         string // text that the score's status contains
	}{
		{"right", `so \boxed{1/2}`, []string{"7", "0.5"}, false, reward.Score{Value: 1, Answer: "1/2"}, ""},
		{"wrong", `so \boxed{1/3}`, []string{"7", "0.5"}, false, reward.Score{Answer: "1/3"}, ""},
		{"right but truncated", `so \boxed{1/2}, and`, []string{"0.5"}, true, reward.Score{Answer: "1/2"}, ""},
		{"no answer", "It is 7.", []string{"7"}, false, reward.Score{}, "no box"},
		{"too long", strings.Repeat("x", 5<<20), []string{"7"}, false, reward.Score{Status: reward.Limit}, "too long"},
		{"nothing to grade with", `\boxed{7}`, nil, false, reward.Score{Status: reward.Error}, "gold is empty"},
	} {
		group := []reward.Sample{{Problem: data.Problem{Answers: tt.answers}, Response: tt.response, Truncated: tt.truncated}}
		scores, err := new(rule).Score(context.Background(), group)
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
		if got := new(rule).SameAnswer(tt.a, tt.b); got != tt.same {
			t.Errorf("%q and %q: %v", tt.a, tt.b, got)
		}
	}
}

// TestExtract: the template decides where an answer has to stand, unless it is set.
func TestExtract(t *testing.T) {
	const boxed, tagged, text = `\boxed{7}`, `so 7 </think> <answer> 7 </answer>`, `so it is 7`
	for _, tt := range []struct {
		template, set, want string
		boxed, tagged, text bool // which of the three responses are right
	}{
		{"", "", "boxed", true, false, false},
		{"qwen_math", "", "boxed", true, false, false},
		{"no", "", "boxed", true, false, false},
		{"chat", "", "boxed", true, false, false},
		{"Q: {problem} A:", "", "boxed", true, false, false},
		{"r1", "", "tag", false, true, false},
		{"r1", "boxed", "boxed", true, false, false},
		{"no", "tag", "tag", false, true, false},
		{"no", "auto", "auto", true, true, true},
		{"r1", "last", "last", true, true, true},
	} {
		r := &rule{Mode: tt.set}
		if tt.template != "" {
			r.SetTemplate("qwen_math") // The reward forgets the demands of an earlier template.
			r.SetTemplate(tt.template)
		}
		if got := reward.Extract(r); got != tt.want {
			t.Errorf("template %q, extract %q: %q, want %q", tt.template, tt.set, got, tt.want)
		}
		for response, right := range map[string]bool{boxed: tt.boxed, tagged: tt.tagged, text: tt.text} {
			scores, err := r.Score(context.Background(), []reward.Sample{{Problem: data.Problem{Answers: []string{"7"}}, Response: response}})
			if err != nil || scores[0].Right() != right || (scores[0].Answer != "") != right {
				t.Errorf("template %q, extract %q: %q earns %+v, %v", tt.template, tt.set, response, scores[0], err)
			}
		}
	}
	// r1's form is strict.
	r := new(rule)
	r.SetTemplate("r1")
	scores, _ := r.Score(context.Background(), []reward.Sample{{Problem: data.Problem{Answers: []string{"7"}}, Response: `<answer>7</answer>`}})
	if scores[0].Right() {
		t.Error("an <answer> without </think> before it is taken")
	}
	other, err := reward.WithExtract(r, "auto")
	if err != nil || reward.Extract(other) != "auto" || reward.Extract(r) != "tag" {
		t.Errorf("%v, %v: the rule of a copy is the receiver's", other, err)
	}
	if err := (&rule{Mode: "box"}).Validate(); err == nil || err.Error() != `extract = "box": must be one of boxed, tag, auto, last; without it the template decides` {
		t.Errorf("error %v", err)
	}
	for _, name := range reward.ExtractRules {
		if err := (&rule{Mode: name}).Validate(); err != nil || reward.Extract(&rule{Mode: name}) != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTolerance: the setting changes the rule for decimals only.
func TestTolerance(t *testing.T) {
	for _, tt := range []struct {
		gold, answer string
		tolerance    float64
		right        bool
	}{
		{"1/3", "0.33", 0, false}, {"1/3", "0.33", 0.02, true}, {"1/3", "0.33", 0.005, false}, {"1/3", "0.333333", 0.001, true}, {"1/3", "0.3333333", 0, true}, {"1/3", "0.3333334", 0, false}, {"1/3", "0.3333334", 1e-9, false},
		{"2.5", "2.52", 0.01, true}, {"2.5", "2.53", 0.01, false}, {"2.5", "2.53", 0, false}, {"100", "101", 0.1, false}, {`3.4 \times 10^{22}`, `3.42 \times 10^{22}`, 0.01, true},
		{"-2.5", "2.5", 0.5, false}, {"0", "0.001", 0.5, false}, {"(1, 2.0)", "(1, 2.01)", 0.01, true}, {"(1, 2.0)", "(1.2, 2.0)", 0.01, false}, {"x+0.5", "x+0.501", 0.1, false}, {"5.0 cm", "50.2 mm", 0.01, true},
	} {
		r := &rule{Tolerance: tt.tolerance}
		scores, err := r.Score(context.Background(), []reward.Sample{{Problem: data.Problem{Answers: []string{tt.gold}}, Response: `\boxed{` + tt.answer + `}`}})
		if err != nil || scores[0].Right() != tt.right {
			t.Errorf("%s for %s with tolerance %v: %+v", tt.answer, tt.gold, tt.tolerance, scores[0])
		}
	}
}
