// Package policy is one loss of parts, of which the losses of the field are points:
//
//	L = sum_i c_i sum_t (-v_it + penalties)
//
//	scope      whose log-ratios d = LogProb - OldLogProb make up the ratio of token t (D77)
//	mean       log rho_t = log M_p(e^z) over the scope, z = d after the inner clip: any real p
//	           (D32), the product, the minimum, or PMPO's p by ESS
//	gradient   through every d of the scope; own: rho_t = sg[rho_t] e^(logp - sg[logp]);
//	           detached: v = sg[gain] LogProb
//	weight     the gain is A times the ratio within floor and cap, or times 1, or a gate of it
//	bound      what happens to the gain outside a region of ratios, logarithms, probabilities
//	future     the gain times what follows the token
//	aggregate  c: what a token counts
//	penalties  KL from the reference, drift from the policy that sampled, entropy
//
// or, in place of the parts from scope to aggregate, a loss over the responses of a group
// (list). Each part is a function with its formula: loss.go puts them together, ratio.go has
// scope and mean, gain.go what becomes of a ratio, list.go the lists, advantages.go and
// foreign.go the rules and masks that go with them. The table in rows.go gives names to
// points: each is an objective with that point as its defaults. D49 to D85 are decisions of
// docs/objectives.md.
//
// Degenerate cases: an empty response adds nothing and counts in N; the logarithm of a
// product, and of a ratio behind a gate, is limited to 20, beyond which no gradient passes.
package policy

import (
	"errors"
	"maps"
	"math"
	"slices"

	"onering/objectives"
)

// A Policy is the objective "policy", and every other that the table names.
type Policy struct {
	objectives.Shared
	tokenMean
	objectives.RatioBound
	parts
	row       *row                // nil for an objective of another package
	ownBounds func(sign int) clip // in place of floor and cap, unless nil
}

