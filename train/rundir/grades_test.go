package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/internal/files"
)

// The file of scores has only complete lines after a kill or a full disk.
func TestGrades(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "run"), false)
	read := func() (g *Grades, lines []string) {
		g, err := f.OpenGrades(func(line []byte) { lines = append(lines, string(line)) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
		return g, lines
	}
	g, lines := read()
	if err := errors.Join(g.Append([]byte("a\n")), g.Append([]byte("b\n"))); err != nil || lines != nil {
		t.Fatal(lines, err)
	}
	full := errors.New("the disk is full")
	files.Fault = func(op, _ string) error {
		if op == "append" {
			return full
		}
		return nil
	}
	err := g.Append([]byte("c\n"))
	files.Fault = nil
	if !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	path := filepath.Join(f.Dir, gradesFile)
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text, "tor"...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	g, lines = read()
	if want := []string{"a\n", "b\n"}; !slices.Equal(lines, want) {
		t.Errorf("lines %q, want %q", lines, want)
	}
	if err := g.Append([]byte("d\n")); err != nil {
		t.Fatal(err)
	}
	if _, lines = read(); !slices.Equal(lines, []string{"a\n", "b\n", "d\n"}) {
		t.Errorf("lines %q", lines)
	}
}

// TestOddGrades: a file that is not regular is refused at once, and a file without
// newlines is refused without much memory.
func TestOddGrades(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "run"), false)
	path := filepath.Join(f.Dir, gradesFile)
	for name, put := range map[string]func() error{
		"a folder": func() error { return os.Mkdir(path, 0o777) },
		"a link":   func() error { return os.Symlink("metrics.jsonl", path) },
		"a device": func() error { return os.Symlink(os.DevNull, path) },
		"a hole":   func() error { return errors.Join(os.WriteFile(path, nil, 0o666), os.Truncate(path, 1<<40)) },
	} {
		if err := put(); err != nil {
			t.Logf("no %s here: %v", name, err)
			continue
		}
		if _, err := f.OpenGrades(func([]byte) {}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
