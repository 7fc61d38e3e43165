package train

import (
	"fmt"

	"onering/models"
	"onering/train/rundir"
)

// snapshot returns the run's state without copying the weights.
func (t *Trainer) snapshot() (rundir.Snapshot, error) {
	s := rundir.Snapshot{State: rundir.State{
		Round: t.at.round, Step: t.at.step, Inside: t.at.next == toLearn, Evaluated: t.at.next == toRoll,
		Settings: decisive(t.Config), Problems: t.roller.digest, Score: t.score, Alarms: t.alarms.State(),
	}}
	if t.round != nil {
		s.Round = t.round.state()
	}
	return s, t.learner.saveTo(&s)
}

// release ends the use of a snapshot.
func (t *Trainer) release() { t.learner.release() }

// positionOf returns the position that a checkpoint with state s was written at.
func positionOf(s rundir.State) position {
	next := toEvaluate
	switch {
	case s.Inside:
		next = toLearn
	case s.Evaluated:
		next = toRoll
	}
	return position{s.Round, s.Step, next}
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
	if err := t.learner.restore(s, dir); err != nil {
		return err
	}
	if err := t.alarms.Restore(s.Alarms); err != nil {
		return fmt.Errorf("train: resume: %s: %w", dir, err)
	}
	t.at, t.score = positionOf(s), s.Score
	t.saver.saved = t.at
	if s.Inside {
		if t.round, err = t.restoredRound(dir); err != nil {
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
	t.log.Info("resuming", "checkpoint", dir, "round", t.at.round, "step", t.at.step)
	return nil
}

// restoredRound reads the round that the checkpoint dir lies in.
func (t *Trainer) restoredRound(dir string) (*round, error) {
	s, err := rundir.ReadRound(dir)
	if err != nil {
		return nil, err
	}
	c := t.Config.Rollout
	if want := c.PromptsPerRound * c.SamplesPerPrompt; len(s.Rollouts) != want {
		return nil, fmt.Errorf("train: resume: %s holds %d rollouts, the run has %d a round", dir, len(s.Rollouts), want)
	}
	r := roundOf(s, c.OldLogProb == "rescore")
	r.problems, r.batches = t.roller.problemsOf(t.at.round), t.roller.batches(t.at.round, r.kept)
	if len(s.Steps) > len(r.batches) {
		return nil, fmt.Errorf("train: resume: %s says that %d of the round's %d steps are done", dir, len(s.Steps), len(r.batches))
	}
	return r, nil
}

// save writes a Hugging Face folder with the policy's config and tokenizer.
func (p *Policy) save(dir string, w *models.Weights, dtype models.DType, extra func(tmp string) error) error {
	return p.Model.Save(dir, w, models.SaveOptions{DType: dtype, Tokenizer: p.Dir, Extra: extra})
}

// LoadExact reads the weights of a checkpoint of the policy's shape as they were
// in training, to the bit. They are not yet on a device.
func (p *Policy) LoadExact(checkpoint string) error { return rundir.LoadWeights(checkpoint, p.Weights) }

// ObjectiveState returns the state of the objective in a checkpoint, "" if it
// keeps none.
func ObjectiveState(checkpoint string) (string, error) {
	s, err := rundir.ReadState(checkpoint)
	return s.ObjectiveState, err
}
