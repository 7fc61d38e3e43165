//go:build unix

package files

import "syscall"

// noWait has a named pipe opened without waiting for a writer.
const noWait = syscall.O_NONBLOCK
