//go:build !windows

package rl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/objectives"
	"onering/policy"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/train/rl"
	"onering/train/rundir"
)

// poison is an objective that, at some steps, gives a weight that is not finite, or large
// weights to a trajectory.
type poison struct {
	objectives.Objective
	steps map[int]bool
	value float64
}

func (p poison) Weights(b objectives.Batch, w [][]float64) {
	p.Objective.Weights(b, w)
	if p.steps[b.Step] {
		w[2][1] = p.value
		if p.value-p.value == 0 {
			for t := range w[2] {
				w[2][t] = p.value
			}
		}
	}
}

func poisoned(c *rl.Config, value float64, steps ...int) {
	set(c, "pmpo", `{}`)
	c.Rollout.PromptsPerRound, c.Train.BatchSize = 8, 16 // 2 steps a round
	c.Train.SaveEvery, c.Train.SaveSteps = 0, 0
	at := map[int]bool{}
	for _, s := range steps {
		at[s] = true
	}
	c.Objective.Settings = poison{c.Objective.Settings, at, value}
}

// A weight that is NaN stops the run before the update. The run leaves a checkpoint from
// before the update and the batch, which can be replayed.
func TestNonfiniteStops(t *testing.T) {
	env := runtimetest.Test(t)
	dir := filepath.Join(t.TempDir(), "run")
	c := chaosConfig("reference", dir)
	poisoned(&c, math.NaN(), 3)
	_, err := continueRun(env, c, false)
	var e *rl.FailedStepError
	if !errors.As(err, &e) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"round 1, step 4", "the objective's weight of response token 1 is NaN", "nothing was updated", "onering replay " + dir} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	f, r := replayed(t, env, e.File, c)
	if f.Step != 4 || len(f.Trajectories) != 16 || len(e.Err.Sequences) != 1 || f.Trajectories[2].Rollout != e.Err.Sequences[0] || !math.IsNaN(f.Trajectories[2].Weights[1]) {
		t.Errorf("the file is of step %d with %d trajectories; the error names %v", f.Step, len(f.Trajectories), e.Err.Sequences)
	}
	if !r.SameBits || len(r.Found) != 1 || r.Trajectories[2].Nonfinite != 1 || r.Trajectories[3].Nonfinite != 0 {
		t.Errorf("replay: same bits %v, found %q", r.SameBits, r.Found)
	}
	// When the cause is removed, the run continues from the previous step.
	poisoned(&c, 0)
	if _, err := continueRun(env, c, true); err != nil {
		t.Error(err)
	}
}

// replayed reads the file of a failed step, and takes the step again.
func replayed(t *testing.T, env *runtime.Env, file string, c rl.Config) (rl.Failure, rl.Replay) {
	t.Helper()
	f, err := rl.ReadFailure(file)
	if err != nil {
		t.Fatal(err)
	}
	checkpoint := filepath.Join(filepath.Dir(file), f.Checkpoint)
	policy, err := policy.Open(env, policy.Options{Path: checkpoint, DType: "float32"})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	if err := rundir.LoadWeights(checkpoint, policy.Ring.Trained()); err != nil {
		t.Fatal(err)
	}
	r, err := f.Replay(context.Background(), env, policy, c.Objective.Settings)
	if err != nil {
		t.Fatal(err)
	}
	return f, r
}

// Gradients that overflow are named with their tensor, in replay with the
// trajectory as well.
func TestNonfiniteGradient(t *testing.T) {
	env := runtimetest.Test(t)
	dir := filepath.Join(t.TempDir(), "run")
	c := chaosConfig("reference", dir)
	poisoned(&c, 3e38, 1)
	_, err := continueRun(env, c, false)
	var e *rl.FailedStepError
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "the gradient of ") {
		t.Fatalf("error %v", err)
	}
	_, r := replayed(t, env, e.File, c)
	for i, x := range r.Trajectories {
		if (x.Gradient != "") != (i == 2) {
			t.Errorf("trajectory %d: gradient %q", i, x.Gradient)
		}
	}
}

