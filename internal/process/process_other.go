//go:build !unix

package process

import (
	"errors"
	"os"
	"os/exec"
)

// separate does nothing: this system has no groups of processes.
func separate(*exec.Cmd) {}

// killGroup kills the process.
func killGroup(cmd *exec.Cmd, _ string) { cmd.Process.Kill() }

// whisper does nothing: programs inherit only their standard streams here.
func whisper(string) (*os.File, error) { return nil, nil }

// limited returns the command unchanged.
func limited(command []string, _ Limits) (cmd *exec.Cmd, missing error) {
	return exec.Command(command[0], command[1:]...), errors.New("memory, processor time, files, processes and the network")
}
