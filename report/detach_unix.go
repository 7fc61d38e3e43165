//go:build unix

package report

import (
	"os/exec"
	"syscall"
)

// detach puts the program into a process group of its own, so that Ctrl-C on the terminal
// stops the run and not the program, which still gets the last lines.
func detach(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
