package rl

import (
	"fmt"
	"slices"

	"onering/objectives"
	"onering/reward"
	"onering/sampler"
	"onering/train/rundir"
	"onering/train/saving"
)

// Snapshot implements saving.Source: it copies no weights.
func (t *Trainer) Snapshot() (rundir.Snapshot, error) {
	s := rundir.Snapshot{State: rundir.State{
		Settings: decisive(t.Config), Problems: t.roller.digest, Order: t.roller.problems.State(), Score: t.score, Alarms: t.alarms.State(),
	}}
	t.at.Mark(&s.State)
	if t.round != nil {
		s.Round = t.round.state()
	}
	return s, t.learner.saveTo(&s)
}

// Release implements saving.Source.
func (t *Trainer) Release() { t.learner.learned().Release() }

// restore brings the run to its newest whole checkpoint, or to its beginning if it
// has none yet.
func (t *Trainer) restore() error {
	found, err := saving.Newest(t.learner.ranks, t.folder, t.log)
	if err != nil {
		return err
	}
	s, dir := found.State, found.Dir
	if dir == "" {
		t.log.Info("there is no checkpoint yet: the run begins again", "folder", t.Config.Output.Dir)
		return t.learner.ranks.AgreeOn(t.folder.Rewind(rundir.State{}, t.log))
	}
	if err := t.checkState(s, dir); err != nil {
		return err
	}
	if s.Problems == t.roller.digest {
		if err := t.roller.problems.Restore(s.Order); err != nil {
			return fmt.Errorf("train: resume: %s: %w", dir, err)
		}
	}
	if err := t.learner.restore(s, dir); err != nil {
		return err
	}
	if err := t.alarms.Restore(s.Alarms); err != nil {
		return fmt.Errorf("train: resume: %s: %w", dir, err)
	}
	t.at, t.score = saving.PositionOf(s), s.Score
	t.saver.Resumed(t.at)
	if s.Inside {
		if t.round, err = t.restoredRound(found.Round, dir); err != nil {
			return err
		}
	}
	if err := t.learner.ranks.AgreeOn(t.folder.Rewind(s, t.log)); err != nil {
		return err
	}
	t.log.Info("resuming", "checkpoint", dir, "round", t.at.Round, "step", t.at.Step)
	return nil
}

// restoredRound returns the round that the checkpoint dir lies in, of which it holds s.
func (t *Trainer) restoredRound(s *rundir.Round, dir string) (*round, error) {
	c := t.Config.Rollout
	if want := c.PromptsPerRound * c.SamplesPerPrompt; len(s.Rollouts) != want {
		return nil, fmt.Errorf("train: resume: %s holds %d rollouts, the run has %d a round", dir, len(s.Rollouts), want)
	}
	if want := c.PromptsPerRound; t.Config.sampled() > c.SamplesPerPrompt && len(s.Greedy) != want {
		return nil, fmt.Errorf("train: resume: %s holds %d greedy rollouts, the run has %d a round", dir, len(s.Greedy), want)
	}
	r := roundOf(s, c.OldLogProb == "rescore")
	if objectives.NeedsReference(t.Config.Objective.Settings) && slices.ContainsFunc(r.trajectories, func(x objectives.Trajectory) bool { return len(x.RefLogProb) != len(x.IDs) }) {
		return nil, fmt.Errorf("train: resume: %s lies inside round %d, which was scored without a reference policy: objective.kl_beta can become positive only between two rounds; set it back, or remove this checkpoint to resume from the one before", dir, t.at.Round+1)
	}
	r.problems, r.batches = t.roller.problemsOf(t.at.Round), t.roller.batches(t.at.Round, r.kept)
	if len(s.Steps) > len(r.batches) {
		return nil, fmt.Errorf("train: resume: %s says that %d of the round's %d steps are done", dir, len(s.Steps), len(r.batches))
	}
	return r, nil
}

