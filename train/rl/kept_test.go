//go:build !windows

package rl_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/runtime/runtimetest"
	"onering/train/rl"
	"onering/train/rundir"
)

// TestKeptRun: with rollout.logp = "kept" the log-probs of rollout and training are as near to
// each other as over the whole vocabulary, also where the learner computes the old ones and with
// an adapter; each token of a line has the ids that were kept, among them its own; and the run
// does not warn that it trains another policy than the one that samples.
func TestKeptRun(t *testing.T) {
	env := runtimetest.Test(t)
	for name, change := range map[string]func(*rl.Config){
		"rollout": func(*rl.Config) {},
		"rescore": func(c *rl.Config) { c.Rollout.OldLogProb = "rescore" },
		"adapter": func(c *rl.Config) { c.LoRA.On, c.Train.BatchSize = true, 16 },
		"full":    func(c *rl.Config) { c.Rollout.LogProb = "full" },
	} {
		c := chaosConfig("kept", filepath.Join(t.TempDir(), name))
		change(&c)
		full := name == "full"
		if c.LoRA.On {
			wellTogether(t, env, 2, false, func(int) rl.Config { return c })
		} else if log, err := continueRun(env, c, false); err != nil {
			t.Fatalf("%s: %v", name, err)
		} else if strings.Contains(log, "cause=filter") != full {
			t.Errorf("%s: the log says %s", name, log)
		}
		text, err := os.ReadFile(filepath.Join(c.Output.Dir, "metrics.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var record struct {
				Gap float64 `json:"logp_gap_max"`
			}
			if err := json.Unmarshal([]byte(line), &record); err != nil || record.Gap > 1e-4 {
				t.Errorf("%s: the gap is %v: %v", name, record.Gap, err)
			}
		}
		filtered := 0
		for _, x := range rolloutLines(t, c.Output.Dir) {
			if full {
				if x.Kept != nil {
					t.Fatalf("a run over the whole vocabulary keeps %v", x.Kept)
				}
				continue
			}
			if len(x.Kept) != len(x.IDs) {
				t.Fatalf("%s: %d sets for %d tokens", name, len(x.Kept), len(x.IDs))
			}
			for i, set := range x.Kept {
				if len(set) > 6 || !slices.Contains(set, x.IDs[i]) || len(set) == 1 && x.LogP[i] != 0 {
					t.Errorf("%s: token %d with log-prob %v was drawn from %v", name, x.IDs[i], x.LogP[i], set)
				}
				if len(set) > 1 {
					filtered++
				}
			}
		}
		if !full && filtered == 0 {
			t.Errorf("%s: no token had a choice", name)
		}
	}
}

// rolloutLines reads the lines of all rounds.
func rolloutLines(t *testing.T, dir string) (lines []rundir.RolloutLine) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "rollouts", "*"))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var x rundir.RolloutLine
			if err := json.Unmarshal([]byte(line), &x); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, x)
		}
	}
	return lines
}
