package verifier_test

import (
	"strings"
	"testing"

	"onering/verifier"
)

// FuzzVerify looks for golds and responses with which Verify crashes, takes long, or
// breaks its rules.
func FuzzVerify(f *testing.F) {
	for _, c := range ownCases(f) {
		f.Add(c.Gold, `\boxed{`+c.Answer+`}`)
	}
	for _, s := range limitCases() {
		if len(s) < 2000 {
			f.Add(s, `\boxed{`+s+`}`)
			f.Add("5", s)
		}
	}
	f.Fuzz(func(t *testing.T, gold, response string) {
		for _, mode := range []verifier.Mode{verifier.Auto, verifier.Boxed, verifier.Tag, verifier.Last} {
			v := verifier.Verifier{Mode: mode}
			r, steps := v.Steps([]string{gold}, response)
			if steps > mostSteps {
				t.Errorf("took %d steps", steps)
			}
			if r.Correct && (r.Answer == "" || r.Status != verifier.OK) {
				t.Errorf("correct without an answer: %+v", r)
			}
			if strings.HasPrefix(r.Reason, "internal error") {
				t.Errorf("%+v", r)
			}
			if r.Reason == "" {
				t.Errorf("no reason: %+v", r)
			}
			if again := v.Verify(gold, response); again != r {
				t.Errorf("%+v, then %+v", r, again)
			}
		}
	})
}
