package environment

import (
	"onering/internal/registry"
	"onering/internal/settings"
)

var registered = registry.Makers[Environment]{Package: "environment", Kind: "environment"}

func init() { settings.Register("environment", Names, New) }

// Register makes an environment available by name; call it from init. new returns a fresh
// value that holds the defaults. Register panics if the name is empty or new is nil.
func Register(name string, new func() Environment) { registered.Register(name, new) }

// New returns a fresh environment with its defaults.
func New(name string) (Environment, error) { return registered.New(name) }

// Names returns the registered names, sorted.
func Names() []string { return registered.Names() }
