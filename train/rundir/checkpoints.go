package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

// Model returns the folder with the model or adapter: for a run the newest undamaged
// checkpoint, for other folders the folder itself. It changes nothing, so a run may be in
// progress in the folder. It uses only Dir of the Folder.
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

// Check verifies the files of a run folder, each checkpoint as a whole, and calls visit
// with each one's path and its error, or nil. It changes nothing, and uses only Dir of
// the Folder.
func (f *Folder) Check(visit func(path string, err error)) error {
	run := f.Dir
	if !exists(filepath.Join(run, configFile)) {
		return fmt.Errorf("train: %s is no run folder: it has no %s", run, configFile)
	}
	dirs, err := checkpoints(run)
	if err != nil {
		return err
	}
	var newest State
	for _, dir := range dirs {
		err := verifySums(dir)
		if err == nil {
			newest, err = ReadState(dir)
		}
		if err == nil && newest.Inside {
			_, err = ReadRound(dir)
		}
		visit(dir, err)
	}
	for _, path := range append(files.Glob(run, "*.jsonl"), files.Glob(run, rolloutsDir+"/*.jsonl")...) {
		size := int64(0)
		err := files.EachLine(path, maxLine, func(line []byte) error {
			size += int64(len(line))
			if !json.Valid(line) {
				return errors.New("not JSON")
			}
			return nil
		})
		if missing := newest.Metrics - size; err == nil && missing > 0 && filepath.Base(path) == metricsFile {
			err = fmt.Errorf("%d bytes are missing that the newest checkpoint counts", missing)
		}
		visit(path, err)
	}
	return nil
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

// LoadWeights reads the weights of a checkpoint, or its adapter, into w, with the bits
// that they had in training: those in the model folder may be rounded to 16 bits. It does
// not upload them to a device.
func LoadWeights(checkpoint string, w *models.Weights) error {
	if path := filepath.Join(checkpoint, stateDir, exactWeights); exists(path) {
		return w.LoadFile(path)
	}
	if models.IsAdapter(checkpoint) {
		return w.LoadFile(filepath.Join(checkpoint, "adapter_model.safetensors"))
	}
	folder, err := models.OpenFolder(checkpoint)
	if err != nil {
		return err
	}
	defer folder.Close()
	return w.Load(folder)
}

// LoadOptimizer reads the optimizer's state of a checkpoint: for each name in state
// the tensors of state/NAME.safetensors.
func LoadOptimizer(checkpoint string, state map[string]*models.Weights) error {
	for name, w := range state {
		if err := w.LoadFile(optimizerFile(checkpoint, name)); err != nil {
			return err
		}
	}
	return nil
}

func optimizerFile(checkpoint, name string) string {
	return filepath.Join(checkpoint, stateDir, name+".safetensors")
}
