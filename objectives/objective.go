// Package objectives holds the losses that onering minimizes: the Objective interface, the
// registry of objectives by name, advantages, and the mathematics that several
// objectives share (log-domain clip, power mean, ESS matching, penalties).
//
// An objective turns a batch of sampled responses into a loss and into the
// derivative of that loss with respect to the log-prob of every response token.
// That derivative is all the backward pass needs: no objective builds a graph.
// Each lives in a folder of its own and registers itself; objectives/all imports
// them all. docs/objectives.md shows how to add one.
//
// Letters used throughout: N trajectories in a batch (empty ones included), n
// response tokens of one trajectory, T response tokens of the batch, d = log-prob
// minus old log-prob of a token, z = d after clipping in the log domain, A the
// advantage. D1 to D48 are the numbered decisions of docs/objectives.md, which
// settle what the papers leave open.
package objectives

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// A Trajectory is one sampled response as an objective sees it. The per-token
// slices have one element per response token (end of sequence included), or are
// nil where the objective did not ask for them.
type Trajectory struct {
	// Reward is the verifier's reward, before shaping.
	Reward float64
	// Advantage weighs the whole response; SetAdvantages computes it per group.
	Advantage float64
	// LogProb is the learner's log-prob of each token, OldLogProb the log-prob under the
	// policy that sampled it, both at the sampling temperature (D25).
	LogProb, OldLogProb []float64
	// RefLogProb is the log-prob of each token under the reference policy; nil
	// unless the objective NeedsReference.
	RefLogProb []float64
	// Entropy is the entropy in nats of the distribution from which each token was drawn.
	// Objectives treat it as a constant, except in EntropyWeights.
	Entropy []float64
	// TokenAdvantage replaces Advantage token by token; nil otherwise. Objectives for which
	// Needs says Whole have none.
	TokenAdvantage []float64
	// SampleLogProb is the log-prob of each token as the sampler computed it, nil if that
	// is OldLogProb. The two differ if the host recomputes old log-probs.
	SampleLogProb []float64
	// IDs are the tokens, nil if the host has only log-probs.
	IDs []int32
	// SumPiSquared is the sum over the vocabulary of squared probabilities at each token, under the
	// policy that sampled; nil unless the objective needs it.
	SumPiSquared []float64
	// Role and Episode say which part the response plays in which game of its group; "" if there is one.
	Role, Episode string
	// Group is the number of the group of responses to one prompt that it belongs to.
	Group int
	// Turns are the policy's turns of an episode, in order; nil is a single turn.
	Turns []Turn
	// Components are the parts of a combined reward, by name; nil if it has none.
	Components map[string]Component
	// Greedy is the greedy response to the same prompt, which is not trained on. It
	// exists only while advantages are computed, and only if the objective NeedsGreedy.
	Greedy *Trajectory
	// Truncated says that the response hit the length limit.
	Truncated bool
	// Degenerate says that all rewards of its group were equal, including Greedy's, so
	// that the response teaches nothing. SetAdvantages sets it, since a batch may have
	// only a part of the group.
	Degenerate bool
}

// A Turn is what the policy wrote at once: its tokens end before number To, and begin where
// the turn before it ends. State is what the turn began in, the same text for the same state, and
// Reward the environment's reward for it.
type Turn struct {
	To     int
	State  string
	Reward float64
}

// A Component is one part of a combined reward.
type Component struct{ Value, Weight float64 }

// AdvantageAt returns the advantage of token j.
func (t *Trajectory) AdvantageAt(j int) float64 {
	if t.TokenAdvantage != nil {
		return t.TokenAdvantage[j]
	}
	return t.Advantage
}

// HasAdvantage reports whether any token has an advantage other than 0.
func (t *Trajectory) HasAdvantage() bool {
	return t.Advantage != 0 || slices.ContainsFunc(t.TokenAdvantage, func(a float64) bool { return a != 0 })
}

// SampledLogProb returns the log-probs of the policy that sampled the response.
func (t *Trajectory) SampledLogProb() []float64 {
	if t.SampleLogProb != nil {
		return t.SampleLogProb
	}
	return t.OldLogProb
}

