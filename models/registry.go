package models

import (
	"fmt"
	"strconv"
	"strings"

	"onering/internal/registry"
)

// A Design is the shape of a model: which weights it has, and how its Programs are built.
// Package decoder has the Design of decoder-only models.
type Design interface {
	// Layout says which tensors the model has.
	Layout() *Layout
	// Architecture returns the builder of Programs for a way of computing. The error
	// names what is impossible in the shape or in the way of computing.
	Architecture(Compute) (Architecture, error)
}

// An opener reads the shape of a model of one family from its config.json. Settings that
// the family's Programs do not support are errors of the file.
type opener func(config *ConfigFile) (Design, error)

// A family is the registered entry of a model_type.
type family struct {
	about string
	open  opener
}

var families registry.Table[family]

// Register makes a family of models known under the model_type of its config.json; call it from init. about says in
// one line which models are of it. It panics if the name is empty or open is nil: both are mistakes in the program.
func Register(modelType, about string, open opener) {
	if modelType == "" || open == nil {
		panic(fmt.Sprintf("models: Register(%q) needs a model_type and a function", modelType))
	}
	families.Add(modelType, family{about, open})
}

// Families returns every registered model_type in alphabetical order.
func Families() []string { return families.Names() }

// About describes the models of a family; "" for a family that is not registered.
func About(modelType string) string {
	f, _ := families.Get(modelType)
	return f.about
}

// knownFamilies lists the families for messages.
func knownFamilies() string {
	var quoted []string
	for _, name := range Families() {
		quoted = append(quoted, fmt.Sprintf("%q", name))
	}
	if quoted == nil {
		return "none (forgotten import of onering/models/all?)"
	}
	return strings.Join(quoted, ", ")
}

// readDesign reads the shape that a config.json states, by its family.
func readDesign(config *ConfigFile) (Design, error) {
	kind := config.modelType()
	if err := config.Err(); err != nil {
		return nil, err
	}
	f, err := families.Get(kind)
	if err != nil { // two families have this name; an unknown one has no open
		return nil, fmt.Errorf("models: model_type %w", err)
	}
	open := f.open
	if open == nil {
		config.Fail("model_type %q is not supported%s, only %s: name a model of one of these families, or add this one with onering models new",
			kind, config.foreignLayers(), knownFamilies())
		return nil, config.Err()
	}
	return open(config)
}

// foreignLayers says which layers a config.json states that no graph computes; "" if it states none.
func (f *ConfigFile) foreignLayers() string {
	for _, c := range []*ConfigFile{f, f.Object("text_config")} {
		if c == nil {
			continue
		}
		for _, key := range c.Keys() {
			what := ""
			switch n, err := strconv.ParseFloat(string(c.JSON(key)), 64); {
			case err != nil || n == 0: // it counts no layers or experts
			case strings.HasPrefix(key, "mamba_") || strings.HasPrefix(key, "ssm_") || key == "state_size":
				what = "mamba layers"
			case strings.HasPrefix(key, "num_") && strings.Contains(key, "experts") || key == "n_routed_experts":
				what = "layers with experts"
			}
			if what != "" {
				return fmt.Sprintf(" (it has %s: %s %.20s)", what, key, c.JSON(key))
			}
		}
	}
	return ""
}
