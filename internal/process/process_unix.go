//go:build unix && !linux

package process

import (
	"os/exec"
	"syscall"
)

// separate gives the process a group of its own, so that Ctrl-C is for onering alone
// to handle and what the process starts can be ended with it. When onering is killed
// the process sees the end of its input.
func separate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills the process and what it has started.
func killGroup(cmd *exec.Cmd, _ string) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
