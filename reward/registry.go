package reward

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

var registry struct {
	sync.RWMutex
	constructors map[string]func() Reward
}

// Register makes a reward available by name; call it from init. new returns a
// fresh value that holds the defaults. Register panics if the name is empty or
// taken, or if new is nil: both are mistakes in the program.
func Register(name string, new func() Reward) {
	registry.Lock()
	defer registry.Unlock()
	if name == "" || new == nil {
		panic(fmt.Sprintf("reward: Register(%q) needs a name and a constructor", name))
	}
	if _, taken := registry.constructors[name]; taken {
		panic(fmt.Sprintf("reward: %q is registered twice", name))
	}
	if registry.constructors == nil {
		registry.constructors = map[string]func() Reward{}
	}
	registry.constructors[name] = new
}

// New returns a fresh reward with its defaults.
func New(name string) (Reward, error) {
	registry.RLock()
	new := registry.constructors[name]
	registry.RUnlock()
	if new == nil {
		return nil, fmt.Errorf("reward: unknown reward %q (have %s; forgotten import?)", name, strings.Join(Names(), ", "))
	}
	return new(), nil
}

// Names returns the registered names, sorted.
func Names() []string {
	registry.RLock()
	defer registry.RUnlock()
	return slices.Sorted(maps.Keys(registry.constructors))
}
