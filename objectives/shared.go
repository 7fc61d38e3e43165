package objectives

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"onering/internal/settings"
)

// Shared holds the settings that every objective has, with the methods that act on
// them. An objective embeds it; its keys then stand beside the objective's own.
type Shared struct {
	// Advantage is the rule for advantages, see advantageRules (D1 to D3, D26 to D31).
	Advantage string `toml:"advantage" needs:"signal=advantage,list!=target"`
	// AdvantageEps is added to the standard deviation. Default 1e-8.
	AdvantageEps float64 `toml:"advantage_eps" needs:"advantage=standardized advantage=gdpo advantage=pass-k advantage=round-std advantage=reinforce++ advantage=reinforce++-baseline" range:"[0,1]"`
	// AdvantageStd is sample (default) or population (D2); none, with pass-k, divides by nothing.
	AdvantageStd string `toml:"advantage_std" needs:"advantage=standardized advantage=gdpo advantage=pass-k" choice:"sample population none"`
	// AdvantagePower and AdvantageShift change centered to (R - mean)/mean^power - shift (D71, D72). Default 0.
	AdvantagePower float64 `toml:"advantage_power" needs:"advantage=centered,signal=advantage" range:"[0,)"`
	AdvantageShift float64 `toml:"advantage_shift" needs:"advantage=centered,signal=advantage" range:"(-inf,)"`
	// AdvantageTail is own (default), or none: the longest response's tokens beyond the second longest have no baseline (D67).
	AdvantageTail string `toml:"advantage_tail" needs:"advantage=otb" choice:"own none"`
	// EpisodeRoles are compared within their episode (D69).
	EpisodeRoles []string `toml:"episode_roles" needs:"advantage=hierarchical"`
	// StepWeight and StepDiscount are the weight of a turn's own advantage and the discount of its return (D70). Default 1.
	StepWeight   float64 `toml:"step_weight" needs:"advantage=gigpo" range:"[0,)"`
	StepDiscount float64 `toml:"step_discount" needs:"advantage=gigpo" range:"[0,1]"`
	penalties
	masks
}

// Defaults returns the default settings with the given kind of advantage.
func Defaults(advantage string) Shared {
	return Shared{Advantage: advantage, AdvantageEps: 1e-8, AdvantageStd: "sample", AdvantageTail: "own", StepWeight: 1, StepDiscount: 1,
		penalties: penalties{KLForm: "k3", KLGradient: "own", adaptive: adaptive{RAEDecay: 0.95, KLHorizon: 10000, EntropyStep: 0.005, EntropyMost: 1}},
		masks: masks{ClipCovLow: 1, ClipCovHigh: 5, KLCovBeta: 1,
			foreign: foreign{Importance: "none", Reject: "none", RejectReduce: "token", RejectHigh: neverRejects}}}
}

// RoundAdvantages implements RoundAdvantager by the rule that Advantage names.
func (s Shared) RoundAdvantages(groups [][]Trajectory) [][]float64 {
	r := s.rule()
	if r.Round != nil {
		return r.Round(s, groups)
	}
	return byGroup(groups, func(group []Trajectory) []float64 {
		if r.Group != nil {
			return r.Group(s, group)
		}
		a := make([]float64, len(group))
		for i, row := range r.Tokens(s, group) {
			if len(row) > 0 {
				a[i] = mean(row)
			}
		}
		return a
	})
}

// TokenAdvantages implements TokenAdvantager for rules that tell tokens apart; nil for each response of others.
func (s Shared) TokenAdvantages(group []Trajectory) [][]float64 {
	if r := s.rule(); r.Tokens != nil {
		return r.Tokens(s, group)
	}
	return make([][]float64, len(group))
}

// Exemptions implements Exempter: by the names of the rules of objectivetest, why these settings break them.
func (s Shared) Exemptions() map[string]string {
	all, why := map[string]string{}, s.rule().Exempt
	switch {
	case s.Advantage == "centered" && s.AdvantageShift != 0, s.Advantage == "otb" && s.AdvantageTail == "none":
		why = "the baseline is not the mean"
		all["equal-rounds"] = why
	case s.Advantage == "rae":
		all["equal-rounds"], all["advantages"] = why, "the averages take in one response after the other"
	case s.KLReward != 0:
		why = "kl_reward tells responses apart whose rewards are equal"
		all["equal-rounds"] = why
	case why == "" && s.KLCov != 0:
		why = "kl_cov moves tokens whatever the rewards are"
	}
	if why != "" {
		all["equal-rewards"] = why
	}
	return all
}

