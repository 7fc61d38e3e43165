package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"onering/internal/files"
)

// separate gives the process a group of its own, so that only onering handles Ctrl-C and the process can be ended
// together with its children. When onering is killed, the system kills the process.
func separate(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
}

// killGroup kills the process and its children: its group, and processes that left the group, as a daemon does, but
// have mark in their environment. It looks again until it finds none.
func killGroup(cmd *exec.Cmd, mark string) {
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	for range 100 { // a process may have started another before it was killed
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

// limited returns the command with the limits of the system, and names what stays
// unlimited. The command runs as the first process of its own namespaces if the system
// allows that: it sees no other process and no network, and when it ends, its children end.
func limited(command []string, l Limits) (cmd *exec.Cmd, missing error) {
	const kilobytes = 1 << 10
	// Programs reserve much address space (-v) and never use it. Files (-f) are counted in blocks of 512 bytes.
	script := fmt.Sprintf(`ulimit -t %d && ulimit -d %d && ulimit -v %d && ulimit -f %d && ulimit -n 64 && ulimit -c 0 && exec "$0" "$@" 2>&1`,
		int(l.Seconds)+1, l.Megabytes*kilobytes, (l.Megabytes+4096)*kilobytes, l.Megabytes*2*kilobytes)
	cmd = exec.Command("/bin/sh", append([]string{"-c", script}, command...)...)
	if missing = shuts(); missing == nil {
		cmd.SysProcAttr = namespaces()
	}
	return cmd, missing
}

// shuts says why the system does not let users make namespaces.
var shuts = sync.OnceValue(func() error {
	cmd := exec.Command("true")
	cmd.SysProcAttr = namespaces()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the network and the number of processes: no namespaces for users: %w", err)
	}
	return nil
})

func namespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 65534, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 65534, HostID: os.Getgid(), Size: 1}},
	}
}
