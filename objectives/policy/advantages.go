package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"onering/objectives"
)

func init() {
	for _, r := range []objectives.AdvantageRule{{Name: "pass-k", Group: passK}, {Name: "hierarchical", Group: hierarchical},
		{Name: "otb", Tokens: tokenBaseline}, {Name: "gigpo", Tokens: byState}} {
		objectives.RegisterRule(r)
	}
}

// passK gives the best response of a group (R1 - R2)/(std + eps), with R2 the second best reward, and the others 0
// (arXiv:2503.19595, D66). A group of one has 0.
func passK(s objectives.Shared, group []objectives.Trajectory) []float64 {
	a, z := make([]float64, len(group)), objectives.Rewards(group)
	if s.AdvantageStd != "none" {
		z = s.Standardize(z)
	}
	sorted := slices.Sorted(slices.Values(z))
	if len(z) > 1 {
		best := sorted[len(z)-1]
		a[slices.Index(z, best)] = best - sorted[len(z)-2]
	}
	return a
}

// hierarchical subtracts the mean of the responses with the same role, for roles in episode_roles of the same episode
// too (prime-rl's hierarchical_grpo, D69).
func hierarchical(s objectives.Shared, group []objectives.Trajectory) []float64 {
	a := make([]float64, len(group))
	for i, t := range group {
		peers := []objectives.Trajectory{t}
		for k, u := range group {
			if k != i && u.Role == t.Role && (u.Episode == t.Episode || !slices.Contains(s.EpisodeRoles, t.Role)) {
				peers = append(peers, u)
			}
		}
		a[i] = objectives.Centered(objectives.Rewards(peers))[0]
	}
	return a
}

// tokenBaseline is the optimal token baseline (verl's optimal_token_baseline, D67): at each place t, rewards are
// compared with their mean over the group's responses that have a token there, weighted by
//
//	W = sum over s <= t of (1 - 2 mu_s + SumPiSquared_s),  mu = e^OldLogProb
//
// advantage_tail = "none" leaves the tokens beyond the second longest response without baseline.
func tokenBaseline(s objectives.Shared, group []objectives.Trajectory) [][]float64 {
	rows, energy, longest, second := make([][]float64, len(group)), make([]float64, len(group)), 0, 0
	from := objectives.Centered(objectives.Rewards(group)) // exactly 0 where rewards are equal
	for i, t := range group {
		n := len(t.OldLogProb)
		rows[i] = make([]float64, n)
		longest, second = max(longest, n), max(second, min(longest, n))
	}
	for j := range longest {
		sum, weight := 0.0, 0.0
		for i, t := range group {
			if j < len(rows[i]) {
				energy[i] += 1 - 2*math.Exp(t.OldLogProb[j]) + t.SumPiSquared[j]
				sum, weight = sum+from[i]*energy[i], weight+energy[i]
			}
		}
		for i, t := range group {
			switch {
			case j >= len(rows[i]):
			case j >= second && s.AdvantageTail == "none":
				rows[i][j] = t.Reward
			case weight > 0:
				rows[i][j] = from[i] - sum/weight
			}
		}
	}
	return rows
}

// byState is GiGPO's advantage (arXiv:2505.10978, D70): of the sum of a response's rewards over its turns among the
// group, plus step_weight times that of the discounted rewards from the turn on among the group's turns that began in
// the same state. Nothing is divided by a deviation.
func byState(s objectives.Shared, group []objectives.Trajectory) [][]float64 {
	rows, sums, places := make([][]float64, len(group)), objectives.Rewards(group), make([][]int, len(group))
	same := map[string][]float64{} // the discounted rewards of a state's turns
	for i, t := range group {
		later := 0.0
		rows[i], places[i] = make([]float64, len(t.LogProb)), make([]int, len(t.Turns))
		for k, turn := range slices.Backward(t.Turns) {
			if k == len(t.Turns)-1 {
				sums[i] = 0
			}
			sums[i] += turn.Reward
			later = turn.Reward + s.StepDiscount*later
			places[i][k] = len(same[turn.State])
			same[turn.State] = append(same[turn.State], later)
		}
	}
	for i, whole := range objectives.Centered(sums) {
		from := 0
		for k, turn := range group[i].Turns {
			step := s.StepWeight * objectives.Centered(same[turn.State])[places[i][k]]
			for ; from < turn.To; from++ {
				rows[i][from] = whole + step
			}
		}
		for ; from < len(rows[i]); from++ { // a response without turns
			rows[i][from] = whole
		}
	}
	return rows
}

// adapting are settings that follow the log-probs and entropies of the steps.
type adapting struct {
	// RAEDecay is the weight of the past in the averages of advantage = "rae".
	RAEDecay float64 `toml:"rae_decay" needs:"advantage=rae" range:"[0,1]"`
	// AdvantageDrift d is taken from the advantage of a token; KLAdvantage (k - mean k) too, with k = logp -
	// RefLogProb of the learner, or of the policy that sampled (old). Both are constants.
	AdvantageDrift float64 `toml:"advantage_drift" range:"[0,)"`
	KLAdvantage    float64 `toml:"kl_advantage" range:"[0,)"`
	KLSource       string  `toml:"kl_source" needs:"kl_advantage!=0" choice:"learner old"`
	// KLTarget and EntropyTarget, unless 0, are what kl_beta and entropy_bonus hold; see Observe.
	KLTarget      float64 `toml:"kl_target" needs:"kl_beta!=0" range:"[0,)"`
	KLHorizon     float64 `toml:"kl_horizon" needs:"kl_target!=0" range:"[1,)"`
	EntropyTarget float64 `toml:"entropy_target" range:"[0,)"`
	EntropyStep   float64 `toml:"entropy_step" needs:"entropy_target!=0" range:"[0,)"`
	EntropyLeast  float64 `toml:"entropy_least" needs:"entropy_target!=0" range:"(-inf,)"`
	EntropyMost   float64 `toml:"entropy_most" needs:"entropy_target!=0" range:"(-inf,)"`
}

