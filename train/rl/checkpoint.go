package rl

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"onering/objectives"
	"onering/reward"
	"onering/train"
	"onering/train/rundir"
)

// Save implements train.Task.
func (t *trainer) Save(s *rundir.Snapshot) error {
	s.State.Order = t.roller.problems.State()
	s.State.Settings = maps.Clone(s.State.Settings)
	s.State.Settings[roundsKey] = strconv.Itoa(t.Config.Train.Rounds)
	s.State.ScheduleSince, s.State.ScheduleDone = t.learner.clock.changedAt, t.learner.clock.doneThen
	if s.State.Inside {
		s.Round = t.round.state()
	}
	return t.learner.saveTo(s)
}

// restoredRound returns the unfinished round that a checkpoint lies in, or an error if it does not fit the present
// settings. Its problems and batches are not saved: they follow from the seed and the round again.
func (t *trainer) restoredRound(from train.Checkpoint) (*round, error) {
	c, s, dir, n := t.Config.Rollout, from.Round, from.Dir, from.State.Round
	// Behind the responses there may be earlier segments of episodes, and nothing else.
	if want := c.PromptsPerRound * c.SamplesPerPrompt; len(s.Rollouts) < want || len(s.Rollouts) > want && !s.Rollouts[want].Part {
		return nil, fmt.Errorf("train: resume: %s holds %d rollouts, the run has %d a round", dir, len(s.Rollouts), want)
	}
	if want := c.PromptsPerRound; t.Config.samplesPerPrompt() > c.SamplesPerPrompt && len(s.Greedy) != want { // one more is the greedy one
		return nil, fmt.Errorf("train: resume: %s holds %d greedy rollouts, the run has %d a round", dir, len(s.Greedy), want)
	}
	r := roundOf(s, c.OldLogProb == "rescore") // true: the old log-probs are the learner's and not the sampler's, so they are saved
	if objectives.NeedsOf(t.Config.Objective.Settings).Reference && slices.ContainsFunc(r.trajectories,
		func(x objectives.Trajectory) bool { return len(x.RefLogProb) != len(x.IDs) }) { // the objective had no reference then
		return nil, fmt.Errorf("train: resume: %s lies inside round %d, which was scored without a reference policy: "+
			"objective.kl_beta can become positive only between two rounds; set it back, or remove this checkpoint to resume from the one before", dir, n+1)
	}
	if slices.ContainsFunc(r.rollouts, func(x rollout) bool { return len(x.Teachers) != len(t.learner.teachers) }) {
		return nil, fmt.Errorf("train: resume: %s lies inside round %d, which was scored with other teachers: streams can "+
			"get or lose one only between two rounds; set them back, or remove this checkpoint to resume from the one before", dir, n+1)
	}
	r.problems, r.batches = t.roller.problems.Round(n), t.roller.batches(n, r.trained)
	r.setRoles(t.Config.Data.Role)
	if len(s.Steps) > len(r.batches) {
		return nil, fmt.Errorf("train: resume: %s says that %d of the round's %d steps are done", dir, len(s.Steps), len(r.batches))
	}
	return r, nil
}

// state returns the part of a checkpoint for the round. It does not change later, so it
// may be written in the background.
func (r *round) state() *rundir.Round {
	s := &rundir.Round{
		Updates: slices.Clone(r.updates), // later steps replace its elements
		Kept:    r.trained, Groups: r.groups, Flat: r.equalGroups, Gap: r.gap,
		Steps: r.steps[:len(r.steps):len(r.steps)], // capped, so that later steps are appended elsewhere
		Stats: r.stats,
	}
	for i := range r.rollouts {
		x, y := &r.rollouts[i], &r.trajectories[i]
		s.Rollouts = append(s.Rollouts, x.state())
		learned := rundir.Trajectory{
			Reward: y.Reward, Advantage: y.Advantage, TokenAdvantage: y.TokenAdvantage, RefLogProb: y.RefLogProb,
			Truncated: y.Truncated, Degenerate: y.Degenerate,
		}
		if r.rescored { // else they are the rollout's, see roundOf
			learned.OldLogProb = y.OldLogProb
		}
		s.Trajectories = append(s.Trajectories, learned)
	}
	for i := range r.greedy {
		s.Greedy = append(s.Greedy, r.greedy[i].state())
	}
	return s
}

