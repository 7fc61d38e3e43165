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
	AdvantageEps float64 `toml:"advantage_eps" needs:"advantage=standardized advantage=gdpo advantage=round-std advantage=reinforce++ advantage=reinforce++-baseline" range:"[0,1]"`
	// AdvantageStd is sample (default) or population (D2).
	AdvantageStd string `toml:"advantage_std" needs:"advantage=standardized advantage=gdpo" choice:"sample population"`
	// KLBeta is the weight of the k3 estimate of the KL divergence from the reference
	// policy (D20). Default 0: no reference is needed.
	KLBeta float64 `toml:"kl_beta" range:"[0,)"`
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
	return Shared{Advantage: advantage, AdvantageEps: 1e-8, AdvantageStd: "sample", masks: masks{ClipCovLow: 1, ClipCovHigh: 5, KLCovBeta: 1}}
}

// RoundAdvantages implements RoundAdvantager by the rule that Advantage names.
func (s Shared) RoundAdvantages(groups [][]Trajectory) [][]float64 {
	for _, r := range rules {
		if r.name == s.Advantage {
			return r.advantages(s, groups)
		}
	}
	return byGroup(groups, byReward(Centered))
}

// Exemptions implements Exempter.
func (s Shared) Exemptions() map[string]string {
	for _, r := range rules {
		if r.name == s.Advantage && r.exempt != "" {
			return map[string]string{"equal-rewards": r.exempt}
		}
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
		return &SettingError{Key: "kl_reward", Value: s.KLReward, Remedy: "must be 0 with advantage = \"" + s.Advantage + "\"; it goes with " + strings.Join(fit, ", ")}
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
//	c sum_t (kl_beta (e^x - x - 1) - entropy_bonus Entropy_t),  x = RefLogProb_t - LogProb_t
func (s Shared) Penalty(t Trajectory, c float64) float64 {
	sum := 0.0
	if s.KLBeta != 0 {
		for i, ref := range t.RefLogProb {
			x := ref - t.LogProb[i]
			// expm1 keeps the difference exact where the policies nearly agree.
			sum += c * s.KLBeta * (math.Expm1(x) - x)
		}
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
	if s.KLBeta == 0 {
		return
	}
	for i, ref := range t.RefLogProb {
		w[i] -= c * s.KLBeta * math.Expm1(ref-t.LogProb[i])
	}
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
