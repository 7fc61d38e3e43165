//go:build !unix

package files

// noWait has no effect on systems on which a path cannot name a pipe.
const noWait = 0
