package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"onering/internal/files"
	"onering/models"
)

// replacedSuffix ends the hidden name of a checkpoint while another one takes its place.
const replacedSuffix = ".replaced"

// A device holds weights and state outside the host's memory.
type device interface {
	// Fetch copies the elements from (included) to to (excluded) of w to the host.
	Fetch(w *models.Weights, from, to int) error
	// Drop gives the host's memory of them back, if a device holds them.
	Drop(w *models.Weights, from, to int)
}

// heldBy is a device as the source of some weights.
type heldBy struct {
	device
	w *models.Weights
}

// Fetch implements models.Source.
func (h heldBy) Fetch(from, to int) error { return h.device.Fetch(h.w, from, to) }

// Drop implements models.Source.
func (h heldBy) Drop(from, to int) { h.device.Drop(h.w, from, to) }

// A Snapshot is a consistent state of a run, ready to be written as a checkpoint.
// Its weights may be the run's own or a copy of them.
type Snapshot struct {
	State   State
	Round   *Round  // nil between two rounds
	written written // what the run has written elsewhere in its folder; nil to state nothing
	Weights *models.Weights
	// Optimizer is the optimizer's state by name, with the tensor names of the weights: for AdamW
	// exp_avg and exp_avg_sq. A task may add other tensors of these names.
	Optimizer map[string]*models.Weights
	// Device is where the weights and the state have to be fetched from before they are read;
	// nil if they are on the host.
	Device device
	// DType is the type that the model's config.json names for its weights.
	DType models.DType
	// SaveModel writes the Hugging Face folder dir with weights of type dtype, and
	// calls extra with the draft, which has the sums, before it appears.
	SaveModel func(dir string, w *models.Weights, dtype models.DType, extra func(d *files.Draft) error) error
}

// folderType returns the type for the weights in the Hugging Face folder: its config.json's type if that has 16
// bits and can hold them. In a run that diverges, weights may be too large for float16.
func (s Snapshot) folderType() (models.DType, error) {
	d := s.DType
	if d != models.F16 && d != models.BF16 {
		return models.F32, nil
	}
	holds, w := true, s.readable(s.Weights)
	for _, name := range w.Layout.Names() {
		err := w.Lend(name, func(data []float32) error {
			holds = holds && models.Holds(d, data)
			return nil
		})
		if err != nil {
			return d, fmt.Errorf("train: checkpoint: %w", err)
		}
	}
	if !holds {
		return models.F32, nil
	}
	return d, nil
}

// readable returns w with tensors that can be read on the host: those of a device are fetched as they are read.
func (s Snapshot) readable(w *models.Weights) *models.Weights {
	if s.Device == nil {
		return w
	}
	return Lent(w, s.Device)
}

// Lent returns w with tensors that come from a device as they are read: the host has one at a time.
func Lent(w *models.Weights, from device) *models.Weights {
	lent := *w
	lent.Source = heldBy{from, w}
	return &lent
}

// copyTo copies w to a copy of its layout, of a device one tensor after the other.
func (s Snapshot) copyTo(to, w *models.Weights) error {
	lent := s.readable(w)
	for _, name := range w.Layout.Names() {
		p, _ := w.Layout.Find(name)
		err := lent.Lend(name, func(data []float32) error {
			copy(to.Data[p.Offset:], data)
			return nil
		})
		if err != nil {
			return fmt.Errorf("train: checkpoint: %w", err)
		}
	}
	s.drop(w)
	return nil
}

// drop gives back the host's memory of w if a device holds it: pages that two tensors share, which lending each one leaves.
func (s Snapshot) drop(w *models.Weights) {
	if s.Device != nil {
		s.Device.Drop(w, 0, len(w.Data))
	}
}

// write makes dir a checkpoint: a Hugging Face folder whose state/ holds what resuming
// needs. It appears completely or not at all. An existing checkpoint stays until then.
func (s Snapshot) write(dir string) error {
	defer s.drop(s.Weights) // the host's memory that reading them from a device leaves
	dtype, err := s.folderType()
	if err != nil {
		return err
	}
	save := func(dir string) error {
		return s.SaveModel(dir, s.readable(s.Weights), dtype, func(d *files.Draft) error { return s.writeState(d, dtype) })
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
	if err := files.Rename(dir, old); err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	if err := files.Rename(fresh, dir); err != nil {
		return errors.Join(fmt.Errorf("train: checkpoint: %w", err), os.Rename(old, dir))
	}
	return os.RemoveAll(old)
}

// hidden returns the hidden name with this suffix, for a path beside dir.
func hidden(dir, suffix string) string {
	return filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+suffix)
}

// writeState fills state/ of the checkpoint that is being written: the state, what the run has written elsewhere, the
// unfinished round, the optimizer's state, the weights in float32 where the folder has them in dtype, of 16 bits, and last
// the list of sums.
func (s Snapshot) writeState(d *files.Draft, dtype models.DType) error {
	if err := s.State.write(d.WriteFile); err != nil {
		return err
	}
	if s.written != nil {
		text, err := json.Marshal(s.written)
		if err == nil {
			err = d.WriteFile(filepath.Join(stateDir, writtenFile), files.Content(append(text, '\n')))
		}
		if err != nil {
			return fmt.Errorf("train: checkpoint: %w", err)
		}
	}
	if s.Round != nil {
		if err := s.Round.write(d.WriteFile); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Optimizer)) {
		w := s.Optimizer[name]
		if err := models.WriteSafetensors(d.WriteFile, optimizerFile("", name), models.F32, s.readable(w).Tensors(), nil); err != nil {
			return err
		}
		s.drop(w) // before the next one takes memory
	}
	if dtype != models.F32 {
		if err := models.WriteSafetensors(d.WriteFile, filepath.Join(stateDir, exactWeights), models.F32, s.readable(s.Weights).Tensors(), nil); err != nil {
			return err
		}
	}
	return writeSums(d)
}
