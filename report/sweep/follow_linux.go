package sweep

import (
	"os/exec"
	"syscall"
)

// follow makes the system interrupt a process when the sweep is killed, as Ctrl-C does:
// the process saves a checkpoint and stops.
func follow(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
