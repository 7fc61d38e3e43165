package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// shut makes the command the first process of its own namespaces: it sees no other
// process and has no network, and when it ends, all processes that it started end. This
// needs the system's permission for user namespaces.
func (l limits) shut(cmd *exec.Cmd) {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if !l.Network {
		attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 65534, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 65534, HostID: os.Getgid(), Size: 1}}
	}
	cmd.SysProcAttr = attr
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// enter limits this process and then replaces it by the command.
func enter(text string, command []string) error {
	var l limits
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return err
	}
	memory := uint64(l.Megabytes) << 20
	for _, limit := range []struct {
		name string
		what int
		most uint64
	}{
		{"processor time", syscall.RLIMIT_CPU, uint64(l.Seconds)},
		{"memory", syscall.RLIMIT_DATA, memory},
		{"addresses", syscall.RLIMIT_AS, memory + 4<<30}, // much memory is reserved and never used
		{"size of a file", syscall.RLIMIT_FSIZE, memory},
		{"open files", syscall.RLIMIT_NOFILE, 64},
		{"processes", 6 /* RLIMIT_NPROC */, 512},
		{"size of a core dump", syscall.RLIMIT_CORE, 0},
	} {
		if err := syscall.Setrlimit(limit.what, &syscall.Rlimit{Cur: limit.most, Max: limit.most}); err != nil {
			return fmt.Errorf("limiting %s: %w", limit.name, err)
		}
	}
	return syscall.Exec(command[0], command, os.Environ())
}
