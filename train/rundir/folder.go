// Package rundir is the folder that a training run writes: its metrics, rollouts and
// checkpoints, written so that a failure at any moment leaves no half-written file that
// looks complete. It knows nothing about training.
//
// Its errors begin with "train:", like those of package train, since users know the
// folder from `onering train`.
package rundir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"onering/internal/files"
	"onering/internal/strict"
	"onering/train/metrics"
)

// A Folder is a run folder:
//
//	run.toml                      the resolved configuration
//	metrics.jsonl                 one record per optimizer step, round and evaluation
//	grades.jsonl                  the scores of a reward that varies, as they came
//	evaluations/round-N-SUITE.jsonl  the responses of an evaluation, as onering eval writes them
//	rollouts/round-NNNNN.jsonl    what was sampled, with rewards and what training made of it
//	checkpoints/step-NNNNNN/      a Hugging Face folder, and state/ to resume from
//	failures/step-NNNNNN.json     batches that were not finite, for `onering replay`
//
// Only one process at a time has it open. Of several ranks that is the first; the nil
// Folder of the others writes nothing.
type Folder struct {
	Dir string

	metrics *os.File
	size    int64    // size of metrics.jsonl, up to the end of the last complete line
	unsaved []string // lines that could not be written
	config  []byte   // run.toml, as the run began or was resumed with it
	known   written  // what the newest checkpoint states; only who writes checkpoints uses it
	unlock  func()
}

// The files and folders in a run folder.
const (
	configFile     = "run.toml"
	metricsFile    = "metrics.jsonl"
	logFile        = "log.txt"
	lockFile       = ".lock"
	rolloutsDir    = "rollouts"
	evaluationsDir = "evaluations"
	checkpointsDir = "checkpoints"
	failuresDir    = "failures"
)

// contents lists everything that a run writes into its folder, and files that display the
// run. A folder of sft is also a model.
var contents = []string{
	configFile, metricsFile, logFile, lockFile, gradesFile, "report.html", "tensorboard", rolloutsDir, evaluationsDir, checkpointsDir, failuresDir,
}

// Holds says whether a file or a folder with this name in a run folder is the run's.
func (f *Folder) Holds(name string) bool { return slices.Contains(contents, name) }

// maxLine bounds a line of metrics.jsonl and grades.jsonl, in bytes.
const maxLine = 64 << 20

// maxConfig bounds run.toml, in bytes.
const maxConfig = 1 << 20

// errLocked says that another process has the run folder open.
var errLocked = errors.New("another process is training in it; wait for its end, or choose another folder")

// Open makes the run folder dir, or opens it to resume its run, and locks it until Close. It never overwrites an existing
// run: without resume the folder has to be new or empty, but for what belongsToRun excepts. It removes half-written
// files of a killed process.
func Open(dir string, resume bool) (f *Folder, err error) {
	if dir == "" {
		return nil, errors.New("train: output.dir is not set")
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("train: run folder: %w", err)
	case resume && len(entries) == 0:
		return nil, fmt.Errorf("train: there is no run to resume in %s", dir)
	case !resume && slices.ContainsFunc(entries, belongsToRun):
		return nil, fmt.Errorf("train: %s is not empty: resume it with --resume, or choose another folder with --out", dir)
	}
	if err := files.MakeFolder(filepath.Join(dir, checkpointsDir)); err != nil {
		return nil, fmt.Errorf("train: run folder: %w", err)
	}
	unlock, err := files.Lock(context.Background(), filepath.Join(dir, lockFile), func() error { return errLocked })
	if err != nil {
		return nil, fmt.Errorf("train: run folder %s: %w", dir, err)
	}
	opened := &Folder{Dir: dir, unlock: unlock}
	defer func() {
		if err != nil {
			opened.Close()
		}
	}()
	if err := opened.ReadConfig(); err != nil {
		return nil, err
	}
	opened.metrics, err = files.Append(filepath.Join(dir, metricsFile))
	if err != nil {
		return nil, fmt.Errorf("train: run folder: %w", err)
	}
	return opened, opened.tidy()
}

// belongsToRun says whether a folder with this entry has a run in it. The command
// line writes run.toml and log.txt before the run begins.
func belongsToRun(e os.DirEntry) bool {
	return !slices.Contains([]string{configFile, logFile, lockFile}, e.Name()) && !files.Temporary(e.Name())
}

// ReadConfig reads run.toml, if it exists, for checkpoints and for a rescue.
func (f *Folder) ReadConfig() (err error) {
	if f == nil {
		return nil
	}
	if f.config, err = files.ReadIn(filepath.Join(f.Dir, configFile), maxConfig); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("train: run folder: %w", err)
	}
	return nil
}

