// Package environmenttest checks that an environment keeps the rules of
// environment.Environment. An author's whole test is
//
//	func TestConformance(t *testing.T) { environmenttest.Run(t, "mine") }
//
// Each rule is a subtest of its own, and a failure prints the rule.
package environmenttest

import (
	"testing"

	"onering/environment"
	"onering/internal/registry"
)

// Run checks the environment that is registered as name, with its defaults.
func Run(t *testing.T, name string) {
	t.Helper()
	RunNew(t, suite.Named(t, name))
}

// RunNew checks the environments that new returns. Use it for settings other than the
// defaults, such as the program that an environment starts.
func RunNew(t *testing.T, new func() environment.Environment) {
	t.Helper()
	registry.Run(t, suite, new)
}

// Check returns what RunNew would report: nil, or joined errors each of which is a
// *registry.Failure.
func Check(new func() environment.Environment) error { return suite.Check(new) }

// suite has the rules of environment.Environment's doc comment, in its order.
var suite = registry.Suite[environment.Environment]{New: environment.New, Rules: []registry.Rule[environment.Environment]{
	{Name: "defaults", Explanation: "New returns a fresh value every time, with defaults that Validate accepts and a toml name on every exported field", Check: checkDefaults},
	{Name: "concurrency", Explanation: "methods may be called concurrently; those of one Episode are not", Check: checkConcurrency},
	{Name: "any-text", Explanation: "any text is answered: empty, very long, not UTF-8, with calls of tools that there are not, and what the policy reads is a message of a role that it knows", Check: checkAnyText},
	{Name: "rewards", Explanation: "rewards are finite", Check: checkRewards},
	{Name: "context", Explanation: "if the context has ended, Begin and Step return without waiting, with an answer or with an error that wraps the context's", Check: checkContext},
	{Name: "arguments", Explanation: "no method modifies its arguments or keeps a reference to them", Check: checkArguments},
	{Name: "alike", Explanation: "the episodes of one Start open alike, and a Repeating environment answers equal turns of equal episodes alike", Check: checkAlike},
	{Name: "close", Explanation: "an episode can be closed at any time, and an environment that was closed can be used again", Check: checkClose},
}}
