package objectivetest

import (
	"onering/internal/registry"
	"onering/objectives"
)

// A rule is one case of the suite.
type rule registry.Rule[objectives.Objective]

// apply runs the check.
func (r rule) apply(new func() objectives.Objective) error {
	return registry.Rule[objectives.Objective](r).Apply(new, exemptions)
}

// rules are those of objectives.Objective's doc comment, in its order.
var rules = []rule{
	{"defaults", "New returns a fresh value every time, with defaults that Validate accepts and a toml name on every exported field", checkDefaults},
	{"derivative", "Weights is the derivative of Loss with respect to LogProb", checkDerivative},
	{"direction", "raising the log-probs of a response with positive advantage lowers the loss on policy; with negative advantage it raises it", checkDirection},
	{"overwrite", "Weights sets every element of w, whatever was there", checkOverwrite},
	{"arguments", "no method modifies its arguments (but w)", checkArguments},
	{"retention", "no method keeps a reference to its arguments", checkRetention},
	{"determinism", "equal arguments give equal results, to the bit", checkDeterminism},
	{"equal-rewards", "a group with equal rewards has zero advantages and receives no policy weight", checkEqualRewards},
	{"alone", "the log-probs of a response without advantage change nothing of the others, unless a BatchReader says so", checkAlone},
	{"apart", "the log-probs and entropies of a response change no weight of the others, if a ResponseWeigher says so", checkApart},
	{"equal-rounds", "where the rewards of a whole round are equal, all advantages are zero", checkEqualRounds},
	{"advantages", "advantages are one finite number per response, which does not depend on its place", checkAdvantages},
	{"empty", "an empty batch and empty responses are valid", checkEmpty},
	{"one-token", "responses of one token are valid", checkOneToken},
	{"extreme", "results are finite for ratios of exp(+-700)", checkExtreme},
	{"order", "the order of the trajectories does not matter", checkOrder},
	{"concurrency", "all methods but Observe and UnmarshalText may be called concurrently", checkConcurrency},
	{"state", "only Observe and UnmarshalText change state, and MarshalText carries all of it", checkState},
	{"diagnose", "Diagnose returns one entry per trajectory, in order, without NaN", checkDiagnose},
	{"entropy", "EntropyWeights is the derivative of Loss with respect to Entropy", checkEntropy},
	{"groups", "Shape and Keep depend on nothing but their argument", checkGroups},
}
