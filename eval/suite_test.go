package eval

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLocate(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"suites/math500.jsonl", "suites/aime/data-00000-of-00001.arrow", "suites/own.parquet", "a=b.jsonl", "held.out.json", "amc"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ spec, dir, name, path, err string }{
		{"math500", "suites", "math500", "suites/math500.jsonl", ""},
		{"aime24", "suites", "aime24", "suites/aime", ""},
		{"own", "suites", "own", "suites/own.parquet", ""},
		{"minerva", "suites", "", "", `suite "minerva" is not in suites: looked for minerva with .jsonl`},
		{"minerva", "", "", "", "where is minerva? Name its file (minerva=PATH)"},
		{"minerva=x/y.jsonl", "", "minerva", "x/y.jsonl", ""},
		{"minerva=", "", "", "", "names no file"},
		{"suites/math500.jsonl", "", "math500", "suites/math500.jsonl", ""},
		{"suites/math500.jsonl", "suites", "math500", "suites/math500.jsonl", ""},
		{"held.out.json", "", "held.out", "held.out.json", ""},
		{"held.out.json", "suites", "held.out", "held.out.json", ""},
		{"a=b.jsonl", "", "a=b", "a=b.jsonl", ""}, // a file may be called so
		{"amc", "", "amc", "amc", ""},
		{"own.parquet", "suites", "own", "suites/own.parquet", ""},
		{"held.out.json", ".", "held.out", "held.out.json", ""},
		{"nowhere.jsonl", "", "nowhere", "nowhere.jsonl", ""}, // whoever opens it says so
	} {
		name, path, err := Locate(tt.spec, tt.dir)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("Locate(%q, %q): %v, want %q", tt.spec, tt.dir, err, tt.err)
			}
			continue
		}
		if name != tt.name || path != filepath.FromSlash(tt.path) || err != nil {
			t.Errorf("Locate(%q, %q) = %q, %q, %v, want %q, %q", tt.spec, tt.dir, name, path, err, tt.name, tt.path)
		}
	}
}

func TestIncomplete(t *testing.T) {
	for _, tt := range []struct {
		name     string
		problems int
		warn     bool
	}{{"aime24", 30, false}, {"amc", 83, false}, {"math500", 500, false}, {"minerva", 272, false}, {"olympiadbench", 675, false}, {"math500", 250, true}, {"own", 7, false}} {
		if warning, ok := Incomplete(tt.name, tt.problems); ok != tt.warn || ok != strings.Contains(warning, tt.name) {
			t.Errorf("%s of %d: %q", tt.name, tt.problems, warning)
		}
	}
}
