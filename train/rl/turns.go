package rl

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"onering/environment"
	"onering/objectives"
	"onering/reward"
	"onering/sampler"
	"onering/tokenize"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/rundir"
)

// Episodes of several turns, and of several segments.

// addParts makes rollouts of the earlier segments of episodes.
func (r *round) addParts() {
	for i := range r.rollouts {
		for _, s := range r.rollouts[i].Earlier {
			part := r.rollouts[i]
			part.Part, part.Prompt, part.Response, part.Observed, part.Text = true, s.Prompt, s.IDs, s.Observed, ""
			part.LogProb, part.Entropy = learn.Float64s(s.LogProb), learn.Float64s(s.Entropy)
			part.Kept = s.Kept
			part.Earned, part.Earlier = nil, nil
			r.rollouts = append(r.rollouts, part)
		}
		r.rollouts[i].Earlier = nil
	}
}

// turns returns the policy's turns as an objective reads them: a turn begins in what the environment last said, and the
// last one has the episode's reward unless turns have their own. A response without environment has none.
func (r *rollout) turns() (turns []objectives.Turn) {
	if len(r.Observed) == 0 {
		return nil
	}
	state := ""
	for k, o := range append(slices.Clip(r.Observed), sampler.Observed{At: len(r.Response)}) {
		t := objectives.Turn{To: o.At, State: state}
		if k < len(r.Earned) && !math.IsNaN(r.Earned[k]) {
			t.Reward = r.Earned[k]
		} else if k == len(r.Observed) && len(r.Earned) == 0 {
			t.Reward = r.Score.Value
		}
		turns, state = append(turns, t), fmt.Sprint(o.IDs)
	}
	return turns
}

// setSegments copies the segments of an episode that a program has played, whose prompts
// may differ from its problem's.
func (x *rollout) setSegments(g reward.Graded, t *tokenize.Tokenizer) {
	last := len(g.Segments) - 1
	if last < 0 {
		if g.IDs == nil { // the program has asked for nothing
			x.Response = []int32{}
		}
		return
	}
	x.Prompt, x.PromptText, x.Earlier = g.Segments[last].Prompt, t.Decode(g.Segments[last].Prompt, false), g.Segments[:last]
}

// shareAdvantages gives the earlier segments of episodes what their episodes have.
func (r *round) shareAdvantages(k int) {
	for i := len(r.problems) * k; i < len(r.rollouts); i++ {
		whole := r.rollouts[i].Problem*k + r.rollouts[i].Sample
		from, to := &r.trajectories[whole], &r.trajectories[i]
		to.Reward, to.Advantage, to.Degenerate = from.Reward, from.Advantage, from.Degenerate
		if slices.Contains(r.kept, whole) {
			r.kept = append(r.kept, i)
		}
	}
}

// compareTurns gives the tokens of each turn the advantage of its return (the sum of
// rewards from this turn on), by the objective's rule, among the problem's episodes that
// have this turn. Episodes without rewards of the environment keep their advantage.
func (r *round) compareTurns(k int, o objectives.Objective) {
	for g := range r.problems {
		graded, group := r.graded(g*k, (g+1)*k)
		for turn, had := 0, true; had; turn++ {
			had = false
			var among []int
			var returns []objectives.Trajectory
			for i, j := range graded {
				x := &r.rollouts[j]
				if turn > len(x.Observed) || len(x.Earned) == 0 {
					continue
				}
				t := group[i]
				t.TokenAdvantage = nil
				t.Reward, _ = environment.Outcome{Rewards: x.Earned[min(turn, len(x.Earned)):]}.Reward()
				had, among, returns = true, append(among, j), append(returns, t)
			}
			if had {
				objectives.SetAdvantages(o, returns)
			}
			for i, j := range among {
				r.setTurnAdvantage(j, turn, returns[i].Advantage)
			}
		}
	}
}

// setTurnAdvantage gives the tokens of a turn of rollout j an advantage.
func (r *round) setTurnAdvantage(j, turn int, advantage float64) {
	x, t := &r.rollouts[j], &r.trajectories[j]
	if t.TokenAdvantage == nil {
		t.TokenAdvantage = make([]float64, len(x.Response))
	}
	from, to := 0, len(x.Response)
	if turn > 0 {
		from = x.Observed[turn-1].At
	}
	if turn < len(x.Observed) {
		to = x.Observed[turn].At
	}
	for i := from; i < to; i++ {
		t.TokenAdvantage[i] = advantage
	}
}

// addTurns adds to a line who wrote which of its tokens. Tokens that the policy did not
// sample have log-prob, weight and difference 0.
func (r *rollout) addTurns(line *rundir.RolloutLine, decode func([]int32) string) {
	all, places := sampler.Response{IDs: r.Response, Observed: r.Observed}.Tokens()
	add := func(author string, from, to int) {
		if from < to {
			line.Turns = append(line.Turns, rundir.TurnLine{Author: author, From: from, To: to, Text: decode(all[from:to])})
		}
	}
	from, turn := 0, 0
	for _, o := range append(slices.Clip(r.Observed), sampler.Observed{At: len(r.Response)}) {
		to := places[o.At-1] + 1
		add(rundir.Policy, from, to)
		if turn < len(r.Earned) && !math.IsNaN(r.Earned[turn]) {
			line.Turns[len(line.Turns)-1].Reward = &r.Earned[turn]
		}
		add(rundir.Environment, to, to+len(o.IDs))
		from, turn = to+len(o.IDs), turn+1
	}
	line.IDs, line.LogP = all, rundir.Widen(line.Turns, line.LogP)
	line.Kept = rundir.Widen(line.Turns, line.Kept)
	line.W, line.Delta = rundir.Widen(line.Turns, line.W), rundir.Widen(line.Turns, line.Delta)
}

// episodes returns figures of the round's episodes: their turns, how many the environment
// could not continue, and the commonest reason.
func (r *round) episodes() metrics.Record {
	turns, failed := 0.0, 0
	reasons := map[string]int{}
	responses := r.responses()
	for i := range r.rollouts {
		x := &r.rollouts[i]
		turns += float64(len(x.Observed) + 1)
		if x.Failed && !x.Part {
			reasons[x.Score.Reason]++
			failed++
		}
	}
	n := float64(len(responses))
	record := metrics.Record{}.With("turns/mean", turns/n).With("environment/failed", failed)
	if failed == 0 {
		return record
	}
	commonest := slices.MaxFunc(slices.Sorted(maps.Keys(reasons)), func(a, b string) int { return reasons[a] - reasons[b] })
	return record.With("environment/failed_share", float64(failed)/n).With("environment/reason", commonest)
}