// A Batch is the trajectories of one optimizer step: a minibatch, over which
// groups may be split. Step counts optimizer steps from 0, of Steps in the run.
type Batch struct {
	Trajectories []Trajectory
	Step, Steps  int
}

// Tokens returns T, the number of response tokens of the batch.
func (b Batch) Tokens() int {
	total := 0
	for i := range b.Trajectories {
		total += len(b.Trajectories[i].LogProb)
	}
	return total
}

// Zeros returns a zero for each response token of the batch, by trajectory.
func (b Batch) Zeros() [][]float64 {
	zeros := make([][]float64, len(b.Trajectories))
	for i, t := range b.Trajectories {
		zeros[i] = make([]float64, len(t.LogProb))
	}
	return zeros
}

// An Objective is a loss to minimize, as a function of the log-probs of a batch.
//
// The value itself is the configuration: its exported fields carry toml tags, the
// host decodes the run file's [objective] section into what New returned and then
// calls Validate if there is one. Further abilities are optional interfaces, found
// by type assertion: Advantager, RoundAdvantager, TokenAdvantager, Masker, TokenScaler,
// Diagnoser, Observer, EntropyWeigher, Keeper, Shaper, and encoding.TextMarshaler with
// encoding.TextUnmarshaler for state that must survive a checkpoint. Methods NeedsReference,
// NeedsTeacher, NeedsGreedy, NeedsGroup, NeedsEntropy, ReadsBatch, WeighsApart and
// WeighsWhole, all without arguments and of a bool, tell the host what Needs says of them.
// Validate() error rejects impossible settings by a *SettingError, or several that errors.Join
// has joined, so that a run file's line can be named with each.
//
// Methods observe the rules of objectivetest, whose table says each in a sentence: Weights is
// the derivative of Loss with respect to LogProb and sets every element of w; no method but
// Observe and UnmarshalText changes state or an argument, and MarshalText carries all of it;
// equal arguments give equal results, to the bit. An Exempter says which rules an objective
// cannot keep by what it is, and why. All methods but Observe, UnmarshalText and the decoding
// of the configuration may be called concurrently.
type Objective interface {
	// Loss returns the loss of b. Quantities that the method detaches from the
	// gradient (an adaptive exponent, a stop-gradient) are computed from at, which
	// has the same trajectories as b with other log-probs. Loss(b, b) is the loss.
	Loss(b, at Batch) float64
	// Weights sets w[i][t] to dLoss(b, at)/dLogProb[i][t] for at = b. The shape of
	// w is that of the log-probs.
	Weights(b Batch, w [][]float64)
}

// A Failed is the panic of an objective that has no answer, such as one whose program has
// died. Hosts return its error as it is.
type Failed struct{ Err error }

func (f Failed) Error() string { return f.Err.Error() }

// Unwrap returns Err.
func (f Failed) Unwrap() error { return f.Err }

// An Advantager computes the advantages of one group: every response to one prompt.
// Reward is the shaped reward, LogProb and OldLogProb are the sampler's, and the
// reference's log-probs are not known yet. Without this method, RoundAdvantager decides,
// or else Centered.
type Advantager interface {
	Advantages(group []Trajectory) []float64
}

// A RoundAdvantager computes the advantages of all groups that were sampled together, for
// rules that need figures over the round. It receives the same fields of a response as an
// Advantager. If an objective is both, the Advantager is used, so an objective that
// embeds Shared can replace its rules by either method.
type RoundAdvantager interface {
	RoundAdvantages(groups [][]Trajectory) [][]float64
}

// A TokenAdvantager returns the TokenAdvantage of one group, whose Advantage is set: one
// row per response, with one number per token or nil.
type TokenAdvantager interface {
	TokenAdvantages(group []Trajectory) [][]float64
}

// A stepAdvantager returns the TokenAdvantage of a step's responses, as constants, from all
// that is known of them; nil leaves them as they are.
type stepAdvantager interface {
	StepAdvantages(b Batch) [][]float64
}

