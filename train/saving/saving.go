// Package saving decides when a run is saved, and puts into a checkpoint what every
// run has: weights and the optimizer's state. Reinforcement learning and supervised
// training share it; package rundir writes the files.
package saving

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"onering/internal/memory"
	"onering/runtime"
	"onering/train/learn"
	"onering/train/ranks"
	"onering/train/rundir"
)

// A Position says which pieces of a run are done. Supervised training has no rounds:
// there Round is 0.
type Position struct {
	Round, Step int // rounds and optimizer steps that are done
	Next        Stage
}

// A Stage is the piece of a run that comes next.
type Stage int

const (
	ToEvaluate Stage = iota // the evaluation after so many rounds or steps, if it is due
	ToRoll                  // the next round or, without rounds, the next step
	ToLearn                 // the next optimizer step of the round, or its end
)

// PositionOf returns the position that a checkpoint with state s was written at.
func PositionOf(s rundir.State) Position {
	next := ToEvaluate
	switch {
	case s.Inside:
		next = ToLearn
	case s.Evaluated:
		next = ToRoll
	}
	return Position{s.Round, s.Step, next}
}

// Mark sets in s where a run is.
func (at Position) Mark(s *rundir.State) {
	s.Round, s.Step, s.Inside, s.Evaluated = at.Round, at.Step, at.Next == ToLearn, at.Next == ToRoll
}

// Due says when a checkpoint is due: after so many rounds, steps or minutes; 0 is
// never.
type Due struct {
	Rounds, Steps int
	Minutes       float64
}

// A Saver saves a run when that is due, and when the run stops. Of several ranks the
// first decides and writes; all make the same calls.
type Saver struct {
	due    Due
	writer *rundir.Saver
	source Source
	ranks  *ranks.Group
	log    *slog.Logger

	saved   Position // of the newest checkpoint
	savedAt time.Time
	delayed bool // a checkpoint is due, but the one before is still being written
}

// A Source gives the state of a run.
type Source interface {
	// Snapshot returns the state of the run as it is. It stays valid until
	// Release, and the run does not go on before that.
	Snapshot() (rundir.Snapshot, error)
	Release()
}

// neverSaved differs from every position of a run.
var neverSaved = Position{Round: -1}

// New returns a Saver that writes with writer, which needs no CheckMemory and no Log.
func New(due Due, group *ranks.Group, writer *rundir.Saver, source Source, log *slog.Logger) *Saver {
	writer.CheckMemory, writer.Log = memory.Fits, log
	return &Saver{due: due, ranks: group, writer: writer, source: source, log: log, saved: neverSaved, savedAt: time.Now()}
}

// Resumed says that the run continues from its checkpoint at a position.
func (s *Saver) Resumed(at Position) { s.saved = at }

// Close waits for what is being written.
func (s *Saver) Close() { s.writer.Close() }

// Wait waits for what is being written and returns its error.
func (s *Saver) Wait() error { return s.writer.Wait() }

// Poll returns the error of a checkpoint that was written in the background.
func (s *Saver) Poll() error { return s.writer.Poll() }

// AfterStep saves the run inside a round if that is due. A checkpoint that is still
// being written delays the next one.
func (s *Saver) AfterStep(at Position) error {
	due := s.isDue(at)
	if due {
		s.delayed = s.writer.Busy()
		due = !s.delayed
	}
	return s.saveIf(due, at, s.writer.Background)
}

// AfterRound saves the run between two rounds if that is due.
func (s *Saver) AfterRound(at Position) error {
	every := s.due.Rounds
	if at.Round == 0 || s.saved == at {
		return nil
	}
	return s.saveIf(every > 0 && at.Round%every == 0 || s.isDue(at), at, s.writer.Background)
}

// AfterLast saves the finished run and waits for that.
func (s *Saver) AfterLast(at Position) error {
	if err := s.ranks.AgreeOn(s.writer.Wait()); err != nil || s.saved == at {
		return err
	}
	return s.save(at, s.writer.Write)
}

// BeforeSkip saves the run before an optimizer step is left out: replaying that
// step takes the weights before it.
func (s *Saver) BeforeSkip(at Position) error {
	if s.saved == at {
		return nil
	}
	return s.save(at, s.writer.Background)
}

// isDue says whether the steps or the time since the newest checkpoint ask for
// another one.
func (s *Saver) isDue(at Position) bool {
	c := s.due
	return s.delayed || c.Steps > 0 && at.Step%c.Steps == 0 ||
		c.Minutes > 0 && time.Since(s.savedAt) >= time.Duration(c.Minutes*float64(time.Minute))
}

// saveIf is save where the first rank says so.
func (s *Saver) saveIf(due bool, at Position, write func(rundir.Snapshot) error) error {
	if due, err := s.ranks.Decide(due); err != nil || !due {
		return err
	}
	return s.save(at, write)
}

// save writes the run's state in one of the writer's ways.
func (s *Saver) save(at Position, write func(rundir.Snapshot) error) error {
	snap, err := s.source.Snapshot()
	if err == nil {
		err = write(snap)
		s.source.Release()
	}
	if err := s.ranks.AgreeOn(err); err != nil {
		return err
	}
	s.saved, s.savedAt, s.delayed = at, time.Now(), false
	return nil
}

// Stop saves a run that ends with err at a position where it is not saved yet, and
// returns err with what that came to.
func (s *Saver) Stop(at Position, err error) error {
	if failed := s.writer.Wait(); failed != nil {
		err = errors.Join(err, failed)
	}
	if s.writer.Failed() {
		s.saved = neverSaved
	}
	var half *learn.UpdateError
	if errors.As(err, &half) {
		return fmt.Errorf("%w; its weights are those of no step: resume from the last checkpoint", err)
	}
	lost := errors.Is(err, runtime.ErrLost) // with the weights that would be saved
	wanted, failed := s.ranks.Decide(!lost && s.saved != at && (at.Step > 0 || at.Next == ToLearn))
	if failed != nil {
		return errors.Join(err, failed)
	}
	if !wanted {
		return err
	}
	failed = s.save(at, s.writer.Write)
	if s.writer.Folder == nil {
		if failed != nil { // the first rank tries another folder, and may need what is kept here
			_, failed = s.source.Snapshot()
			s.source.Release()
		}
		return errors.Join(err, failed)
	}
	run := s.writer.Folder.Dir
	if failed == nil {
		s.log.Info("saved a checkpoint before stopping", "folder", rundir.CheckpointDir(run, at.Step), "step", at.Step)
		return err
	}
	err = errors.Join(err, failed)
	snap, failed := s.source.Snapshot()
	if failed != nil {
		return errors.Join(err, failed)
	}
	dir, failed := s.writer.Rescue(snap)
	if failed != nil {
		return errors.Join(err, fmt.Errorf("train: step %d could not be saved elsewhere either: %w; the checkpoints in %s are as they were", at.Step, failed, run))
	}
	return errors.Join(err, fmt.Errorf("train: step %d is saved in %s: resume there, or move its %s into %s once that can be written",
		at.Step, dir, rundir.CheckpointDir("", at.Step), filepath.Dir(rundir.CheckpointDir(run, at.Step))))
}
