//go:build unix

package files_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"onering/internal/files"
)

// TestSpecialFiles opens files that are not regular. A test that waits for a writer of
// the pipe would never end.
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

func content(text string) func(io.Writer) error { return files.Content(text) }

// TestDestinations: only regular files and new names are replaced. Devices and pipes are
// written to, and links are followed.
func TestDestinations(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	kind := func(name string) os.FileMode {
		info, err := os.Lstat(at(name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Type()
	}
	if err := os.Mkdir(at("deep"), 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, at("file"), "old")
	link(t, "file", at("to-file"))
	link(t, "to-file", at("to-link"))
	link(t, filepath.Join("deep", "new"), at("to-new"))
	link(t, "deep", at("to-deep"))
	link(t, filepath.Join("..", "file"), at("deep/up"))
	for _, tt := range []struct{ name, file string }{{"to-file", "file"}, {"to-link", "file"}, {"to-new", "deep/new"}, {"to-deep/up", "file"}, {"deep/up", "file"}} {
		if err := files.WriteFile(at(tt.name), content(tt.name)); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(at(tt.file)); string(text) != tt.name || kind(tt.name) != os.ModeSymlink || kind(tt.file) != 0 {
			t.Errorf("%s: %q in %s (%v)", tt.name, text, tt.file, err)
		}
	}
	link(t, "circle", at("circle"))
	for name, want := range map[string]string{"circle": "do not end", "deep": "it is a folder"} {
		if err := files.WriteFile(at(name), content("x")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if err := files.WriteFile(os.DevNull, content("x")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Fatalf("%s is %v (%v)", os.DevNull, info.Mode(), err)
	}
	if err := syscall.Mkfifo(at("pipe"), 0o666); err != nil {
		t.Skip(err)
	}
	link(t, "pipe", at("to-pipe"))
	for _, name := range []string{"pipe", "to-pipe"} {
		got := make(chan string)
		go func() {
			f, err := files.Stream(at("pipe"))
			if err != nil {
				got <- err.Error()
				return
			}
			defer f.Close()
			text, err := io.ReadAll(f)
			got <- fmt.Sprint(string(text), err)
		}()
		if err := files.WriteFile(at(name), content(name)); err != nil {
			t.Fatal(err)
		}
		if text := <-got; text != name+"<nil>" || kind("pipe") != os.ModeNamedPipe {
			t.Errorf("%s: read %q", name, text)
		}
	}
	// A folder is also made at the place where a link leads.
	link(t, "folder", at("to-folder"))
	if err := files.WriteFolder(at("to-folder"), func(d *files.Draft) error { return d.WriteFile("x", content("y")) }); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(at("folder/x")); string(text) != "y" || kind("to-folder") != os.ModeSymlink {
		t.Errorf("%q, %v", text, err)
	}
}

// TestLonelyPipe: a pipe with nobody at the other end is an error that says so.
func TestLonelyPipe(t *testing.T) {
	files.SetPipeWait(t, time.Millisecond)
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		t.Skip(err)
	}
	if err := files.WriteFile(path, content("x")); err == nil || !strings.Contains(err.Error(), "start its reader first") {
		t.Error(err)
	}
	f, err := files.Stream(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.ReadAll(f); err == nil || !strings.Contains(err.Error(), "start its writer first") {
		t.Error(err)
	}
	if _, err := files.Append(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}

// TestStale: leftovers of a killed process are removed by the next process that writes
// the same file, and files being written stay.
func TestStale(t *testing.T) {
	dir := t.TempDir()
	names := func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	out := filepath.Join(dir, "out")
	for _, name := range []string{".out.tmp-01234567", ".other.tmp-01234567"} {
		write(t, filepath.Join(dir, name), "")
	}
	write(t, filepath.Join(dir, ".out.tmp-11234567", "x"), "")
	inner := func() error { return files.WriteFile(out, content("second")) }
	err := files.WriteFile(out, func(w io.Writer) error { return errors.Join(inner(), content("first")(w)) })
	if text, _ := os.ReadFile(out); err != nil || string(text) != "first" {
		t.Errorf("%q, %v", text, err)
	}
	if got := names(); !slices.Equal(got, []string{".other.tmp-01234567", "out"}) {
		t.Errorf("left: %q", got)
	}
	write(t, filepath.Join(dir, ".folder.tmp-11234567", "x"), "")
	folder := filepath.Join(dir, "folder")
	err = files.WriteFolder(folder, func(d *files.Draft) error {
		files.WriteFolder(folder, func(*files.Draft) error { return errors.New("broken") })
		return d.WriteFile("x", content("y"))
	})
	if err != nil {
		t.Error(err)
	}
	if got := names(); !slices.Equal(got, []string{".other.tmp-01234567", "folder", "out"}) {
		t.Errorf("left: %q", got)
	}
}
