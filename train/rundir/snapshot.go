package rundir

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"onering/models"
)

// replacedSuffix ends the hidden name of a checkpoint while another one takes its
// place.
const replacedSuffix = ".replaced"

// A Snapshot is a consistent state of a run, ready to be written as a checkpoint.
// Its weights may be the run's own or a copy of them.
type Snapshot struct {
	State   State
	Round   *Round // nil between two rounds
	Weights *models.Weights
	// Optimizer is the optimizer's state by name, with the tensor names of the
	// weights: for AdamW exp_avg and exp_avg_sq.
	Optimizer map[string]*models.Weights
	// DType is the type that the model's config.json names for its weights.
	DType models.DType
	// SaveModel writes the Hugging Face folder dir with weights of type dtype, and
	// calls extra with the folder's temporary name before it appears.
	SaveModel func(dir string, w *models.Weights, dtype models.DType, extra func(tmp string) error) error
}

// folderType returns the type for the weights in the Hugging Face folder: that of
// its config.json if that has 16 bits and can hold them. In a run that diverges
// weights may be too large for float16.
func (s Snapshot) folderType() models.DType {
	if d := s.DType; (d == models.F16 || d == models.BF16) && models.Holds(d, s.Weights.Data) {
		return d
	}
	return models.F32
}

// write makes dir a checkpoint: a Hugging Face folder whose state/ holds what
// resuming needs. It appears whole or not at all. A checkpoint that is there stays
// until then.
func (s Snapshot) write(dir string) error {
	dtype := s.folderType()
	save := func(dir string) error {
		return s.SaveModel(dir, s.Weights, dtype, func(tmp string) error { return s.writeState(tmp, dtype) })
	}
	if !exists(dir) {
		return save(dir)
	}
	fresh, old := hidden(dir, ".tmp-new"), hidden(dir, replacedSuffix)
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	if err := save(fresh); err != nil {
		return err
	}
	// If the process dies between the two renames, Folder.tidy undoes the first.
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	if err := models.Rename(dir, old); err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	if err := models.Rename(fresh, dir); err != nil {
		return errors.Join(fmt.Errorf("train: checkpoint: %w", err), os.Rename(old, dir))
	}
	return os.RemoveAll(old)
}

// hidden returns the hidden name beside dir with this suffix.
func hidden(dir, suffix string) string {
	return filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+suffix)
}

// writeState fills state/ of the checkpoint that is being written in the folder
// tmp, with the list of sums last.
func (s Snapshot) writeState(tmp string, dtype models.DType) error {
	dir := filepath.Join(tmp, stateDir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	if err := s.State.write(tmp); err != nil {
		return err
	}
	if s.Round != nil {
		if err := s.Round.write(tmp); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Optimizer)) {
		if err := models.WriteSafetensors(optimizerFile(tmp, name), models.F32, s.Optimizer[name].Tensors(), nil); err != nil {
			return err
		}
	}
	if dtype != models.F32 {
		if err := models.WriteSafetensors(filepath.Join(dir, exactWeights), models.F32, s.Weights.Tensors(), nil); err != nil {
			return err
		}
	}
	return writeSums(tmp)
}
