//go:build !unix

package process

import "os/exec"

// separate does nothing: this system has no groups of processes.
func separate(*exec.Cmd) {}

// killGroup kills the process.
func killGroup(cmd *exec.Cmd, _ string) { cmd.Process.Kill() }
