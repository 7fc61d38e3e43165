package choice

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"onering/data"
	"onering/reward"
	"onering/reward/rewardtest"
)

func TestConformance(t *testing.T) {
	rewardtest.Run(t, "choice")
	for name, set := range map[string]func(*rule){
		"column": func(r *rule) { r.Choices, r.Gold = "answer", "text" },
		"all":    func(r *rule) { r.All, r.Where, r.Choices = true, "last_line", "problem, choice" },
		"index":  func(r *rule) { r.Gold, r.Where = "index", "boxed" },
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

func TestValidate(t *testing.T) {
	for _, labels := range [][]string{nil, {""}, {"A", "a"}, {"A B"}, {"(A)"}, {"Ａ"}} {
		r := newRule()
		r.Labels = labels
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "labels = ") {
			t.Errorf("labels %q: %v", labels, err)
		}
	}
}

var cities = data.Object{{Name: "choices", Value: []any{"London", "Paris", "New York", "York"}}}

// grade returns the score of one response to a row whose answer is gold.
func grade(t interface{ Fatal(...any) }, r *rule, fields data.Object, response string, golds ...string) reward.Score {
	scores, err := r.Score(context.Background(), []reward.Sample{{Problem: data.Problem{Answers: golds, Fields: fields}, Response: response}})
	if err != nil {
		t.Fatal(err)
	}
	return scores[0]
}

// TestRead states which answer is read from a response. "" means no answer, or several
// where one is wanted.
func TestRead(t *testing.T) {
	const anything, withTexts, letters = "either", "texts", "letters"
	for _, tt := range []struct{ rows, response, want string }{
		// The response gives a letter in the usual forms.
		{anything, "B", "B"},
		{anything, "b", "B"},
		{anything, " (B) \n", "B"},
		{anything, "(b)", "B"},
		{anything, "[B]", "B"},
		{anything, "B.", "B"},
		{anything, "B)", "B"},
		{anything, "**B**", "B"},
		{anything, "*B*.", "B"},
		{anything, "`B`", "B"},
		{anything, "$B$", "B"},
		{anything, `\(B\)`, "B"},
		{anything, `"B"`, "B"},
		{anything, "Ｂ", "B"},
		{anything, "Ⓑ", "B"},
		{anything, "B\u200b", "B"},
		{anything, "Option B", "B"},
		{anything, "Answer: B", "B"},
		{anything, "**Answer:** B", "B"},
		{anything, "**Answer**: **B**", "B"},
		{anything, "### Answer\nB", "B"},
		{anything, "B, B and B", "B"},
		// With its text.
		{anything, "B. Paris", "B"},
		{anything, "B) Paris.", "B"},
		{anything, "(B) Paris", "B"},
		{anything, "**B. Paris**", "B"},
		{anything, "**B.** Paris", "B"},
		{anything, "B: Paris", "B"},
		{anything, "B - Paris", "B"},
		{anything, "B, Paris", "B"},
		{anything, "b. Paris", "B"},
		{withTexts, "B Paris", "B"},
		{withTexts, "B - London", ""},
		{letters, "B Paris", ""},
		{withTexts, "B. London", ""},
		{withTexts, "B. **London**", ""},
		{withTexts, "(B) Paris or London", ""},
		{withTexts, "C. New York", "C"},
		{withTexts, "D. New York", ""},
		{withTexts, "D. York", "D"},
		{withTexts, "B. Paris, the capital", "B"},
		{withTexts, "B. the capital", "B"},
		// The text alone.
		{withTexts, "Paris", "B"},
		{withTexts, "paris.", "B"},
		{withTexts, "**New  York**", "C"},
		{withTexts, "Answer: Paris", "B"},
		{withTexts, "The answer is Paris.", "B"},
		{withTexts, "The answer is Paris, not London.", ""},
		{withTexts, "The answer is Paris because London is in England", "B"},
		{withTexts, "Paris or London", ""},
		{withTexts, "Paris London", ""},
		{letters, "Paris", ""},
		// A box.
		{anything, `\boxed{B}`, "B"},
		{anything, `\boxed{\text{B}}`, "B"},
		{anything, `\boxed{\textbf{(B)}}`, "B"},
		{anything, `\boxed{\textbf{(B)}\ 12}`, "B"},
		{anything, `\boxed{\mathrm{B}}`, "B"},
		{anything, `\boxed{(B)}`, "B"},
		{anything, `\boxed{\text{Option B}}`, "B"},
		{anything, `\boxed{\text{B. Paris}}`, "B"},
		{withTexts, `\boxed{Paris}`, "B"},
		{withTexts, `\boxed{\text{Paris}}`, "B"},
		{anything, `\boxed{A}, no: \boxed{B}`, "B"},
		{anything, `\boxed{A} is wrong, so \boxed{B}.`, "B"},
		{anything, `\boxed{B}, as I said: \boxed{B}`, "B"},
		{anything, `\boxed{B}. The answer is C.` + "\nD", "B"},
		{anything, `\boxed{B`, ""},
		{anything, `\boxed{A or B}`, ""},
		{anything, `\boxed{A} or \boxed{B}`, ""},
		{anything, `\boxed{A \text{ or } B}`, ""},
		{anything, `\boxed{\cancel{A} B}`, ""},
		{anything, `\boxed{\not B}`, ""},
		{anything, `\boxed{42}`, ""},
		{anything, `\boxed{}`, ""},
		// The response gives the letter in a tag.
		{anything, "<think>A or C</think><answer>B</answer>", "B"},
		{anything, "<answer>A</answer> <answer>B</answer>", "B"},
		{anything, "<answer> (B) Paris </answer> The answer is A.", "B"},
		{anything, "<answer>The answer is B</answer>", "B"},
		{anything, "<answer>A or B</answer>", ""},
		// A phrase.
		{anything, "The answer is B.", "B"},
		{anything, "the answer is (b).", "B"},
		{anything, "The correct answer is **B**.", "B"},
		{anything, "The correct answer is: B", "B"},
		{anything, "The correct option is B) Paris.", "B"},
		{anything, "The answer is option B.", "B"},
		{anything, "The answer to this question is B.", "B"},
		{anything, "The answer is B, because A is wrong.", "B"},
		{anything, "The answer is B since (A) and (C) fail.", "B"},
		{anything, "The answer is B rather than A.", "B"},
		{anything, "The answer is B, not A.", "B"},
		{anything, "The answer is A because it fits.", "A"},
		{anything, "The answer is A. The answer is B.", "B"},
		{anything, "The answer is B. This answer is plausible.", "B"},
		{anything, "Final Answer: B\n\nI hope this helps.", "B"},
		{anything, "答案是B。", "B"},
		{anything, "答案：(B)", "B"},
		{anything, "所以选B。", "B"},
		{anything, "The answer is A or B.", ""},
		{anything, "The answer is A and B.", ""},
		{anything, "The answer is either A or B.", ""},
		{anything, "The answer is A, B, or C.", ""},
		{anything, "The answer is A/B.", ""},
		{anything, "The answer is B, otherwise A.", ""},
		{anything, "The answer is B, but maybe (A).", ""},
		{anything, "The answer is not B.", ""},
		{anything, "The answer is B. No: the answer is not B.", ""},
		{anything, "The answer is neither A nor B.", ""},
		{anything, "The answer is B.\n\nThe answer is not A.", "B"},
		{anything, "The answer is B. The answer is not A or B.", ""},
		{anything, "The answer is B. The answer is none of them.", ""},
		{anything, "The answer is B. The answer is not clear.", ""},
		{anything, "The answer is a square.", ""},
		{anything, "The answer is A square.", ""},
		{anything, "The answer is B?", ""},
		{anything, "The answer is B-cells.", ""},
		{anything, "The answer is B's sister.", ""},
		{anything, "The answer is K.", ""},
		{anything, "I like option A best, and choice B too", ""},
		// The last line.
		{anything, "Let me think about A and C.\nB", "B"},
		{anything, "So:\n(B)\n", "B"},
		{anything, "B\nis what I thought", ""},
		{anything, "A\nB", "B"},
		{anything, "A bird in the hand", ""},
		{anything, "I think B", ""},
		{anything, "It cannot be B.", ""},
		{anything, "B is wrong", ""},
		{anything, "B. is wrong", ""},
		{anything, "(B) is impossible", ""},
		// The response picks several letters at once, or none.
		{anything, "A and B", ""},
		{anything, "A or B", ""},
		{anything, "A/B", ""},
		{anything, "A, B", ""},
		{anything, "A B", ""},
		{anything, "AB", ""},
		{anything, "ABC", ""},
		{anything, "(A)(B)(C)", ""},
		{anything, "A) B) C)", ""},
		{anything, "A. B", ""},
		{anything, "A; B", ""},
		{anything, "A\u200bB", ""},
		{anything, "B̸", ""},
		{anything, "В", ""}, // a Cyrillic letter
		{anything, "BB", ""},
		{anything, "", ""},
		{anything, " \n ", ""},
		{anything, "?", ""},
		{anything, strings.Repeat("B ", 5000), ""},
		{anything, strings.Repeat("(", 100_000) + "B", ""},
		{anything, strings.Repeat(`\boxed{`, 100_000) + "B", ""},
		{anything, strings.Repeat("the answer is ", 20_000), ""},
		{anything, strings.Repeat("**", 100_000), ""},
		{anything, strings.Repeat("The answer is A dog and (B an ox "+strings.Repeat("(x a ", 900)+"\n", 100), ""},
	} {
		for _, kind := range []string{withTexts, letters} {
			if tt.rows != kind && tt.rows != anything {
				continue
			}
			r, row := newRule(), cities
			if kind == letters {
				row = nil
			}
			for _, gold := range []string{"A", "B", "C", "D"} {
				got := grade(t, r, row, tt.response, gold)
				if got.Status != reward.OK || got.Right() != (gold == tt.want) {
					t.Errorf("%s, gold %s: %.60q: %+v, want %q", kind, gold, tt.response, got, tt.want)
				}
			}
		}
	}
}

// TestExtract: the strict settings accept an answer only in their own place.
func TestExtract(t *testing.T) {
	for _, tt := range []struct{ where, after, response, want string }{
		{"boxed", "", `\boxed{B}`, "B"},
		{"boxed", "", "The answer is B", ""},
		{"tag", "", "<answer>B</answer>", "B"},
		{"tag", "", `\boxed{B}`, ""},
		{"phrase", "", "The answer is B", "B"},
		{"phrase", "", "B", ""},
		{"last_line", "", "A\nB", "B"},
		{"last_line", "", "The answer is B\nA", "A"},
		{"whole", "", "B", "B"},
		{"whole", "", "A\nB", "A, B"},
		{"auto", "</think>", "A</think>B", "B"},
		{"auto", "</think>", "The answer is A</think>", ""},
		{"auto", "</think>", "B", ""},
	} {
		r := newRule()
		r.Where, r.After = tt.where, tt.after
		if got := grade(t, r, nil, tt.response, "B"); got.Answer != tt.want {
			t.Errorf("%s after %q in %q: %+v, want %q", tt.where, tt.after, tt.response, got, tt.want)
		}
	}
}

// TestRows: the layouts in which data sets have choices and answers.
func TestRows(t *testing.T) {
	texts := []any{"London", "Paris", "Rome"}
	object := func(pairs ...any) (o data.Object) {
		for i := 0; i < len(pairs); i += 2 {
			o = append(o, data.Member{Name: pairs[i].(string), Value: pairs[i+1]})
		}
		return o
	}
	for _, tt := range []struct {
		name    string
		choices string
		row     data.Object
		gold    string
		answers []string
		want    string // the right answers, or the reason of an error
	}{
		{"MMLU", "choices", object("choices", texts), "auto", []string{"1"}, "B"},
		{"text", "choices", object("choices", texts), "auto", []string{"paris"}, "B"},
		{"letter", "choices", object("choices", texts), "auto", []string{"(B)"}, "B"},
		{"letter and text", "choices", object("choices", texts), "auto", []string{"B. Paris"}, "B"},
		{"number", "choices", object("choices", texts), "number", []string{"1"}, "A"},
		{"several right", "choices", object("choices", texts), "auto", []string{"A", "C"}, "A C"},
		{"ARC", "choices", object("choices", object("text", texts, "label", []any{"A", "B", "C"})), "auto", []string{"B"}, "B"},
		{"ARC with numbers", "choices", object("choices", object("text", texts, "label", []any{"1", "2", "3"})), "auto", []string{"2"}, "2"},
		{"labelled", "options", object("options", []any{object("label", "x", "text", "London"), object("label", "y", "text", "Paris")}), "auto", []string{"y"}, "y"},
		{"key and value", "options", object("options", []any{object("key", "A", "value", "London"), object("key", "B", "value", "Paris")}), "auto", []string{"Paris"}, "B"},
		{"MedQA", "options", object("options", object("A", "London", "B", "Paris", "C", nil)), "auto", []string{"Paris"}, "B"},
		{"inside a structure", "extra.choices", object("extra", object("choices", texts)), "auto", []string{"B"}, "B"},
		{"columns", "A, B,C", object("A", "London", "B", "Paris", "C", "Rome"), "auto", []string{"B"}, "B"},
		{"numbers as texts", "choices", object("choices", []any{int64(7), 0.5, json.Number("9")}), "text", []string{"0.5"}, "B"},
		{"AQuA", "options", object("options", []any{"A)21", "B)21.5", "C)22"}), "auto", []string{"21.5"}, "B"},
		{"not all with letters", "options", object("options", []any{"A. Smith", "B) Paris", "Rome"}), "auto", []string{"B) Paris"}, "B"},
		{"no choices", "", nil, "auto", []string{"B"}, "B"},
		{"no choices, index", "", nil, "auto", []string{"1"}, "B"},

		{"text or index", "choices", object("choices", []any{"1", "0"}), "auto", []string{"1"}, "! may be A or B: set reward.gold"},
		{"label or text", "choices", object("choices", []any{"B", "A"}), "auto", []string{"A"}, "! may be A or B: set reward.gold"},
		{"label by setting", "choices", object("choices", []any{"B", "A"}), "label", []string{"A"}, "A"},
		{"index by setting", "choices", object("choices", []any{"1", "0"}), "index", []string{"1"}, "B"},
		{"text by setting", "choices", object("choices", []any{"1", "0"}), "text", []string{"1"}, "A 1"},
		{"unknown text", "choices", object("choices", texts), "auto", []string{"Berlin"}, "! none of the choices"},
		{"a text twice", "choices", object("choices", []any{"x", "x"}), "auto", []string{"x"}, "! none of the choices"},
		{"index too large", "choices", object("choices", texts), "index", []string{"3"}, "! none of the choices"},
		{"letter too far", "choices", object("choices", texts), "auto", []string{"D"}, "! none of the choices"},
		{"no answer", "choices", object("choices", texts), "auto", nil, "! no answer"},
		{"no column", "choices", nil, "auto", []string{"B"}, "! no column"},
		{"no column of several", "A,B", object("A", "x"), "auto", []string{"A"}, "! no column"},
		{"no list", "choices", object("choices", "London"), "auto", []string{"B"}, "! not a list of 1 to 100 choices"},
		{"empty list", "choices", object("choices", []any{}), "auto", []string{"A"}, "! not a list of 1 to 100 choices"},
		{"unequal lists", "choices", object("choices", object("text", texts, "label", []any{"A"})), "auto", []string{"A"}, "! not a list"},
		{"nested", "choices", object("choices", []any{[]any{"x"}}), "auto", []string{"A"}, "! no text"},
		{"more than labels", "choices", object("choices", slices.Repeat([]any{"x"}, 11)), "auto", []string{"A"}, "! choice 11 "},
		{"a label twice", "choices", object("choices", object("text", texts, "label", []any{"A", "a", "C"})), "auto", []string{"C"}, "! stands twice"},
	} {
		r := newRule()
		r.Choices, r.Gold = tt.choices, tt.gold
		var right []string
		for _, label := range []string{"A", "B", "C", "1", "2", "x", "y"} {
			got := grade(t, r, tt.row, label, tt.answers...)
			if reason, isError := strings.CutPrefix(tt.want, "! "); isError {
				if got.Status != reward.Error || !strings.Contains(got.Reason, reason) {
					t.Errorf("%s: %+v, want an error with %q", tt.name, got, reason)
				}
				continue
			}
			if got.Status != reward.OK {
				t.Errorf("%s: %+v", tt.name, got)
			}
			if got.Right() {
				right = append(right, label)
			}
		}
		if !strings.HasPrefix(tt.want, "!") && strings.Join(right, " ") != tt.want {
			t.Errorf("%s: right are %q, want %q", tt.name, right, tt.want)
		}
	}
}

// TestSeveral: where the answer has several parts, all have to be picked and no
// others.
func TestSeveral(t *testing.T) {
	right := []string{"A and C", "A, C", "C, A", "(A)(C)", "AC", `\boxed{A, C}`, `\boxed{A} and \boxed{C}`, "The answers are A and C.", "Both A and C", "<answer>A; C</answer>", `\boxed{\text{A and C}}`}
	wrong := []string{"A", "C", "A, B, C", "A or C", "either A or C", "neither A nor C", "A and C or B", "ABC", "AAC", "A\nC"}
	all := newRule()
	all.All = true
	for _, tt := range []struct {
		rule  *rule
		golds []string
	}{{all, []string{"A", "C"}}, {newRule(), []string{"A, C"}}, {newRule(), []string{"AC"}}} {
		for _, response := range right {
			if got := grade(t, tt.rule, nil, response, tt.golds...); !got.Right() {
				t.Errorf("golds %q: %q: %+v", tt.golds, response, got)
			}
		}
		for _, response := range wrong {
			if got := grade(t, tt.rule, nil, response, tt.golds...); got.Right() {
				t.Errorf("golds %q: %q is right", tt.golds, response)
			}
		}
	}
}

func TestTruncated(t *testing.T) {
	scores, err := newRule().Score(context.Background(), []reward.Sample{{Problem: data.Problem{Answers: []string{"B"}}, Response: "B", Truncated: true}})
	if err != nil || scores[0].Value != 0 || scores[0].Reason != "truncated" {
		t.Errorf("%+v, %v", scores, err)
	}
}

// TestOneAnswer: no response is right for two answers that differ, whether the
// choices' texts are known, hold letters, or hold one another.
func TestOneAnswer(t *testing.T) {
	pieces := []string{
		"A", "B", "C", "a", "b", "(A)", "(B)", "**B**", "A.", "B.", "B)", "AB", "AC", "I", "London", "Paris", "New York", "York", "vitamin A",
		" ", "\n", ", ", "; ", "/", " and ", " or ", " not ", " because ", "neither ", "both ", ". ", "The answer is ", "Answer: ", "**Answer:** ", "option ", "答案：",
		`\boxed{`, `\text{`, "}", "<answer>", "</answer>", "$", `\ `, "\u200b", "?", "-", "</think>",
	}
	rows := [][]any{{"London", "Paris", "New York"}, {"York", "New York", "London"}, {"B", "A", "vitamin A"}, {"1", "2", "0"}, {"A) x", "B) y", "C) A"}, nil}
	rapid.Check(t, func(t *rapid.T) {
		r := newRule()
		r.Where = rapid.SampledFrom([]string{"auto", "boxed", "tag", "phrase", "last_line", "whole"}).Draw(t, "extract")
		r.After = rapid.SampledFrom([]string{"", "", "</think>"}).Draw(t, "after")
		r.All, r.Gold = rapid.Bool().Draw(t, "all"), "label"
		var row data.Object
		if texts := rapid.SampledFrom(rows).Draw(t, "choices"); texts != nil {
			r.Choices, row = "choices", data.Object{{Name: "choices", Value: texts}}
		}
		response := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 12).Draw(t, "response"), "")
		var right []string
		for _, gold := range []string{"A", "B", "C", "A, B", "AC", "B and C", "ABC"} {
			score := grade(t, r, row, response, gold)
			if score.Status != reward.OK {
				t.Fatalf("gold %q: %+v", gold, score)
			}
			if score.Right() {
				right = append(right, gold)
			}
		}
		if len(right) > 1 {
			t.Fatalf("%q is right for %q", response, right)
		}
	})
}

func Example() {
	problem := data.Problem{Answers: []string{"1"}, Fields: data.Object{{Name: "choices", Value: []any{"London", "Paris"}}}}
	rule := newRule()
	rule.Choices = "choices"
	for _, response := range []string{"The answer is **B**.", `\boxed{\text{Paris}}`, "B. London", "A or B"} {
		scores, _ := rule.Score(context.Background(), []reward.Sample{{Problem: problem, Response: response}})
		fmt.Println(scores[0].Value, scores[0].Reason)
	}
	// Output:
	// 1 the right choice
	// 1 the right choice
	// 0 letter and text are of two choices
	// 0 several choices are named
}