// A Masker scales the policy gradient by a factor for each token, which is a constant;
// nil stands for 1 everywhere. Shared is a Masker.
type Masker interface {
	Mask(b Batch) [][]float64
}

// A tokenScaler returns the weight of each token of trajectory i of b in its loss, for
// penalties that the host adds. The default is 1/(N n).
type tokenScaler interface {
	TokenScale(b Batch, i int) float64
}

// An Exempter names the rules of objectivetest that its objective breaks with its present
// settings, and says why. The suite checks that it really breaks them.
type Exempter interface {
	Exemptions() map[string]string
}

// A Diagnoser reports figures for each trajectory of b, in order.
type Diagnoser interface {
	Diagnose(b Batch) []Diagnostics
}

// An Observer carries state from step to step. Observe is called once per
// optimizer step, after Weights. Its state is saved through
// encoding.TextMarshaler; the text is JSON.
type Observer interface {
	Observe(b Batch)
}

// An EntropyWeigher has a loss that may depend on the entropy of the policy.
// WeighsEntropy says whether it does with the present settings; if not, the host builds
// no gradient of the entropy and never calls EntropyWeights. EntropyWeights sets v[i][t]
// to dLoss/dEntropy[i][t] and overwrites old values.
type EntropyWeigher interface {
	WeighsEntropy() bool
	EntropyWeights(b Batch, v [][]float64)
}

// A Keeper says whether a freshly sampled group is worth training on. A host that
// samples dynamically draws other groups in place of those refused.
type Keeper interface {
	Keep(group []Trajectory) bool
}

// A Shaper returns the reward from which advantages are computed. Only lengths,
// Reward and Truncated are set when it is called.
type Shaper interface {
	Shape(t Trajectory) float64
}

// Needs are an objective's demands on its host.
type Needs struct {
	// Reference says that RefLogProb must be set.
	Reference bool
	// Teacher says that the reference must be a model other than the initial policy,
	// which has nothing to teach.
	Teacher bool
	// Greedy says that Greedy must be set. The host then samples a greedy response to each
	// prompt beside the group, and has it graded with the group.
	Greedy bool
	// Group says that a response teaches something only in a group with another response
	// to the same prompt. Without a method NeedsGroup, it is true unless Greedy is.
	Group bool
	// Entropy says that Entropy must be set.
	Entropy bool
	// Squares and States say that SumPiSquared and Turns must be set.
	Squares, States bool
	// EntropyGradient says that the loss depends on the policy's entropy (WeighsEntropy).
	EntropyGradient bool
	// All says that weights of responses, or the state of Observe, depend on the
	// log-probs or entropies of responses that cannot have weights themselves (see Needs.Live).
	// The host then computes those too. ReadsBatch or NeedsEntropy says so.
	All bool
	// Apart says that the results of Weights and EntropyWeights for a response depend
	// only on that response's log-probs and entropies (WeighsApart). The host may then
	// weigh some responses of a batch before it computes the others, which have their old
	// log-probs until then: this saves memory, or computing twice. Otherwise it first
	// computes the whole batch.
	Apart bool
	// Whole says that a response has one advantage and TokenAdvantage is not read
	// (WeighsWhole): advantages of tokens are refused.
	Whole bool
	// Flat says that weights may be other than zero even for a response without advantage: by
	// a penalty, or by the objective (WeighsAll).
	Flat bool
}

