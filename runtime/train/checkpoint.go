package train

import (
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"onering/models"
	"onering/models/qwen2"
)

// checkpointVersion is raised when an older state can no longer be read.
const checkpointVersion = 1

// A state is what a checkpoint holds besides the model and the moments. The
// order of problems, the sampler's draws and the shuffles all follow from the
// seeds and these counts.
type state struct {
	Version   int    `json:"version"`
	Round     int    `json:"round"`
	Step      int    `json:"step"`
	Updates   int    `json:"updates"` // of the optimizer, for its bias correction
	Objective string `json:"objective"`
	// ObjectiveState is what the objective remembers between steps, if anything.
	ObjectiveState string `json:"objective_state,omitempty"`
}

// save writes a checkpoint of the finished round: a Hugging Face folder, whose
// state/ holds what resuming needs. It appears whole or not at all.
func (t *Trainer) save() (string, error) {
	s := state{Version: checkpointVersion, Round: t.round, Step: t.step, Updates: t.optimizer.Steps, Objective: t.Config.Objective.Name}
	if m, ok := t.Objective.(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err != nil {
			return "", fmt.Errorf("train: state of objective %q: %w", s.Objective, err)
		}
		s.ObjectiveState = string(text)
	}
	dir := checkpointDir(t.folder.Dir, t.step)
	err := qwen2.Save(dir, t.Policy.Model, t.Policy.Weights, qwen2.SaveOptions{
		Tokenizer: t.Policy.Dir,
		Extra: func(tmp string) error {
			if err := os.Mkdir(filepath.Join(tmp, "state"), 0o755); err != nil {
				return err
			}
			text, err := json.MarshalIndent(s, "", "  ")
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(tmp, "state", "state.json"), append(text, '\n'), 0o644); err != nil {
				return err
			}
			return writeMoments(filepath.Join(tmp, "state"), t.optimizer.First, t.optimizer.Second)
		},
	})
	return dir, err
}

// The files of AdamW's moments, with the parameters' names.
const (
	firstMoments  = "exp_avg.safetensors"
	secondMoments = "exp_avg_sq.safetensors"
)

func writeMoments(dir string, first, second *models.Weights) error {
	if err := models.WriteSafetensors(filepath.Join(dir, firstMoments), models.F32, first.Tensors(), nil); err != nil {
		return err
	}
	return models.WriteSafetensors(filepath.Join(dir, secondMoments), models.F32, second.Tensors(), nil)
}

func readMoments(dir string, first, second *models.Weights) error {
	for name, w := range map[string]*models.Weights{firstMoments: first, secondMoments: second} {
		f, err := models.OpenSafetensors(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		err = w.Load(f)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// restore reads the run folder's last checkpoint into the policy, the
// optimizer and the objective.
func (t *Trainer) restore() error {
	dir, err := t.folder.lastCheckpoint()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "state", "state.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("train: resume: %w", err)
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("train: resume: %s: %w", path, err)
	}
	if s.Version != checkpointVersion {
		return fmt.Errorf("train: resume: %s is of version %d; this program reads version %d", path, s.Version, checkpointVersion)
	}
	if s.Objective != t.Config.Objective.Name {
		return fmt.Errorf("train: resume: %s was trained with objective %q, not %q", dir, s.Objective, t.Config.Objective.Name)
	}
	if s.ObjectiveState != "" {
		m, ok := t.Objective.(encoding.TextUnmarshaler)
		if !ok {
			return fmt.Errorf("train: resume: %s holds a state that objective %q cannot read", path, s.Objective)
		}
		if err := m.UnmarshalText([]byte(s.ObjectiveState)); err != nil {
			return fmt.Errorf("train: resume: state of objective %q: %w", s.Objective, err)
		}
	}
	folder, err := models.OpenFolder(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := t.Policy.Weights.Load(folder); err != nil {
		return err
	}
	if err := readMoments(filepath.Join(dir, "state"), t.optimizer.First, t.optimizer.Second); err != nil {
		return err
	}
	t.round, t.step, t.optimizer.Steps = s.Round, s.Step, s.Updates
	return t.folder.rewind(t.step, t.round)
}
