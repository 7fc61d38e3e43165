package rundir

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"onering/internal/files"
	"onering/models"
)

// A Saver writes checkpoints into a run folder, one at a time. While it writes one
// in the background, from a copy of the weights, training continues.
type Saver struct {
	Folder *Folder // nil means that nothing is written
	// KeepLast is how many of the newest checkpoints are kept, 0 for all of them.
	// KeepBest is how many checkpoints with the best scores are kept in addition.
	KeepLast, KeepBest int
	// CheckMemory returns an error if there is not enough memory for a copy of so many bytes.
	CheckMemory func(bytes int64) error
	Log         *slog.Logger
	Follower    Follower // nil if nobody follows the checkpoints

	copies []*models.Weights // copies of the weights and of the optimizer's state; the first Background makes them
	done   chan error        // receives the result of the write in progress; nil if there is none
	failed bool              // the newest checkpoint could not be written
}

// A Follower follows the checkpoints of a run, as one that sends them elsewhere does. Several
// goroutines call its methods.
type Follower interface {
	// Saved is called when a checkpoint has been written.
	Saved(dir string)
	// Needs says whether a checkpoint must not be removed yet.
	Needs(dir string) bool
}

// Busy says whether a checkpoint is being written.
func (s *Saver) Busy() bool { return s.done != nil && len(s.done) == 0 }

// Failed says whether the last checkpoint that Background began to write could not
// be written. Wait or Poll has returned the reason.
func (s *Saver) Failed() bool { return s.failed }

// Write writes a checkpoint and removes old ones. With a device it first frees the copies
// that Background made, unless they are being written.
func (s *Saver) Write(snap Snapshot) error {
	if s.Folder == nil {
		return nil
	}
	if snap.Device != nil && !s.Busy() {
		s.closeCopies()
	}
	return s.write(s.stamp(snap))
}

// Background copies the weights of a snapshot and writes it while training goes on. It waits for the previous
// write, whose error it returns. Without memory for the copy it writes before it returns.
func (s *Saver) Background(snap Snapshot) error {
	if s.Folder == nil {
		return nil
	}
	if err := s.Wait(); err != nil {
		return err
	}
	snap = s.stamp(snap)
	if err := s.makeCopies(snap.Weights.Layout, 1+len(snap.Optimizer)); err != nil { // 1: the weights; each state has their layout
		s.Log.Warn("there is no memory for a copy of weights and moments: training waits for each checkpoint", "reason", err)
		return s.write(snap)
	}
	if err := s.copy(&snap); err != nil {
		return err
	}
	s.done = make(chan error, 1)
	go func() { s.done <- s.write(snap) }()
	return nil
}

// Wait waits for the write in progress and returns its error, once.
func (s *Saver) Wait() error {
	if s.done == nil {
		return nil
	}
	err := <-s.done
	s.done, s.failed = nil, err != nil
	return err
}

// Poll does what Wait does, but only if nothing is being written any more.
func (s *Saver) Poll() error {
	if s.Busy() {
		return nil
	}
	return s.Wait()
}

// Close waits for the write in progress and frees the copies.
func (s *Saver) Close() {
	s.Wait()
	s.closeCopies()
}

// stamp records in the snapshot how much of the run's files belongs to it.
func (s *Saver) stamp(snap Snapshot) Snapshot {
	snap.State.Version = stateVersion
	snap.State.Metrics, snap.State.Unsaved = s.Folder.size, s.Folder.unsaved
	snap.written = s.Folder.sizes()
	return snap
}

// copy replaces the weights and the optimizer's state of the snapshot by copies in s.copies, which training does not change;
// those of a device are fetched one after the other.
func (s *Saver) copy(snap *Snapshot) error {
	from := []*models.Weights{snap.Weights}
	optimizer := make(map[string]*models.Weights)
	for _, name := range slices.Sorted(maps.Keys(snap.Optimizer)) {
		optimizer[name] = s.copies[len(from)]
		from = append(from, snap.Optimizer[name])
	}
	failed, threads := make([]error, len(from)), len(from) // by copy
	if snap.Device != nil {
		threads = 1 // a device copies one after the other
	}
	models.AtOnce(threads, len(from), func(i int) { failed[i] = snap.copyTo(s.copies[i], from[i]) })
	if err := errors.Join(failed...); err != nil {
		return err
	}
	snap.Weights, snap.Optimizer, snap.Device = s.copies[0], optimizer, nil // nil: the copies are on the host
	return nil
}

// makeCopies makes the memory for n copies of a layout, in place of another number of copies. After an error there are none.
func (s *Saver) makeCopies(l *models.Layout, n int) error {
	if len(s.copies) == n {
		return nil
	}
	s.closeCopies()
	if err := s.CheckMemory(int64(n * 4 * l.Size)); err != nil { // 4 bytes: float32
		return err
	}
	for range n {
		w, err := models.NewWeights(l)
		if err != nil {
			s.closeCopies()
			return err
		}
		s.copies = append(s.copies, w)
	}
	return nil
}