// StepAdvantages is what objectives.Loss and Weights ask for, with the log-probs of the step (D57).
func (a adapting) StepAdvantages(b objectives.Batch) [][]float64 {
	if a.AdvantageDrift == 0 && a.KLAdvantage == 0 {
		return nil
	}
	rows, tokens, mean := b.Zeros(), float64(b.Tokens()), 0.0
	for i := range rows {
		t := &b.Trajectories[i]
		for j, old := range t.OldLogProb {
			rows[i][j] = t.AdvantageAt(j) - a.AdvantageDrift*(t.LogProb[j]-old)
			if a.KLAdvantage != 0 {
				kl := old - t.RefLogProb[j]
				if a.KLSource == "learner" {
					kl = t.LogProb[j] - t.RefLogProb[j]
				}
				rows[i][j], mean = rows[i][j]-a.KLAdvantage*kl, mean+kl/tokens
			}
		}
	}
	for i := range rows {
		for j := range rows[i] {
			rows[i][j] += a.KLAdvantage * mean
		}
	}
	return rows
}

// lasts says whether anything is remembered with a rule for advantages.
func (a adapting) lasts(rule string) bool {
	return rule == "rae" || a.KLTarget != 0 || a.EntropyTarget != 0
}

// average takes a response into the average of its role.
func (a adapting) average(averages map[string]float64, t objectives.Trajectory) {
	averages[t.Role] = a.RAEDecay*averages[t.Role] + (1-a.RAEDecay)*t.Reward
}

// adapted returns the settings with their present coefficients.
func (o *Policy) adapted() objectives.Shared {
	s := o.Shared
	if beta, has := o.state["kl_beta"]; has && o.KLTarget != 0 {
		s.KLBeta = beta
	}
	if bonus, has := o.state["entropy_bonus"]; has && o.EntropyTarget != 0 {
		s.EntropyBonus = bonus
	}
	return s
}

// RoundAdvantages implements objectives.RoundAdvantager: it adds RAE (SPIRAL, arXiv:2506.24119, D68), R minus a
// moving average of the rewards of the response's role, which takes in one response after the other.
func (o *Policy) RoundAdvantages(groups [][]objectives.Trajectory) (all [][]float64) {
	if o.Advantage != "rae" {
		return o.Shared.RoundAdvantages(groups)
	}
	averages := maps.Clone(o.state)
	if averages == nil {
		averages = map[string]float64{}
	}
	for _, group := range groups {
		a := make([]float64, len(group))
		for i, t := range group {
			a[i] = t.Reward - averages[t.Role]
			o.average(averages, t)
		}
		all = append(all, a)
	}
	return all
}

// Observe implements objectives.Observer. After a step of N responses,
//
//	a role's average   moves as in RoundAdvantages
//	kl_beta            is multiplied by 1 + clip(kl/kl_target - 1, -0.2, 0.2) N/kl_horizon, kl the mean k3 (D56)
//	entropy_bonus      rises by entropy_step if the mean entropy is at most entropy_target, else falls (D85)
func (o *Policy) Observe(b objectives.Batch) {
	if !o.lasts(o.Advantage) {
		return
	}
	state, now, tokens, kl, entropy := map[string]float64{}, o.adapted(), float64(b.Tokens()), 0.0, 0.0
	maps.Copy(state, o.state)
	for _, t := range b.Trajectories {
		if o.Advantage == "rae" {
			o.average(state, t)
		}
		for j := 0; j < len(t.RefLogProb) && o.KLTarget != 0; j++ {
			x := t.RefLogProb[j] - t.LogProb[j]
			kl += (math.Expm1(x) - x) / tokens
		}
		for j := 0; j < len(t.Entropy) && o.EntropyTarget != 0; j++ {
			entropy += t.Entropy[j] / tokens
		}
	}
	if o.KLTarget != 0 && tokens > 0 {
		state["kl_beta"] = now.KLBeta * (1 + max(-0.2, min(kl/o.KLTarget-1, 0.2))*float64(len(b.Trajectories))/o.KLHorizon)
	}
	step := o.EntropyStep
	if o.EntropyTarget != 0 && tokens > 0 {
		if entropy > o.EntropyTarget {
			step = -step
		}
		state["entropy_bonus"] = max(o.EntropyLeast, min(now.EntropyBonus+step, o.EntropyMost))
	}
	o.state = state
}

// MarshalText implements encoding.TextMarshaler: JSON with a number by the name of each role and coefficient; empty if nothing lasts.
func (o *Policy) MarshalText() ([]byte, error) {
	if len(o.state) == 0 {
		return nil, nil
	}
	return json.Marshal(o.state)
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Policy) UnmarshalText(text []byte) error {
	state := map[string]float64{}
	if len(text) > 0 && !o.lasts(o.Advantage) {
		return errors.New("a state is given, but with these settings the objective keeps none: leave it out")
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &state); err != nil {
			return fmt.Errorf("state %q: %w", text, err)
		}
	}
	o.state = state
	return nil
}