// parts are the settings beside those of PPO's clip. A part is off where it is none or 0.
type parts struct {
	// Scope is the token itself; none (the ratio is 1); tokens 1 to t (prefix), 1 to t - 1 (before) or t to t +
	// ScopeTokens - 1 (next); the policy's turn; or the whole response (sequence).
	Scope       string `toml:"scope" choice:"token none prefix before next turn sequence"`
	ScopeTokens int    `toml:"scope_tokens" needs:"scope=next" range:"[1,)"`
	// Mean is the order p over the scope, or product, min, ess or rewards (APMPO's p). MeanLast, if set, is p at the end of the run.
	Mean         word     `toml:"mean" needs:"scope!=token"`
	MeanLast     *float64 `toml:"mean_last" needs:"scope!=token"`
	MeanSchedule string   `toml:"mean_schedule" needs:"scope!=token,mean_last!=" choice:"linear square cube sin"`
	// WithToken joins the token's own ratio: by a mean of this order, as a product (times), or not (no).
	WithToken word `toml:"with_token" needs:"scope!=token"`
	// Inner clips d on the side to which the advantage pushes it (token), there with APMPO's width (rewards), or on both
	// (limits).
	Inner     string  `toml:"inner" choice:"none token rewards limits"`
	InnerLow  float64 `toml:"inner_low" needs:"inner!=none" range:"[0,)"`
	InnerHigh float64 `toml:"inner_high" needs:"inner!=none" range:"[0,)"`
	InnerForm string  `toml:"inner_form" needs:"inner=token inner=rewards" choice:"pessimistic printed"`
	Gradient  string  `toml:"gradient" choice:"through own detached"`
	Weight    string  `toml:"weight" needs:"gate=none" choice:"ratio one"`
	// Floor and Cap bound the ratio; those with Negative, if set, where A < 0; CapESS caps at p3o's e.
	Cap           float64  `toml:"cap" needs:"cap_ess=false,gate=none,weight=ratio" range:"[0,)"`
	CapESS        bool     `toml:"cap_ess" needs:"gate=none,weight=ratio"`
	Floor         float64  `toml:"floor" needs:"gate=none,weight=ratio" range:"[0,)"`
	CapNegative   *float64 `toml:"cap_negative" needs:"cap_ess=false,gate=none,weight=ratio"`
	FloorNegative *float64 `toml:"floor_negative" needs:"gate=none,weight=ratio"`
	// Bound is PPO's clip; or a gain of 0 on the side to which the advantage pushes (side), on both (mask), unless the
	// step leads back (back), or unless the ratio is so far behind that it must come back (ring).
	Bound        string  `toml:"bound" choice:"none clip side mask back ring"`
	Measure      string  `toml:"measure" needs:"bound!=none" choice:"ratio log tv kl k3 probability budget moment"`
	BandPower    float64 `toml:"band_power" needs:"measure=log" range:"(-inf,)"`
	RingLow      float64 `toml:"ring_low" needs:"bound=ring" range:"[0,)"`
	RingHigh     float64 `toml:"ring_high" needs:"bound=ring" range:"[0,)"`
	BudgetWeight float64 `toml:"budget_weight" needs:"measure=budget" range:"[0,1]"`
	BudgetSlack  float64 `toml:"budget_slack" needs:"measure=budget" range:"[0,)"`
	// Gate is a smooth shape in place of a bound.
	Gate         string  `toml:"gate" choice:"none sigmoid quadratic quadratic-tv gamma"`
	GateWidth    float64 `toml:"gate_width" needs:"gate=quadratic gate=quadratic-tv" range:"[1e-06,)"`
	GatePositive float64 `toml:"gate_positive" needs:"gate=sigmoid gate=gamma" range:"[1e-06,)"`
	GateNegative float64 `toml:"gate_negative" needs:"gate=sigmoid gate=gamma" range:"[1e-06,)"`
	KPositive    float64 `toml:"k_positive" needs:"gate=gamma" range:"[0,100]"`
	KNegative    float64 `toml:"k_negative" needs:"gate=gamma" range:"[0,100]"`
	// Future is the half-life of what follows a token, in tokens.
	Future       float64 `toml:"future" range:"[0,)"`
	FutureLow    float64 `toml:"future_low" needs:"future!=0" range:"[0,)"`
	FutureHigh   float64 `toml:"future_high" needs:"future!=0" range:"[0,)"`
	FutureSafety float64 `toml:"future_safety" needs:"future!=0" range:"[0,)"`
	// Drift is the weight of d^2 in responses that have an advantage, or in all; Pull adds p3o's term.
	Drift   float64 `toml:"drift" range:"[0,)"`
	DriftOn string  `toml:"drift_on" needs:"drift!=0,signal=advantage" choice:"advantage all"`
	Pull    bool    `toml:"pull"`
	// PenaltyAggregate is what a token counts in the penalties: the same as in the loss, or as in aggregate.
	PenaltyAggregate string `toml:"penalty_aggregate" choice:"same sequence-mean token-mean"`
	// List is a loss over a group's responses: target (TPO) or margin (REAL).
	List            string  `toml:"list" choice:"none target margin"`
	ListTemperature float64 `toml:"list_temperature" needs:"list!=none" range:"[1e-06,)"`
	adapting
}

// unbounded is a cap that never acts.
const unbounded = 1e300

var defaultParts = parts{
	Scope: "token", ScopeTokens: 1, Mean: "0", MeanSchedule: "linear", WithToken: "no",
	Inner: "none", InnerLow: 0.4, InnerHigh: 0.4, InnerForm: "pessimistic",
	Gradient: "through", Weight: "ratio", Cap: unbounded,
	Bound: "none", Measure: "ratio", RingLow: 0.4, RingHigh: 3, BudgetWeight: 0.8, BudgetSlack: 0.02,
	Gate: "none", GateWidth: 12.5, GatePositive: 1, GateNegative: 1.05, KPositive: 2, KNegative: 3,
	FutureLow: 1, FutureHigh: 1.2, DriftOn: "advantage", PenaltyAggregate: "same", List: "none", ListTemperature: 1,
	adapting: adapting{Signal: "advantage", KLSource: "learner"},
}

