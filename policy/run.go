package policy

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/BurntSushi/toml"

	"onering/internal/files"
	"onering/models/lora"
	"onering/tokenize"
)

// A Run is what a run folder, or a checkpoint in it, says to whoever talks to its model.
type Run struct {
	tokenize.TemplateSettings
	Model     string // what the run began with
	Adapter   bool   // the folder holds an adapter of Model
	BaseDType string // lora.base_dtype: what the run held Model in beside an adapter
}

// ReadRun reads what its run file says of a run folder or of one of its checkpoints; nil if
// dir is neither. It reads a few keys and looks at no others, so any command of any version
// may have written the file.
func ReadRun(dir string) (*Run, error) {
	file := RunFile(dir)
	if file == "" {
		return nil, nil
	}
	text, err := files.ReadIn(file, 1<<20)
	if err != nil {
		return nil, fmt.Errorf("policy: run folder: %w", err)
	}
	var sections map[string]any
	if err := toml.Unmarshal(text, &sections); err != nil {
		return nil, fmt.Errorf("policy: %s: %w", file, err)
	}
	r := &Run{Adapter: lora.Is(dir)}
	for key, into := range map[string]any{
		"model.path": &r.Model, "model.template": &r.Template, "model.system": &r.System,
		"model.template_args": &r.Args, "model.stop": &r.Stop, "lora.base_dtype": &r.BaseDType,
	} {
		if value := lookup(sections, key); value != nil && !assign(value, into) {
			return nil, fmt.Errorf("policy: %s: %s = %v: this key has another type; --template and --base-dtype win over the file", file, key, value)
		}
	}
	r.Template = cmp.Or(r.Template, tokenize.DefaultTemplate)
	return r, nil
}

// lookup returns the value of section.key, nil if there is none.
func lookup(sections map[string]any, path string) any {
	section, key, _ := strings.Cut(path, ".")
	keys, _ := sections[section].(map[string]any)
	return keys[key]
}

// assign puts a value of TOML into a text, a list of texts or arguments of a template.
func assign(value, into any) bool {
	switch into := into.(type) {
	case *string:
		text, ok := value.(string)
		*into = text
		return ok
	case *[]string:
		list, ok := value.([]any)
		for _, x := range list {
			text, isText := x.(string)
			*into, ok = append(*into, text), ok && isText
		}
		return ok
	case *tokenize.ArgTexts:
		return into.UnmarshalTOML(value) == nil
	}
	return false
}

// RunFile returns the run file of a run folder or of one of its checkpoints, "" if dir is
// neither.
func RunFile(dir string) string {
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
