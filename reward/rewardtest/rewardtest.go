// Package rewardtest checks that a reward keeps the rules of reward.Reward. An
// author's whole test is
//
//	func TestConformance(t *testing.T) { rewardtest.Run(t, "mine") }
//
// Each rule is a subtest of its own, and a failure prints the rule.
package rewardtest

import (
	"testing"

	"onering/internal/registry"
	"onering/reward"
)

// A Failure is a rule that a reward breaks.
type Failure = registry.Failure

// Run checks the reward that is registered as name, with its defaults.
func Run(t *testing.T, name string) {
	t.Helper()
	RunNew(t, suite.Named(t, name))
}

// RunNew checks the rewards that new returns. Use it for settings other than the
// defaults.
func RunNew(t *testing.T, new func() reward.Reward) {
	t.Helper()
	registry.Run(t, suite, new)
}

// Check returns what RunNew would report: nil, or joined errors each of which is a
// *Failure.
func Check(new func() reward.Reward) error { return suite.Check(new) }

// suite has the rules of reward.Reward's doc comment, in its order.
var suite = registry.Suite[reward.Reward]{New: reward.New, Rules: []registry.Rule[reward.Reward]{
	{Name: "defaults", Explanation: "New returns a fresh value every time, with defaults that Validate accepts and a toml name on every exported field", Check: checkDefaults},
	{Name: "count", Explanation: "Score returns one score per sample, in the order of the samples, for groups of any size, an empty one included", Check: checkCount},
	{Name: "values", Explanation: "values, components and log figures are finite, the status is OK, Limit or Error, and a sample that was skipped or whose status is not OK has value 0", Check: checkValues},
	{Name: "any-text", Explanation: "any text is graded without an error: empty, very long, not UTF-8, to a problem without answers or fields", Check: checkAnyText},
	{Name: "arguments", Explanation: "no method modifies its arguments", Check: checkArguments},
	{Name: "retention", Explanation: "no method keeps a reference to its arguments", Check: checkRetention},
	{Name: "determinism", Explanation: "equal groups get equal scores, whatever was graded before, unless the reward is a Varying one", Check: checkDeterminism},
	{Name: "order", Explanation: "the order of the samples does not matter", Check: checkOrder},
	{Name: "concurrency", Explanation: "methods may be called concurrently", Check: checkConcurrency},
	{Name: "context", Explanation: "if the context has ended, Score returns without waiting, with scores or with an error that wraps the context's", Check: checkContext},
	{Name: "same-answer", Explanation: "SameAnswer does not depend on the order of its arguments", Check: checkSameAnswer},
}}
