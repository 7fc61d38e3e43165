package data

import (
	"os"
	"path/filepath"
	"testing"
)

// benchmarks returns the folder of the benchmark files, which lies beside the
// repository, or skips the test.
func benchmarks(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the package")
		}
		dir = filepath.Dir(dir)
	}
	dir = filepath.Join(dir, "..", "shared", "data", "benchmarks", "dev")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the benchmark files are not here: %v", err)
	}
	return dir
}

// write puts a file into a temporary folder and returns its path.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}
