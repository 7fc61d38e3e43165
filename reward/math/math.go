// Package math is the reward for mathematical answers: 1 for a response that
// states one of the problem's answers, as package verifier judges, else 0.
package math

import (
	"context"

	"onering/reward"
	"onering/verifier"
)

func init() { reward.Register("math", func() reward.Reward { return new(Rule) }) }

// A Rule grades by the verifier. It has no settings.
type Rule struct{}

// About is the reward's line in lists.
func (*Rule) About() string {
	return "1 for a response that states one of the answers, compared as mathematics"
}

// Score gives 1 to a right response and 0 to any other. A truncated response
// earns 0 whatever it says.
func (*Rule) Score(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	scores := make([]reward.Score, len(group))
	for i, sample := range group {
		verdict := verifier.Verifier{}.VerifyAny(sample.Problem.Answers, sample.Response)
		scores[i] = reward.Score{Answer: verdict.Answer, Reason: verdict.Reason, Status: statuses[verdict.Status]}
		if verdict.Correct && !sample.Truncated {
			scores[i].Value = 1
		}
	}
	return scores, nil
}

var statuses = map[verifier.Status]reward.Status{
	verifier.OK: reward.OK, verifier.Limit: reward.Limit, verifier.Error: reward.Error,
}

// SameAnswer says whether either answer is right where the other is the gold: a
// gold may be stated in ways that a response may not.
func (*Rule) SameAnswer(a, b string) bool {
	v := verifier.Verifier{}
	return v.VerifyAny([]string{a}, `\boxed{`+b+`}`).Correct || v.VerifyAny([]string{b}, `\boxed{`+a+`}`).Correct
}
