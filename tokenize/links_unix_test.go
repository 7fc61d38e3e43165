//go:build unix

package tokenize

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestLoadFolderFiles puts links, pipes and huge files in the place of each file
// that Load reads.
func TestLoadFolderFiles(t *testing.T) {
	model := edited(t, func(map[string]any) {})
	complete := map[string]string{
		"tokenizer.json": model, "tokenizer_config.json": "{}", "special_tokens_map.json": "{}", "chat_template.jinja": "x",
	}
	slow := map[string]string{"vocab.json": `{"a": 0}`, "merges.txt": "", "added_tokens.json": "{}"}
	for name := range complete {
		testIrregular(t, complete, name)
	}
	for name := range slow {
		testIrregular(t, slow, name)
	}
}

// testIrregular loads a folder in which the file called name is something else, such as a
// pipe.
func testIrregular(t *testing.T, folder map[string]string, name string) {
	for _, tt := range []struct {
		kind, want string
		make       func(path string) error
	}{
		{"link out", "leads out of the folder", func(path string) error {
			if err := os.WriteFile(filepath.Join(path, "..", "..", "secret"), []byte(folder[name]), 0o666); err != nil {
				return err
			}
			return os.Symlink("../secret", path)
		}},
		{"link inside", "", func(path string) error {
			if err := os.WriteFile(path+".real", []byte(folder[name]), 0o666); err != nil {
				return err
			}
			return os.Symlink(name+".real", path)
		}},
		{"pipe", "not a regular file", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
		{"huge file", "1099511627776 bytes", func(path string) error {
			if err := os.WriteFile(path, nil, 0o666); err != nil {
				return err
			}
			return os.Truncate(path, 1<<40)
		}},
	} {
		dir := filepath.Join(t.TempDir(), "m")
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for n, text := range folder {
			var err error
			if n == name {
				err = tt.make(filepath.Join(dir, n))
			} else {
				err = os.WriteFile(filepath.Join(dir, n), []byte(text), 0o666)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := Load(dir)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), name)) {
			t.Errorf("a %s for %s: error %v, want %q", tt.kind, name, err, tt.want)
		}
	}
}
