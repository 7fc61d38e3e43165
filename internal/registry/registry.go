// Package registry keeps by name what packages register in init: objectives, rewards,
// families of models, optimizers.
package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// A Table holds entries by name; the zero Table is empty. Its methods may be called
// concurrently.
type Table[T any] struct {
	mutex   sync.RWMutex
	entries map[string]T
}

// Add adds an entry and reports whether the name was free.
func (t *Table[T]) Add(name string, entry T) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if _, taken := t.entries[name]; taken {
		return false
	}
	if t.entries == nil {
		t.entries = map[string]T{}
	}
	t.entries[name] = entry
	return true
}

// Get returns an entry, the zero value if there is none of the name.
func (t *Table[T]) Get(name string) T {
	t.mutex.RLock()
	defer t.mutex.RUnlock()
	return t.entries[name]
}

// Names returns all names in alphabetical order.
func (t *Table[T]) Names() []string {
	t.mutex.RLock()
	defer t.mutex.RUnlock()
	return slices.Sorted(maps.Keys(t.entries))
}

// Makers are functions by name that return fresh values with their defaults.
type Makers[T any] struct {
	Package, Kind string // for messages: whose they are, and what they make
	table         Table[func() T]
}

// Register makes new known by a name. It panics if the name is empty or taken, or if new
// is nil: both are mistakes in the program.
func (m *Makers[T]) Register(name string, new func() T) {
	if name == "" || new == nil {
		panic(fmt.Sprintf("%s: to register %s %q takes a name and a constructor", m.Package, m.Kind, name))
	}
	if !m.table.Add(name, new) {
		panic(fmt.Sprintf("%s: %s %q is registered twice", m.Package, m.Kind, name))
	}
}

// New returns a fresh value. The error of an unknown name lists those that there are.
func (m *Makers[T]) New(name string) (x T, err error) {
	new := m.table.Get(name)
	if new == nil {
		return x, fmt.Errorf("%s: unknown %s %q (have %s; forgotten import?)", m.Package, m.Kind, name, strings.Join(m.Names(), ", "))
	}
	return new(), nil
}

// Names returns all names in alphabetical order.
func (m *Makers[T]) Names() []string { return m.table.Names() }
