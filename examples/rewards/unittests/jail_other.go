//go:build !linux

package main

import (
	"errors"
	"os/exec"
)

// shut does nothing: enter explains that this system has no limits.
func (l limits) shut(*exec.Cmd) {}

// enter refuses: limits exist on Linux only.
func enter(string, []string) error {
	return errors.New("generated code is run on Linux only: other systems lack the limits of this program")
}