// Validate refuses impossible combinations; tags state the ranges of single settings.
func (s Shared) Validate() error {
	if names := advantageRules(); !slices.Contains(names, s.Advantage) {
		return &SettingError{Key: "advantage", Value: s.Advantage, Remedy: "must be one of " + strings.Join(names, ", ")}
	}
	// The penalty differs between responses whose rewards are equal, so the deviation and the
	// mean of a group may be as small as rounding: rules that divide by them are refused. So
	// are rules with a greedy response or components, which have no penalty.
	if fit := []string{"centered", "rloo", "opo", "round-std", "reinforce++", "reinforce++-baseline"}; s.KLReward != 0 && !slices.Contains(fit, s.Advantage) {
		return &SettingError{Key: "kl_reward", Value: s.KLReward, Remedy: "must be 0 with advantage = \"" + s.Advantage +
			"\"; it goes with " + strings.Join(fit, ", ")}
	}
	switch {
	case s.AdvantageStd == "none" && s.Advantage != "pass-k":
		return &SettingError{Key: "advantage_std", Value: s.AdvantageStd, Remedy: `must be sample or population; none goes with advantage = "pass-k"`}
	case s.KLForm == "k1" && s.KLGradient != "k2":
		return &SettingError{Key: "kl_form", Value: s.KLForm, Remedy: `must be k3, k2 or abs, or go with kl_gradient = "k2": whatever the policy is, the derivative of k1 has the mean 0 under it; kl_reward and kl_advantage use k1 rightly`}
	case s.EntropyLeast > s.EntropyMost:
		return &SettingError{Key: "entropy_least", Value: s.EntropyLeast, Remedy: "must be at most entropy_most"}
	case s.KLGradient == "unbiased" && (s.KLForm != "k3" || s.KLCap != 0):
		return &SettingError{Key: "kl_gradient", Value: s.KLGradient, Remedy: `must be own or k2: unbiased goes with kl_form = "k3" and kl_cap = 0`}
	}
	return s.check()
}

// NeedsGreedy says that the advantage is ReMax's.
func (s Shared) NeedsGreedy() bool { return s.Advantage == "remax" }

// NeedsGroup is true for all advantages except that of REINFORCE++.
func (s Shared) NeedsGroup() bool { return s.Advantage != "reinforce++" && s.Advantage != "rae" }

// NeedsEntropy says that the entropy bonus or a mask reads entropies.
func (s Shared) NeedsEntropy() bool { return s.WeighsEntropy() || s.TopEntropy != 0 }

// ReadsBatch says that masks use covariances over the whole batch.
func (s Shared) ReadsBatch() bool { return s.ClipCov != 0 || s.KLCov != 0 }

// WeighsApart says that some masks compare the tokens of the whole batch.
func (s Shared) WeighsApart() bool { return s.TopEntropy == 0 && s.ClipCov == 0 && s.KLCov == 0 }

// Check reports, as joined *SettingErrors, the settings of o that are outside the ranges
// and choices of their tags, the errors of its method Validate, and a rule that gives tokens
// advantages which it does not read.
func Check(o Objective) error {
	err := settings.Check(o)
	if s, ok := o.(hasShared); ok && NeedsOf(o).Whole && s.settings().rule().Tokens != nil {
		err = errors.Join(err, &SettingError{Key: "advantage", Value: s.settings().Advantage,
			Remedy: "must be another rule: it gives each token an advantage, and " + oneAdvantage})
	}
	return err
}

// oneAdvantage says why there are no advantages of tokens, and what to do.
const oneAdvantage = `this objective has one for a whole response; those with the settings of "policy" weigh each token, with scope = "sequence" too, and so does gspo with token_level`

// A SettingError says that a setting has an impossible value: its Key is the setting's
// toml name, its Remedy says which values are possible, such as "must be in [0, 1]".
type SettingError = settings.Error

// Within returns a *SettingError for key if x is not in [lo, hi]. NaN is never inside.
// Bounds of math.MaxFloat64 stand for any finite number.
func Within(key string, x, lo, hi float64) error {
	switch {
	case x >= lo && x <= hi:
		return nil
	case hi < math.MaxFloat64:
		return &SettingError{Key: key, Value: x, Remedy: fmt.Sprintf("must be in [%v, %v]", lo, hi)}
	case lo > -math.MaxFloat64:
		return &SettingError{Key: key, Value: x, Remedy: fmt.Sprintf("must be finite and at least %v", lo)}
	}
	return &SettingError{Key: key, Value: x, Remedy: "must be finite"}
}
