package cmd

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/objectives"
	"onering/policy"
	"onering/runtime"
	"onering/train/rl"
)

var updateCards = flag.Bool("update-cards", false, "write the table of run files in docs/devices.md anew")

// TestTableRuns plans every run file for a GPU, as train --dry-run does, from the
// config.json of a model of its shape. Each trains as long as the paper's lineage, fits one
// of the cards at least, leaves what depends on the card open, and stands in the table of
// docs/devices.md with what it comes to; those of the paper's tables stand on the page about the
// paper, too.
func TestTableRuns(t *testing.T) {
	page, err := os.ReadFile("../docs/lab/paper.md")
	if err != nil {
		t.Fatal(err)
	}
	shapes := map[string]models.Model{}
	for shape, folder := range map[string]string{"1.5b": "qwen2.5-1.5b", "7b": "qwen2.5-7b", "qwen3-4b": "qwen3-4b", "qwen3-8b": "qwen3-8b"} {
		if shapes[shape], err = policy.ReadModel("../bench/" + folder); err != nil {
			t.Fatal(err)
		}
	}
	known := map[string][]rl.Plan{} // sorted by the settings that decide about cards
	rows := map[string][]string{}   // files by their figures
	count := 0
	for _, pattern := range []string{"../runs/*.toml", "../runs/paper/tables/*.toml"} {
		for _, path := range must1(filepath.Glob(pattern))(t) {
			r, err := resolve(must1(readRunFile(path, nil))(t))
			if err == nil && r.Runtime.Device != "cuda" {
				continue
			}
			if err == nil {
				err = r.validate()
			}
			name := strings.TrimSuffix(filepath.Base(path), ".toml")
			shape := ""
			for each := range shapes {
				if strings.Contains(name, each) {
					shape = each
				}
			}
			if err == nil && r.Config.Train.Rounds != 500 {
				err = fmt.Errorf("it trains %d rounds, the lineage 500", r.Config.Train.Rounds)
			}
			for _, key := range rl.SizeKeys {
				if err == nil && !r.isUnset(key) {
					err = fmt.Errorf("it states %s, which the card should decide", key)
				}
			}
			c := r.Config
			key := fmt.Sprint(shape, c.Rollout, c.Train, c.Eval.MaxNewTokens, c.Distributed, objectives.NeedsOf(c.Objective.Settings).Apart, objectives.NeedsOf(c.Objective.Settings).Reference)
			if known[key] == nil && err == nil {
				known[key], err = c.Choose(shapes[shape], rl.Split{}, r.isUnset, true)
			}
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			plans := slices.DeleteFunc(slices.Clone(known[key]), func(p rl.Plan) bool { return p.Here })
			if !slices.ContainsFunc(plans, func(p rl.Plan) bool { return p.Fits }) {
				t.Errorf("%s fits none of the cards: %v", path, plans)
			}
			row := shape
			for _, p := range plans {
				cell := "no"
				if p.Fits {
					cell = fmt.Sprintf("%.0f GB, %d slots, %.0f GB kept; %.0f s", float64(p.Peak)/1e9, p.Slots, float64(p.StashBytes)/1e9, p.Seconds)
				}
				if p.Fits && p.Offload != runtime.OffloadNone {
					cell += fmt.Sprintf("; %.0f GB of the host", float64(p.Host)/1e9)
				}
				row += " | " + cell
			}
			rows[row] = append(rows[row], "`"+name+"`")
			if strings.Contains(path, "tables") && !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/lab/paper.md does not name `%s`", name)
			}
			count++
		}
	}
	if count < 75 {
		t.Errorf("found %d run files for a GPU", count)
	}
	checkCardTable(t, rows)
}

// checkCardTable compares the table of docs/devices.md. The largest group of a model's files is
// named as its others.
func checkCardTable(t *testing.T, rows map[string][]string) {
	table := "\n| model | 1 x 80 GB | 1 x 141 GB | 8 x 80 GB | run files |\n|---|---|---|---|---|\n"
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		files := strings.Join(rows[row], ", ")
		if n := len(rows[row]); n > 12 {
			files = fmt.Sprintf("the other %d", n)
		}
		table += "| " + row + " | " + files + " |\n"
	}
	const file, begin, end = "../docs/devices.md", "<!-- cards -->", "<!-- end -->"
	text := string(must1(os.ReadFile(file))(t))
	before, rest, _ := strings.Cut(text, begin)
	_, after, found := strings.Cut(rest, end)
	want := before + begin + table + end + after
	switch {
	case !found:
		t.Errorf("%s has no %s", file, begin)
	case *updateCards:
		if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	case text != want:
		t.Errorf("%s has another table of run files: go test ./cmd -run TestTableRuns -update-cards makes it anew\n%s", file, table)
	}
}

func must1[T any](x T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

// TestKeptSizes: if a run on a GPU is resumed with a run file that leaves sizes open, the
// folder's sizes count, unless the run file or a flag sets them.
func TestKeptSizes(t *testing.T) {
	dir := t.TempDir()
	was := rl.Default()
	was.Runtime.Device, was.Rollout.Slots, was.Train.MicroTokens, was.Optimizer.Offload, was.Train.Rounds = "cuda", 96, 2048, runtime.OffloadAll, 3
	was.Model.DType = "bfloat16"
	text := must1(encodeConfig(&was))(t)
	text = bytes.Replace(text, []byte(`stash = "auto"`), []byte(`stash = "layers"`), 1) // of an earlier version
	file := filepath.Join(t.TempDir(), "again.toml")
	for path, text := range map[string]string{filepath.Join(dir, "run.toml"): string(text), file: "[train]\nmicro_tokens = 1024\n"} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for device, want := range map[string]string{"cuda": "64 1024 auto all", "cpu": "64 1024 auto none"} {
		for _, out := range []string{dir, t.TempDir()} { // the second folder has no run
			s := newSettings(withTrainDefaults)
			s.allEffective = true
			s.runFile, s.sets = file, []string{"rollout.slots=64", "runtime.device=" + device}
			r, err := s.resolveRun(newTrain(), out, true)
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprint(r.Rollout.Slots, r.Train.MicroTokens, " ", r.Train.Stash, " ", r.Optimizer.Offload)
			if out != dir {
				want = "64 1024 auto none"
			}
			if got != want || r.Train.Rounds == 3 {
				t.Errorf("%s: %s with %d rounds, want %s", device, got, r.Train.Rounds, want)
			}
		}
	}
}
