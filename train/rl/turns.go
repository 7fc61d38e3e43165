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

// addEarlierSegments moves the earlier segments of episodes out of their rollouts, and appends a rollout for each.
func (r *round) addEarlierSegments() {
	for i := range r.rollouts {
		for _, s := range r.rollouts[i].Earlier {
			segment := r.rollouts[i] // with the problem, the sample and the score of its episode
			segment.EarlierSegment, segment.Prompt, segment.Response, segment.Observed, segment.Text = true, s.Prompt, s.IDs, s.Observed, ""
			segment.LogProb, segment.Entropy = learn.Float64s(s.LogProb), learn.Float64s(s.Entropy)
			segment.Kept = s.Kept
			segment.TurnRewards, segment.Earlier = nil, nil
			r.rollouts = append(r.rollouts, segment)
		}
		r.rollouts[i].Earlier = nil
	}
}

// turns returns the policy's turns as an objective reads them: the state that a turn begins in is what the environment last
// said, "" before the first, and the last turn has the episode's reward unless turns have their own. A response in which
// nothing was observed, a single turn, has no list of turns.
func (r *rollout) turns() (turns []objectives.Turn) {
	if len(r.Observed) == 0 {
		return nil
	}
	state := ""
	for k, o := range append(slices.Clip(r.Observed), sampler.Observed{At: len(r.Response)}) { // the last turn ends with the response
		t := objectives.Turn{To: o.At, State: state}
		if k < len(r.TurnRewards) && !math.IsNaN(r.TurnRewards[k]) {
			t.Reward = r.TurnRewards[k]
		} else if k == len(r.Observed) && len(r.TurnRewards) == 0 {
			t.Reward = r.Score.Value
		}
		turns, state = append(turns, t), fmt.Sprint(o.IDs)
	}
	return turns
}

// setSegments makes the last segment of an episode that a program has played the prompt of x, in place of its problem's,
// and keeps the others as earlier segments; the caller has set the response, which is the last segment's. An episode
// that no program has played has no segments, and stays as it is.
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

// shareAdvantages gives the earlier segments of episodes, which lie behind the k responses to each problem, the reward
// and the advantage of their episode, and trains on them if it trains on the episode.
func (r *round) shareAdvantages(k int) {
	for i := len(r.problems) * k; i < len(r.rollouts); i++ {
		episode := r.rollouts[i].Problem*k + r.rollouts[i].Sample // its last segment
		from, to := &r.trajectories[episode], &r.trajectories[i]
		to.Reward, to.Advantage, to.Degenerate = from.Reward, from.Advantage, from.Degenerate
		if slices.Contains(r.trained, episode) {
			r.trained = append(r.trained, i)
		}
	}
}

// compareTurns gives the tokens of each turn the advantage of its return (the sum of
// rewards from this turn on), by the objective's rule, among the problem's episodes that
// have this turn. Episodes without rewards of the environment keep their advantage.
func (r *round) compareTurns(k int, o objectives.Objective) {
	for g := range r.problems {
		rollouts, group := r.gradedAmong(g*k, (g+1)*k)
		for turn := 0; ; turn++ {
			var haveTurn []int // rollouts that have this turn
			var returns []objectives.Trajectory
			for i, j := range rollouts {
				x := &r.rollouts[j]
				if turn > len(x.Observed) || len(x.TurnRewards) == 0 {
					continue
				}
				t := group[i]
				t.TokenAdvantage = nil
				t.Reward, _ = environment.Outcome{Rewards: x.TurnRewards[min(turn, len(x.TurnRewards)):]}.Reward() // 0 if there is none
				haveTurn, returns = append(haveTurn, j), append(returns, t)
			}
			if len(haveTurn) == 0 {
				break
			}
			objectives.SetAdvantages(o, returns)
			for i, j := range haveTurn {
				r.setTurnAdvantage(j, turn, returns[i].Advantage)
			}
		}
	}
}

// setTurnAdvantage gives the tokens of a turn, from 0, of rollout j an advantage of their own.
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

// addTurns adds to a line who wrote which of its tokens, and the rewards of turns. It inserts the tokens that
// the policy did not sample into the line's lists, with log-prob, weight and difference 0.
func (r *rollout) addTurns(line *rundir.RolloutLine, decode func([]int32) string) {
	all, sampledAt := sampler.Response{IDs: r.Response, Observed: r.Observed}.Tokens()
	add := func(author string, from, to int) {
		if from < to {
			line.Turns = append(line.Turns, rundir.TurnLine{Author: author, From: from, To: to, Text: decode(all[from:to])})
		}
	}
	from, turn := 0, 0
	for _, o := range append(slices.Clip(r.Observed), sampler.Observed{At: len(r.Response)}) { // the last turn ends with the response
		to := sampledAt[o.At-1] + 1 // behind the turn's last sampled token
		add(rundir.Policy, from, to)
		if turn < len(r.TurnRewards) && !math.IsNaN(r.TurnRewards[turn]) {
			line.Turns[len(line.Turns)-1].Reward = &r.TurnRewards[turn]
		}
		add(rundir.Environment, to, to+len(o.IDs))
		from, turn = to+len(o.IDs), turn+1
	}
	line.IDs, line.LogP = all, rundir.Widen(line.Turns, line.LogP)
	line.Kept = rundir.Widen(line.Turns, line.Kept)
	line.W, line.Delta = rundir.Widen(line.Turns, line.W), rundir.Widen(line.Turns, line.Delta)
}

// episodes returns figures of the round's episodes: their mean number of turns, how many the environment
// could not continue, and the commonest reason. The turns of an episode are those of all its segments.
func (r *round) episodes() metrics.Record {
	turns, failed := 0.0, 0
	reasons := map[string]int{}
	for i := range r.rollouts {
		x := &r.rollouts[i]
		turns += float64(len(x.Observed) + 1)
		if x.Failed && !x.EarlierSegment { // a failure counts once for an episode
			reasons[x.Score.Reason]++
			failed++
		}
	}
	n := float64(len(r.responses())) // number of episodes
	record := metrics.Record{}.With("turns/mean", turns/n).With("environment/failed", failed)
	if failed == 0 {
		return record
	}
	commonest := slices.MaxFunc(slices.Sorted(maps.Keys(reasons)), func(a, b string) int { return reasons[a] - reasons[b] })
	return record.With("environment/failed_share", float64(failed)/n).With("environment/reason", commonest)
}
