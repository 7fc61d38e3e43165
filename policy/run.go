package policy

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"onering/internal/files"
	"onering/internal/settings"
	"onering/models"
	"onering/tokenize"
)

// A runFolder is what a run folder, or a checkpoint in it, states for programs that use its model.
type runFolder struct {
	tokenize.TemplateSettings
	File      string          // the run file
	Model     string          // the model that the run began with
	Adapter   bool            // the folder holds an adapter of Model
	BaseDType string          // lora.base_dtype: the type that held Model's layers while an adapter was trained
	MaxTokens int             // largest number of tokens of a response; 0 if the run sampled none
	Settings  settings.Source // all settings that File states
}

// ReadRun reads the run file of a run folder or of one of its checkpoints; nil if dir is
// neither. It reads only a few keys, so any command of any version may have written the
// file.
func ReadRun(dir string) (*runFolder, error) {
	file := runFile(dir)
	if file == "" {
		return nil, nil
	}
	text, err := files.ReadIn(file, 1<<20)
	if err != nil {
		return nil, fmt.Errorf("policy: run folder: %w", err)
	}
	run, err := settings.Saved(file, text)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	r := &runFolder{File: file, Settings: run, Adapter: models.IsAdapter(dir)}
	for key, into := range map[string]any{
		"model.path": &r.Model, "model.template": &r.Template, "model.system": &r.System,
		"model.template_args": &r.Args, "model.stop": &r.Stop, "lora.base_dtype": &r.BaseDType, "rollout.max_new_tokens": &r.MaxTokens,
	} {
		if s := settings.Find(key, run); s.Key != "" && !settings.Decode(s.Value, reflect.ValueOf(into).Elem()) {
			return nil, fmt.Errorf("policy: %s: %s = %v: this key has another type; --template and --base-dtype win over the file", s.Place, key, s.Value)
		}
	}
	r.Template = cmp.Or(r.Template, tokenize.DefaultTemplate)
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
