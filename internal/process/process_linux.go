package process

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"onering/internal/files"
)

// separate gives the process a group of its own, so that Ctrl-C is for onering alone
// to handle and what the process starts can be ended with it. When onering is killed
// the system kills the process.
func separate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killGroup kills the process and what it has started: its group, and what has left the
// group, as a daemon does, and has mark in its environment.
func killGroup(cmd *exec.Cmd, mark string) {
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	for range 100 { // each may have started another before it was killed
		found := false
		for _, path := range files.Glob("/proc", "[0-9]*/environ") {
			if text, err := files.Read(path, 16<<20); err != nil || !bytes.Contains(text, []byte(mark)) {
				continue
			}
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
		}
		if !found {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}
