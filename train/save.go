package train

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"onering/train/learn"
	"onering/train/memory"
	"onering/train/rundir"
)

// A saver saves a run when that is due, and when the run stops.
type saver struct {
	config LoopConfig
	writer *rundir.Saver
	source snapshotter
	log    *slog.Logger

	saved   position // of the newest checkpoint
	savedAt time.Time
	delayed bool // a checkpoint is due, but the one before is still being written
}

// A snapshotter gives the state of a run.
type snapshotter interface {
	// snapshot returns the state of the run as it is. It stays valid until
	// release, and the run does not go on before that.
	snapshot() (rundir.Snapshot, error)
	release()
}

// neverSaved differs from every position of a run.
var neverSaved = position{round: -1}

func newSaver(c LoopConfig, f *rundir.Folder, source snapshotter, log *slog.Logger) *saver {
	writer := &rundir.Saver{Folder: f, KeepLast: c.KeepLast, KeepBest: c.KeepBest, CheckMemory: memory.Fits, Log: log}
	return &saver{config: c, writer: writer, source: source, log: log, saved: neverSaved, savedAt: time.Now()}
}

func (s *saver) close() { s.writer.Close() }

// poll returns the error of a checkpoint that was written in the background.
func (s *saver) poll() error { return s.writer.Poll() }

// afterStep saves the run inside a round if that is due. A checkpoint that is still
// being written delays the next one.
func (s *saver) afterStep(at position) error {
	if !s.due(at) {
		return nil
	}
	if s.delayed = s.writer.Busy(); s.delayed {
		return nil
	}
	return s.save(at, s.writer.Background)
}

// afterRound saves the run between two rounds if that is due.
func (s *saver) afterRound(at position) error {
	every := s.config.SaveEvery
	if at.round == 0 || s.saved == at || !(every > 0 && at.round%every == 0 || s.due(at)) {
		return nil
	}
	return s.save(at, s.writer.Background)
}

// afterLastRound saves the finished run and waits for that.
func (s *saver) afterLastRound(at position) error {
	if err := s.writer.Wait(); err != nil || s.saved == at {
		return err
	}
	return s.save(at, s.writer.Write)
}

// beforeSkip saves the run before an optimizer step is left out: replaying that
// step takes the weights before it.
func (s *saver) beforeSkip(at position) error {
	if s.saved == at {
		return nil
	}
	return s.save(at, s.writer.Background)
}

// due says whether the steps or the time since the newest checkpoint ask for
// another one.
func (s *saver) due(at position) bool {
	c := s.config
	return s.delayed || c.SaveSteps > 0 && at.step%c.SaveSteps == 0 ||
		c.SaveMinutes > 0 && time.Since(s.savedAt) >= time.Duration(c.SaveMinutes*float64(time.Minute))
}

// save writes the run's state in one of the writer's ways.
func (s *saver) save(at position, write func(rundir.Snapshot) error) error {
	snap, err := s.source.snapshot()
	if err != nil {
		return err
	}
	err = write(snap)
	s.source.release()
	if err != nil {
		return err
	}
	s.saved, s.savedAt, s.delayed = at, time.Now(), false
	return nil
}

// stop saves a run that ends with err at a position where it is not saved yet, and
// returns err with what that came to.
func (s *saver) stop(at position, err error) error {
	if failed := s.writer.Wait(); failed != nil {
		err = errors.Join(err, failed)
	}
	if s.writer.Failed() {
		s.saved = neverSaved
	}
	var half *learn.UpdateError
	if errors.As(err, &half) {
		return fmt.Errorf("%w; the update was not finished: resume from the last checkpoint", err)
	}
	if s.saved == at || at.step == 0 && at.next != toLearn {
		return err
	}
	failed := s.save(at, s.writer.Write)
	run := s.writer.Folder.Dir
	if failed == nil {
		s.log.Info("saved a checkpoint before stopping", "folder", rundir.CheckpointDir(run, at.step), "step", at.step)
		return err
	}
	err = errors.Join(err, failed)
	snap, failed := s.source.snapshot()
	if failed != nil {
		return errors.Join(err, failed)
	}
	dir, failed := s.writer.Rescue(snap)
	if failed != nil {
		return errors.Join(err, fmt.Errorf("train: step %d could not be saved elsewhere either: %w; the checkpoints in %s are as they were", at.step, failed, run))
	}
	return errors.Join(err, fmt.Errorf("train: step %d is saved in %s: resume there, or move its %s into %s once that can be written",
		at.step, dir, rundir.CheckpointDir("", at.step), filepath.Dir(rundir.CheckpointDir(run, at.step))))
}