func (s *Saver) closeCopies() {
	for _, w := range s.copies {
		w.Close()
	}
	s.copies = nil
}

// write writes a checkpoint of a snapshot into the run's folder, tells the Follower, and removes old checkpoints.
func (s *Saver) write(snap Snapshot) error {
	began := time.Now()
	if err := s.Folder.check(); err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	// The checkpoint states a size of metrics.jsonl that has to be on the disk before the checkpoint is.
	if err := errors.Join(files.FaultOf("sync", s.Folder.metrics.Name()), s.Folder.metrics.Sync()); err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	dir := CheckpointDir(s.Folder.Dir, snap.State.Step)
	snap.written = s.Folder.addSums(snap.written, snap.State, s.Log)
	if err := snap.write(dir); err != nil {
		return fmt.Errorf("train: checkpoint of step %d: %w", snap.State.Step, err)
	}
	s.Log.Debug("saved a checkpoint", "folder", dir, "seconds", time.Since(began).Seconds())
	if s.Follower != nil {
		s.Follower.Saved(dir)
	}
	return s.prune(dir)
}

// prune removes checkpoints that are neither among the last KeepLast nor among the best KeepBest ones, and that no Follower
// needs. It never removes newest. With KeepLast of 0 it removes nothing.
func (s *Saver) prune(newest string) error {
	if s.KeepLast < 1 {
		return nil
	}
	dirs, err := checkpoints(s.Folder.Dir)
	if err != nil {
		return err
	}
	keep := map[string]bool{newest: true}
	if s.KeepBest > 0 {
		for _, dir := range best(dirs, s.KeepBest) {
			keep[dir] = true
		}
	}
	for _, dir := range dirs[:max(0, len(dirs)-s.KeepLast)] {
		if keep[dir] || s.Follower != nil && s.Follower.Needs(dir) {
			continue
		}
		// It gets a hidden name first, so that a half-removed one never looks like a checkpoint.
		gone := hidden(dir, ".tmp-old")
		if err := files.Rename(dir, gone); err != nil {
			return fmt.Errorf("train: removing an old checkpoint: %w", err)
		}
		if err := os.RemoveAll(gone); err != nil {
			return fmt.Errorf("train: removing an old checkpoint: %w", err)
		}
	}
	return nil
}

// best returns the n checkpoints with the highest scores, the newest ones first among equals.
func best(dirs []string, n int) []string {
	type scored struct {
		dir   string
		score float64
	}
	var all []scored
	for _, dir := range slices.Backward(dirs) {
		if st, err := ReadState(dir); err == nil && st.Score != nil { // nil if it was not evaluated
			all = append(all, scored{dir, *st.Score})
		}
	}
	slices.SortStableFunc(all, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	var out []string
	for _, x := range all[:min(n, len(all))] {
		out = append(out, x.dir)
	}
	return out
}

// Best returns the checkpoint of a run folder with the highest score, the newest of equals; "" if none has one.
func Best(run string) string {
	dirs, err := checkpoints(run)
	if kept := best(dirs, 1); err == nil && len(kept) > 0 {
		return kept[0]
	}
	return ""
}

// Among says whether a model with this score would be among the best KeepBest checkpoints.
func (s *Saver) Among(score float64) bool {
	if s.Folder == nil || s.KeepBest < 1 {
		return false
	}
	dirs, err := checkpoints(s.Folder.Dir)
	if err != nil {
		return true // the error will occur again when the checkpoint is written
	}
	kept := best(dirs, s.KeepBest)
	if len(kept) < s.KeepBest {
		return true
	}
	st, err := ReadState(kept[len(kept)-1])
	return err != nil || score > *st.Score
}

// Rescue writes a snapshot outside of a run folder that cannot be written. It makes a run folder in the
// system's folder for temporary files, with the configuration, the readable part of the metrics and
// the checkpoint, and returns its path, also after an error of the checkpoint.
func (s *Saver) Rescue(snap Snapshot) (string, error) {
	snap = s.stamp(snap)
	snap.written = nil // the other folder lacks most of it
	dir, err := os.MkdirTemp("", "onering-rescue-"+filepath.Base(s.Folder.Dir)+"-")
	if err != nil {
		return "", err
	}
	text := make([]byte, snap.State.Metrics)
	n, err := s.Folder.metrics.ReadAt(text, 0) // works for a file that was removed, too
	if int64(n) < snap.State.Metrics {
		s.Log.Warn("metrics.jsonl can no longer be read to its end", "reason", err)
	}
	err = os.WriteFile(filepath.Join(dir, configFile), s.Folder.config, 0o644)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, metricsFile), text[:n], 0o644)
	}
	if err != nil {
		return "", err
	}
	return dir, snap.write(CheckpointDir(dir, snap.State.Step))
}
