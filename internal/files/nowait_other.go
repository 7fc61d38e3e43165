//go:build !unix

package files

// noWait is for systems on which a path can be a named pipe.
const noWait = 0
