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
	"maps"
	"slices"
	"strings"
	"testing"

	"onering/internal/registry"
	"onering/objectives"
)

// A Failure is a rule that an objective breaks.
type Failure = registry.Failure

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
		t.Run(r.Name, func(t *testing.T) {
			if why := exempt[r.Name]; why != "" {
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
		names[i] = r.Name
	}
	return names
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
		i := slices.IndexFunc(rules, func(r rule) bool { return r.Name == name })
		switch {
		case i < 0:
			return &Failure{Rule: name, Explanation: "Exemptions names rules of objectivetest", Err: errors.New("there is no such rule")}
		case strings.TrimSpace(exempt[name]) == "":
			return &Failure{Rule: name, Explanation: rules[i].Explanation, Err: errors.New("Exemptions must say why the objective cannot keep this rule")}
		}
	}
	return nil
}
