package objectives

import (
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
	Advantage string `toml:"advantage"`
	// AdvantageEps is added to the standard deviation. Default 1e-8.
	AdvantageEps float64 `toml:"advantage_eps" needs:"advantage=standardized advantage=gdpo advantage=pass-k advantage=round-std advantage=reinforce++ advantage=reinforce++-baseline" range:"[0,1]"`
	// AdvantageStd is sample (default) or population (D2); none, with pass-k, divides by nothing.
	AdvantageStd string `toml:"advantage_std" needs:"advantage=standardized advantage=gdpo advantage=pass-k" choice:"sample population none"`
	// AdvantagePower and AdvantageShift change centered to (R - mean)/mean^power - shift (D71, D72). Default 0.
	AdvantagePower float64 `toml:"advantage_power" needs:"advantage=centered" range:"[0,)"`
	AdvantageShift float64 `toml:"advantage_shift" needs:"advantage=centered" range:"(-inf,)"`
	// AdvantageTail is own (default), or none: the longest response's tokens beyond the second longest have no baseline (D67).
	AdvantageTail string `toml:"advantage_tail" needs:"advantage=otb" choice:"own none"`
	// EpisodeRoles are compared within their episode (D69).
	EpisodeRoles []string `toml:"episode_roles" needs:"advantage=hierarchical"`
	// StepWeight and StepDiscount are the weight of a turn's own advantage and the discount of its return (D70). Default 1.
	StepWeight   float64 `toml:"step_weight" needs:"advantage=gigpo" range:"[0,)"`
	StepDiscount float64 `toml:"step_discount" needs:"advantage=gigpo" range:"[0,1]"`
	// KLBeta is the weight of an estimate of the KL divergence from the reference policy
	// (D20). Default 0: no reference is needed.
	KLBeta float64 `toml:"kl_beta" range:"[0,)"`
	// KLForm is the estimate, KLGradient its derivative, and KLCap its largest value, beyond
	// which its own derivative is 0; 0 is none. Default k3, own, 0. See klTerm.
	KLForm     string  `toml:"kl_form" needs:"kl_beta!=0" choice:"k3 k2 abs k1"`
	KLGradient string  `toml:"kl_gradient" needs:"kl_beta!=0" choice:"own k2 unbiased"`
	KLCap      float64 `toml:"kl_cap" needs:"kl_beta!=0" range:"[0,)"`
	// KLReward is how much of sum_t (OldLogProb_t - RefLogProb_t) is taken from the reward
	// of a response before advantages are computed, as oat's kl_penalty_coef and TRL's RLOO
	// do. Default 0.
	KLReward float64 `toml:"kl_reward" range:"[0,)"`
	// EntropyBonus is the weight of the policy's entropy; a positive value
	// raises the entropy. Default 0.
	EntropyBonus float64 `toml:"entropy_bonus" range:"(-inf,)"`
	masks
}

// Defaults returns the default settings with the given kind of advantage.
func Defaults(advantage string) Shared {
	return Shared{Advantage: advantage, AdvantageEps: 1e-8, AdvantageStd: "sample", AdvantageTail: "own", StepWeight: 1,
		StepDiscount: 1, KLForm: "k3", KLGradient: "own", masks: masks{ClipCovLow: 1, ClipCovHigh: 5, KLCovBeta: 1}}
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

// Exemptions implements Exempter.
func (s Shared) Exemptions() map[string]string {
	if s.Advantage == "centered" && s.AdvantageShift != 0 || s.Advantage == "otb" && s.AdvantageTail == "none" {
		const why = "the baseline is not the mean"
		return map[string]string{"equal-rewards": why, "equal-rounds": why}
	}
	if why := s.rule().Exempt; why != "" {
		return map[string]string{"equal-rewards": why}
	}
	return nil
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
	case s.KLGradient == "unbiased" && (s.KLForm != "k3" || s.KLCap != 0):
		return &SettingError{Key: "kl_gradient", Value: s.KLGradient, Remedy: `must be own or k2: unbiased goes with kl_form = "k3" and kl_cap = 0`}
	}
	return nil
}

// NeedsReference says that a penalty compares with the reference.
func (s Shared) NeedsReference() bool { return s.KLBeta != 0 || s.KLReward != 0 }

