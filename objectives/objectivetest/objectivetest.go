// Package objectivetest checks that an objective keeps the rules of
// objectives.Objective. An author's whole test is
//
//	func TestConformance(t *testing.T) { objectivetest.Run(t, "mine") }
//
// Each rule is a subtest of its own, and a failure prints the rule. Of an
// objectives.Exempter the suite demands that it breaks the rules it names, and keeps
// all others.
package objectivetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	exempt := exemptions(new())
	if err := checkExemptions(exempt); err != nil {
		t.Error(err)
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			if why := exempt[r.name]; why != "" {
				t.Logf("exempt: %s", why)
			}
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
	if err := checkExemptions(exemptions(new())); err != nil {
		errs = append(errs, err)
	}
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
	why, exempt := exemptions(new())[r.name]
	err = r.check(new)
	switch {
	case err != nil && !exempt:
		return &Failure{r.name, r.explanation, err}
	case err == nil && exempt:
		return &Failure{r.name, r.explanation, fmt.Errorf("the objective keeps this rule, from which Exemptions excludes it (%q): remove the exemption", why)}
	}
	return nil
}

// exemptions returns what o says of itself as an Exempter.
func exemptions(o objectives.Objective) map[string]string {
	if e, ok := o.(objectives.Exempter); ok {
		return e.Exemptions()
	}
	return nil
}

// checkExemptions refuses exemptions from rules that there are not, and those without
// a reason.
func checkExemptions(exempt map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(exempt)) {
		i := slices.IndexFunc(rules, func(r rule) bool { return r.name == name })
		switch {
		case i < 0:
			return &Failure{name, "Exemptions names rules of objectivetest", errors.New("there is no such rule")}
		case strings.TrimSpace(exempt[name]) == "":
			return &Failure{name, rules[i].explanation, errors.New("Exemptions must say why the objective cannot keep this rule")}
		}
	}
	return nil
}