// Validate refuses impossible combinations.
func (o *Policy) Validate() error {
	errs := []error{o.Shared.Validate(), objectives.Within("floor", o.Floor, 0, o.Cap)}
	refuse := func(wrong bool, key string, value any, remedy string) {
		if wrong {
			errs = append(errs, &objectives.SettingError{Key: key, Value: value, Remedy: remedy})
		}
	}
	if o.Measure != "log" { // of which clip_dual is a width
		errs = append(errs, o.CheckDual())
	}
	within := func(key string, x *float64, least float64) {
		if x != nil {
			errs = append(errs, objectives.Within(key, *x, least, math.MaxFloat64))
		}
	}
	edges, negative := o.edges(aNotNegative), o.edges(aNegative)
	within("cap_negative", o.CapNegative, negative.low)
	within("floor_negative", o.FloorNegative, 0)
	within("mean_last", o.MeanLast, -math.MaxFloat64)
	bounded := o.edged() && !o.CapESS
	refuse(bounded && edges.high == 0 && negative.high == 0, "cap", o.Cap, "must be above 0, or cap_negative: no response would have a weight")
	// A run begins with ratios of 1. Where a cap or floor keeps them from the gradient, nothing would move.
	admitsOne := func(key, which string, x float64, stops bool) { // a cap of 0 for both signs is refused above
		refuse(bounded && o.Gradient != "detached" && x != 0 && stops, key, x, "must be at "+which+` 1, or go with gradient = "detached": a ratio of 1 would have no gradient`)
	}
	admitsOne("cap", "least", edges.high, edges.high < 1)
	admitsOne("cap_negative", "least", negative.high, negative.high < 1)
	admitsOne("floor", "most", edges.low, edges.low > 1)
	admitsOne("floor_negative", "most", negative.low, negative.low > 1)
	words := func(w word, list ...word) bool { return slices.Contains(list, w) }
	refuse(o.MeanLast != nil && words(o.Mean, "product", "min", "ess", "rewards"), "mean", o.Mean, "must be a number beside mean_last")
	refuse(words(o.Mean, "no", "times"), "mean", o.Mean, `must be a number, "product", "min", "ess" or "rewards"`)
	refuse(words(o.WithToken, "product", "min", "ess", "rewards"), "with_token", o.WithToken, `must be a number, "no" or "times"`)
	refuse(o.Gate != "none" && o.Bound != "none", "gate", o.Gate, `must be "none" beside a bound, which it replaces`)
	refuse(o.Bound == "clip" && !slices.Contains([]string{"ratio", "log", "k3", "probability"}, o.Measure), "measure", o.Measure, `must be ratio, log, k3 or probability with bound = "clip", which needs a largest ratio`)
	replaced := o.parts // those that a list stands in place of, with defaults for the others
	replaced.List, replaced.ListTemperature, replaced.PenaltyAggregate, replaced.adapting = "none", 1, "same", defaultParts.adapting
	refuse(o.List != "none" && replaced != defaultParts, "list", o.List, `must be "none" beside a scope, mean, inner clip, gradient, weight, cap, floor, bound, gate, future, drift or pull other than the default: it stands in their place`)
	refuse(o.List != "none" && o.adapts(), "list", o.List, `must be "none" beside a signal, advantage_drift and kl_advantage: it reads no advantages of tokens`)
	refuse(o.List == "target" && o.Mask(objectives.Batch{}) != nil, "list", o.List, `must be another one beside masks, importance and reject: they scale what advantages teach, and target reads none`)
	refuse(o.Gate == "none" && o.Weight == "one" && o.Gradient != "detached", "weight", o.Weight, `must be ratio, or go with gradient = "detached": no ratio is left that has a gradient`)
	refuse(o.Weight == "one" && o.Bound == "clip", "bound", o.Bound, `must be another one beside weight = "one", which leaves out the ratio that a clip bounds`)
	unread := o.Bound == "none" || (o.Bound == "side" || o.Bound == "mask") && slices.Contains([]string{"tv", "kl", "budget", "moment"}, o.Measure)
	refuse(unread && o.Gate == "none" && o.Weight == "one" && o.Scope != "token" && o.Scope != "none", "scope", o.Scope, `must be token or none beside weight = "one", or go with a bound of its ratio: nothing reads the ratio`)
	refuse(o.Gate == "gamma" && o.Gradient != "detached", "gate", o.Gate, `must be another one, or go with gradient = "detached": gamma is a constant of the gradient`)
	refuse(o.Scope == "none" && o.WithToken == "no" && o.Gradient == "through", "scope", o.Scope, `must be another one, or go with gradient = "own" or "detached": a ratio of 1 has no gradient`)
	refuse(o.Gate == "sigmoid" && o.ClipDual != 0 && o.ClipDual*o.GateNegative <= 2, "clip_dual", o.ClipDual, `must be above 2/gate_negative with gate = "sigmoid", which is the gain of a ratio of 1, or 0 for none`)
	refuse(o.Future != 0 && o.FutureHigh == 0, "future_high", o.FutureHigh, "must be above 0: no token would have a weight")
	refuse(o.Future != 0 && o.FutureLow > o.FutureHigh, "future_low", o.FutureLow, "must be at most future_high")
	return errors.Join(errs...)
}

