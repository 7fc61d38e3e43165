package files

import (
	"testing"
	"time"
)

// SetPipeWait sets, until the test ends, how long to wait for a pipe's other end.
func SetPipeWait(t *testing.T, d time.Duration) {
	before := pipeWait
	pipeWait = d
	t.Cleanup(func() { pipeWait = before })
}
