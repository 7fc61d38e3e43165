package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"onering/internal/files"
	"onering/models"
)

// CheckpointDir returns the checkpoint folder of optimizer step n in a run folder.
func CheckpointDir(run string, step int) string {
	return filepath.Join(run, checkpointsDir, fmt.Sprintf("step-%06d", step))
}

// stepOf reads the step from a checkpoint folder's name.
func stepOf(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "step-")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0 && fmt.Sprintf("step-%06d", n) == name
}

// checkpoints lists the checkpoint folders of a run, the oldest first.
func checkpoints(run string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(run, checkpointsDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("train: run folder: %w", err)
	}
	var steps []int
	for _, e := range entries {
		if n, ok := stepOf(e.Name()); ok && e.IsDir() {
			steps = append(steps, n)
		}
	}
	slices.Sort(steps)
	var dirs []string
	for _, n := range steps {
		dirs = append(dirs, CheckpointDir(run, n))
	}
	return dirs, nil
}

// NewestCheckpoint returns the newest undamaged checkpoint, "" if the run has no
// checkpoint yet. Newer damaged checkpoints are logged and renamed to end in .damaged. If
// all are damaged it returns an error, so that the run does not silently begin again.
func (f *Folder) NewestCheckpoint(log *slog.Logger) (string, error) {
	dirs, err := checkpoints(f.Dir)
	if err != nil || len(dirs) == 0 {
		return "", err
	}
	var damaged []string
	for _, dir := range slices.Backward(dirs) {
		if err = verifySums(dir); err == nil {
			return dir, setAside(damaged)
		}
		log.Warn("a checkpoint is refused; the one before it is tried", "checkpoint", dir, "reason", err)
		damaged = append(damaged, dir)
	}
	return "", fmt.Errorf("train: resume: %s: %w; no other checkpoint is whole: restore one, or remove %s to begin again",
		dirs[0], err, filepath.Dir(dirs[0]))
}

// Model returns the folder with the model or adapter: for a run the newest undamaged checkpoint, for other folders the
// folder itself. It changes nothing, so a run may be in progress in the folder. It uses only Dir of the Folder.
func (f *Folder) Model() (model string, err error) {
	model = f.Dir
	if exists(filepath.Join(model, configFile)) && !exists(filepath.Join(model, "config.json")) && !models.IsAdapter(model) {
		dirs, err := checkpoints(model)
		if err != nil {
			return "", err
		}
		if len(dirs) == 0 {
			return "", fmt.Errorf("train: the run in %s has no checkpoint yet", model)
		}
		model = dirs[len(dirs)-1]
	}
	if exists(filepath.Join(model, stateDir)) {
		if err := verifySums(model); err != nil {
			return "", fmt.Errorf("train: checkpoint %s: %w", model, err)
		}
	}
	return model, nil
}

// Check verifies the files of a run folder, each checkpoint as a whole and the other files
// by what the newest whole one states, and calls visit with each one's path and its error,
// or nil. It changes nothing, and uses only Dir of the Folder.
func (f *Folder) Check(visit func(path string, err error)) error {
	run := f.Dir
	if !exists(filepath.Join(run, configFile)) {
		return fmt.Errorf("train: %s is not a run folder: it has no %s", run, configFile)
	}
	dirs, err := checkpoints(run)
	if err != nil {
		return err
	}
	// What the newest whole checkpoint states of other files, and that checkpoint if it is of an older version.
	wrote, older := written{}, ""
	for _, dir := range dirs {
		err := verifySums(dir)
		var s State
		if err == nil {
			s, err = ReadState(dir)
		}
		if err == nil && s.Inside {
			_, err = ReadRound(dir)
		}
		var w written
		if err == nil {
			w, err = readWritten(dir)
		}
		visit(dir, err)
		if err != nil {
			continue
		}
		wrote, older = w, ""
		if w == nil {
			wrote, older = written{metricsFile: {Bytes: s.Metrics}}, dir
		}
	}
	if older != "" {
		slog.Warn("the checkpoint is of an older version, which states of the run's other files the size of metrics.jsonl "+
			"alone: the rest is read, not compared", "checkpoint", older)
	}
	names := slices.Collect(maps.Keys(wrote))
	for _, pattern := range []string{"*.jsonl", rolloutsDir + "/*.jsonl", evaluationsDir + "/*.jsonl"} {
		for _, path := range files.Glob(run, pattern) {
			name, _ := filepath.Rel(run, path)
			names = append(names, filepath.ToSlash(name))
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		visit(filepath.Join(run, filepath.FromSlash(name)), checkFile(run, name, wrote))
	}
	return nil
}

// checkFile verifies a file of the run: each line by itself, and the beginning that a checkpoint counts by its size and sum.
// Behind that a line must not repeat the one before.
func checkFile(run, name string, wrote written) (err error) {
	path := filepath.Join(run, filepath.FromSlash(name))
	x, counted := wrote[name]
	if filepath.Ext(name) == ".jsonl" && exists(path) {
		var before []byte
		at := int64(0)
		err = files.EachLine(path, maxLine, func(line []byte) error {
			switch at += int64(len(line)); {
			case !json.Valid(line):
				return errors.New("not JSON")
			case at > x.Bytes && bytes.Equal(line, before): // no sum shows it
				return errors.New("the line before it again")
			}
			before = append(before[:0], line...)
			return nil
		})
	}
	if err == nil && counted {
		err = compare(run, name, x)
	}
	return err
}

// setAside renames damaged checkpoints, which then no longer count.
func setAside(dirs []string) error {
	for _, dir := range dirs {
		name := dir + ".damaged"
		if err := errors.Join(os.RemoveAll(name), os.Rename(dir, name)); err != nil {
			return fmt.Errorf("train: resume: setting a damaged checkpoint aside: %w", err)
		}
	}
	return nil
}

// LoadWeights reads the weights of a checkpoint, or its adapter, into w, with the bits that they had in
// training: those in the model folder may be rounded to 16 bits. It does not upload them to a device.
func LoadWeights(checkpoint string, w *models.Weights) error {
	if path := filepath.Join(checkpoint, stateDir, exactWeights); exists(path) {
		return w.LoadFile(path)
	}
	if models.IsAdapter(checkpoint) {
		return w.LoadFile(filepath.Join(checkpoint, "adapter_model.safetensors"))
	}
	return w.LoadModel(checkpoint)
}

// LoadOptimizer reads the optimizer's state of a checkpoint: for each name in state
// the tensors of state/NAME.safetensors.
func LoadOptimizer(checkpoint string, state map[string]*models.Weights) error {
	for _, name := range slices.Sorted(maps.Keys(state)) {
		if err := state[name].LoadFile(optimizerFile(checkpoint, name)); err != nil {
			return err
		}
	}
	return nil
}

func optimizerFile(checkpoint, name string) string {
	return filepath.Join(checkpoint, stateDir, name+".safetensors")
}
