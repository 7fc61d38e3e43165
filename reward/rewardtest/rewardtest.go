// Package rewardtest checks that a reward keeps the rules of reward.Reward. An
// author's whole test is
//
//	func TestConformance(t *testing.T) { rewardtest.Run(t, "mine") }
//
// Each rule is a subtest of its own, and a failure prints the rule.
package rewardtest

import (
	"errors"
	"testing"

	"onering/internal/registry"
	"onering/reward"
)

// A Failure is a rule that a reward breaks.
type Failure = registry.Failure

// Run checks the reward that is registered as name, with its defaults.
func Run(t *testing.T, name string) {
	t.Helper()
	RunNew(t, func() reward.Reward {
		r, err := reward.New(name)
		if err != nil {
			t.Fatal(err)
		}
		return r
	})
}

// RunNew checks the rewards that new returns. Use it for settings other than the
// defaults.
func RunNew(t *testing.T, new func() reward.Reward) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.Name, func(t *testing.T) {
			if err := r.apply(new); err != nil {
				t.Error(err)
			}
		})
	}
}

// Check returns what RunNew would report: nil, or joined errors each of which is a
// *Failure.
func Check(new func() reward.Reward) error {
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
		names[i] = r.Name
	}
	return names
}

// A rule is one case of the suite.
type rule registry.Rule[reward.Reward]

// apply runs the check.
func (r rule) apply(new func() reward.Reward) error {
	return registry.Rule[reward.Reward](r).Apply(new, nil)
}

// rules are those of reward.Reward's doc comment, in its order.
var rules = []rule{
	{"defaults", "New returns a fresh value every time, with defaults that Validate accepts and a toml name on every exported field", checkDefaults},
	{"count", "Score returns one score per sample, in the order of the samples, for groups of any size, an empty one included", checkCount},
	{"values", "values, components and log figures are finite, the status is OK, Limit or Error, and a sample that was skipped or whose status is not OK has value 0", checkValues},
	{"any-text", "any text is graded without an error: empty, very long, not UTF-8, to a problem without answers or fields", checkAnyText},
	{"arguments", "no method modifies its arguments", checkArguments},
	{"retention", "no method keeps a reference to its arguments", checkRetention},
	{"determinism", "equal groups get equal scores, whatever was graded before, unless the reward is a Varying one", checkDeterminism},
	{"order", "the order of the samples does not matter", checkOrder},
	{"concurrency", "methods may be called concurrently", checkConcurrency},
	{"context", "if the context has ended, Score returns without waiting, with scores or with an error that wraps the context's", checkContext},
	{"same-answer", "SameAnswer does not depend on the order of its arguments", checkSameAnswer},
}
