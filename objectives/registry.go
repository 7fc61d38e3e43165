package objectives

import (
	"onering/internal/registry"
	"onering/internal/settings"
)

var registered = registry.Makers[Objective]{Package: "objectives", Kind: "objective"}

func init() { settings.Register("objective", Names, New) }

// Register makes an objective available by name; call it from init. new returns a
// fresh value that holds the defaults. Register panics if the name is empty or
// taken, or if new is nil: both are mistakes in the program.
func Register(name string, new func() Objective) { registered.Register(name, new) }

// New returns a fresh objective with its defaults.
func New(name string) (Objective, error) { return registered.New(name) }

// Names returns the registered names, sorted.
func Names() []string { return registered.Names() }