// state returns what a checkpoint holds of the round. Nothing in it changes later,
// so it may be written in the background.
func (r *round) state() *rundir.Round {
	s := &rundir.Round{
		Kept: r.kept, Groups: r.groups, Flat: r.flat, Gap: r.gap, Steps: r.steps[:len(r.steps):len(r.steps)],
		Stats: rundir.Sampling{
			Tokens: r.stats.Tokens, PrefillTokens: r.stats.PrefillTokens,
			Steps: r.stats.Steps, Slots: r.stats.Slots, SlotSteps: r.stats.SlotSteps,
		},
	}
	for i := range r.rollouts {
		x, y := &r.rollouts[i], &r.trajectories[i]
		s.Rollouts = append(s.Rollouts, x.state())
		learned := rundir.Trajectory{
			Reward: y.Reward, Advantage: y.Advantage, TokenAdvantage: y.TokenAdvantage, RefLogProb: y.RefLogProb,
			Truncated: y.Truncated, Degenerate: y.Degenerate,
		}
		if r.rescored {
			learned.OldLogProb = y.OldLogProb
		}
		s.Trajectories = append(s.Trajectories, learned)
		s.Updates = append(s.Updates, rundir.Update(r.updates[i]))
	}
	for i := range r.greedy {
		s.Greedy = append(s.Greedy, r.greedy[i].state())
	}
	return s
}

// state returns what a checkpoint holds of a rollout.
func (r *rollout) state() rundir.Rollout {
	return rundir.Rollout{
		Problem: r.Problem, Sample: r.Sample, PromptText: r.PromptText, Prompt: r.Prompt, Response: r.Response, LogProb: r.LogProb, Entropy: r.Entropy,
		Text: r.Text, Truncated: r.Truncated, Reward: r.Score.Value, Components: r.Score.Components, Log: r.Score.Log,
		Verdict: rundir.Verdict{Answer: r.Score.Answer, Reason: r.Score.Reason, Right: string(r.Score.Verdict), Status: string(r.Score.Status), Skip: r.Score.Skip},
	}
}

// rolloutOf returns the rollout that state was called on.
func rolloutOf(x rundir.Rollout) rollout {
	if x.Verdict.Status == "ok" { // in checkpoints from before package reward
		x.Verdict.Status = string(reward.OK)
	}
	return rollout{
		Problem: x.Problem, Sample: x.Sample, PromptText: x.PromptText, Prompt: x.Prompt, Response: x.Response, LogProb: x.LogProb, Entropy: x.Entropy,
		Text: x.Text, Truncated: x.Truncated, Score: reward.Score{
			Value: x.Reward, Components: x.Components, Log: x.Log,
			Answer: x.Verdict.Answer, Reason: x.Verdict.Reason, Verdict: reward.Verdict(x.Verdict.Right), Status: reward.Status(x.Verdict.Status), Skip: x.Verdict.Skip,
		},
	}
}

// roundOf returns the round that state was called on, except its problems and
// batches.
func roundOf(s *rundir.Round, rescored bool) *round {
	r := &round{
		kept: s.Kept, groups: s.Groups, flat: s.Flat, gap: s.Gap, rescored: rescored, steps: s.Steps,
		stats: sampler.Stats{
			Tokens: s.Stats.Tokens, PrefillTokens: s.Stats.PrefillTokens,
			Steps: s.Stats.Steps, Slots: s.Stats.Slots, SlotSteps: s.Stats.SlotSteps,
		},
	}
	for i, x := range s.Rollouts {
		r.rollouts = append(r.rollouts, rolloutOf(x))
		y := s.Trajectories[i]
		if y.OldLogProb == nil {
			y.OldLogProb = x.LogProb
		}
		r.trajectories = append(r.trajectories, objectives.Trajectory{
			Reward: y.Reward, Advantage: y.Advantage, TokenAdvantage: y.TokenAdvantage, RefLogProb: y.RefLogProb,
			LogProb: x.LogProb, OldLogProb: y.OldLogProb, SampleLogProb: x.LogProb, Entropy: x.Entropy, IDs: x.Response,
			Truncated: y.Truncated, Degenerate: y.Degenerate,
		})
		r.updates = append(r.updates, update(s.Updates[i]))
		r.sequences = append(r.sequences, r.rollouts[i].sequence())
	}
	for _, x := range s.Greedy {
		r.greedy = append(r.greedy, rolloutOf(x))
	}
	return r
}

// ObjectiveState returns the state of the objective in a checkpoint, "" if it
// keeps none.
func ObjectiveState(checkpoint string) (string, error) {
	s, err := rundir.ReadState(checkpoint)
	return s.ObjectiveState, err
}
