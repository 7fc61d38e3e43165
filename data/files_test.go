package data

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestPatternFolder: an existing folder is found even if its name has letters of
// patterns.
func TestPatternFolder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"run[1]", "run1", "a*b", "axb"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil {
			t.Skip(err) // a system whose file names allow fewer letters
		}
		if err := os.WriteFile(filepath.Join(dir, name, "x.jsonl"), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, want := range map[string][]string{
		"run[1]/*.jsonl": {"run[1]"}, "run[12]/*.jsonl": {"run1"}, "a*b/x.*": {"a*b"}, "a?b/*.jsonl": {"a*b", "axb"},
	} {
		found, err := findFiles(filepath.Join(dir, pattern), "")
		var got []string
		for _, f := range found {
			got = append(got, filepath.Base(filepath.Dir(f.path)))
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q, %v, want %q", pattern, got, err, want)
		}
	}
}
