package train

import (
	"encoding"
	"fmt"
	"maps"
	"slices"

	"onering/models"
	"onering/objectives"
	"onering/reward"
	"onering/sampler"
	"onering/train/learn"
	"onering/train/rundir"
)

// snapshot takes the run's state without copying the weights.
func (t *Trainer) snapshot() (rundir.Snapshot, error) {
	if err := t.env.Download(t.held()...); err != nil {
		return rundir.Snapshot{}, fmt.Errorf("train: checkpoint: %w", err)
	}
	step := t.stepper.State()
	s := rundir.Snapshot{
		State: rundir.State{
			Round: t.round, Step: t.step, Inside: t.now != nil, Evaluated: t.evaluated,
			Updates: t.stepper.Optimizer().Updates(), Skipped: t.skipped, MicroTokens: step.MicroTokens, LossScale: (*rundir.LossScale)(step.LossScale), Objective: t.Config.Objective.Name,
			Settings: decisive(t.Config), Problems: t.problemsDigest, Score: t.score, Alarms: t.alarms.State(),
		},
		Weights: t.Policy.Weights, Optimizer: t.stepper.Optimizer().State(),
		DType: t.Policy.Model.DType, SaveModel: t.Policy.save,
	}
	if m, ok := t.Objective.(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err != nil {
			return s, fmt.Errorf("train: state of objective %q: %w", s.State.Objective, err)
		}
		s.State.ObjectiveState = string(text)
	}
	if t.now != nil {
		s.Round = t.now.state()
	}
	return s, nil
}

// save writes a Hugging Face folder with the policy's config and tokenizer.
func (p *Policy) save(dir string, w *models.Weights, dtype models.DType, extra func(tmp string) error) error {
	return p.Model.Save(dir, w, models.SaveOptions{DType: dtype, Tokenizer: p.Dir, Extra: extra})
}

// LoadExact reads the weights of a checkpoint of the policy's shape as they were
// in training, to the bit. They are not yet on a device.
func (p *Policy) LoadExact(checkpoint string) error { return rundir.LoadWeights(checkpoint, p.Weights) }

// held returns what of the run's weights and moments a checkpoint holds. On a GPU
// they lie in the device's memory.
func (t *Trainer) held() []*models.Weights {
	return append(slices.Collect(maps.Values(t.stepper.Optimizer().State())), t.Policy.Weights)
}

// restore brings the run to its newest whole checkpoint, or to its beginning if it
// has none yet.
func (t *Trainer) restore() error {
	dir, err := t.folder.NewestCheckpoint(t.log)
	if err != nil {
		return err
	}
	if dir == "" {
		t.log.Info("there is no checkpoint yet: the run begins again", "folder", t.folder.Dir)
		_, err := t.folder.Rewind(rundir.State{})
		return err
	}
	s, err := rundir.ReadState(dir)
	if err != nil {
		return err
	}
	if err := t.checkState(s, dir); err != nil {
		return err
	}
	if err := t.restoreObjective(s, dir); err != nil {
		return err
	}
	if err := t.Policy.LoadExact(dir); err != nil {
		return err
	}
	if err := rundir.LoadOptimizer(dir, t.stepper.Optimizer().State()); err != nil {
		return err
	}
	if err := t.env.Upload(t.held()...); err != nil {
		return fmt.Errorf("train: resume: %w", err)
	}
	t.env.Forget(t.held()...)
	if err := t.alarms.Restore(s.Alarms); err != nil {
		return fmt.Errorf("train: resume: %s: %w", dir, err)
	}
	t.round, t.step, t.evaluated = s.Round, s.Step, s.Evaluated
	t.stepper.Optimizer().SetUpdates(s.Updates)
	t.skipped, t.score, t.saved = s.Skipped, s.Score, position{s.Round, s.Step, s.Inside, s.Evaluated}
	step := learn.State{LossScale: (*learn.LossScale)(s.LossScale)}
	if s.Settings["train.micro_tokens"] == decisive(t.Config)["train.micro_tokens"] {
		step.MicroTokens = s.MicroTokens
	}
	t.stepper.Restore(step)
	if s.Inside {
		if err := t.restoreRound(dir); err != nil {
			return err
		}
	}
	missing, err := t.folder.Rewind(s)
	if missing > 0 {
		t.log.Warn("metrics.jsonl has lost lines since the checkpoint", "bytes", missing)
	}
	if err != nil {
		return fmt.Errorf("train: resume: %w", err)
	}
	t.log.Info("resuming", "checkpoint", dir, "round", t.round, "step", t.step)
	return nil
}

