package policy

import (
	"fmt"
	"os"
	"path/filepath"

	"onering/internal/files"
	"onering/internal/settings"
	"onering/models"
)

// A runFolder is what a run folder, or a checkpoint in it, states for programs that use its model.
type runFolder struct {
	File     string          // the run file
	Model    string          // the model that the run began with
	Adapter  bool            // the folder holds an adapter of Model
	Settings settings.Source // all settings that File states
}

// ReadRun reads the run file, run.toml, of a run folder or of one of its checkpoints; nil if dir is
// neither. Any command of any version may have written the file.
func ReadRun(dir string) (*runFolder, error) {
	file := runFile(dir)
	if file == "" {
		return nil, nil
	}
	text, err := files.ReadIn(file, 1<<20) // at most a MiB
	if err != nil {
		return nil, fmt.Errorf("policy: run folder: %w", err)
	}
	run, err := settings.Saved(file, text)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	r := &runFolder{File: file, Settings: run, Adapter: models.IsAdapter(dir)}
	r.Model, _ = settings.Find("model.path", run).Value.(string)
	return r, nil
}

// runFile returns the run file of a run folder or of one of its checkpoints, "" if dir is
// neither.
func runFile(dir string) string {
	file := filepath.Join(dir, "run.toml")
	if _, err := os.Lstat(file); err == nil {
		return file
	}
	abs, err := filepath.Abs(dir)
	if checkpoints := filepath.Dir(abs); err == nil && filepath.Base(checkpoints) == "checkpoints" {
		file = filepath.Join(filepath.Dir(checkpoints), "run.toml")
		if _, err := os.Lstat(file); err == nil {
			return file
		}
	}
	return ""
}
