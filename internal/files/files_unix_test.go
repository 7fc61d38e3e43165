//go:build unix

package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"onering/internal/files"
)

// TestSpecialFiles opens what is no regular file. A test that waits for a writer
// of the pipe fails by never ending.
func TestSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o666); err != nil {
		t.Skip(err)
	}
	link(t, "pipe", filepath.Join(dir, "to-pipe"))
	folder, err := files.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	for _, name := range []string{"pipe", "to-pipe"} {
		if _, err := folder.Open(name); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("Folder.Open(%s): %v", name, err)
		}
		if _, err := files.ReadFS(folder.FS(), name, 1); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("ReadFS(%s): %v", name, err)
		}
	}
	for _, path := range []string{filepath.Join(dir, "pipe"), filepath.Join(dir, "to-pipe"), "/dev/zero", os.DevNull, dir} {
		if _, err := files.Open(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("Open(%s): %v", path, err)
		}
	}
	if _, err := files.OpenFolder(filepath.Join(dir, "pipe")); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("OpenFolder of a pipe: %v", err)
	}
}
