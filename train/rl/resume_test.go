//go:build !windows

package rl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"onering/data"
	"onering/models"
	"onering/policy"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/train/rl"
	"onering/train/rundir"
)

// start makes a finished run and returns its folder and checkpoints.
func start(t *testing.T, env *runtime.Env, kind string, change func(*rl.Config)) (dir string, checkpoints []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	c := chaosConfig(kind, dir)
	if change != nil {
		change(&c)
	}
	if _, err := continueRun(env, c, false); err != nil {
		t.Fatal(err)
	}
	return dir, list(t, dir)
}

// list names the checkpoints of a run.
func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// continueRun trains and returns the log.
func continueRun(env *runtime.Env, c rl.Config, resume bool) (string, error) {
	var log bytes.Buffer
	policy, err := policy.Open(env, policy.Options{Path: c.Model.Path, DType: c.Model.DType})
	if err != nil {
		return "", err
	}
	defer policy.Close()
	trainer, err := rl.New(context.Background(), c, env, policy, slog.New(slog.NewTextHandler(&log, nil)), &quiet{})
	if err != nil {
		return "", err
	}
	defer trainer.Close()
	_, err = trainer.Run(context.Background(), resume)
	return log.String(), err
}

// every asks for a checkpoint each round and step.
func every(c *rl.Config) { c.Train.SaveEvery, c.Train.SaveSteps, c.Train.KeepLast = 1, 1, 0 }

// A model in 16 bits has checkpoints in 16 bits, for other programs, and the exact
// weights beside them, to resume from.
func TestHalfCheckpoint(t *testing.T) {
	for _, dtype := range []string{"float32", "bfloat16"} {
		t.Run("computing in "+dtype, func(t *testing.T) { resumeHalf(t, dtype) })
	}
}

func resumeHalf(t *testing.T, dtype string) {
	env := runtimetest.Test(t)
	embedded, err := policy.Open(env, policy.Options{Path: data.Arithmetic, DType: "float32"})
	if err != nil {
		t.Fatal(err)
	}
	defer embedded.Close()
	model := filepath.Join(t.TempDir(), "model")
	if err := embedded.Model.Save(model, embedded.Weights, models.SaveOptions{DType: models.BF16, Tokenizer: embedded.Dir}); err != nil {
		t.Fatal(err)
	}
	change := func(c *rl.Config) {
		every(c)
		c.Model.Path, c.Model.DType = model, dtype
	}
	dir, names := start(t, env, "reference", change)
	want := contents(t, dir)
	newest := filepath.Join(dir, "checkpoints", names[len(names)-1])
	rounded, err := policy.Open(env, policy.Options{Path: newest, DType: "float32"})
	if err != nil {
		t.Fatal(err)
	}
	defer rounded.Close()
	was := slices.Clone(rounded.Weights.Data)
	if err := rundir.LoadWeights(newest, rounded.Ring.Trained()); err != nil {
		t.Fatal(err)
	}
	different := 0
	for i, x := range rounded.Weights.Data {
		if models.BF16ToFloat32(models.Float32ToBF16(x)) != was[i] {
			t.Fatalf("weight %d: %v, exactly %v", i, was[i], x)
		}
		if x != was[i] {
			different++
		}
	}
	if rounded.Model.DType != models.BF16 || different == 0 {
		t.Errorf("the folder is of %v, %d of its weights are not exact", rounded.Model.DType, different)
	}
	for _, name := range names[len(names)/2:] {
		if err := os.RemoveAll(filepath.Join(dir, "checkpoints", name)); err != nil {
			t.Fatal(err)
		}
	}
	c := chaosConfig("reference", dir)
	change(&c)
	if _, err := continueRun(env, c, true); err != nil {
		t.Fatal(err)
	}
	same(t, "resumed", contents(t, dir), want)
}