// With on_nonfinite = "skip", steps with a value that is not finite are left out and
// counted, up to the limit; the weights come from the other steps.
func TestNonfiniteSkips(t *testing.T) {
	env := runtimetest.Test(t)
	dir := filepath.Join(t.TempDir(), "run")
	c := chaosConfig("reference", dir)
	poisoned(&c, math.Inf(1), 1, 3)
	c.Train.OnNonfinite, c.Train.SkipLimit = "skip", 2
	log, err := continueRun(env, c, false)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log, "an optimizer step is skipped"); n != 2 {
		t.Errorf("%d warnings, want 2:\n%s", n, log)
	}
	text, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte(`"skipped":`)); n != 2 || !bytes.Contains(text, []byte(`"skipped_steps":2`)) {
		t.Errorf("%d steps are marked in metrics.jsonl", n)
	}
	var state struct{ Step, Updates, Skipped int }
	raw, err := os.ReadFile(filepath.Join(dir, "checkpoints", "step-000012", "state", "state.json"))
	if err == nil {
		err = json.Unmarshal(raw, &state)
	}
	if err != nil || state.Step != 12 || state.Updates != 10 || state.Skipped != 2 {
		t.Errorf("state %+v, error %v", state, err)
	}

	c = chaosConfig("reference", filepath.Join(t.TempDir(), "limit"))
	poisoned(&c, math.Inf(1), 1, 3, 4)
	c.Train.OnNonfinite, c.Train.SkipLimit = "skip", 2
	if _, err := continueRun(env, c, false); err == nil || !strings.Contains(err.Error(), "train.skip_limit = 2 steps were skipped before") {
		t.Errorf("error %v", err)
	}
}

// Weights that are not finite, and finite ones whose activations overflow, are
// found before the first round's update, by tensor and by layer.
func TestNonfiniteWeights(t *testing.T) {
	env := runtimetest.Test(t)
	c := chaosConfig("reference", filepath.Join(t.TempDir(), "run"))
	train1 := func(change func(*policy.Policy)) error {
		policy, err := policy.Open(env, policy.Options{Path: c.Model.Path, DType: c.Model.DType})
		if err != nil {
			t.Fatal(err)
		}
		defer policy.Close()
		change(policy)
		trainer, err := rl.New(context.Background(), c, env, policy, slog.New(slog.DiscardHandler), &quiet{})
		if err != nil {
			return err
		}
		defer trainer.Close()
		_, err = trainer.Run(context.Background(), false)
		return err
	}
	const name = "model.layers.1.mlp.down_proj.weight"
	err := train1(func(p *policy.Policy) {
		w, _, _ := p.Weights.View(name)
		w[7] = float32(math.NaN())
	})
	if want := "the weight of " + name + " is NaN at element 7"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	err = train1(func(p *policy.Policy) {
		w, _, _ := p.Weights.View(name)
		for i := range w {
			w[i] = 3e38
		}
	})
	if err == nil || !strings.Contains(err.Error(), "layer 1") {
		t.Errorf("error %v, want one that names layer 1", err)
	}
}

// An objective's panic is an error that names it.
func TestObjectivePanics(t *testing.T) {
	env := runtimetest.Test(t)
	c := chaosConfig("reference", filepath.Join(t.TempDir(), "run"))
	poisoned(&c, 0)
	c.Objective.Settings = panics{c.Objective.Settings}
	_, err := continueRun(env, c, false)
	if err == nil || !strings.Contains(err.Error(), `objective "pmpo" panics: index out of range`) && !strings.Contains(err.Error(), `objective "pmpo" panics: runtime error`) {
		t.Errorf("error %v", err)
	}
}

type panics struct{ objectives.Objective }

func (panics) Loss(b, _ objectives.Batch) float64 { return b.Trajectories[0].LogProb[1<<20] }
