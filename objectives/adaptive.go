package objectives

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
)

// adaptive are settings that follow the responses of the steps, and what they remember. An objective with a state of
// its own calls Shared.Observe in its Observe, and JoinState and SplitState in MarshalText and UnmarshalText.
type adaptive struct {
	// RAEDecay is the weight of the past in the averages of advantage = "rae". Default 0.95.
	RAEDecay float64 `toml:"rae_decay" needs:"advantage=rae" range:"[0,1]"`
	// KLTarget and EntropyTarget, unless 0, are what kl_beta or kl_reward and entropy_bonus hold; see Observe.
	KLTarget      float64 `toml:"kl_target" needs:"kl_beta!=0 kl_reward!=0" range:"[0,)"`
	KLHorizon     float64 `toml:"kl_horizon" needs:"kl_target!=0" range:"[1,)"`
	EntropyTarget float64 `toml:"entropy_target" range:"[0,)"`
	EntropyStep   float64 `toml:"entropy_step" needs:"entropy_target!=0" range:"[0,)"`
	EntropyLeast  float64 `toml:"entropy_least" needs:"entropy_target!=0" range:"(-inf,)"`
	EntropyMost   float64 `toml:"entropy_most" needs:"entropy_target!=0" range:"(-inf,)"`

	state map[string]float64 // by the name of a role, or the key of a coefficient
}

// keepsState says whether anything is remembered from step to step, with a rule for advantages.
func (a adaptive) keepsState(rule string) bool {
	return rule == "rae" || a.KLTarget != 0 || a.EntropyTarget != 0
}

// present returns the present value of a coefficient with a target, whose first one is given.
func (a adaptive) present(key string, first, target float64) float64 {
	if target != 0 {
		if x, has := a.state[key]; has {
			return x
		}
	}
	return first
}

// beta, reward and bonus are the present kl_beta, kl_reward and entropy_bonus.
func (s *penalties) beta() float64   { return s.present("kl_beta", s.KLBeta, s.KLTarget) }
func (s *penalties) reward() float64 { return s.present("kl_reward", s.KLReward, s.KLTarget) }
func (s *penalties) bonus() float64 {
	return s.present("entropy_bonus", s.EntropyBonus, s.EntropyTarget)
}

// roleAverages are RAE's advantages (SPIRAL, arXiv:2506.24119, D68): R minus a moving average of the rewards of the
// response's role, which takes in one response after the other.
func (s Shared) roleAverages(groups [][]Trajectory) [][]float64 {
	averages := map[string]float64{}
	maps.Copy(averages, s.state)
	return byGroup(groups, func(group []Trajectory) []float64 {
		a := make([]float64, len(group))
		for i, t := range group {
			a[i] = t.Reward - averages[t.Role]
			s.average(averages, t)
		}
		return a
	})
}

// average takes a response into the average of its role.
func (a adaptive) average(averages map[string]float64, t Trajectory) {
	averages[t.Role] = a.RAEDecay*averages[t.Role] + (1-a.RAEDecay)*t.Reward
}

// Observe implements Observer. After a step of N responses,
//
//	a role's average   moves as in roleAverages
//	kl_beta            is multiplied by 1 + clip(kl/kl_target - 1, -0.2, 0.2) N/kl_horizon, kl the mean k3 (D56)
//	kl_reward          likewise, kl the mean over responses of their mean OldLogProb - RefLogProb, as in verl
//	entropy_bonus      rises by entropy_step if the mean entropy is at most entropy_target, else falls (D85)
func (s *Shared) Observe(b Batch) {
	if !s.keepsState(s.Advantage) {
		return // nothing adapts, and roles have no averages
	}
	state, tokens := map[string]float64{}, float64(b.Tokens())
	kl, entropy := 0.0, 0.0    // means over all tokens
	sum, responses := 0.0, 0.0 // of the responses' mean OldLogProb - RefLogProb, and how many have a reference
	maps.Copy(state, s.state)
	for _, t := range b.Trajectories {
		if s.Advantage == "rae" {
			s.average(state, t)
		}
		if n := float64(len(t.RefLogProb)); n > 0 {
			responses++
			for j := 0; j < len(t.RefLogProb) && s.KLTarget != 0; j++ {
				x := t.RefLogProb[j] - t.LogProb[j]
				kl += (math.Expm1(x) - x) / tokens
				sum += (t.OldLogProb[j] - t.RefLogProb[j]) / n
			}
		}
		for j := 0; j < len(t.Entropy) && s.EntropyTarget != 0; j++ {
			entropy += t.Entropy[j] / tokens
		}
	}
	adapt := func(key string, present, distance float64) {
		if s.KLTarget != 0 && present != 0 && responses > 0 { // a coefficient of 0 is off
			state[key] = present * (1 + max(-0.2, min(distance/s.KLTarget-1, 0.2))*float64(len(b.Trajectories))/s.KLHorizon)
		}
	}
	adapt("kl_beta", s.beta(), kl) // s.beta, s.reward and s.bonus are the coefficients of this step
	adapt("kl_reward", s.reward(), sum/max(responses, 1))
	step := s.EntropyStep
	if s.EntropyTarget != 0 && tokens > 0 {
		if entropy > s.EntropyTarget {
			step = -step
		}
		state["entropy_bonus"] = max(s.EntropyLeast, min(s.bonus()+step, s.EntropyMost))
	}
	s.state = state
}

// MarshalText implements encoding.TextMarshaler: JSON with a number by the name of each role and coefficient; empty if
// nothing lasts.
func (s *Shared) MarshalText() ([]byte, error) {
	if len(s.state) == 0 {
		return nil, nil
	}
	return json.Marshal(s.state)
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Shared) UnmarshalText(text []byte) error {
	state := map[string]float64{}
	if len(text) > 0 && !s.keepsState(s.Advantage) {
		return errors.New("a state is given, but with these settings the objective keeps none: leave it out")
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &state); err != nil {
			return fmt.Errorf("state %q: %w", text, err)
		}
	}
	s.state = state
	return nil
}

// joined is the state of an objective and that of its Shared.
type joined struct {
	Own    json.RawMessage `json:"own"`
	Shared json.RawMessage `json:"shared"`
}

// JoinState returns the text of an objective's own state, JSON, with that of s if there is one.
func (s *Shared) JoinState(own []byte) ([]byte, error) {
	shared, err := s.MarshalText()
	if err != nil || len(shared) == 0 {
		return own, err
	}
	return json.Marshal(joined{own, shared})
}

// SplitState restores the state of s in a text that JoinState made, and returns the objective's own.
func (s *Shared) SplitState(text []byte) (own []byte, err error) {
	var both joined
	if json.Unmarshal(text, &both) == nil && both.Own != nil && both.Shared != nil {
		text = both.Own
	}
	return text, s.UnmarshalText(both.Shared)
}
