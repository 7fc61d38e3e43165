package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onering/internal/files"
	"onering/internal/strict"
)

// Around returns the newest checkpoint from before an optimizer step was taken, and the oldest one from after it,
// with their states and the step. For step 0 it draws a random step between the first and the last checkpoint.
func (f *Folder) Around(step int) (dirs []string, states [2]State, chosen int, err error) {
	dirs, err = checkpoints(f.Dir)
	if err != nil {
		return nil, states, 0, err
	}
	if len(dirs) < 2 {
		return nil, states, 0, fmt.Errorf("train: repeating a step takes the checkpoints before and after it, and %s "+
			"has %d: a run keeps more with train.keep_last = 0, and writes more with train.save_steps", f.Dir, len(dirs))
	}
	var steps []int
	for _, dir := range dirs {
		n, _ := stepOf(filepath.Base(dir))
		steps = append(steps, n)
	}
	first, last := steps[0]+1, steps[len(steps)-1]
	if step == 0 {
		step = first + rand.IntN(last-first+1)
	}
	i, _ := slices.BinarySearch(steps, step) // the first checkpoint of this step or a later one
	if i == 0 || i == len(steps) {
		return nil, states, 0, fmt.Errorf("train: step %d does not lie between two checkpoints of %s: choose one from %d to %d", step, f.Dir, first, last)
	}
	dirs = dirs[i-1 : i+1]
	for k, dir := range dirs {
		if states[k], err = ReadState(dir); err != nil {
			return nil, states, 0, err
		}
	}
	return dirs, states, step, nil
}

// CopyTo makes dir a copy of this run folder at the time of a checkpoint with the state
// s, with all that resuming needs. It refuses checkpoints of several ranks.
func (f *Folder) CopyTo(dir, checkpoint string, s State) error {
	records, err := f.recordsSince(s)
	if err != nil {
		return err
	}
	for _, record := range records {
		if record["ranks/sent_bytes"] != nil {
			return fmt.Errorf("train: several ranks have trained %s: their sums have other bits than those of one process, which is what repeats a step", f.Dir)
		}
	}
	for _, name := range []string{configFile, metricsFile, gradesFile, logFile} {
		if err := f.copy(name, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("train: run folder: %w", err)
		}
	}
	if err := os.CopyFS(CheckpointDir(dir, s.Step), os.DirFS(checkpoint)); err != nil {
		return fmt.Errorf("train: run folder: %w", err)
	}
	return nil
}

// copy copies a file of the folder.
func (f *Folder) copy(name, to string) error {
	from, err := files.OpenIn(filepath.Join(f.Dir, name))
	if err != nil {
		return err
	}
	defer from.Close()
	return files.WriteFile(to, func(w io.Writer) error { _, err := io.Copy(w, from); return err })
}

// Compare compares this run with a repetition in the folder again, from a checkpoint with the state from to the
// checkpoint to: the records, which this run may have more of, and every file that the repetition has written. The
// error names the first difference. Times are not compared.
func (f *Folder) Compare(again string, from State, to string) error {
	was, err := f.recordsSince(from)
	if err != nil {
		return err
	}
	is, err := (&Folder{Dir: again}).recordsSince(from)
	if err != nil {
		return err
	}
	for i, record := range is {
		if i >= len(was) {
			return fmt.Errorf("%s has no record %s", metricsFile, shown(record))
		}
		for _, name := range slices.Sorted(maps.Keys(record)) {
			if fmt.Sprint(record[name]) != fmt.Sprint(was[i][name]) {
				return fmt.Errorf("%s: %s is %v, and is %v when it is repeated, in %s", metricsFile, name, was[i][name], record[name], shown(was[i]))
			}
		}
		if len(record) != len(was[i]) {
			return fmt.Errorf("%s: %s has other figures when it is repeated", metricsFile, shown(was[i]))
		}
	}
	repeated, _ := filepath.Rel(f.Dir, to) // its path in both folders
	paths := append(files.Glob(again, rolloutsDir+"/*.jsonl"), files.Glob(again, evaluationsDir+"/*.jsonl")...)
	rewritten, err := reproducible(filepath.Join(again, repeated)) // all files but the sums of times
	if err != nil {
		return fmt.Errorf("%s was not written again: %w", repeated, err)
	}
	if first, err := reproducible(to); err != nil || !slices.Equal(first, rewritten) {
		return fmt.Errorf("%s has the files %q, and %q when it is repeated", repeated, first, rewritten)
	}
	for _, name := range rewritten {
		paths = append(paths, filepath.Join(again, repeated, filepath.FromSlash(name)))
	}
	for _, path := range paths {
		name, _ := filepath.Rel(again, path)
		if err := sameFile(filepath.Join(f.Dir, name), path); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// reproducible lists the files of a checkpoint that a repetition of its step writes again: all
// but the one with sums of times.
func reproducible(checkpoint string) ([]string, error) {
	names, err := filesBelow(checkpoint)
	return slices.DeleteFunc(names, func(name string) bool { return name == stateDir+"/"+writtenFile }), err
}

// recordsSince returns the records of metrics.jsonl after those of a checkpoint, without
// times, and without the limit/ that earlier versions computed of them.
func (f *Folder) recordsSince(s State) (records []map[string]any, err error) {
	at := int64(0)
	err = files.EachLine(filepath.Join(f.Dir, metricsFile), maxLine, func(line []byte) error {
		if at += int64(len(line)); at <= s.Metrics {
			return nil
		}
		var record map[string]any
		if err := strict.JSON(line, &record); err != nil {
			return err
		}
		maps.DeleteFunc(record, func(name string, _ any) bool {
			return name == "time" || strings.HasPrefix(name, "seconds/") || strings.HasPrefix(name, "limit/")
		})
		records = append(records, record)
		return nil
	})
	return records, err
}

// shown says which record of metrics.jsonl one is.
func shown(record map[string]any) string {
	return fmt.Sprintf("{kind: %v, step: %v, round: %v}", record["kind"], record["step"], record["round"])
}

// sameFile returns an error unless two files of a checkpoint, or two files of rollouts or evaluations, have equal bytes,
// except for a state's figures about metrics.jsonl and the order of maps in a round.
func sameFile(was, is string) error {
	digest := func(path string) (string, error) { // equal where the files count as equal
		checkpoint := filepath.Dir(filepath.Dir(path))
		switch filepath.Base(path) {
		case stateFile:
			s, err := ReadState(checkpoint)
			s.Metrics, s.Unsaved = 0, nil // lines have times, whose lengths differ
			line, _ := json.Marshal(s)
			return string(line), err
		case roundFile:
			r, err := ReadRound(checkpoint)
			return fmt.Sprintf("%+v", r), err // prints maps in the order of their keys
		}
		return files.Sum(path)
	}
	a, err := digest(was)
	if err != nil {
		return err
	}
	b, err := digest(is)
	if err == nil && a != b {
		err = errors.New("repeating the step gave other bytes for this file")
	}
	return err
}