// NeedsOf returns the Needs that o's methods and its rule of advantages state, as the fields of Needs describe them. says is
// false where o lacks the method.
func NeedsOf(o Objective) (n Needs) {
	n.Reference = says(o, func(x interface{ NeedsReference() bool }) bool { return x.NeedsReference() })
	n.Teacher = says(o, func(x interface{ NeedsTeacher() bool }) bool { return x.NeedsTeacher() })
	n.Greedy = says(o, func(x interface{ NeedsGreedy() bool }) bool { return x.NeedsGreedy() })
	n.Group = !n.Greedy && !says(o, func(x interface{ NeedsGroup() bool }) bool { return !x.NeedsGroup() }) // true without it
	n.Entropy = says(o, func(x interface{ NeedsEntropy() bool }) bool { return x.NeedsEntropy() })
	n.Squares = says(o, func(s hasShared) bool { return s.settings().Advantage == "otb" })
	n.States = says(o, func(s hasShared) bool { return s.settings().Advantage == "gigpo" })
	n.EntropyGradient = says(o, EntropyWeigher.WeighsEntropy)
	n.All = n.Entropy || says(o, func(x interface{ ReadsBatch() bool }) bool { return x.ReadsBatch() }) // log-probs of all
	n.Apart = says(o, func(x interface{ WeighsApart() bool }) bool { return x.WeighsApart() })          // each by its own log-probs
	n.Whole = says(o, func(x interface{ WeighsWhole() bool }) bool { return x.WeighsWhole() })          // one advantage for all tokens
	// Flat: there are weights without an advantage, too.
	n.Flat = n.EntropyGradient || n.Reference || says(o, func(s hasShared) bool { return s.settings().KLCov > 0 }) ||
		says(o, func(x interface{ WeighsAll() bool }) bool { return x.WeighsAll() })
	return n
}

// Live reports whether a response may have weights other than zero.
func (n Needs) Live(t Trajectory) bool { return n.Flat || t.HasAdvantage() }

// says returns the answer of a method of o, false if o does not have it.
func says[T any](o Objective, ask func(T) bool) bool {
	x, ok := o.(T)
	return ok && ask(x)
}

// Keep reports whether o wants to train on group. An objective that is not a Keeper
// trains on every group.
func Keep(o Objective, group []Trajectory) bool {
	k, ok := o.(Keeper)
	return !ok || k.Keep(group)
}

// check returns an error if an objective cannot use t: a slice is missing or of the wrong
// length, or a number is not finite. Objectives do not check it themselves.
func (t Trajectory) check(needs Needs) error {
	n := len(t.LogProb)
	for _, s := range []struct {
		name   string
		values []float64
		needed bool
	}{
		{"log-probs", t.LogProb, true},
		{"old log-probs", t.OldLogProb, true},
		{"reference log-probs", t.RefLogProb, needs.Reference},
		{"entropies", t.Entropy, needs.Entropy},
		{"token advantages", t.TokenAdvantage, false},
		{"sampler's log-probs", t.SampleLogProb, false},
		{"sums of squared probabilities", t.SumPiSquared, needs.Squares},
	} {
		if len(s.values) != n && (s.needed || s.values != nil) {
			return fmt.Errorf("%d %s for %d response tokens", len(s.values), s.name, n)
		}
		for j, v := range s.values {
			if !finite(v) {
				return fmt.Errorf("token %d: %s hold %v, which is not a finite number", j, s.name, v)
			}
		}
	}
	switch {
	case t.IDs != nil && len(t.IDs) != n:
		return fmt.Errorf("%d ids for %d response tokens", len(t.IDs), n)
	case needs.Whole && t.TokenAdvantage != nil:
		return errors.New(`token advantages are given, but ` + oneAdvantage)
	case needs.States && n > 0 && len(t.Turns) == 0:
		return errors.New(`no turns, whose states and rewards advantage = "gigpo" compares`)
	case needs.Greedy && t.Greedy == nil:
		return errors.New("its reward is compared with that of a greedy response, which is missing")
	case t.Greedy != nil && !finite(t.Greedy.Reward):
		return fmt.Errorf("the greedy response's reward is %v, which is not a finite number", t.Greedy.Reward)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Components)) {
		if c := t.Components[name]; !finite(c.Value) || !finite(c.Weight) {
			return fmt.Errorf("component %q: value %v and weight %v must be finite", name, c.Value, c.Weight)
		}
	}
	if !finite(t.Reward) || !finite(t.Advantage) {
		return fmt.Errorf("reward %v and advantage %v must be finite: give the rewards another scale", t.Reward, t.Advantage)
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
