package hub

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"onering/internal/files"
)

// A Card is the README.md of a repository: it tells how the model was made.
type Card struct {
	Name, License string
	Base          string // the model that was trained, by its name on a hub as in hf:ORG/NAME; other names are not shown
	Step          string // the optimizer step
	Adapter       bool   // the model is a LoRA adapter of Base
	Settings      string // the settings as TOML
}

// Title returns the title of the commit.
func (k Card) Title() string { return "Model trained with onering" + k.after() }

// after returns words that name the step.
func (k Card) after() string {
	if k.Step == "" {
		return ""
	}
	return ", optimizer step " + k.Step
}

// With returns the files of a folder and the card. A card that the folder or the repository has stays.
func (k Card) With(folder string, sources []Source) ([]Source, error) {
	if k.Adapter {
		if err := k.nameBase(folder, sources); err != nil {
			return nil, err
		}
	}
	const name = "README.md"
	if !slices.ContainsFunc(sources, func(s Source) bool { return strings.EqualFold(s.Name, name) }) {
		s := Text(name, k.text())
		s.Default = true
		sources = append(sources, s)
	}
	return sources, nil
}

// onHub returns ORG/NAME of a name such as hf:ORG/NAME@REVISION, and "" of another.
func onHub(name string) string {
	r, ok, err := parseName(name, model)
	if !ok || err != nil || !strings.HasPrefix(name, "hf:") {
		return ""
	}
	return r.id
}

// baseName matches the name of the model in the config of an adapter.
var baseName = regexp.MustCompile(`("base_model_name_or_path"\s*:\s*)("(?:[^"\\]|\\.)*")`)

// nameBase has the config of an adapter call its model by its name on a hub, as PEFT reads it,
// or by the last part of its path: other machines lack the folders of this one. It changes only what
// sources send, not the file; if k.Base is not on a hub and the config's model may be, it becomes that.
func (k *Card) nameBase(folder string, sources []Source) error {
	const config = "adapter_config.json"
	text, err := files.ReadIn(filepath.Join(folder, config), 1<<20)
	if err != nil {
		return err
	}
	m := baseName.FindSubmatch(text)
	var name string
	if m == nil || json.Unmarshal(m[2], &name) != nil { // m[1] is the key and its colon, m[2] the name in quotes; else it names no model
		return nil
	}
	_, here := os.Stat(name)
	switch id := onHub(name); {
	case id != "":
		name = id
	case here == nil || filepath.IsAbs(name) || strings.HasPrefix(name, "."):
		slog.Warn("the adapter's model is a folder of this machine: say in its repository which model it goes with", "model", name)
		name = filepath.Base(name)
	} // else it is a name of a hub already, as PEFT writes it
	if onHub(k.Base) == "" && strings.Count(name, "/") == 1 { // ORG/NAME
		k.Base = "hf:" + name
	}
	quoted, err := json.Marshal(name)
	at := slices.IndexFunc(sources, func(s Source) bool { return s.Name == config })
	if err == nil && at >= 0 {
		sources[at] = Text(config, baseName.ReplaceAllString(string(text), "${1}"+strings.ReplaceAll(string(quoted), "$", "$$")))
	}
	return err
}

// text returns the model card: its header for the hub, the license, and the settings of the training.
func (k Card) text() string {
	var b strings.Builder
	library, what, loaders, base := "transformers", "model", "transformers and onering load it.", onHub(k.Base)
	if k.Adapter {
		library, what, loaders = "peft", "LoRA adapter", "PEFT and onering put it beside its base model."
	}
	b.WriteString("---\nlibrary_name: " + library + "\npipeline_tag: text-generation\n")
	if base != "" {
		fmt.Fprintf(&b, "base_model: %s\n", base)
	}
	if k.License != "" {
		fmt.Fprintf(&b, "license: %s\n", k.License)
	}
	fmt.Fprintf(&b, "tags:\n- onering\n---\n\n# %s\n\n", k.Name)
	b.WriteString("This " + what + " was trained with onering, a trainer for group-based reinforcement learning" + k.after() + ".\n")
	b.WriteString(loaders + "\n\n")
	fmt.Fprintf(&b, "Base model: %s\n\n", cmp.Or(base, "not stated"))
	fmt.Fprintf(&b, "License: %s\n", cmp.Or(k.License, "not stated. Look at the terms of the base model."))
	if k.Settings != "" {
		fmt.Fprintf(&b, "\n## Settings of the training\n\n```toml\n%s\n```\n", k.Settings)
	}
	return b.String()
}
