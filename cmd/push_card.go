package cmd

import (
	"bytes"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"onering/internal/settings"
	"onering/models/hub"
	"onering/train/rundir"
)

// A card is the README.md of a repository: what the model was made of, and how.
type card struct {
	name, license string
	base          string // on a hub; "" if it is not, or not known
	step          string // of the optimizer
	settings      string // as TOML
}

// cardKeys are the settings that a card shows: those that say how the model was
// trained. No path of this machine is among them, nor anything that could hold a
// password. All of [objective] follows.
var cardKeys = map[string][]string{
	"model":     {"template", "dtype"},
	"rollout":   {"prompts_per_round", "samples_per_prompt", "temperature", "top_p", "top_k", "min_p", "max_new_tokens"},
	"reward":    {"name"},
	"optimizer": {"learning_rate", "beta1", "beta2", "weight_decay", "max_grad_norm", "warmup", "schedule"},
	"train":     {"rounds", "batch_size", "epochs", "seed"},
}

var (
	// plainName matches the texts that a card shows: names, not prompts or paths.
	plainName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,40}$`)
	// onHub matches a name on a hub as run.toml has it.
	onHub    = regexp.MustCompile(`^hf:([A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*)(?:@.*)?$`)
	stepName = regexp.MustCompile(`^step-0*([0-9]+)$`)
)

// newCard describes the model of a folder; of a checkpoint it reads its run.toml.
func newCard(folder, to, license string) card {
	k := card{name: to[strings.LastIndexByte(to, '/')+1:], license: license}
	if abs, err := filepath.Abs(folder); err == nil {
		if m := stepName.FindStringSubmatch(filepath.Base(abs)); m != nil {
			k.step = m[1]
		}
	}
	file := rundir.RunOf(folder)
	if file == "" {
		return k
	}
	run, err := fileLayer(file, nil)
	var config *resolved
	if err == nil {
		config, err = resolve(run)
	}
	if err != nil {
		slog.Warn("the model card goes without the settings of the run", "reason", err)
		return k
	}
	if m := onHub.FindStringSubmatch(config.Model.Path); m != nil {
		k.base = m[1]
	}
	var b bytes.Buffer
	for _, s := range sectionsOf(&config.Config) {
		s.fields = slices.DeleteFunc(s.fields, func(f settings.Field) bool { return !onCard(s.name, f) })
		if len(s.fields) == 0 {
			continue
		}
		b.WriteByte('\n')
		if err := writeSection(&b, s); err != nil {
			slog.Warn("the model card goes without the settings of the run", "reason", err)
			return k
		}
	}
	k.settings = strings.TrimSpace(b.String())
	return k
}

// onCard says whether the card shows a setting.
func onCard(section string, f settings.Field) bool {
	if section != "objective" && !slices.Contains(cardKeys[section], f.Key) {
		return false
	}
	text, ok := f.Value.Interface().(string)
	return !ok || plainName.MatchString(text)
}

// written says whether the folder has a card of its own.
func (k card) written(sources []hub.Source) bool {
	return slices.ContainsFunc(sources, func(s hub.Source) bool { return strings.EqualFold(s.Name, "README.md") })
}

// after names the step, for the title of a commit.
func (k card) after() string {
	if k.step == "" {
		return ""
	}
	return ", optimizer step " + k.step
}

// source is the card as a file, which does not replace one that the repository has.
func (k card) source() hub.Source {
	s := hub.Text("README.md", k.text())
	s.Default = true
	return s
}

func (k card) text() string {
	var b strings.Builder
	b.WriteString("---\nlibrary_name: transformers\npipeline_tag: text-generation\n")
	if k.base != "" {
		fmt.Fprintf(&b, "base_model: %s\n", k.base)
	}
	if k.license != "" {
		fmt.Fprintf(&b, "license: %s\n", k.license)
	}
	fmt.Fprintf(&b, "tags:\n- onering\n---\n\n# %s\n\n", k.name)
	b.WriteString("This model was trained with onering, a trainer for group-based reinforcement learning" + k.after() + ".\n")
	b.WriteString("transformers and onering load it.\n\n")
	if k.base != "" {
		fmt.Fprintf(&b, "Base model: %s\n\n", k.base)
	} else {
		b.WriteString("Base model: not stated\n\n")
	}
	if k.license != "" {
		fmt.Fprintf(&b, "License: %s\n", k.license)
	} else {
		b.WriteString("License: not stated. Look at the terms of the base model.\n")
	}
	if k.settings != "" {
		fmt.Fprintf(&b, "\n## Settings of the training\n\n```toml\n%s\n```\n", k.settings)
	}
	return b.String()
}
