// Package objectivetest checks that an objective keeps the rules of
// objectives.Objective. An author's whole test is
//
//	func TestConformance(t *testing.T) { objectivetest.Run(t, "mine") }
//
// Each rule is a subtest of its own, and a failure prints the rule.
package objectivetest

import (
	"errors"
	"fmt"
	"testing"

	"onering/objectives"
)

// A Failure is a rule that an objective breaks.
type Failure struct {
	// Rule is the name of the rule, as in Rules.
	Rule string
	// Explanation is the rule itself.
	Explanation string
	// Err describes what the check found.
	Err error
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %s: %v", f.Rule, f.Explanation, f.Err) }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// Run checks the objective that is registered as name, with its defaults.
func Run(t *testing.T, name string) {
	t.Helper()
	RunNew(t, func() objectives.Objective {
		o, err := objectives.New(name)
		if err != nil {
			t.Fatal(err)
		}
		return o
	})
}

// RunNew checks the objectives that new returns. Use it for settings other than
// the defaults.
func RunNew(t *testing.T, new func() objectives.Objective) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			if err := r.apply(new); err != nil {
				t.Error(err)
			}
		})
	}
}

// Check returns what RunNew would report: nil, or joined errors each of which is a
// *Failure.
func Check(new func() objectives.Objective) error {
	var errs []error
	for _, r := range rules {
		if err := r.apply(new); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Rules returns the names of the rules in the order in which they are checked.
func Rules() []string {
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = r.name
	}
	return names
}

// A rule is one case of the suite.
type rule struct {
	name, explanation string
	check             func(new func() objectives.Objective) error
}

// apply runs the check; an objective that panics breaks the rule being checked.
func (r rule) apply(new func() objectives.Objective) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Failure{r.name, r.explanation, fmt.Errorf("the objective panics: %v", v)}
		}
	}()
	if err := r.check(new); err != nil {
		return &Failure{r.name, r.explanation, err}
	}
	return nil
}
