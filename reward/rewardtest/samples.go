package rewardtest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"onering/data"
	"onering/reward"
)

// A variant is the part of a sample that differs within a group.
type variant struct {
	response  string
	truncated bool
}

// variants are responses of the kinds that policies give.
var variants = []variant{
	{`The sum is \boxed{4}.`, false},
	{`The sum is \boxed{5}.`, false},
	{`<think> 2+2 </think> <answer> 4 </answer>`, false},
	{`{"answer": "4"}`, false},
	{"A", false},
	{"no idea", false},
	{`The sum is \boxed{4}.`, true},
	{"2 + 2 is 2 + 1 + 1 is", true},
}

// oddTexts are texts that a reward must survive.
var oddTexts = []string{
	"", " \n\t", "\x00", "\xff\xfe\\boxed{\xff}", `\boxed{`, strings.Repeat("{", 10_000), strings.Repeat("so ", 100_000),
	`</answer><answer>`, `"}],"x":[`, "\u202e4\ufeff", strings.Repeat("9", 5_000),
}

// problem returns a row with fields of all kinds; equal to, but sharing nothing
// with, those of other calls.
func problem() data.Problem {
	return data.Problem{
		ID: "rows:1", Text: "What is 2+2? (A) 4 (B) 5", Answers: []string{"4", "four"},
		Fields: data.Object{
			{Name: "problem", Value: "What is 2+2? (A) 4 (B) 5"}, {Name: "answer", Value: []any{"4", "four"}}, {Name: "choice", Value: "A"},
			{Name: "level", Value: int64(3)}, {Name: "share", Value: 0.25}, {Name: "count", Value: json.Number("7")}, {Name: "image", Value: []byte{1, 2}},
			{Name: "reward_model", Value: data.Object{{Name: "ground_truth", Value: "4"}, {Name: "style", Value: nil}}},
		},
		File: "rows.jsonl", Line: 1,
	}
}

// sample makes a response to a problem.
func sample(p data.Problem, text string, truncated bool) reward.Sample {
	prompt := "User: " + p.Text + "\nAssistant:"
	s := reward.Sample{Problem: p, Prompt: prompt, PromptIDs: []int32{1, 2, 3}, Response: text, Truncated: truncated}
	for i := range min(len(text), 50) {
		s.IDs = append(s.IDs, int32(text[i]))
	}
	return s
}

// group returns a sample of each variant, to one problem.
func group() []reward.Sample {
	var out []reward.Sample
	for _, v := range variants {
		out = append(out, sample(problem(), v.response, v.truncated))
	}
	return out
}

// score grades a group and checks that there is a score for each sample.
func score(r reward.Reward, group []reward.Sample) ([]reward.Score, error) {
	scores, err := r.Score(context.Background(), group)
	if err == nil && len(scores) != len(group) {
		err = fmt.Errorf("%d scores for %d samples", len(scores), len(group))
	}
	return scores, err
}

// equal wants equal scores, unless those of r may vary.
func equal(r reward.Reward, got, want []reward.Score) error {
	if reward.Varies(r) {
		return nil
	}
	return same(got, want)
}

// same wants equal scores, to the bit.
func same(got, want []reward.Score) error {
	for i := range want {
		if g, w := fmt.Sprintf("%+v", got[i]), fmt.Sprintf("%+v", want[i]); g != w {
			return fmt.Errorf("sample %d: the score is %s, and %s at another time", i, g, w)
		}
	}
	return nil
}
