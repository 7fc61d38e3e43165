package regex

import (
	"context"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"onering/data"
	"onering/reward"
	"onering/reward/rewardtest"
)

func TestConformance(t *testing.T) {
	rewardtest.Run(t, "regex")
	for name, set := range map[string]func(*rule){
		"think_answer":  func(r *rule) { r.Format, r.Match, r.NoMatch = "think_answer", 0.5, -0.5 },
		"boxed":         func(r *rule) { r.Format = "boxed" },
		"json":          func(r *rule) { r.Format, r.Keys = "json", []string{"answer"} },
		"pattern":       func(r *rule) { r.Pattern = `(?s).*\d+.*` },
		"search":        func(r *rule) { r.Pattern, r.Search = `(\w+)\s*(x.*y)?`, true },
		"compare":       func(r *rule) { r.Pattern, r.Search, r.CompareGroup, r.Format = `\\boxed{(.*?)}`, true, true, "boxed" },
		"after":         func(r *rule) { r.Pattern, r.After = `\s*\d+`, "</think>" },
		"empty matches": func(r *rule) { r.Pattern, r.Search = `(x*)`, true },
	} {
		t.Run(name, func(t *testing.T) {
			make := func() reward.Reward {
				r := newRule()
				set(r)
				return r
			}
			if err := make().(*rule).Validate(); err != nil {
				t.Error(err)
			}
			rewardtest.RunNew(t, make)
		})
	}
}

// grade returns the score of one response.
func grade(t interface{ Fatal(...any) }, r *rule, prompt, response string, answers ...string) reward.Score {
	scores, err := r.Score(context.Background(), []reward.Sample{{Problem: data.Problem{Answers: answers}, Prompt: prompt, Response: response}})
	if err != nil {
		t.Fatal(err)
	}
	return scores[0]
}

func TestFormats(t *testing.T) {
	deep := strings.Repeat("[", 100_000)
	for _, tt := range []struct {
		format, response string
		match            bool
	}{
		{"auto", "<think>a</think>b", true},
		{"think", "<think>a</think>b", true},
		{"think", " <think>\na\n</think>\n\nb\n", true},
		{"think", "<think></think>b", true},
		{"think", "<think>a</think>", false},
		{"think", "<think>a</think> \n", false},
		{"think", "<think>a", false},
		{"think", "a</think>b", false},
		{"think", "</think>a<think>b", false},
		{"think", "x<think>a</think>b", false},
		{"think", "<think>a</think>b</think>c", false},
		{"think", "<think><think>a</think>b", false},
		{"think", "<think>a</think>b<think>", false},
		{"think", "<think>a</think>b<think>c</think>d", false},
		{"think", "<THINK>a</THINK>b", false},
		{"think", "", false},
		{"think", strings.Repeat("<think>", 100_000), false},

		{"think_answer", "<think>a</think><answer>b</answer>", true},
		{"think_answer", "<think>a</think>\n<answer>b</answer>\n", true},
		{"think_answer", "<think>a</think> <answer> b </answer>", true},
		{"think_answer", "<think>a</think>b<answer>c</answer>", false},
		{"think_answer", "<think>a</think><answer>b</answer>c", false},
		{"think_answer", "<think>a</think><answer> </answer>", false},
		{"think_answer", "<think>a</think><answer>b", false},
		{"think_answer", "<think>a</think></answer>b<answer>", false},
		{"think_answer", "<think>a<answer>b</answer></think>", false},
		{"think_answer", "<think><answer>a</think>b</answer>", false},
		{"think_answer", "<think>a</think><answer>b</answer><answer>c</answer>", false},
		{"think_answer", "<answer>b</answer><think>a</think>", false},
		{"think_answer", "<think>a</think>b", false},

		{"boxed", `so \boxed{4}.`, true},
		{"boxed", `so \fbox{\frac{1}{2}}.`, true},
		{"boxed", `\boxed{4} \boxed{4}`, false},
		{"boxed", `\boxed{4 \boxed{5}}`, false},
		{"boxed", `\boxed{4} \boxed{5`, false},
		{"boxed", `\boxed{4`, false},
		{"boxed", `\boxed{}`, false},
		{"boxed", "4", false},

		{"json", ` {"a": 1} `, true},
		{"json", `[1, 2]`, true},
		{"json", `4`, true},
		{"json", "Here:\n```json\n{\"a\": 1}\n```\nDone.", true},
		{"json", "```\n{\n\"a\": 1}\n```", true},
		{"json", "```JSON\n1\n```", true},
		{"json", `{"a": 1}{"b": 2}`, false},
		{"json", `{"a": 1,}`, false},
		{"json", `{'a': 1}`, false},
		{"json", `Here: {"a": 1}`, false},
		{"json", "```python\n1\n```", false},
		{"json", "```json\n1\n```\n```json\n2\n```", false},
		{"json", "```json\n1\n", false},
		{"json", "```json\n```", false},
		{"json", "```json\n1\n```json", false},
		{"json", "", false},
		{"json", deep, false},
		{"json", deep + strings.Repeat("]", 100_000), false},
	} {
		r := newRule()
		r.Format = tt.format
		if got := grade(t, r, "", tt.response); got.Right() != tt.match || got.Reason == "" {
			t.Errorf("%s: %.60q: %+v, want a match: %v", tt.format, tt.response, got, tt.match)
		}
	}
}