// klPenalty returns the amount that kl_reward subtracts from the reward of a response.
func (s Shared) klPenalty(t Trajectory) float64 {
	sum := 0.0
	for j := 0; s.KLReward != 0 && j < len(t.OldLogProb); j++ {
		sum += s.KLReward * (t.OldLogProb[j] - t.RefLogProb[j])
	}
	return sum
}

// NeedsGreedy says that the advantage is ReMax's.
func (s Shared) NeedsGreedy() bool { return s.Advantage == "remax" }

// NeedsGroup is true for all advantages except that of REINFORCE++.
func (s Shared) NeedsGroup() bool { return s.Advantage != "reinforce++" }

// NeedsEntropy says that the entropy bonus or a mask reads entropies.
func (s Shared) NeedsEntropy() bool { return s.EntropyBonus != 0 || s.TopEntropy != 0 }

// ReadsBatch says that masks use covariances over the whole batch.
func (s Shared) ReadsBatch() bool { return s.ClipCov != 0 || s.KLCov != 0 }

// WeighsApart says that some masks compare the tokens of the whole batch.
func (s Shared) WeighsApart() bool { return s.TopEntropy == 0 && s.ClipCov == 0 && s.KLCov == 0 }

// Penalty returns the KL and entropy terms of one trajectory, in which every token
// counts c times:
//
//	c sum_t (kl_beta kl_t - entropy_bonus Entropy_t)
func (s Shared) Penalty(t Trajectory, c float64) float64 {
	sum := 0.0
	for i := 0; s.KLBeta != 0 && i < len(t.RefLogProb); i++ {
		kl, _ := s.klTerm(&t, i)
		sum += c * s.KLBeta * kl
	}
	if s.EntropyBonus != 0 {
		for _, h := range t.Entropy {
			sum -= c * s.EntropyBonus * h
		}
	}
	return sum
}

// AddPenalty adds the derivative of Penalty with respect to LogProb to w.
func (s Shared) AddPenalty(t Trajectory, c float64, w []float64) {
	for i := 0; s.KLBeta != 0 && i < len(t.RefLogProb); i++ {
		_, slope := s.klTerm(&t, i)
		w[i] += c * s.KLBeta * slope
	}
}

// klTerm returns the estimate of the KL divergence at token i and its derivative, with
// x = RefLogProb - LogProb (D52 to D54):
//
//	k3   e^x - x - 1, 1 - e^x     k2   x^2/2, -x     abs  |x|, -sign(x)     k1   -x
//	kl_gradient = "k2": the derivative is -x, whatever the estimate
//	kl_gradient = "unbiased": r k3, -r x, with r = e^(LogProb - OldLogProb) in the gradient
func (s Shared) klTerm(t *Trajectory, i int) (kl, slope float64) {
	x := t.RefLogProb[i] - t.LogProb[i]
	switch s.KLForm {
	case "k2":
		kl, slope = x*x/2, -x
	case "abs":
		kl, slope = math.Abs(x), -x/max(math.Abs(x), math.SmallestNonzeroFloat64)
	case "k1":
		kl = -x
	default:
		e := math.Expm1(x) // exact where the policies nearly agree
		kl, slope = e-x, -e
	}
	if s.KLCap > 0 && kl > s.KLCap {
		kl, slope = s.KLCap, 0
	}
	switch s.KLGradient {
	case "k2":
		slope = -x
	case "unbiased":
		r := math.Exp(t.LogProb[i] - t.OldLogProb[i])
		kl, slope = r*kl, -r*x
	}
	return kl, slope
}

// WeighsEntropy implements EntropyWeigher.
func (s Shared) WeighsEntropy() bool { return s.EntropyBonus != 0 }

// EntropyWeights implements EntropyWeigher for objectives that average over the
// tokens of a trajectory and then over trajectories (c = 1/(N n) in Penalty).
func (s Shared) EntropyWeights(b Batch, v [][]float64) {
	for i := range v {
		s.FillEntropy(1/float64(len(b.Trajectories)*len(v[i])), v[i])
	}
}

// FillEntropy sets v to the derivative of Penalty with respect to Entropy.
func (s Shared) FillEntropy(c float64, v []float64) {
	for i := range v {
		v[i] = -c * s.EntropyBonus
	}
}

// Check reports, as joined *SettingErrors, the settings of o that are outside the ranges
// and choices of their tags, and the errors of its method Validate.
func Check(o Objective) error { return settings.Check(o) }

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
