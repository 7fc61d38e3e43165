package sweep

import (
	"os/exec"
	"syscall"
)

// follow has the system end a process when the sweep is killed, as Ctrl-C does: it saves a
// checkpoint and stops.
func follow(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