// TestOpenedInPrompt: a template that has written <think> leaves the response to continue
// inside it.
func TestOpenedInPrompt(t *testing.T) {
	for response, match := range map[string]bool{"a</think>b": true, "<think>a</think>b": false, "a": false, "</think>b": true} {
		if got := grade(t, newRule(), "Assistant: <think>\n", response); got.Right() != match {
			t.Errorf("%q: %+v, want a match: %v", response, got, match)
		}
	}
}

// TestEpisode: thoughts and boxes in earlier turns of an episode count, too.
func TestEpisode(t *testing.T) {
	for _, tt := range []struct {
		format, prompt, earlier, response string
		match                             bool
	}{
		{"think", "", "<think>a</think>call", "<think>b</think>c", true},
		{"think", "", "a call", "<think>b</think>c", false},
		{"think", "x<think>\n", "a</think>call", "b</think>c", true},
		{"think_answer", "", "<think>a</think>call", "<think>b</think><answer>c</answer>", true},
		{"think_answer", "", "call</think>", "<think>b</think><answer>c</answer>", false},
		{"boxed", "", "call", `\boxed{4}`, true},
		{"boxed", "", `\boxed{5}`, `\boxed{4}`, false},
		{"json", "", "call", "[4]", true},
	} {
		r := newRule()
		r.Format = tt.format
		scores, err := r.Score(t.Context(), []reward.Sample{{Prompt: tt.prompt, Response: tt.response, Earlier: []reward.Written{{Text: tt.earlier}}}})
		if err != nil || (scores[0].Value == 1) != tt.match {
			t.Errorf("%+v: %+v, %v", tt, scores, err)
		}
	}
}

func TestKeys(t *testing.T) {
	r := newRule()
	r.Format, r.Keys = "json", []string{"answer", "why"}
	for response, match := range map[string]bool{
		`{"answer": 1, "why": null}`: true, "```json\n{\"why\": 1, \"answer\": 2, \"x\": 3}\n```": true,
		`{"answer": 1}`: false, `{"Answer": 1, "why": 2}`: false, `[{"answer": 1, "why": 2}]`: false, `"answer why"`: false, `null`: false, `{"x": {"answer": 1, "why": 2}}`: false,
	} {
		if got := grade(t, r, "", response); got.Right() != match {
			t.Errorf("%s: %+v, want a match: %v", response, got, match)
		}
	}
}

func TestPattern(t *testing.T) {
	for _, tt := range []struct {
		pattern         string
		search, compare bool
		response        string
		value           float64
		answer          string
	}{
		{`\d+`, false, false, " 42\n", 1, ""},
		{`\d+`, false, false, "42 or 43", 0, ""},
		{`4|42`, false, false, "42", 1, ""},
		{`a)|(b`, false, false, "a", 0, "!"}, // no expression
		{`\d+`, true, false, "42 or 43", 1, ""},
		{`\d+`, true, false, "none", 0, ""},
		{`answer: (\d+)`, true, true, "answer: 41, answer: 42", 1, "42"},
		{`answer: (\d+)`, true, true, "answer: 42, answer: 41", 0, "41"},
		{`(?s).*answer: (\d+)`, false, true, "so\nanswer: 42", 1, "42"},
		{`.*answer: (\d+)`, false, true, "so\nanswer: 42", 0, ""}, // . is not a line break
		{`\b(\d+)\b`, true, true, "4 42", 1, "42"},
		{`(\d+)?x`, true, true, "x", 0, ""},
		{`(.*)`, false, true, "41 42", 0, "41 42"},
	} {
		r := newRule()
		r.Pattern, r.Search, r.CompareGroup = tt.pattern, tt.search, tt.compare
		if tt.answer == "!" {
			if _, err := r.Score(context.Background(), []reward.Sample{{Response: tt.response}}); err == nil || !strings.HasPrefix(err.Error(), "reward.pattern: ") {
				t.Errorf("%s: error %v", tt.pattern, err)
			}
			continue
		}
		if got := grade(t, r, "", tt.response, "42"); got.Value != tt.value || got.Answer != tt.answer || got.Status != reward.OK {
			t.Errorf("%s in %q: %+v, want %v and %q", tt.pattern, tt.response, got, tt.value, tt.answer)
		}
	}
}

