package train

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"onering/models"
)

// A position tells the points of a run at which it can be saved from one
// another.
type position struct {
	round, step       int
	inside, evaluated bool
}

// A saver writes checkpoints of a run folder, one at a time. While it writes a
// copy, training goes on.
type saver struct {
	folder   *Folder
	keepLast int
	keepBest int
	log      *slog.Logger

	copies [3]*models.Weights // weights, moments; made by the first background
	done   chan error         // nil when nothing is being written
	failed bool               // the newest checkpoint could not be written
}

// busy says whether a checkpoint is being written.
func (s *saver) busy() bool { return s.done != nil && len(s.done) == 0 }

// background copies the weights of a snapshot and writes it meanwhile. Where
// there is no memory for a copy it writes it at once.
func (s *saver) background(snap snapshot) error {
	if err := s.wait(); err != nil {
		return err
	}
	if err := s.makeCopies(snap.weights.Layout); err != nil {
		s.log.Warn("there is no memory for a copy of weights and moments: training waits for each checkpoint", "reason", err)
		return s.write(snap)
	}
	for i, w := range []**models.Weights{&snap.weights, &snap.first, &snap.second} {
		copy(s.copies[i].Data, (*w).Data)
		*w = s.copies[i]
	}
	s.done = make(chan error, 1)
	go func() { s.done <- s.write(snap) }()
	return nil
}

// makeCopies makes the arenas of copies, where a third of what is available is
// enough for them.
func (s *saver) makeCopies(l *models.Layout) error {
	if s.copies[0] != nil {
		return nil
	}
	if need, free := int64(3*4*l.Size), availableBytes(); free > 0 && need > free/3 {
		return fmt.Errorf("it takes %s, and %s are available", bytesText(need), bytesText(free))
	}
	for i := range s.copies {
		w, err := models.NewWeights(l)
		if err != nil {
			s.closeCopies()
			return err
		}
		s.copies[i] = w
	}
	return nil
}

func (s *saver) closeCopies() {
	for i, w := range s.copies {
		if w != nil {
			w.Close()
			s.copies[i] = nil
		}
	}
}

// wait waits for what is being written and returns its error, once.
func (s *saver) wait() error {
	if s.done == nil {
		return nil
	}
	err := <-s.done
	s.done, s.failed = nil, err != nil
	return err
}

// poll is wait where it would not wait.
func (s *saver) poll() error {
	if s.done == nil || s.busy() {
		return nil
	}
	return s.wait()
}

// write writes a checkpoint into the run folder, and then removes those that
// are not to be kept.
func (s *saver) write(snap snapshot) error {
	began := time.Now()
	if err := s.folder.check(); err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	// What the checkpoint says of metrics.jsonl must not outlive it.
	if err := s.folder.metrics.Sync(); err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	dir := checkpointDir(s.folder.Dir, snap.state.Step)
	if err := snap.write(dir); err != nil {
		return fmt.Errorf("train: checkpoint of step %d: %w", snap.state.Step, err)
	}
	s.log.Debug("saved a checkpoint", "folder", dir, "seconds", time.Since(began).Seconds())
	return s.prune(dir)
}

// prune removes checkpoints beyond the last and the best ones. newest stays.
func (s *saver) prune(newest string) error {
	if s.keepLast < 1 {
		return nil
	}
	dirs, err := s.folder.checkpoints()
	if err != nil {
		return err
	}
	old := dirs[:max(0, len(dirs)-s.keepLast)]
	keep := map[string]bool{newest: true}
	if s.keepBest > 0 {
		for _, dir := range best(dirs, s.keepBest) {
			keep[dir] = true
		}
	}
	for _, dir := range old {
		if keep[dir] {
			continue
		}
		// Under a hidden name first, so that half of one is never taken for one.
		gone := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".tmp-old")
		if err := models.Rename(dir, gone); err != nil {
			return fmt.Errorf("train: removing an old checkpoint: %w", err)
		}
		if err := os.RemoveAll(gone); err != nil {
			return fmt.Errorf("train: removing an old checkpoint: %w", err)
		}
	}
	return nil
}

// best returns the n checkpoints with the highest scores; of equal ones the
// newest.
func best(dirs []string, n int) []string {
	type scored struct {
		dir   string
		score float64
	}
	var all []scored
	for _, dir := range slices.Backward(dirs) {
		if st, err := readState(dir); err == nil && st.Score != nil {
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

// rescue writes a snapshot outside the run folder, which cannot be written to:
// a run folder of its own, with what can still be read of the metrics.
func (s *saver) rescue(snap snapshot) (string, error) {
	dir, err := os.MkdirTemp("", "onering-rescue-"+filepath.Base(s.folder.Dir)+"-")
	if err != nil {
		return "", err
	}
	text := make([]byte, snap.state.Metrics)
	n, err := s.folder.metrics.ReadAt(text, 0) // also of a file that was removed
	if int64(n) < snap.state.Metrics {
		s.log.Warn("metrics.jsonl can no longer be read to its end", "reason", err)
	}
	for name, data := range map[string][]byte{configFile: s.folder.config, metricsFile: text[:n]} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return "", err
		}
	}
	return dir, snap.write(checkpointDir(dir, snap.state.Step))
}

// close waits for what is being written and frees the copies.
func (s *saver) close() {
	s.wait()
	s.closeCopies()
}
