//go:build unix

package files

import (
	"os"
	"path/filepath"
	"testing"
)

// TestUnder: no path leads out of a folder, by dots or by links, those in the folder included.
func TestUnder(t *testing.T) {
	top := t.TempDir()
	root, outside := filepath.Join(top, "root"), filepath.Join(top, "root2")
	for _, dir := range []string{"root/a/b", "root/c", "root/blobs", "root/bad", "root2/x"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"root/out": outside, "root/in": "a/b", "root/a/out.bin": "../../root2/x", "root/c/w.bin": "../blobs", "root/bad/gone": "nothing", "link": root} {
		if err := os.Symlink(target, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"a/b": "a/b", "in": "a/b", "c": "c", "a/../c": "c", root + "/c": "c", top + "/link/c": "c",
		"a": "", "bad": "", "out": "", "out/x": "", "..": "", "../root2": "", "a/../../root2/x": "", outside: "", "/": "", "file": "", "none": "", root + "/../root2/x": "",
	} {
		for _, from := range []string{root, filepath.Join(top, "link")} {
			if from == root && path == top+"/link/c" {
				continue
			}
			got, err := Under(from, path)
			if want != "" && got != filepath.Join(real, want) || (err == nil) != (want != "") {
				t.Errorf("%s under %s is %q, %v, want %q", path, from, got, err, want)
			}
		}
	}
}
