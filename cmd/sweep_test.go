package cmd

import (
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"onering/runtime/train"
)

// TestPaperRuns loads every file in runs/paper: run files as such, sweeps with
// the configuration of each run.
func TestPaperRuns(t *testing.T) {
	files, err := filepath.Glob("../runs/paper/*.toml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	for _, path := range files {
		if match, _ := filepath.Match("sweep-*", filepath.Base(path)); !match {
			l, err := fileLayer(path, nil)
			if err != nil {
				t.Error(err)
				continue
			}
			r, err := resolve(l)
			if err == nil {
				err = r.validate()
			}
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			continue
		}
		p, err := readSweep(path)
		if err != nil {
			t.Error(err)
			continue
		}
		runs, err := p.resolve(new(cobra.Command), "out", nil, 1)
		if err != nil {
			t.Error(err)
		}
		seen := map[string]string{}
		for _, r := range runs {
			if other, ok := seen[r.dir]; ok {
				t.Errorf("%s: %s and %s have the same folder", path, r.variant, other)
			}
			seen[r.dir] = r.variant
		}
	}
}

func TestSlug(t *testing.T) {
	for name, want := range map[string]string{
		"PMPO": "pmpo", "Dr. GRPO": "dr.-grpo", "p_negative = 0": "p_negative=0", "clip / no clip": "clip-no-clip", "../x": "x",
	} {
		if got := slug(name); got != want {
			t.Errorf("slug(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestDifference sees through pointers and names the key.
func TestDifference(t *testing.T) {
	load := func(text string) train.Config {
		t.Helper()
		l, err := parseFile("x.toml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r, err := resolve(l)
		if err != nil {
			t.Fatal(err)
		}
		return r.Config
	}
	a := load("[objective]\nname = \"pmpo\"\np_negative = 0.5\n[runtime]\nthreads = 1\n")
	b := load("[objective]\nname = \"pmpo\"\np_negative = 0.5\n[output]\ndir = \"b\"\n")
	if got := difference(a, b); got != "" {
		t.Errorf("the same configuration: %q", got)
	}
	c := load("[objective]\nname = \"pmpo\"\np_negative = 0.25\n")
	if got, want := difference(a, c), "objective.p_negative is 0.5 there and 0.25 here"; got != want {
		t.Errorf("difference %q, want %q", got, want)
	}
	if got := difference(a, load("[objective]\nname = \"grpo\"\n")); got == "" {
		t.Error("another objective is no difference")
	}
}