// NeedsReference says that a teacher or a penalty is compared with; the methods below say what else objectives.Needs asks.
func (o *Policy) NeedsReference() bool {
	return o.NeedsTeacher() || o.KLAdvantage != 0 || o.Shared.NeedsReference()
}

// NeedsTeacher is for a signal that a teacher gives.
func (p parts) NeedsTeacher() bool { return p.Signal == "teacher" }

// NeedsGroup says that responses to one prompt are compared.
func (o *Policy) NeedsGroup() bool {
	return o.List != "none" || !o.NeedsTeacher() && o.Shared.NeedsGroup()
}

// ReadsBatch says that p3o's e, the mean KL and a list read responses that cannot move.
func (o *Policy) ReadsBatch() bool {
	return o.CapESS || o.Pull || o.KLAdvantage != 0 || o.List != "none" || o.Shared.ReadsBatch()
}

// WeighsApart says that these, and the budget of a moment, compare the responses of a step.
func (o *Policy) WeighsApart() bool {
	return !(o.CapESS || o.Pull || o.KLAdvantage != 0 || o.List != "none" || o.Measure == "moment") && o.Shared.WeighsApart()
}

// WeighsWhole says that a list compares responses by one advantage each.
func (p parts) WeighsWhole() bool { return p.List != "none" }

// WeighsAll says that responses without advantage move too.
func (p parts) WeighsAll() bool {
	return p.Pull || p.List != "none" || p.AdvantageDrift != 0 || p.Drift != 0 && p.DriftOn == "all"
}

// Exemptions implements objectives.Exempter: by the names of the rules of objectivetest, why these settings break them.
func (o *Policy) Exemptions() map[string]string {
	all := map[string]string{}
	switch {
	case o.NeedsTeacher():
		all["direction"] = "a token's weight follows from the teacher, whatever the reward"
		if o.WeighsAll() || o.Drift != 0 {
			all["equal-rewards"] = "the drift and the pull move responses whatever the teacher says"
		}
	case o.List == "target":
		all["equal-rewards"] = "a group with equal rewards is drawn back to the policy that sampled it"
	case o.WeighsAll() && o.List == "none":
		all["equal-rewards"] = "the drift and the pull move responses whatever their rewards are"
	}
	if o.edged() && !o.CapESS && (o.edges(aNotNegative).high == 0 || o.edges(aNegative).high == 0) {
		all["direction"] = "a cap of 0 leaves out the responses of one sign"
	}
	maps.Copy(all, o.Shared.Exemptions())
	return all
}