// TestBoth: a response must satisfy both the format and the pattern.
func TestBoth(t *testing.T) {
	r := newRule()
	r.Format, r.Pattern, r.Search, r.Match, r.NoMatch = "boxed", "(?i)therefore", true, 2, -1
	for response, value := range map[string]float64{`Therefore \boxed{4}`: 2, `\boxed{4}`: -1, "therefore": -1} {
		if got := grade(t, r, "", response); got.Value != value {
			t.Errorf("%q: %+v, want %v", response, got, value)
		}
	}
}

func TestNoGrade(t *testing.T) {
	r := newRule()
	r.Pattern, r.CompareGroup = `(.*)`, true
	for _, answers := range [][]string{nil, {" "}} {
		if got := grade(t, r, "", " ", answers...); got.Status != reward.Error || got.Value != 0 {
			t.Errorf("answers %q: %+v", answers, got)
		}
	}
	r = newRule()
	r.NoMatch = -1
	scores, err := r.Score(context.Background(), []reward.Sample{{Response: "<think>a</think>b", Truncated: true}})
	if err != nil || scores[0].Value != -1 || scores[0].Reason != "truncated" {
		t.Errorf("truncated: %+v, %v", scores, err)
	}
	r = newRule()
	r.Pattern, r.After = `\d`, "####"
	for response, value := range map[string]float64{"#### 4": 1, "4": 0, "#### 4 #### 5": 1, "4 ####": 0} {
		if got := grade(t, r, "", response); got.Value != value {
			t.Errorf("after: %q: %+v, want %v", response, got, value)
		}
	}
}

// TestBounded: a pattern whose matches could each read the whole rest of the text ends in
// a limit.
func TestBounded(t *testing.T) {
	r := newRule()
	r.Pattern, r.Search, r.NoMatch = `x(.*y)?`, true, -1
	if got := grade(t, r, "", strings.Repeat("x", 100_000)); got.Status != reward.Limit || got.Value != 0 {
		t.Errorf("%+v", got)
	}
	if got := grade(t, r, "", strings.Repeat("x ", 1000)); got.Value != 1 {
		t.Errorf("%+v", got)
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		want string
		set  func(*rule)
	}{
		{`pattern = "(": error parsing regexp: missing closing )`, func(r *rule) { r.Pattern = "(" }},
		{`pattern = "a)(b": error parsing regexp: unexpected )`, func(r *rule) { r.Pattern = "a)(b" }},
		{`pattern = "(?=x)": error parsing regexp: invalid or unsupported`, func(r *rule) { r.Pattern = "(?=x)" }},
		{`pattern = "": must be set where format is none`, func(r *rule) { r.Format = "none" }},
		{"search = true: needs a pattern", func(r *rule) { r.Search = true }},
		{"compare = true: needs a pattern with a group", func(r *rule) { r.Pattern, r.CompareGroup = "x", true }},
		{`keys = [x]: needs format = "json"`, func(r *rule) { r.Keys = []string{"x"} }},
		{"match = NaN: must be a finite number", func(r *rule) { r.Match = math.NaN() }},
		{"no_match = +Inf: must be a finite number", func(r *rule) { r.NoMatch = math.Inf(1) }},
		{"match = 0: must not be what no_match is", func(r *rule) { r.Match = 0 }},
	} {
		r := newRule()
		tt.set(r)
		if err := r.Validate(); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}

// TestOneAnswer: the compared text depends on the response alone.
func TestOneAnswer(t *testing.T) {
	patterns := []string{`(.*)`, `(?s).*?(\w+).*`, `(\w+)`, `is (\w+)|or (\w+)`, `(a|ab)(c|bcd)?`, `\\boxed{(.*?)}`}
	pieces := []string{"a", "ab", "abcd", "4", "5", " is ", " or ", "\n", `\boxed{`, "}", "####"}
	rapid.Check(t, func(t *rapid.T) {
		r := newRule()
		r.Pattern, r.Search, r.CompareGroup = rapid.SampledFrom(patterns).Draw(t, "pattern"), rapid.Bool().Draw(t, "search"), true
		r.After = rapid.SampledFrom([]string{"", "####"}).Draw(t, "after")
		response := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 8).Draw(t, "response"), "")
		var right []string
		for _, gold := range pieces {
			if r.Normal(gold) != "" && grade(t, r, "", response, gold).Right() {
				right = append(right, gold)
			}
		}
		if len(right) > 1 {
			t.Fatalf("%q is right for %q", response, right)
		}
	})
}
