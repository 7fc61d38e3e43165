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
	twice   map[string]bool // names that were added again
}

// Add adds an entry and reports whether the name was free. A name that is added twice keeps
// its first entry, and Get has an error for it: an author whose plug-in is called as one of
// ours learns so where the name is used.
func (t *Table[T]) Add(name string, entry T) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.entries == nil {
		t.entries, t.twice = map[string]T{}, map[string]bool{}
	}
	if _, taken := t.entries[name]; taken {
		t.twice[name] = true
		return false
	}
	t.entries[name] = entry
	return true
}

// Get returns an entry, the zero value if there is none of the name. The error says that
// the name was added twice; the entry is the first.
func (t *Table[T]) Get(name string) (entry T, err error) {
	t.mutex.RLock()
	defer t.mutex.RUnlock()
	if t.twice[name] {
		err = fmt.Errorf("%q is registered twice: give your own another name", name)
	}
	return t.entries[name], err
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

// Register makes new known by a name. It panics if the name is empty or new is nil: both
// are mistakes in the program.
func (m *Makers[T]) Register(name string, new func() T) {
	if name == "" || new == nil {
		panic(fmt.Sprintf("%s: to register %s %q takes a name and a constructor", m.Package, m.Kind, name))
	}
	m.table.Add(name, new)
}

// New returns a fresh value. The error of an unknown name lists those that there are. That
// of a name that is registered twice comes with a value, which defaults can have.
func (m *Makers[T]) New(name string) (x T, err error) {
	new, err := m.table.Get(name)
	if new == nil {
		return x, fmt.Errorf("%s: unknown %s %q (have %s; forgotten import?)", m.Package, m.Kind, name, strings.Join(m.Names(), ", "))
	}
	if err != nil {
		err = fmt.Errorf("%s: %s %w", m.Package, m.Kind, err)
	}
	return new(), err
}

// Names returns all names in alphabetical order.
func (m *Makers[T]) Names() []string { return m.table.Names() }
