package policy

import (
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
	rows, w, longest, second := make([][]float64, len(group)), make([]float64, len(group)), 0, 0 // w is the W of each
	centered := objectives.Centered(objectives.Rewards(group))                                   // exactly 0 where rewards are equal
	for i, t := range group {
		n := len(t.OldLogProb)
		rows[i] = make([]float64, n)
		longest, second = max(longest, n), max(second, min(longest, n))
	}
	for j := range longest {
		sum, weight := 0.0, 0.0
		for i, t := range group {
			if j < len(rows[i]) {
				w[i] += 1 - 2*math.Exp(t.OldLogProb[j]) + t.SumPiSquared[j]
				sum, weight = sum+centered[i]*w[i], weight+w[i]
			}
		}
		for i, t := range group {
			switch {
			case j >= len(rows[i]):
			case j >= second && s.AdvantageTail == "none":
				rows[i][j] = t.Reward // without baseline
			case weight > 0:
				rows[i][j] = centered[i] - sum/weight
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
	returns := map[string][]float64{} // the discounted rewards from each turn on, by the state that it began in
	for i, t := range group {
		toGo := 0.0
		rows[i], places[i] = make([]float64, len(t.LogProb)), make([]int, len(t.Turns))
		for k, turn := range slices.Backward(t.Turns) {
			if k == len(t.Turns)-1 { // the first of them: the turns' rewards stand in place of the response's
				sums[i] = 0
			}
			sums[i] += turn.Reward
			toGo = turn.Reward + s.StepDiscount*toGo
			places[i][k] = len(returns[turn.State]) // where the turn's own is
			returns[turn.State] = append(returns[turn.State], toGo)
		}
	}
	for i, ofEpisode := range objectives.Centered(sums) {
		from := 0
		for k, turn := range group[i].Turns {
			step := s.StepWeight * objectives.Centered(returns[turn.State])[places[i][k]]
			for ; from < turn.To; from++ {
				rows[i][from] = ofEpisode + step
			}
		}
		for ; from < len(rows[i]); from++ { // a response without turns
			rows[i][from] = ofEpisode
		}
	}
	return rows
}

// adapting are settings that make advantages of tokens from the log-probs of a step.
type adapting struct {
	// Signal multiplies a ratio: the advantage, or a teacher's lead RefLogProb - LogProb, a constant.
	Signal string `toml:"signal" choice:"advantage teacher"`
	// AdvantageDrift d is taken from the advantage of a token; KLAdvantage (k - mean k) too, with k = logp -
	// RefLogProb of the learner, or of the policy that sampled (old). Both are constants.
	AdvantageDrift float64 `toml:"advantage_drift" range:"[0,)"`
	KLAdvantage    float64 `toml:"kl_advantage" range:"[0,)"`
	KLSource       string  `toml:"kl_source" needs:"kl_advantage!=0" choice:"learner old"`
}

// adapts says whether there are such advantages.
func (a adapting) adapts() bool {
	return a.AdvantageDrift != 0 || a.KLAdvantage != 0 || a.Signal == "teacher"
}

// StepAdvantages is what objectives.Loss and Weights ask for, with the log-probs of the step (D57), or nil for none:
//
//	A - advantage_drift (LogProb - OldLogProb) - kl_advantage (k - mean k),  k = LogProb - RefLogProb
//
// with RefLogProb - LogProb in the place of A for signal = "teacher", and k of OldLogProb for kl_source = "old".
func (a adapting) StepAdvantages(b objectives.Batch) [][]float64 {
	if !a.adapts() {
		return nil
	}
	rows, tokens, mean := b.Zeros(), float64(b.Tokens()), 0.0 // mean is that of k
	for i, row := range rows {
		t := &b.Trajectories[i]
		source := t.OldLogProb
		if a.KLSource == "learner" {
			source = t.LogProb
		}
		for j, logp := range t.LogProb {
			signal := t.AdvantageAt(j)
			if a.Signal == "teacher" {
				signal = t.RefLogProb[j] - logp
			}
			row[j] = signal - a.AdvantageDrift*(logp-t.OldLogProb[j])
			if a.KLAdvantage != 0 {
				k := source[j] - t.RefLogProb[j]
				row[j], mean = row[j]-a.KLAdvantage*k, mean+k/tokens
			}
		}
	}
	for _, row := range rows {
		for j := 0; j < len(row) && a.KLAdvantage != 0; j++ {
			row[j] += a.KLAdvantage * mean
		}
	}
	return rows
}
