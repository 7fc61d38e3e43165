//go:build !windows

package data

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A named pipe is refused at once: to open it would wait for a writer.
func TestNamedPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	for _, p := range []string{path, filepath.Dir(path)} {
		if _, err := openRecords(p, Options{}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: error %v", p, err)
		}
	}
	if _, err := openRecords("/dev/zero", Options{}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a device: error %v", err)
	}
}
