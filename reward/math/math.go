// Package math is the reward for mathematical answers: 1 for a response that
// states one of the problem's answers, as package verifier judges, else 0.
package math

import (
	"context"
	"slices"
	"strings"

	"onering/internal/settings"
	"onering/reward"
	"onering/verifier"
)

func init() { reward.Register("math", func() reward.Reward { return new(rule) }) }

// A rule grades by the verifier. Its zero value looks for answers in boxes.
type rule struct {
	// Mode is "" until SetTemplate is called, unless a setting chooses it.
	Mode      string  `toml:"extract" help:"where in a response the answer has to stand: boxed (the last complete box), tag (the answer tags of the r1 template, right after its thinking), auto (tags, else the last complete box, else what running text says), last (the last expression, boxed or not). A response without an answer there earns 0. If not given the template decides: tag for r1, boxed for all others"`
	Tolerance float64 `toml:"tolerance" range:"[0,1)" note:"0 compares decimals to the digits that they state" help:"how far a decimal may be from the answer, relative to it: 0.01 is one per cent"`
	WorkedOut bool    `toml:"worked_out" help:"where the answer is a number, a response has to work it out: 4+18 is not right for 22, and 22, 22.0, 1/2, 2/4, 1.5e3, 2*sqrt(3) and 3*pi are"`

	byTemplate bool // Mode follows from the template
}

// Validate refuses an unknown Mode.
func (r *rule) Validate() error {
	if r.Mode == "" || slices.Contains(reward.ExtractRules, r.Mode) {
		return nil
	}
	return &settings.Error{Key: "extract", Value: r.Mode, Remedy: "must be one of " + strings.Join(reward.ExtractRules, ", ") +
		"; without it the template decides"}
}

// SetTemplate chooses the mode that the template asks for, unless one is set: the tags
// of r1 and open-reasoner-zero, else the box.
func (r *rule) SetTemplate(name string) {
	if r.Mode != "" && !r.byTemplate {
		return
	}
	r.Mode, r.byTemplate = verifier.Boxed.String(), true
	if name == "r1" || name == "open-reasoner-zero" {
		r.Mode = verifier.Tag.String()
	}
}

// Extract returns the rule by which answers are found.
func (r *rule) Extract() string { return r.verifier().Mode.String() }

// WithExtract returns a copy with another rule.
func (r *rule) WithExtract(mode string) reward.Reward {
	return &rule{Mode: mode, Tolerance: r.Tolerance, WorkedOut: r.WorkedOut}
}

func (r *rule) verifier() verifier.Verifier {
	mode, err := verifier.ParseMode(r.Mode)
	if err != nil {
		mode = verifier.Boxed
	}
	return verifier.Verifier{Mode: mode, Strict: mode == verifier.Tag, Tolerance: r.Tolerance, WorkedOut: r.WorkedOut}
}

// About is the reward's line in lists.
func (*rule) About() string {
	return "1 for a response that states one of the answers, compared as mathematics"
}

// Score gives 1 to a right response and 0 to any other. A truncated response
// earns 0 whatever it says.
func (r *rule) Score(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	v, scores := r.verifier(), make([]reward.Score, len(group))
	for i, sample := range group {
		verdict := v.VerifyAny(sample.Problem.Answers, sample.Response)
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

// SameAnswer says whether either answer is right if the other is the gold: a gold may
// have forms that a response may not.
func (r *rule) SameAnswer(a, b string) bool {
	v := verifier.Verifier{Mode: verifier.Boxed, Tolerance: r.Tolerance}
	return v.VerifyAny([]string{a}, `\boxed{`+b+`}`).Correct || v.VerifyAny([]string{b}, `\boxed{`+a+`}`).Correct
}

var (
	_ reward.Comparer  = (*rule)(nil)
	_ reward.Extractor = (*rule)(nil)
)
