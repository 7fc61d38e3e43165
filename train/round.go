package train

import (
	"iter"
	"maps"
	"slices"

	"onering/objectives"
	"onering/reward"
	"onering/runtime"
	"onering/sampler"
	"onering/train/metrics"
	"onering/train/rundir"
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
			Reward: x.Score.Value, LogProb: x.LogProb, OldLogProb: x.LogProb, Entropy: x.Entropy, Truncated: x.Truncated,
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
func (r *round) metrics(stats sampler.Stats, steps []metrics.Record) metrics.Record {
	var rewards, lengths, entropies []float64
	truncated, limits, failures := 0.0, 0.0, 0.0
	longest := 0.0
	for i := range r.rollouts {
		x := &r.rollouts[i]
		rewards = append(rewards, x.Score.Value)
		lengths = append(lengths, float64(len(x.Response)))
		longest = max(longest, float64(len(x.Response)))
		entropies = append(entropies, x.Entropy...)
		if x.Truncated {
			truncated++
		}
		switch x.Score.Status {
		case reward.Limit:
			limits++
		case reward.Error:
			failures++
		}
	}
	n := float64(len(r.rollouts))
	mean, deviation := metrics.Moments(rewards)
	length, _ := metrics.Moments(lengths)
	entropy, _ := metrics.Moments(entropies)
	record := metrics.Record{}.
		With("reward", mean).With("reward_std", deviation).
		With("frac_reward_zero_std", float64(r.flat)/float64(r.groups)).
		With("groups_kept", float64(len(r.kept))/n).
		With("entropy", entropy).
		With("response_length/mean", length).With("response_length/max", longest).
		With("truncated_share", truncated/n).
		With("verifier/errors", failures).With("verifier/limits", limits).
		With("tokens", stats.Tokens).With("prompt_tokens", stats.PrefillTokens).With("slot_occupancy", stats.Occupancy())
	record = append(record, r.figures()...)
	return append(record, r.gap.metrics()...).AppendSteps(steps)
}

// figures are the means of the rewards' components and log figures, each over the
// responses that have it.
func (r *round) figures() (record metrics.Record) {
	values := map[string][]float64{}
	for i := range r.rollouts {
		for name, x := range r.rollouts[i].Score.Components {
			values["reward/"+name+"/mean"] = append(values["reward/"+name+"/mean"], x)
		}
		for name, x := range r.rollouts[i].Score.Log {
			values["reward_log/"+name+"/mean"] = append(values["reward_log/"+name+"/mean"], x)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		mean, _ := metrics.Moments(values[name])
		record = record.With(name, mean)
	}
	return record
}

// lines yields the lines of the round's file in rollouts/.
func (r *underway) lines() iter.Seq[rundir.RolloutLine] {
	return func(yield func(rundir.RolloutLine) bool) {
		for i := range r.rollouts {
			x, q := &r.rollouts[i], r.problems[r.rollouts[i].Problem]
			line := rundir.RolloutLine{
				Problem: q.ID, Sample: x.Sample, Prompt: q.Text, Response: x.Text, Answers: q.Answers,
				Answer: x.Score.Answer, Reason: x.Score.Reason, Reward: r.trajectories[i].Reward, Rewards: x.Score.Components, Log: x.Score.Log,
				Advantage: r.trajectories[i].Advantage, Truncated: x.Truncated, IDs: x.Response,
				LogP: x.LogProb, W: r.updates[i].W, Delta: r.updates[i].Delta,
			}
			if !yield(line) {
				return
			}
		}
	}
}