// tidy removes half-written files of a killed process. A checkpoint that the process was
// about to replace gets its name back.
func (f *Folder) tidy() error {
	for _, dir := range []string{"", rolloutsDir, evaluationsDir, checkpointsDir, failuresDir} {
		dir = filepath.Join(f.Dir, dir)
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("train: run folder: %w", err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			name, replaced := strings.CutSuffix(e.Name(), replacedSuffix)
			switch {
			case replaced && !exists(filepath.Join(dir, name[1:])): // [1:]: without the dot that hides it
				err = os.Rename(path, filepath.Join(dir, name[1:]))
			case replaced || files.Temporary(e.Name()):
				err = os.RemoveAll(path)
			}
			if err != nil {
				return fmt.Errorf("train: run folder: %w", err)
			}
		}
	}
	return nil
}

// Append adds a record to metrics.jsonl, with the time of day. Its line is written completely or not at all. A
// line that cannot be written stays in memory, for the next checkpoint.
func (f *Folder) Append(r metrics.Record) error {
	if f == nil {
		return nil
	}
	line, err := r.Line(time.Now())
	if err != nil {
		return err
	}
	if err = f.check(); err == nil { // the file is still the run's
		if err = files.FaultOf("append", f.metrics.Name()); err == nil { // a fault that a test injects
			_, err = f.metrics.Write(line)
		}
	}
	if err != nil {
		f.unsaved = append(f.unsaved, string(line))
		// If half of a line cannot be removed now, Rewind does so.
		f.metrics.Truncate(f.size)
		return fmt.Errorf("train: writing metrics: %w", err)
	}
	f.size += int64(len(line))
	return nil
}

// check returns an error if the folder has been replaced or removed: writes to a removed
// file could go unnoticed for hours.
func (f *Folder) check() error {
	open, err := f.metrics.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(f.metrics.Name())
	if err != nil {
		return fmt.Errorf("the run folder has gone: %w", err)
	}
	if !os.SameFile(open, there) {
		return fmt.Errorf("%s is another file than the run opened: something else writes to the run folder", f.metrics.Name())
	}
	return nil
}

// Rewind restores metrics.jsonl to its content when the checkpoint with state s was written, plus the lines
// that could not be written then, so that a resumed run writes every line once. If bytes before that point are
// missing or were changed, the log has a warning, whole lines stay, and changed ones are kept beside the file,
// too. The zero State empties the file.
func (f *Folder) Rewind(s State, log *slog.Logger) error {
	if f == nil {
		return nil
	}
	if err := f.rewind(s, log); err != nil {
		return fmt.Errorf("train: resume: %s: %w", f.metrics.Name(), err)
	}
	return nil
}

// rewind is Rewind without the file's name in errors. It keeps whole lines up to s.Metrics bytes, and appends s.Unsaved.
func (f *Folder) rewind(s State, log *slog.Logger) error {
	info, err := f.metrics.Stat()
	if err != nil {
		return err
	}
	if missing := s.Metrics - info.Size(); missing > 0 {
		log.Warn("metrics.jsonl has lost lines since the checkpoint", "bytes", missing)
	} else if changed := compare(f.Dir, metricsFile, f.known[metricsFile]); changed != nil { // known: what the checkpoint states of it
		log.Warn("metrics.jsonl is not what the checkpoint counts: reports show what is left of it, and metrics.jsonl.damaged keeps all", "reason", changed)
		if err := f.copy(metricsFile, f.metrics.Name()+".damaged"); err != nil {
			return err
		}
	}
	size := min(s.Metrics, info.Size())
	from := max(0, size-maxLine) // the last line end is in what follows
	text := make([]byte, size-from)
	if _, err := f.metrics.ReadAt(text, from); err != nil && err != io.EOF {
		return err
	}
	if size = from + int64(bytes.LastIndexByte(text, '\n')+1); size == from && from > 0 {
		return fmt.Errorf("it ends with a line longer than %d MiB", maxLine>>20)
	}
	if err := files.FaultOf("truncate", f.metrics.Name()); err != nil { // nil except in tests
		return err
	}
	if err := f.metrics.Truncate(size); err != nil {
		return err
	}
	f.size = size
	for _, line := range s.Unsaved { // lines that could not be written before the checkpoint was
		if _, err := f.metrics.WriteString(line); err != nil {
			return err
		}
		f.size += int64(len(line))
	}
	return nil
}

// Records calls visit with each record of metrics.jsonl, in order.
func (f *Folder) Records(visit func(record map[string]any)) error {
	if f == nil {
		return nil
	}
	err := files.EachLine(filepath.Join(f.Dir, metricsFile), maxLine, func(line []byte) error {
		var record map[string]any
		err := strict.JSON(line, &record)
		if err == nil {
			visit(record)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("train: resume: %w; restore the file, or remove it to go on without its figures", err)
	}
	return err
}

// FailureFile returns the path in a run folder for the batch of an optimizer step that met NaN or an infinity.
func FailureFile(run string, step int) string {
	return filepath.Join(run, failuresDir, fmt.Sprintf("step-%06d.json", step))
}

// Close closes the folder's open file and gives up its lock.
func (f *Folder) Close() error {
	if f == nil {
		return nil
	}
	var err error
	if f.metrics != nil {
		err = f.metrics.Close()
	}
	f.unlock()
	return err
}

// exists says whether there is a file or folder.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