// state returns the part of a checkpoint for a rollout.
func (r *rollout) state() rundir.Rollout {
	return rundir.Rollout{
		Problem: r.Problem, Sample: r.Sample, PromptText: r.PromptText, Prompt: r.Prompt, Response: r.Response, LogProb: r.LogProb, Entropy: r.Entropy, Kept: r.Kept,
		Observed: r.Observed, Earned: r.TurnRewards, Failed: r.Failed, Part: r.EarlierSegment, Teachers: r.Teachers,
		Text: r.Text, Truncated: r.Truncated, Reward: r.Score.Value, Components: r.Score.Components, Log: r.Score.Log,
		Verdict: rundir.Verdict{Answer: r.Score.Answer, Reason: r.Score.Reason, Right: string(r.Score.Verdict), Status: string(r.Score.Status), Skip: r.Score.Skip},
	}
}

// rolloutOf is the inverse of rollout.state.
func rolloutOf(x rundir.Rollout) rollout {
	if x.Verdict.Status == "ok" { // for checkpoints from before package reward
		x.Verdict.Status = string(reward.OK)
	}
	return rollout{
		Problem: x.Problem, Sample: x.Sample, EarlierSegment: x.Part, Teachers: x.Teachers,
		graded: graded{PromptText: x.PromptText, Prompt: x.Prompt, Response: x.Response, LogProb: x.LogProb,
			Entropy: x.Entropy, Kept: x.Kept, Observed: x.Observed, TurnRewards: x.Earned, Failed: x.Failed, Text: x.Text, Truncated: x.Truncated, Score: reward.Score{
				Value: x.Reward, Components: x.Components, Log: x.Log,
				Answer: x.Verdict.Answer, Reason: x.Verdict.Reason, Verdict: reward.Verdict(x.Verdict.Right), Status: reward.Status(x.Verdict.Status), Skip: x.Verdict.Skip,
			}},
	}
}

// roundOf is the inverse of round.state, but for the problems and batches, which it leaves empty. rescored says that
// the learner has computed the old log-probs, as the run's settings demand.
func roundOf(s *rundir.Round, rescored bool) *round {
	r := &round{
		updates: slices.Clone(s.Updates), trained: s.Kept, groups: s.Groups, equalGroups: s.Flat, gap: s.Gap, rescored: rescored, steps: s.Steps,
		stats: s.Stats,
	}
	for i, x := range s.Rollouts {
		r.rollouts = append(r.rollouts, rolloutOf(x))
		y := s.Trajectories[i]
		if y.OldLogProb == nil { // not rescored: the sampler's
			y.OldLogProb = x.LogProb
		}
		r.trajectories = append(r.trajectories, objectives.Trajectory{
			Reward: y.Reward, Advantage: y.Advantage, TokenAdvantage: y.TokenAdvantage, RefLogProb: y.RefLogProb,
			// LogProb is the sampler's until a step computes it.
			LogProb: x.LogProb, OldLogProb: y.OldLogProb, SampleLogProb: x.LogProb, Entropy: x.Entropy, IDs: x.Response,
			Truncated: y.Truncated, Degenerate: y.Degenerate, Group: r.rollouts[i].Problem, Turns: r.rollouts[i].turns(),
		})
		r.sequences = append(r.sequences, r.rollouts[i].sequence())
	}
	for _, x := range s.Greedy {
		r.greedy = append(r.greedy, rolloutOf(x))
	}
	return r
}
