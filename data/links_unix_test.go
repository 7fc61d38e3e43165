//go:build unix

package data

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestLinksStayInside reads folders whose files are links, pipes or huge.
func TestLinksStayInside(t *testing.T) {
	const row = `{"problem": "1+1", "answer": "2"}` + "\n"
	const leads, pipe = "leads out of the folder", "not a regular file"
	for _, tt := range []struct {
		name  string
		files map[string]string // the file's text, or "-> TARGET", "fifo", "huge"
		path  string
		want  string // part of the error; "" if the file is read
	}{
		{"a link inside", map[string]string{"d/real": row, "d/x.jsonl": "-> real"}, "d", ""},
		{"a link outside", map[string]string{"secret": row, "d/x.jsonl": "-> ../secret"}, "d", leads},
		{"the same, named", map[string]string{"secret": row, "d/x.jsonl": "-> ../secret"}, "d/x.jsonl", ""},
		{"a pattern", map[string]string{"secret": row, "d/x.jsonl": "-> ../secret"}, "d/*.jsonl", leads},
		{"a pattern of folders", map[string]string{"d/secret": row, "d/e/x.jsonl": "-> ../secret"}, "d/*/x.jsonl", ""},
		{"a linked folder data", map[string]string{"secret/x.jsonl": row, "d/data": "-> ../secret"}, "d", leads},
		{"a pipe behind a link", map[string]string{"d/y": "fifo", "d/x.jsonl": "-> y"}, "d", pipe},
		{"a snapshot", map[string]string{"r/blobs/0": row, "r/snapshots/1/x.jsonl": "-> ../../blobs/0"}, "r/snapshots/1", ""},
		{"a folder of a snapshot", map[string]string{"r/blobs/0": row, "r/snapshots/1/data/x.jsonl": "-> ../../../blobs/0"}, "r/snapshots/1/data", ""},
		{"a shard outside", map[string]string{"secret": row, "d/x.arrow": "-> ../secret", "d/state.json": `{"_data_files":[{"filename":"x.arrow"}]}`}, "d", leads},
		{"a linked state", map[string]string{"secret": `{}`, "d/state.json": "-> ../secret", "d/x.jsonl": row}, "d", leads},
		{"a pipe for a state", map[string]string{"d/state.json": "fifo", "d/x.jsonl": row}, "d", pipe},
		{"a huge state", map[string]string{"d/state.json": "huge", "d/x.jsonl": row}, "d", "1099511627776 bytes"},
		{"a pipe for a dict", map[string]string{"d/dataset_dict.json": "fifo", "d/x.jsonl": row}, "d", pipe},
		{"a linked dict", map[string]string{"secret": `{"splits":["a"]}`, "d/dataset_dict.json": "-> ../secret"}, "d", leads},
		{"a linked split", map[string]string{"secret/x.jsonl": row, "d/dataset_dict.json": `{"splits":["train"]}`, "d/train": "-> ../secret"}, "d", leads},
		{"a split above", map[string]string{"secret/x.jsonl": row, "d/dataset_dict.json": `{"splits":["../secret"]}`}, "d", "not the name of a folder"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range tt.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
					t.Fatal(err)
				}
				err := os.WriteFile(path, []byte(text), 0o666)
				if target, link := strings.CutPrefix(text, "-> "); link {
					os.Remove(path)
					err = os.Symlink(target, path)
				} else if text == "fifo" {
					os.Remove(path)
					err = syscall.Mkfifo(path, 0o600)
				} else if text == "huge" {
					err = os.Truncate(path, 1<<40)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			problems, _, err := Load(filepath.Join(root, tt.path), Options{})
			if tt.want == "" && (err != nil || len(problems) != 1) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%d problems, error %v; want %q", len(problems), err, tt.want)
			}
		})
	}
}
