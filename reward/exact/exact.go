// Package exact is the reward for answers that are texts: 1 for a response whose answer
// is one of the problem's, letter by letter except as the settings say, else 0.
package exact

import (
	"context"

	"onering/reward"
	"onering/reward/texts"
)

func init() { reward.Register("exact", func() reward.Reward { return newRule() }) }

// A rule is the reward "exact".
type rule struct {
	texts.Extract
	texts.Compare
}

// newRule returns the reward with its defaults.
func newRule() *rule {
	return &rule{texts.Extract{Where: "whole", Tag: "answer"}, texts.Compare{Whitespace: "trim", Unicode: "nfc"}}
}

// About is the reward's line in lists.
func (*rule) About() string { return "1 for a response whose answer is one of the answers as a text" }

// Score gives 1 to a response whose answer equals one of the problem's, and 0 to any
// other and to a truncated one. An answer that normalizes to nothing does not count.
func (r *rule) Score(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	return reward.Each(group, r.score), nil
}

// score compares the normal form of the answer in a response with those of the problem's answers.
func (r *rule) score(sample reward.Sample) reward.Score {
	golds := r.Normals(sample.Problem.Answers)
	if len(golds) == 0 {
		return reward.Score{Status: reward.Error, Reason: "the problem has no answer"}
	}
	answer, ok := r.Find(sample.Response)
	switch {
	case !ok:
		return reward.Score{Reason: "no answer in the response"}
	case !golds[r.Normal(answer)]:
		return reward.Score{Answer: answer, Reason: "another text"}
	case sample.Truncated:
		return reward.Score{Answer: answer, Reason: "truncated"}
	}
	return reward.Score{Value: 1, Answer: answer, Reason: "the same text"}
}

// SameAnswer compares answers as Score does.
func (r *rule) SameAnswer(a, b string) bool {
	normal := r.Normal(a)
	return normal != "" && normal == r.Normal(b)
}
