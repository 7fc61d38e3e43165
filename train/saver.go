package train

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

// A Position says which pieces of a run are finished. A run without rounds leaves Round at 0.
type Position struct {
	Round, Step int  // number of finished rounds and optimizer steps
	Inside      bool // the run is inside round Round+1, and a checkpoint holds what that consists of
	Evaluated   bool // the evaluation at this position, if any, is done
}

// positionOf returns the position that a checkpoint with state s was written at.
func positionOf(s rundir.State) Position {
	return Position{s.Round, s.Step, s.Inside, s.Evaluated && !s.Inside}
}

// Saving says when checkpoints are due (after so many rounds, steps or minutes; 0 is never) and which of them are kept.
type Saving struct {
	Rounds, Steps      int
	Minutes            float64
	KeepLast, KeepBest int
}

// Pushing says where the checkpoints of a run are sent while it goes on.
type Pushing struct {
	PushTo      string `toml:"push_to" help:"repository on the hub, OWNER/NAME, that gets checkpoints while the run goes on, as onering push sends them; one that could not be pushed is named, and tried again with the next one and at the end"`
	PushEvery   int    `toml:"push_every" needs:"push_to!=" range:"[1,1000000]" help:"checkpoints from one push to the next; the last is always pushed"`
	PushPrivate bool   `toml:"push_private" needs:"push_to!=" help:"make the repository private if it is new, and refuse one that is public"`
}

// A save says whether a checkpoint is written after a piece.
type save int

// The ways of saving after a piece.
const (
	Never save = iota
	IfDue      // if a checkpoint is due by Saving
	Now        // unless the run is saved at its position already; the run waits for it
)

// A saver saves a run when a checkpoint is due, and when the run stops. The first rank
// decides and writes; all ranks make the same calls.
type saver struct {
	due    Saving
	writer *rundir.Saver
	run    *Run

	saved   Position // position of the newest checkpoint
	savedAt time.Time
	delayed bool // a checkpoint is due, but the previous one is still being written
	said    bool // the log says that checkpoints are delayed
}

// neverSaved differs from every position of a run.
var neverSaved = Position{Round: -1}

func newSaver(r *Run, folder *rundir.Folder, due Saving) *saver {
	writer := &rundir.Saver{Folder: folder, KeepLast: due.KeepLast, KeepBest: due.KeepBest, CheckMemory: memory.Fits, Log: r.Log, Follower: r.follower}
	if r.stop != nil {
		writer.KeepBest = max(1, writer.KeepBest)
	}
	return &saver{due: due, writer: writer, run: r, saved: neverSaved, savedAt: r.Clock.Now()}
}

// after saves the run after a piece, as when says: now, while the run waits, or in the background if a checkpoint is
// due. All ranks call it, and the first decides. Inside a round, and in a run without rounds, a checkpoint that is
// still being written delays the next one. Nothing is saved at the beginning of a run, or twice at a position.
func (s *saver) after(at Position, when save) error {
	switch {
	case when == Never || s.saved == at || at.Round+at.Step == 0 && !at.Inside:
		return nil
	case when == Now:
		return s.save(at, func(snap rundir.Snapshot) error {
			if err := s.writer.Wait(); err != nil {
				return err
			}
			return s.writer.Write(snap)
		})
	}
	due := s.delayed || s.due.Steps > 0 && at.Step%s.due.Steps == 0 ||
		s.due.Minutes > 0 && s.run.Clock.Now().Sub(s.savedAt) >= time.Duration(s.due.Minutes*float64(time.Minute))
	between := at.Round > 0 && !at.Inside                      // between two rounds; false in a run without rounds
	best := s.run.score != nil && s.writer.Among(*s.run.score) // one of the keep_best highest scores so far
	switch {
	case between || best:
		due = due || best || s.due.Rounds > 0 && at.Round%s.due.Rounds == 0
	case due: // inside a round, or without rounds: it does not wait for the writer
		s.delayed = s.writer.Busy()
		due = !s.delayed
		if s.delayed && !s.said {
			s.said = true
			s.run.Log.Warn("a checkpoint is due while the one before is still being written: it follows after a later "+
				"step, so there are fewer than the settings say", "step", at.Step)
		}
	}
	if due, err := ranks.Tell(s.run.Ranks, due); err != nil || !due {
		return err
	}
	return s.save(at, s.writer.Background)
}