// A damaged newest checkpoint is named and refused. The run resumes from the previous one
// and ends with the same bytes.
func TestDamagedCheckpoint(t *testing.T) {
	env := runtimetest.Test(t)
	dir, names := start(t, env, "reference", every)
	want := contents(t, dir)
	newest := filepath.Join(dir, "checkpoints", names[len(names)-1])
	flip := func(name string) func() error {
		return func() error {
			path := filepath.Join(newest, name)
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text[len(text)/2] ^= 1
			return os.WriteFile(path, text, 0o644)
		}
	}
	for what, damage := range map[string]func() error{
		"model.safetensors is damaged or was edited":               flip("model.safetensors"),
		"state/exp_avg.safetensors is damaged or was edited":       flip("state/exp_avg.safetensors"),
		"state/state.json is damaged or was edited":                flip("state/state.json"),
		"config.json is missing":                                   func() error { return os.Remove(filepath.Join(newest, "config.json")) },
		"state/SHA256SUMS is missing":                              func() error { return os.Remove(filepath.Join(newest, "state", "SHA256SUMS")) },
		"state/SHA256SUMS: line 1: want a SHA-256":                 func() error { return os.WriteFile(filepath.Join(newest, "state", "SHA256SUMS"), []byte("x\n"), 0o644) },
		"extra.py was added to it":                                 func() error { return os.WriteFile(filepath.Join(newest, "extra.py"), nil, 0o644) },
		"link is not a regular file":                               func() error { return os.Symlink("/etc/passwd", filepath.Join(newest, "link")) },
		"state/exp_avg_sq.safetensors is damaged or was edited: i": func() error { return os.Truncate(filepath.Join(newest, "state", "exp_avg_sq.safetensors"), 100) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		c := chaosConfig("reference", dir)
		every(&c)
		log, err := continueRun(env, c, true)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !strings.Contains(log, "a checkpoint is refused") || !strings.Contains(log, newest) || !strings.Contains(log, what) {
			t.Errorf("%s: the log does not say so:\n%s", what, log)
		}
		if !slices.Contains(list(t, dir), filepath.Base(newest)+".damaged") {
			t.Errorf("%s: the damaged checkpoint is gone", what)
		}
		same(t, what, contents(t, dir), want)
	}
}

// If all checkpoints are damaged the run is refused. It does not begin again.
func TestAllDamaged(t *testing.T) {
	env := runtimetest.Test(t)
	dir, names := start(t, env, "dapo", nil)
	for _, name := range names {
		if err := os.Truncate(filepath.Join(dir, "checkpoints", name, "model.safetensors"), 10); err != nil {
			t.Fatal(err)
		}
	}
	_, err := continueRun(env, chaosConfig("dapo", dir), true)
	if err == nil || !strings.Contains(err.Error(), "no other checkpoint is whole") {
		t.Errorf("error %v", err)
	}
}

// TestMoreRounds: a run that is resumed with more rounds continues from its learning
// rate. If the rate has fallen to 0, the run is refused, and needs another rate.
func TestMoreRounds(t *testing.T) {
	env := runtimetest.Test(t)
	linear := func(c *rl.Config) {
		c.Train.SaveEvery, c.Train.SaveSteps, c.Train.KeepLast = 1, 0, 0
		c.Optimizer.Shape, c.Optimizer.RateByESS, c.Train.Rounds = "linear", false, 2
	}
	dir, names := start(t, env, "reference", linear)
	c := chaosConfig("reference", dir)
	linear(&c)
	c.Train.Rounds = 4
	if _, err := continueRun(env, c, true); err == nil || !strings.Contains(err.Error(), "optimizer.floor above 0") {
		t.Errorf("after the end of the schedule: error %v", err)
	}
	for _, name := range names[1:] {
		if err := os.RemoveAll(filepath.Join(dir, "checkpoints", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, rounds := range []int{4, 6} { // The second time, the schedule continues from the end of a floor.
		c.Train.Rounds = rounds
		if log, err := continueRun(env, c, true); err != nil || !strings.Contains(log, "goes on from where it was") {
			t.Fatalf("%v, log:\n%s", err, log)
		}
		c.Optimizer.Floor = 0.5
	}
	var got, want []float64
	for _, line := range strings.Split(strings.TrimSpace(contents(t, dir)["metrics.jsonl"]), "\n") {
		var step struct {
			Kind string
			Rate float64 `json:"learning_rate"`
		}
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			t.Fatal(err)
		}
		if step.Kind == "step" {
			got = append(got, math.Round(step.Rate*1e6))
			want = append(want, math.Round(max(1000-62.5*float64(len(want)), 0)))
		}
	}
	for i := range 24 {
		want[8+i] = math.Round(500 * (1 - float64(i)/24))
	}
	for i := range 16 {
		want[32+i] = 500
	}
	if !slices.Equal(got, want) {
		t.Errorf("rates %v, want %v", got, want)
	}
}

// Settings that shape a round cannot change inside a round. Other changes are named in
// the log.
func TestChangedSettings(t *testing.T) {
	env := runtimetest.Test(t)
	dir, names := start(t, env, "reference", every)
	c := chaosConfig("reference", dir)
	c.Optimizer.LearningRate = 5e-4
	log, err := continueRun(env, c, true)
	if err != nil || !strings.Contains(log, "optimizer.learning_rate was 0.001 and is 0.0005") {
		t.Errorf("error %v, log %s", err, log)
	}
	keepInside(t, dir, names)
	refuse := func(want string) {
		t.Helper()
		if _, err := continueRun(env, c, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	c.Train.BatchSize = 8
	refuse("train.batch_size was 4 and is 8: that can change only between two rounds")
	c.Train.BatchSize, c.Train.Shuffle = 4, "prompts"
	refuse("train.shuffle was responses and is prompts: that can change only between two rounds")

	all := func(c *rl.Config) { every(c); c.Train.KeepBest = 0 }
	dir, names = start(t, env, "ema", all)
	keepInside(t, dir, names)
	c = chaosConfig("ema", dir)
	all(&c)
	reflect.ValueOf(c.Objective.Settings).Elem().FieldByName("KLBeta").SetFloat(0.1)
	refuse("objective.kl_beta can become positive only between two rounds")
}

// keepInside removes checkpoints, the newest first, until the newest lies inside a
// round of four steps. The checkpoint of a step is missing if the one before it was
// still being written.
func keepInside(t *testing.T, dir string, names []string) {
	t.Helper()
	for inside := false; !inside; names = names[:len(names)-1] {
		if len(names) < 2 {
			t.Fatal("no checkpoint lies inside a round")
		}
		if err := os.RemoveAll(filepath.Join(dir, "checkpoints", names[len(names)-1])); err != nil {
			t.Fatal(err)
		}
		step, err := strconv.Atoi(strings.TrimPrefix(names[len(names)-2], "step-"))
		if err != nil {
			t.Fatal(err)
		}
		inside = step%4 != 0
	}
}

// Only one process can train in a folder.
func TestFolderIsLocked(t *testing.T) {
	env := runtimetest.Test(t)
	dir := filepath.Join(t.TempDir(), "run")
	c := chaosConfig("dapo", dir)
	policy, err := policy.Open(env, policy.Options{Path: c.Model.Path, DType: c.Model.DType})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	trainer, err := rl.New(context.Background(), c, env, policy, slog.New(slog.DiscardHandler), &quiet{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trainer.Run(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := continueRun(env, c, true); err == nil || !strings.Contains(err.Error(), "another process is training in it") {
		t.Errorf("error %v", err)
	}
	trainer.Close()
	if _, err := continueRun(env, c, true); err != nil {
		t.Error(err)
	}
}

// keep_last keeps the newest checkpoints, and keep_best also those with the best pass@1.
func TestKeep(t *testing.T) {
	env := runtimetest.Test(t)
	_, names := start(t, env, "reference", func(c *rl.Config) { every(c); c.Train.KeepLast = 2 })
	if len(names) != 2 {
		t.Errorf("keep_last = 2 left %v", names)
	}
	dir, names := start(t, env, "ema", func(c *rl.Config) {
		every(c)
		c.Train.Rounds, c.Train.SaveSteps, c.Train.KeepLast, c.Train.KeepBest, c.Eval.Suites = 5, 0, 1, 2, rl.Suites(data.Arithmetic)
		c.Eval.Samples = 1
	})
	text, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	type scored struct {
		name  string
		score float64
	}
	var all []scored
	for line := range strings.Lines(string(text)) {
		r := metricsLine(t, line)
		if r["kind"] == "eval" && r["round"].(float64) > 0 {
			all = append(all, scored{fmt.Sprintf("step-%06.0f", r["step"]), r["eval/arithmetic/pass@1"].(float64)})
		}
	}
	want := []string{all[len(all)-1].name}
	slices.Reverse(all)
	slices.SortStableFunc(all, func(a, b scored) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
	want = append(want, all[0].name, all[1].name)
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(names, want) {
		t.Errorf("kept %v, want %v of %v", names, want, all)
	}
}

func metricsLine(t *testing.T, line string) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

// A run whose problems rest and come easy first ends with the same files from any of its
// checkpoints. The metrics have the share of each file, and the number of problems that rested.
func TestMixedResume(t *testing.T) {
	env := runtimetest.Test(t)
	dir, names := start(t, env, "mixed", every)
	want := contents(t, dir)
	rested, shares := 0.0, 0.0
	for line := range strings.Lines(want["metrics.jsonl"]) {
		if r := metricsLine(t, line); r["kind"] == "round" {
			rested += r["data/resting"].(float64)
			shares += r["data/source/levels/share"].(float64)
			if sum := r["data/source/levels/share"].(float64) + r["data/source/more/share"].(float64); sum != 1 {
				t.Errorf("shares add up to %v", sum)
			}
		}
	}
	if rested == 0 || shares < 8*0.7-0.5 || shares > 8*0.7+0.5 {
		t.Errorf("%v rested, shares %v of 8 rounds", rested, shares)
	}
	if first := want["rollouts/round-00001.jsonl"]; !strings.Contains(first, `"source":"levels"`) || !strings.Contains(first, `"level":1`) || strings.Contains(first, `"level":3`) {
		t.Errorf("the first round is not easy:\n%.2000s", first)
	}
	for len(names) > 1 {
		cut := len(names) * 3 / 4
		for _, name := range names[cut:] {
			if err := os.RemoveAll(filepath.Join(dir, "checkpoints", name)); err != nil {
				t.Fatal(err)
			}
		}
		c := chaosConfig("mixed", dir)
		every(&c)
		if _, err := continueRun(env, c, true); err != nil {
			t.Fatal(err)
		}
		same(t, "resumed from "+names[cut-1], contents(t, dir), want)
		names = names[:cut]
	}
}
