//go:build unix && !linux

package process

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
)

// separate gives the process a group of its own, so that only onering handles Ctrl-C and the process can be ended
// together with its children. When onering is killed, the process sees the end of its input.
func separate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills the process and its children.
func killGroup(cmd *exec.Cmd, _ string) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// limited returns the command with the limits that all systems have, and names what stays unlimited.
func limited(command []string, l Limits) (cmd *exec.Cmd, missing error) {
	script := fmt.Sprintf(`ulimit -t %d && ulimit -f %d && ulimit -n 64 && ulimit -c 0 && exec "$0" "$@" 2>&1`, int(l.Seconds)+1, l.Megabytes*2048)
	return exec.Command("/bin/sh", append([]string{"-c", script}, command...)...), errors.New("memory, processes and the network")
}
