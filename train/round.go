package train

import (
	"math"
	"slices"
	"strings"

	"onering/objectives"
	"onering/runtime"
	"onering/sampler"
	"onering/verifier"
)

// A round is the trajectories of one round on their way through its optimizer
// steps.
type round struct {
	rollouts     []Rollout
	trajectories []objectives.Trajectory // by rollout; LogProb is the newest known
	sequences    []runtime.Sequence
	kept         []int    // rollouts that are trained on
	updates      []update // by rollout; empty before its first step
	groups       int
	flat         int // groups whose rewards are all equal

	rescored bool // OldLogProb is the learner's

	gap gap
}

// newRound shapes the rewards, takes the advantages of each group of k and
// drops the groups that the objective does not keep.
func newRound(rollouts []Rollout, k int, o objectives.Objective) *round {
	r := &round{rollouts: rollouts, groups: len(rollouts) / k}
	r.trajectories = make([]objectives.Trajectory, len(rollouts))
	r.sequences = make([]runtime.Sequence, len(rollouts))
	r.updates = make([]update, len(rollouts))
	for i := range rollouts {
		x := &rollouts[i]
		r.trajectories[i] = objectives.Trajectory{
			Reward: x.Reward, LogProb: x.LogProb, OldLogProb: x.LogProb, Entropy: x.Entropy, Truncated: x.Truncated,
		}
		r.sequences[i] = x.sequence()
	}
	for g := 0; g < len(rollouts); g += k {
		group := r.trajectories[g : g+k]
		objectives.SetAdvantages(o, group)
		if group[0].Degenerate {
			r.flat++
		}
		if !objectives.Keep(o, group) {
			continue
		}
		for i := range k {
			r.kept = append(r.kept, g+i)
		}
	}
	return r
}

// compare notes how far a training log-prob is from what the sampler saw.
func (r *round) compare(i int, logp []float64) {
	for t, x := range logp {
		r.gap.add(r.rollouts[i].LogProb[t], x)
	}
}

// metrics are the round's figures; seconds are added by the caller.
func (r *round) metrics(stats sampler.Stats, steps []Record) Record {
	var rewards, lengths, entropies []float64
	truncated, limits, failures := 0.0, 0.0, 0.0
	longest := 0.0
	for i := range r.rollouts {
		x := &r.rollouts[i]
		rewards = append(rewards, x.Reward)
		lengths = append(lengths, float64(len(x.Response)))
		longest = max(longest, float64(len(x.Response)))
		entropies = append(entropies, x.Entropy...)
		if x.Truncated {
			truncated++
		}
		switch x.Verdict.Status {
		case verifier.Limit:
			limits++
		case verifier.Error:
			failures++
		}
	}
	n := float64(len(r.rollouts))
	reward, rewardStd := moments(rewards)
	length, _ := moments(lengths)
	entropy, _ := moments(entropies)
	record := Record{
		{"reward", reward}, {"reward_std", rewardStd},
		{"frac_reward_zero_std", float64(r.flat) / float64(r.groups)},
		{"groups_kept", float64(len(r.kept)) / n},
		{"entropy", entropy},
		{"response_length/mean", length}, {"response_length/max", longest},
		{"truncated_share", truncated / n},
		{"verifier/errors", failures}, {"verifier/limits", limits},
		{"tokens", stats.Tokens}, {"prompt_tokens", stats.PrefillTokens}, {"slot_occupancy", stats.Occupancy()},
	}
	record = append(record, r.gap.metrics()...)
	// The means over the round's steps of what each step logged; the largest or
	// smallest where the name says so.
	var names []Metric
	seen := map[string]bool{}
	skipped := 0
	for _, s := range steps {
		if s.Get("skipped") != nil {
			skipped++
		}
		for _, m := range s {
			if !seen[m.Name] {
				seen[m.Name] = true
				names = append(names, m)
			}
		}
	}
	if skipped > 0 {
		record = append(record, Metric{"skipped_steps", skipped})
	}
	for _, m := range names {
		if _, ok := m.Value.(float64); !ok {
			continue
		}
		var values []float64
		for _, s := range steps {
			if v := s.Float(m.Name); !math.IsNaN(v) {
				values = append(values, v)
			}
		}
		if len(values) == 0 {
			continue
		}
		v, _ := moments(values)
		switch _, last, _ := strings.Cut(m.Name, "/"); {
		case strings.HasPrefix(last, "max"):
			v = slices.Max(values)
		case strings.HasPrefix(last, "min"):
			v = slices.Min(values)
		}
		if record.Get(m.Name) == nil {
			record = append(record, Metric{m.Name, v})
		}
	}
	return record
}