// restoreObjective gives the objective what it remembered at the checkpoint dir.
func (t *Trainer) restoreObjective(s rundir.State, dir string) error {
	if s.ObjectiveState == "" {
		return nil
	}
	m, ok := t.Objective.(encoding.TextUnmarshaler)
	if !ok {
		return fmt.Errorf("train: resume: %s holds a state that objective %q cannot read", dir, s.Objective)
	}
	if err := m.UnmarshalText([]byte(s.ObjectiveState)); err != nil {
		return fmt.Errorf("train: resume: state of objective %q: %w", s.Objective, err)
	}
	return nil
}

// restoreRound reads the round that the checkpoint dir lies in.
func (t *Trainer) restoreRound(dir string) error {
	s, err := rundir.ReadRound(dir)
	if err != nil {
		return err
	}
	c := t.Config
	if want := c.Rollout.PromptsPerRound * c.Rollout.SamplesPerPrompt; len(s.Rollouts) != want {
		return fmt.Errorf("train: resume: %s holds %d rollouts, the run has %d a round", dir, len(s.Rollouts), want)
	}
	t.now = restoredRound(s, c.Rollout.OldLogProb == "rescore")
	t.now.problems = t.problems.Take(c.Data.Seed, t.round*c.Rollout.PromptsPerRound, c.Rollout.PromptsPerRound)
	t.now.batches = t.batches(t.now.kept)
	if len(s.Steps) > len(t.now.batches) {
		return fmt.Errorf("train: resume: %s says that %d of the round's %d steps are done", dir, len(s.Steps), len(t.now.batches))
	}
	return nil
}

// state returns what a checkpoint holds of the round. Nothing in it changes later,
// so it may be written while training goes on.
func (r *underway) state() *rundir.Round {
	s := &rundir.Round{
		Kept: r.kept, Groups: r.groups, Flat: r.flat, Gap: rundir.Gap(r.gap), Steps: r.steps[:len(r.steps):len(r.steps)],
		Stats: rundir.Sampling{
			Tokens: r.stats.Tokens, PrefillTokens: r.stats.PrefillTokens,
			Steps: r.stats.Steps, Slots: r.stats.Slots, SlotSteps: r.stats.SlotSteps,
		},
	}
	for i := range r.rollouts {
		x, y := &r.rollouts[i], &r.trajectories[i]
		s.Rollouts = append(s.Rollouts, rundir.Rollout{
			Problem: x.Problem, Sample: x.Sample, Prompt: x.Prompt, Response: x.Response, LogProb: x.LogProb, Entropy: x.Entropy,
			Text: x.Text, Truncated: x.Truncated, Reward: x.Score.Value, Components: x.Score.Components, Log: x.Score.Log,
			Verdict: rundir.Verdict{Answer: x.Score.Answer, Reason: x.Score.Reason, Status: string(x.Score.Status)},
		})
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
	return s
}

// restoredRound is the round that state was called on, but for its problems and
// batches.
func restoredRound(s *rundir.Round, rescored bool) *underway {
	r := &underway{
		round: &round{kept: s.Kept, groups: s.Groups, flat: s.Flat, gap: gap(s.Gap), rescored: rescored},
		steps: s.Steps,
		stats: sampler.Stats{
			Tokens: s.Stats.Tokens, PrefillTokens: s.Stats.PrefillTokens,
			Steps: s.Stats.Steps, Slots: s.Stats.Slots, SlotSteps: s.Stats.SlotSteps,
		},
	}
	for i, x := range s.Rollouts {
		if x.Verdict.Status == "ok" { // in checkpoints from before package reward
			x.Verdict.Status = string(reward.OK)
		}
		r.rollouts = append(r.rollouts, Rollout{
			Problem: x.Problem, Sample: x.Sample, Prompt: x.Prompt, Response: x.Response, LogProb: x.LogProb, Entropy: x.Entropy,
			Text: x.Text, Truncated: x.Truncated, Score: reward.Score{
				Value: x.Reward, Components: x.Components, Log: x.Log,
				Answer: x.Verdict.Answer, Reason: x.Verdict.Reason, Status: reward.Status(x.Verdict.Status),
			},
		})
		y := s.Trajectories[i]
		if y.OldLogProb == nil {
			y.OldLogProb = x.LogProb
		}
		r.trajectories = append(r.trajectories, objectives.Trajectory{
			Reward: y.Reward, Advantage: y.Advantage, TokenAdvantage: y.TokenAdvantage, RefLogProb: y.RefLogProb,
			LogProb: x.LogProb, OldLogProb: y.OldLogProb, Entropy: x.Entropy, Truncated: y.Truncated, Degenerate: y.Degenerate,
		})
		r.updates = append(r.updates, update(s.Updates[i]))
		r.sequences = append(r.sequences, r.rollouts[i].sequence())
	}
	return r
}

// ObjectiveState returns the state of the objective in a checkpoint, "" if it
// keeps none.
func ObjectiveState(checkpoint string) (string, error) {
	s, err := rundir.ReadState(checkpoint)
	return s.ObjectiveState, err
}
