package files

import (
	"testing"
	"time"
)

// SetPipeWait sets how long a pipe's other end is waited for, until the test ends.
func SetPipeWait(t *testing.T, d time.Duration) {
	before := pipeWait
	pipeWait = d
	t.Cleanup(func() { pipeWait = before })
}
