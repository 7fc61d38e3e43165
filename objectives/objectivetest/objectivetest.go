// Package objectivetest checks that an objective follows the rules of
// objectives.Objective. An author's whole test is
//
//	func TestConformance(t *testing.T) { objectivetest.Run(t, "mine") }
//
// Each rule is a subtest of its own, and a failure prints the rule. An
// objectives.Exempter must break the rules that it names and follow all others.
package objectivetest

import (
	"context"
	"errors"
	"testing"

	"onering/internal/registry"
	"onering/objectives"
)

// A Failure is a rule that an objective breaks.
type Failure = registry.Failure

// Run checks the objective that is registered as name, with its defaults.
func Run(t *testing.T, name string) {
	t.Helper()
	RunNew(t, suite.Named(t, name))
}

// RunNew checks the objectives that new returns. Use it for settings other than
// the defaults.
func RunNew(t *testing.T, new func() objectives.Objective) {
	t.Helper()
	registry.Run(t, suite, new)
}

// Check returns what RunNew would report: nil, or joined errors each of which is a
// *Failure.
func Check(new func() objectives.Objective) error { return suite.Check(new) }

// Rules returns the names of the rules in the order in which they are checked.
func Rules() []string { return suite.Names() }

// exemptions returns the rules that o names as an Exempter.
func exemptions(o objectives.Objective) map[string]string {
	if e, ok := o.(objectives.Exempter); ok {
		return e.Exemptions()
	}
	return nil
}

// hangs reports whether an objective's program, or its server, did not answer in time.
func hangs(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// suite has the rules that methods of an objectives.Objective observe.
var suite = registry.Suite[objectives.Objective]{New: objectives.New, Exempt: exemptions, Hopeless: hangs, Rules: []registry.Rule[objectives.Objective]{
	{Name: "defaults", Explanation: "New returns a fresh value every time, with defaults that Validate accepts and a toml name on every exported field", Check: checkDefaults},
	{Name: "derivative", Explanation: "Weights is the derivative of Loss with respect to LogProb", Check: checkDerivative},
	{Name: "direction", Explanation: "raising the log-probs of a response with positive advantage lowers the loss on policy; with negative advantage it raises it", Check: checkDirection},
	{Name: "overwrite", Explanation: "Weights sets every element of w, whatever was there", Check: checkOverwrite},
	{Name: "arguments", Explanation: "no method modifies its arguments (but w)", Check: checkArguments},
	{Name: "retention", Explanation: "no method keeps a reference to its arguments", Check: checkRetention},
	{Name: "determinism", Explanation: "equal arguments give equal results, to the bit", Check: checkDeterminism},
	{Name: "equal-rewards", Explanation: "a group with equal rewards has zero advantages and receives no policy weight", Check: checkEqualRewards},
	{Name: "alone", Explanation: "the log-probs of a response without advantage change nothing of the others, unless ReadsBatch says so", Check: checkWithoutAdvantage},
	{Name: "apart", Explanation: "the log-probs and entropies of a response change no weight of the others, if WeighsApart says so", Check: checkApart},
	{Name: "equal-rounds", Explanation: "where the rewards of a whole round are equal, all advantages are zero", Check: checkEqualRounds},
	{Name: "advantages", Explanation: "advantages are one finite number per response, which does not depend on its place", Check: checkAdvantages},
	{Name: "empty", Explanation: "an empty batch and empty responses are valid", Check: checkEmpty},
	{Name: "one-token", Explanation: "responses of one token are valid", Check: checkOneToken},
	{Name: "extreme", Explanation: "results are finite for ratios of exp(+-700)", Check: checkExtreme},
	{Name: "order", Explanation: "the order of the trajectories does not matter", Check: checkOrder},
	{Name: "concurrency", Explanation: "all methods but Observe and UnmarshalText may be called concurrently", Check: checkConcurrency},
	{Name: "state", Explanation: "only Observe and UnmarshalText change state, and MarshalText carries all of it", Check: checkState},
	{Name: "diagnose", Explanation: "Diagnose returns one entry per trajectory, in order, without NaN", Check: checkDiagnose},
	{Name: "entropy", Explanation: "EntropyWeights is the derivative of Loss with respect to Entropy", Check: checkEntropy},
	{Name: "groups", Explanation: "Shape and Keep depend on nothing but their argument", Check: checkGroups},
}}
