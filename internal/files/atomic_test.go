package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriteFolder(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "parent", "out")
	fill := func(d *Draft) error {
		put(t, d, filepath.Join("state", "x"), "new")
		if _, err := os.Stat(filepath.Join(dir, "state")); err == nil {
			t.Error("the folder is there before it is whole")
		}
		return nil
	}
	broken := errors.New("broken")
	if err := WriteFolder(dir, func(d *Draft) error { fill(d); return broken }); !errors.Is(err, broken) {
		t.Errorf("an error of fill: %v", err)
	}
	if e, _ := os.ReadDir(filepath.Dir(dir)); len(e) != 0 {
		t.Errorf("a failed write left %v", e)
	}
	if err := WriteFolder(dir, fill); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "state", "x")); string(b) != "new" {
		t.Errorf("%q, %v", b, err)
	}
	called := false
	err := WriteFolder(dir, func(*Draft) error { called = true; return nil })
	if !errors.Is(err, fs.ErrExist) || called {
		t.Errorf("onto a full folder: %v (fill called: %v)", err, called)
	}
	empty := filepath.Join(root, "empty")
	if err := os.Mkdir(empty, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := WriteFolder(empty+"/", func(d *Draft) error { put(t, d, "x", ""); return nil }); err != nil {
		t.Errorf("onto an empty folder: %v", err)
	}
	mustWrite(t, filepath.Join(root, "file"), "kept")
	if err := WriteFolder(filepath.Join(root, "file"), fill); err == nil {
		t.Error("onto a file: no error")
	}
	if e, _ := os.ReadDir(root); len(e) != 3 {
		t.Errorf("left over: %v", e)
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	broken := errors.New("broken")
	put := func(text string, err error) error {
		return WriteFile(path, func(w io.Writer) error {
			io.WriteString(w, text)
			return err
		})
	}
	if err := put("first", nil); err != nil {
		t.Fatal(err)
	}
	if err := put("second", broken); !errors.Is(err, broken) || !strings.Contains(err.Error(), path) {
		t.Errorf("an error of write: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "first" {
		t.Errorf("a failed write left %q", b)
	}
	if err := put("third", nil); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "third" {
		t.Errorf("%q", b)
	}
	if e, _ := os.ReadDir(dir); len(e) != 1 {
		t.Errorf("left over: %v", e)
	}
}

func put(t *testing.T, d *Draft, name, text string) {
	t.Helper()
	if err := d.WriteFile(name, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
		t.Fatal(err)
	}
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}
