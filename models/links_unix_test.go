//go:build unix

package models_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"onering/internal/files"
	"onering/models"
)

// TestModelFolderFiles puts links, pipes and huge files in the place of the files
// of a model folder.
func TestModelFolderFiles(t *testing.T) {
	read := map[string]func(dir string) error{
		"config.json":                  func(dir string) error { _, err := models.ReadConfig(dir); return err },
		"generation_config.json":       func(dir string) error { _, err := models.ReadConfig(dir); return err },
		"model.safetensors":            func(dir string) error { _, err := models.OpenFolder(dir); return err },
		"model.safetensors.index.json": func(dir string) error { _, err := models.OpenFolder(dir); return err },
		"adamw.safetensors": func(dir string) error {
			_, err := models.OpenSafetensors(filepath.Join(dir, "adamw.safetensors"))
			return err
		},
		"tokenizer.json": func(dir string) error {
			return models.CopyTokenizer((&files.Draft{Dir: dir + "-copy"}).WriteFile, dir)
		},
	}
	for name, read := range read {
		for _, tt := range []struct {
			kind, want string
			make       func(path string) error
		}{
			{"link out", "leads out of the folder", func(path string) error {
				if err := os.WriteFile(filepath.Join(path, "..", "..", "secret"), []byte("{}"), 0o666); err != nil {
					return err
				}
				return os.Symlink("../secret", path)
			}},
			{"pipe", "not a regular file", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
			{"huge file", "", func(path string) error {
				if err := os.WriteFile(path, nil, 0o666); err != nil {
					return err
				}
				return os.Truncate(path, 1<<40)
			}},
		} {
			if name == "tokenizer.json" && tt.kind == "huge file" {
				continue // it is copied, not held
			}
			dir := filepath.Join(t.TempDir(), "m")
			if err := os.Mkdir(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			if name == "generation_config.json" {
				if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if err := tt.make(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			if err := read(dir); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("a %s for %s: error %v, want %q", tt.kind, name, err, tt.want)
			}
		}
	}
}
