package cmd

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"onering/report/sweep"
)

// TestSweepRuns loads every file in runs/paper and runs/bench: run files as such,
// sweeps with the configuration of each run.
func TestSweepRuns(t *testing.T) {
	var files []string
	for _, folder := range []string{"paper", "bench"} {
		some, err := filepath.Glob("../runs/" + folder + "/*.toml")
		if err != nil || len(some) < 3 {
			t.Fatalf("found %d files in runs/%s: %v", len(some), folder, err)
		}
		files = append(files, some...)
	}
	for _, path := range files {
		if kind, _, _ := strings.Cut(filepath.Base(path), "-"); kind != "sweep" && kind != "tune" {
			if _, err := loaded(path); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			continue
		}
		p, err := sweep.ReadPlan(path)
		if err != nil {
			t.Error(err)
			continue
		}
		runs := p.Runs("out")
		var first []*sweep.Run // one run of each variant: the seed changes nothing
		for i, r := range runs {
			if i == 0 || r.Variant != runs[i-1].Variant {
				first = append(first, r)
			}
		}
		if _, err := resolveRuns(new(cobra.Command), p, first, nil, 1); err != nil {
			t.Error(err)
		}
		seen := map[string]string{}
		for _, r := range runs {
			if other, ok := seen[r.Dir]; ok {
				t.Errorf("%s: %s and %s have the same folder", path, r.Variant, other)
			}
			seen[r.Dir] = r.Variant
		}
	}
}

// loaded reads and checks a run file.
func loaded(path string) (*resolved, error) {
	l, err := readRunFile(path, nil)
	if err != nil {
		return nil, err
	}
	r, err := resolve(l)
	if err != nil {
		return nil, err
	}
	return r, r.validate()
}

// TestSweepLacksModel: if one of several sweeps lacks its model, no run begins, and the
// error is one line that says how to make the model. The plan is still printed.
func TestSweepLacksModel(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"base.toml": "[model]\npath = \"made/by/hand\"\n[data]\ntrain = \"builtin:arithmetic\"\n",
		"a.toml":    "[sweep]\nseeds = [1]\n[[variant]]\nname = \"a\"\nobjective = { name = \"grpo\" }\n",
		"b.toml":    "[sweep]\nbase = \"base.toml\"\nseeds = [1, 2]\n[[variant]]\nname = \"b\"\n[[variant]]\nname = \"c\"\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"a.toml", "b.toml"}, {"b.toml"}} {
		var out, stderr bytes.Buffer
		if code := run(append([]string{"sweep", "-q"}, args...), strings.NewReader(""), &out, &stderr); code == 0 || out.Len() > 0 {
			t.Errorf("%q: exit status %d, %s", args, code, &out)
		}
		if text := stderr.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `b.toml: variant "b"`) || !strings.Contains(text, `no folder "made/by/hand"`) || !strings.Contains(text, "the head of base.toml says what") {
			t.Errorf("%q: %s", args, text)
		}
		if code := run(append([]string{"sweep", "--plan"}, args...), strings.NewReader(""), &out, &stderr); code != 0 || !strings.Contains(out.String(), "seed 2") {
			t.Errorf("the plan of %q: exit status %d, %s", args, code, &out)
		}
	}
	if _, err := os.Stat("runs"); err == nil {
		t.Error("a run has begun")
	}
}

// TestSweepExamples reads the files that the documentation and the help show.
func TestSweepExamples(t *testing.T) {
	text, err := os.ReadFile("../docs/reports.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(text), "\n## Sweeps\n")
	page, _, _ = strings.Cut(page, "\n## ")
	var examples []string
	for _, m := range regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(page, -1) {
		examples = append(examples, m[1])
	}
	long, err := helps.ReadFile("help/sweep.txt")
	if err != nil {
		t.Fatal(err)
	}
	long, _, _ = bytes.Cut(long, []byte("\n\nExamples:\n"))
	indented := regexp.MustCompile(`(?m)^  (.*)$|^$`)
	var help strings.Builder
	for _, m := range indented.FindAllStringSubmatch(string(long), -1) {
		help.WriteString(m[1] + "\n")
	}
	variants, grid, found := strings.Cut(help.String(), "[grid]")
	if !found || len(examples) < 2 {
		t.Fatalf("%d examples in the page, a grid in the help: %v", len(examples), found)
	}
	examples = append(examples, variants, "[sweep]\nseeds = [1]\n[grid]"+grid)
	for _, text := range examples {
		path := filepath.Join(t.TempDir(), "sweep.toml")
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, `"hard.toml"`, `""`)), 0o666); err != nil {
			t.Fatal(err)
		}
		p, err := sweep.ReadPlan(path)
		if err == nil {
			_, err = resolveRuns(new(cobra.Command), p, p.Runs("out"), nil, 1)
		}
		if err != nil {
			t.Errorf("%v\nin\n%s", err, text)
		}
	}
}

// TestBoxRuns loads every file in runs/box. The names of the table that a bench compares have
// a file each.
func TestBoxRuns(t *testing.T) {
	files, err := filepath.Glob("../runs/box/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, path := range files {
		r, err := loaded(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if name := strings.TrimSuffix(filepath.Base(path), ".toml"); name == r.Config.Objective.Name {
			has[name] = true
		}
	}
	for _, name := range strings.Fields("cispo dispo dppo gdpo holder luspo m2po maxrl opd opo p3o reinforcepp remax rloo sapo vespo") {
		if !has[name] {
			t.Errorf("there is no runs/box/%s.toml", name)
		}
	}
}
