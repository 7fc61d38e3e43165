package models

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// A Design is the shape of a model: which weights it has, and how Programs are
// built for it. Package decoder has the one that decoder-only models share.
type Design interface {
	// Layout says which tensors the model has.
	Layout() *Layout
	// Architecture returns what builds the Programs for a way of computing. The
	// error names what is impossible in the shape or in the way of computing.
	Architecture(Compute) (Architecture, error)
}

// An Open reads the shape of a model of one family from its config.json. What
// the family's Programs do not compute is an error of the file.
type Open func(config *ConfigFile) (Design, error)

var families struct {
	sync.RWMutex
	open map[string]Open
}

// Register makes a family of models known under the model_type of its
// config.json; call it from init. It panics where the name is empty or taken or
// open is nil: both are mistakes in the program.
func Register(modelType string, open Open) {
	families.Lock()
	defer families.Unlock()
	if modelType == "" || open == nil {
		panic(fmt.Sprintf("models: Register(%q) needs a model_type and a function", modelType))
	}
	if _, taken := families.open[modelType]; taken {
		panic(fmt.Sprintf("models: %q is registered twice", modelType))
	}
	if families.open == nil {
		families.open = map[string]Open{}
	}
	families.open[modelType] = open
}

// Families returns every registered model_type in alphabetical order.
func Families() []string {
	families.RLock()
	defer families.RUnlock()
	return slices.Sorted(maps.Keys(families.open))
}

// known lists the families for messages.
func known() string {
	var quoted []string
	for _, name := range Families() {
		quoted = append(quoted, fmt.Sprintf("%q", name))
	}
	if quoted == nil {
		return "none (forgotten import of onering/models/all?)"
	}
	return strings.Join(quoted, ", ")
}

// design reads the shape that a config.json states, by its family.
func design(config *ConfigFile) (Design, error) {
	kind := config.modelType()
	if err := config.Err(); err != nil {
		return nil, err
	}
	families.RLock()
	open := families.open[kind]
	families.RUnlock()
	if open == nil {
		config.Fail("model_type %q is not supported, only %s", kind, known())
		return nil, config.Err()
	}
	return open(config)
}
