package main

import (
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
)

// TestPaperRuns loads every file in runs/paper: run files as such, sweeps with
// the configuration of each run.
func TestPaperRuns(t *testing.T) {
	files, err := filepath.Glob("../../runs/paper/*.toml")
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