// save writes the run's state in one of the writer's ways.
func (s *saver) save(at Position, write func(rundir.Snapshot) error) error {
	err := s.run.together(func() error {
		snap, err := s.run.snapshot()
		if err == nil {
			err = write(snap)
			s.run.Release()
		}
		return err
	})
	if err == nil {
		s.saved, s.savedAt, s.delayed = at, s.run.Clock.Now(), false
	}
	return err
}

// stop saves a run that ends with err at a position without a checkpoint, and returns err joined with errors of saving.
// If the ranks have lost each other, even while saving, the first one saves alone, since its state is complete.
func (s *saver) stop(at Position, err error) error {
	s.run.Ranks.LeaveLost()
	stopped := s.stopWith(at, err)
	if s.run.Ranks.LeaveLost() {
		return s.stopWith(at, stopped)
	}
	return stopped
}

// stopWith is stop for ranks that have not lost each other meanwhile.
func (s *saver) stopWith(at Position, err error) error {
	if failed := s.writer.Wait(); failed != nil {
		err = errors.Join(err, failed)
	}
	if s.writer.Failed() { // what Background began to write is not there, so this position may be saved again
		s.saved = neverSaved
	}
	if _, ok := errors.AsType[*learn.UpdateError](err); ok {
		return fmt.Errorf("%w; its weights are those of no step: resume from the last checkpoint", err)
	}
	lost := errors.Is(err, runtime.ErrLost) // with the weights to be saved
	wanted, failed := ranks.Tell(s.run.Ranks, !lost && s.saved != at && (at.Step > 0 || at.Inside))
	if failed != nil {
		return errors.Join(err, failed)
	}
	if !wanted {
		return err
	}
	failed = s.save(at, s.writer.Write)
	if failed != nil && s.run.Ranks.Size() > 1 && s.run.Ranks.Lost() != nil {
		return errors.Join(err, failed)
	}
	if s.writer.Folder == nil {
		if failed != nil { // the first rank tries another folder, and may need this rank's parts
			_, failed = s.run.snapshot()
			s.run.Release()
		}
		return errors.Join(err, failed)
	}
	if failed == nil {
		s.run.Log.Info("saved a checkpoint before stopping", "folder", rundir.CheckpointDir(s.writer.Folder.Dir, at.Step), "step", at.Step)
		return err
	}
	return errors.Join(err, failed, s.rescue(at))
}

// rescue saves the run outside its folder, and returns an error that says where.
func (s *saver) rescue(at Position) error {
	snap, err := s.run.snapshot()
	if err != nil {
		return err
	}
	run := s.writer.Folder.Dir
	dir, err := s.writer.Rescue(snap)
	if err != nil {
		return fmt.Errorf("train: step %d could not be saved elsewhere either: %w; the checkpoints in %s are as they were", at.Step, err, run)
	}
	return fmt.Errorf("train: step %d is saved in %s: resume there, or move its %s into %s once that can be written",
		at.Step, dir, rundir.CheckpointDir("", at.Step), filepath.Dir(rundir.CheckpointDir(run, at.Step)))
}

// newest reads the newest checkpoint of a run folder; its Dir is empty if there is none.
func newest(folder *rundir.Folder, log *slog.Logger) (c Checkpoint, err error) {
	if c.Dir, err = folder.NewestCheckpoint(log); err != nil || c.Dir == "" {
		return c, err
	}
	if c.State, err = rundir.ReadState(c.Dir); err == nil && c.State.Inside {
		c.Round, err = rundir.ReadRound(c.Dir)
	}
	if err == nil {
		err = folder.Remember(c.Dir, log)
	}
	return c, err
}
