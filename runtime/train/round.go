package train

import (
	"math"

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
	kept         []int // rollouts that are trained on
	groups       int
	flat         int // groups whose rewards are all equal

	gapMax, gapSum float64 // |rollout - training log-prob| before the first update
	gapTokens      int
}

// newRound shapes the rewards, takes the advantages of each group of k and
// drops the groups that the objective does not keep.
func newRound(rollouts []Rollout, k int, o objectives.Objective, maxNewTokens int) *round {
	r := &round{rollouts: rollouts, groups: len(rollouts) / k}
	shaper, _ := o.(objectives.Shaper)
	keeper, _ := o.(objectives.Keeper)
	r.trajectories = make([]objectives.Trajectory, len(rollouts))
	r.sequences = make([]runtime.Sequence, len(rollouts))
	for g := 0; g < len(rollouts); g += k {
		rewards := make([]float64, k)
		for i := range k {
			x := &rollouts[g+i]
			if rewards[i] = x.Reward; shaper != nil {
				rewards[i] = shaper.Shape(x.Reward, len(x.Response), maxNewTokens, x.Truncated)
			}
		}
		if constant(rewards) {
			r.flat++
		}
		advantages := objectives.Advantages(o, rewards)
		for i := range k {
			x := &rollouts[g+i]
			r.trajectories[g+i] = objectives.Trajectory{
				Reward: rewards[i], Advantage: advantages[i], Entropy: x.Entropy,
				LogProb: x.LogProb, OldLogProb: x.LogProb, Truncated: x.Truncated,
			}
			r.sequences[g+i] = x.sequence()
		}
		if keeper != nil && !keeper.Keep(r.trajectories[g:g+k]) {
			continue
		}
		for i := range k {
			r.kept = append(r.kept, g+i)
		}
	}
	return r
}

func constant(x []float64) bool {
	for _, v := range x {
		if v != x[0] {
			return false
		}
	}
	return true
}

// compare notes how far a training log-prob is from what the sampler saw.
func (r *round) compare(i int, logp []float32) {
	for t, x := range logp {
		gap := math.Abs(float64(x) - r.rollouts[i].LogProb[t])
		r.gapMax = max(r.gapMax, gap)
		r.gapSum += gap
		r.gapTokens++
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
		{"logp_gap_max", r.gapMax}, {"logp_gap_mean", r.gapSum / float64(max(1, r.gapTokens))},
	}
	// The means over the round's steps of what each step logged; the largest
	// where the name says so.
	if len(steps) == 0 {
		return record
	}
	for _, m := range steps[0] {
		if _, ok := m.Value.(float64); !ok {
			continue
		}
		var values []float64
		for _, s := range steps {
			if v := s.Float(m.Name); !math.IsNaN(v) {
				values = append(values, v)
			}
		}
		v, _ := moments(values)
		if m.Name == "p/max" || m.Name == "log_ratio/max" {
			for _, x := range values {
				v = max(v, x)
			}
		}
		if record.Get(m.Name) == nil {
			record = append(record, Metric{m.Name, v})
		}
	}
	return record
}
