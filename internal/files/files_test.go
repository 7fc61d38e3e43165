package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/internal/files"
)

// write makes a file with the folders above it.
func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, path); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
}

// sparse makes a file of size bytes that takes no space on the disk.
func sparse(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(write(t, path, ""), size); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
}

// TestFolderLinks tries links to places inside a folder and to places outside.
func TestFolderLinks(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, "model")
	secret := write(t, filepath.Join(top, "secret"), "secret")
	write(t, filepath.Join(top, "model-2", "other"), "other") // another folder, whose name begins with the folder's name
	write(t, filepath.Join(dir, "sub", "plain"), "plain")
	link(t, filepath.Join("sub", "plain"), filepath.Join(dir, "inside"))
	link(t, "inside", filepath.Join(dir, "twice"))
	link(t, secret, filepath.Join(dir, "absolute"))
	link(t, filepath.Join(dir, "sub", "plain"), filepath.Join(dir, "absolute-inside"))
	link(t, filepath.Join("..", "secret"), filepath.Join(dir, "relative"))
	link(t, filepath.Join("..", "model-2", "other"), filepath.Join(dir, "beside"))
	link(t, "relative", filepath.Join(dir, "chain"))
	link(t, "..", filepath.Join(dir, "up"))
	link(t, "loop", filepath.Join(dir, "loop"))
	link(t, dir, filepath.Join(top, "link-to-model"))

	for _, root := range []string{dir, filepath.Join(top, "link-to-model")} {
		folder, err := files.OpenFolder(root)
		if err != nil {
			t.Fatal(err)
		}
		defer folder.Close()
		for name, want := range map[string]string{
			"inside": "plain", "twice": "plain", "absolute-inside": "plain", filepath.Join("sub", "plain"): "plain",
			"absolute": "leads out of the folder, to " + secret, "relative": "leads out", "beside": "leads out", "chain": "leads out",
			filepath.Join("up", "secret"): "leads out", "loop": "too many links", "none": "no such file", "sub": "is not a regular file",
			filepath.Join("..", "secret"): "outside of the folder", secret: "outside of the folder",
		} {
			text, err := folder.Read(name, 100)
			if err != nil {
				if text = []byte(err.Error()); !strings.Contains(string(text), filepath.Join(root, name)) {
					t.Errorf("%s in %s: the error does not name it: %v", name, root, err)
				}
			}
			if !strings.Contains(string(text), want) {
				t.Errorf("%s in %s: %q, want %q", name, root, text, want)
			}
		}
		if _, err := folder.Read("none", 100); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file that is not there: %v", err)
		}
	}
	if text, err := files.Read(filepath.Join(dir, "relative"), 100); err != nil || string(text) != "secret" {
		t.Errorf("a link that the user named: %q, %v", text, err)
	}
	gone := filepath.Join(dir, "gone", "x")
	if _, err := files.ReadIn(gone, 100); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), gone) {
		t.Errorf("ReadIn of a folder that is not there: %v", err)
	}
	if _, err := files.ReadIn(filepath.Join(dir, "relative"), 100); err == nil || !strings.Contains(err.Error(), "leads out") {
		t.Errorf("ReadIn of a link that leads out: %v", err)
	}
}

// TestCacheLinks reads files as Hugging Face's cache stores them.
func TestCacheLinks(t *testing.T) {
	top := t.TempDir()
	write(t, filepath.Join(top, "private"), "private")
	repository := filepath.Join(top, "models--a--b")
	write(t, filepath.Join(repository, "blobs", "abc"), "config")
	snapshot := filepath.Join(repository, "snapshots", "rev")
	link(t, filepath.Join("..", "..", "blobs", "abc"), filepath.Join(snapshot, "config.json"))
	link(t, filepath.Join("..", "..", "..", "blobs", "abc"), filepath.Join(snapshot, "data", "x.jsonl"))
	link(t, filepath.Join("..", "..", "..", "private"), filepath.Join(snapshot, "leak"))
	write(t, filepath.Join(repository, "refs", "main"), "rev")
	link(t, filepath.Join("..", "..", "refs", "main"), filepath.Join(snapshot, "beside"))
	for _, at := range []struct{ dir, name, want string }{
		{snapshot, "config.json", "config"},
		{snapshot, filepath.Join("data", "x.jsonl"), "config"},
		{filepath.Join(snapshot, "data"), "x.jsonl", "config"},
		{snapshot, "leak", "leads out of the folder"},
		{snapshot, "beside", "leads out of the folder"},
	} {
		folder, err := files.OpenFolder(at.dir)
		if err != nil {
			t.Fatal(err)
		}
		text, err := folder.Read(at.name, 100)
		if err != nil {
			text = []byte(err.Error())
		}
		if !strings.Contains(string(text), at.want) {
			t.Errorf("%s in %s: %q, want %q", at.name, at.dir, text, at.want)
		}
		folder.Close()
	}
	// A folder that only has the name snapshots has no blobs beside it.
	other := filepath.Join(top, "x", "snapshots", "rev")
	link(t, filepath.Join("..", "..", "..", "private"), filepath.Join(other, "config.json"))
	if _, err := files.ReadIn(filepath.Join(other, "config.json"), 100); err == nil || !strings.Contains(err.Error(), "leads out") {
		t.Errorf("a link out of a folder in snapshots: %v", err)
	}
}

// TestLimit refuses files by their stated size, before they are read.
func TestLimit(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "exact"), "12345")
	write(t, filepath.Join(dir, "more"), "123456")
	sparse(t, filepath.Join(dir, "huge"), 1<<40)
	for _, read := range []func(name string) ([]byte, error){
		func(name string) ([]byte, error) { return files.Read(filepath.Join(dir, name), 5) },
		func(name string) ([]byte, error) { return files.ReadIn(filepath.Join(dir, name), 5) },
		func(name string) ([]byte, error) { return files.ReadFS(os.DirFS(dir), name, 5) },
		func(name string) ([]byte, error) {
			folder, err := files.OpenFolder(dir)
			if err != nil {
				return nil, err
			}
			defer folder.Close()
			return files.ReadFS(folder.FS(), name, 5)
		},
	} {
		if text, err := read("exact"); err != nil || string(text) != "12345" {
			t.Errorf("a file as large as the limit: %q, %v", text, err)
		}
		for name, size := range map[string]string{"more": "6 bytes", "huge": "1099511627776 bytes"} {
			if _, err := read(name); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), size) {
				t.Errorf("%s: %v, want %s", name, err, size)
			}
		}
	}
}

// TestGlob: a pattern's letters in the folder's own name have no meaning.
func TestGlob(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a[1]", "a1", "a*", `a\`, "a?", "["} {
		write(t, filepath.Join(dir, name, "x-1"), name)
		write(t, filepath.Join(dir, name, "x-2"), name)
		write(t, filepath.Join(dir, name, "y"), name)
		at := func(file string) string { return filepath.Join(dir, name, file) }
		if got := files.Glob(filepath.Join(dir, name), "x-*"); !slices.Equal(got, []string{at("x-1"), at("x-2")}) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := files.Glob(filepath.Join(dir, "none"), "x"); got != nil {
		t.Errorf("%q", got)
	}
}
