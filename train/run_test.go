package train_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"onering/data"
	"onering/models/optim/adamw"
	"onering/policy"
	"onering/runtime/runtimetest"
	"onering/train"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/ranks"
	"onering/train/rundir"
)

// A countdown is a Task that trains no model: each step writes how many steps remain into
// a weight. It uses every method of a task.
type countdown struct {
	run        *train.Run
	dir        string
	left, said int
	ends       string // the result of the last step: it "fails", or the rank "dies" when it then saves
}

func (c *countdown) Plan() train.Plan {
	return train.Plan{Output: c.dir, Saving: train.Saving{Steps: 4}, Objective: "countdown", CheckEvery: 1}
}

func (c *countdown) Recall(metrics.Record)      { c.said++ }
func (c *countdown) Begin(train.Position) error { return nil }

func (c *countdown) Next(at train.Position) train.Piece {
	if c.left == 0 {
		return nil
	}
	return func(context.Context) (train.Done, error) {
		if c.left == 1 && c.ends != "" {
			return train.Done{}, errors.New("no step")
		}
		c.left--
		c.run.Policy.Weights.Data[at.Step] = float32(c.left)
		at.Step++
		done := train.Done{At: at, Record: metrics.Record{}.With("kind", "step").With("step", at.Step).With("left", c.left), Save: train.IfDue}
		if c.left == 0 {
			done.Save = train.Now
		}
		return done, nil
	}
}

func (c *countdown) Save(s *rundir.Snapshot) error {
	if c.left == 1 && c.ends == "dies" {
		c.run.Ranks.Abort(errors.New("dead"))
	}
	s.State.ObjectiveState = strconv.Itoa(c.left)
	return nil
}

func (c *countdown) Restore(from train.Checkpoint) (err error) {
	c.left, err = strconv.Atoi(from.State.ObjectiveState)
	return err
}

// A stopper ends a run after a number of steps.
type stopper struct {
	metrics.Unobserved
	after int
	stop  func()
}

func (s stopper) Record(r metrics.Record) {
	if r.Get("step") == s.after {
		s.stop()
	}
}

// count counts down from 10 on each of several ranks, which stop after so many steps; on
// the last rank the last step ends with the given result.
func count(t *testing.T, dir string, n, after int, resume bool, ends string) (all []*countdown, errs []error) {
	t.Helper()
	env := runtimetest.Test(t)
	errs = make([]error, n)
	var wait sync.WaitGroup
	for r, transport := range ranks.Local(n) {
		p, err := policy.Open(env, policy.Options{Path: data.Arithmetic, DType: "float32"})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		c := &countdown{dir: dir, left: 10}
		if r == n-1 {
			c.ends = ends
		}
		group := ranks.New(transport)
		setup := train.Setup{Ranks: group, Policy: p, Log: slog.New(slog.DiscardHandler), Observer: stopper{after: after, stop: stop}}
		c.run, err = train.New(setup, "", train.DistributedConfig{}, learn.Options{Optimizer: adamw.Default(), Temperature: 1, Passes: train.PassesOf(p, 64, true)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.run.Close()
		all = append(all, c)
		wait.Go(func() {
			_, errs[r] = c.run.Do(ctx, c, resume)
			errs[r] = errors.Join(errs[r], group.Close())
		})
	}
	wait.Wait()
	return all, errs
}

// written returns the files that a run wrote, with times of day removed.
func written(t *testing.T, dir string) string {
	t.Helper()
	text := ""
	for _, name := range []string{"metrics.jsonl", "checkpoints/step-000010/model.safetensors", "checkpoints/step-000010/state/state.json"} {
		part, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		text += string(part)
	}
	return regexp.MustCompile(`"time":"[^"]*"`).ReplaceAllString(text, "")
}

// TestCountdown: a task that is stopped after any step and resumed ends with the same bytes as
// a task that was not stopped.
func TestCountdown(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole")
	if _, errs := count(t, whole, 1, 0, false, ""); errs[0] != nil {
		t.Fatal(errs[0])
	}
	want := written(t, whole)
	for after := 1; after < 10; after += 2 {
		dir := filepath.Join(t.TempDir(), "run")
		if _, errs := count(t, dir, 2, after, false, ""); !errors.Is(errs[0], context.Canceled) || !errors.Is(errs[1], context.Canceled) {
			t.Fatalf("stopped after step %d: %v", after, errs)
		}
		all, errs := count(t, dir, 1, 0, true, "")
		if errs[0] != nil || all[0].said != after {
			t.Fatalf("resumed after step %d: %d records, %v", after, all[0].said, errs[0])
		}
		if got := written(t, dir); got != want {
			t.Errorf("stopped after step %d: wrote %d bytes, want %d", after, len(got), len(want))
		}
	}
}

// A piece that fails on one rank alone ends the run on all ranks with a checkpoint of the
// last step, even if this rank dies while all save the checkpoint.
func TestOneRankFails(t *testing.T) {
	for _, ends := range []string{"fails", "dies"} {
		dir := filepath.Join(t.TempDir(), "run")
		_, errs := count(t, dir, 3, 0, false, ends)
		for r, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "no step") {
				t.Errorf("%s: rank %d: %v", ends, r, err)
			}
		}
		all, errs := count(t, dir, 1, 0, true, "")
		if errs[0] != nil || all[0].left != 0 || all[0].said != 10 {
			t.Errorf("%s: resumed: %v", ends, errs[0])
		}
	}
}
