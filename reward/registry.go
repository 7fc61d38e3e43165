package reward

import "onering/internal/registry"

var registered = registry.Makers[Reward]{Package: "reward", Kind: "reward"}

// Register makes a reward available by name; call it from init. new returns a
// fresh value that holds the defaults. Register panics if the name is empty or
// taken, or if new is nil: both are mistakes in the program.
func Register(name string, new func() Reward) { registered.Register(name, new) }

// New returns a fresh reward with its defaults.
func New(name string) (Reward, error) { return registered.New(name) }

// Names returns the registered names, sorted.
func Names() []string { return registered.Names() }
