//go:build !windows

package rl_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/runtime/runtimetest"
	"onering/train"
	"onering/train/rl"
	"onering/train/rundir"
)

// A run whose figure is beyond its bound ends there with an evaluation and a checkpoint, names the
// best one, and has nothing to do when it is resumed. One that is resumed before ends at the
// same place.
func TestStopWhen(t *testing.T) {
	env := runtimetest.Test(t)
	stops := func(c *rl.Config) {
		c.Train.Rounds, c.Train.SaveEvery, c.Train.KeepLast = 6, 1, 1
		c.Train.Stopping = train.Stopping{StopWhen: "entropy >= 0", StopAfter: 3}
	}
	dir, names := start(t, env, "ema", stops)
	text, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if n := strings.Count(string(text), `{"kind":"round"`); err != nil || n != 3 {
		t.Fatalf("%d rounds, want 3; %v", n, err)
	}
	if last := text[strings.LastIndex(strings.TrimSpace(string(text)), "\n")+1:]; !strings.Contains(string(last), `"kind":"eval"`) {
		t.Errorf("the last record is %s, want an evaluation", last)
	}
	best := rundir.Best(dir)
	if best == "" || len(names) > 2 || len(names) == 0 {
		t.Errorf("best %q of the checkpoints %v", best, names)
	}
	want := contents(t, dir)
	c := chaosConfig("ema", dir)
	stops(&c)
	if _, err := continueRun(env, c, true); err != nil {
		t.Fatal(err)
	}
	same(t, "resumed after its end", contents(t, dir), want)
}
