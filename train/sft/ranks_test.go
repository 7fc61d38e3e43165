package sft

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"onering/runtime/runtimetest"
	"onering/train"
	"onering/train/ranks"
)

// A crewman is one of several ranks that train together.
type crewman struct {
	recorder
	config     Config
	beforePass func(int) error
	summary    Summary
	err        error
}

// together trains with n ranks, whose settings and interruptions change makes.
func together(t *testing.T, n int, c Config, resume bool, change func(rank int, x *crewman)) []*crewman {
	t.Helper()
	env := runtimetest.Test(t)
	all := make([]*crewman, n)
	var wait sync.WaitGroup
	for r, transport := range ranks.Local(n) {
		x := &crewman{config: c}
		all[r] = x
		if r > 0 {
			x.config.Output.Dir = filepath.Join(c.Output.Dir, "nowhere") // as on another machine
		}
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		x.cancel = cancel
		if change != nil {
			change(r, x)
		}
		policy := openPolicy(t, env, c)
		group := ranks.New(transport)
		trainer, err := NewOn(x.config, train.Setup{Ranks: group, Policy: policy, Log: quiet, Observer: &x.recorder}, sums(64), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer trainer.Close()
		trainer.run.BeforePass = x.beforePass
		wait.Go(func() {
			x.summary, x.err = trainer.Run(ctx, resume)
			x.err = errors.Join(x.err, group.Close())
		})
	}
	wait.Wait()
	return all
}

// well fails the test unless all ranks reach the end.
func well(t *testing.T, all []*crewman) {
	t.Helper()
	for r, x := range all {
		if x.err != nil {
			t.Fatalf("rank %d of %d: %v", r, len(all), x.err)
		}
	}
}

func severalConfig(dir string) Config {
	c := configured(dir)
	c.Train.BatchSize, c.Train.EvalEvery, c.Train.SaveSteps, c.Data.HeldOut, c.Distributed.CheckEvery = 10, 5, 4, 0.1, 3
	return c
}

// Several ranks get the same result as one, up to the rounding of sums; equal numbers of
// ranks get the same bytes, also with divided moments. Batches of ten have no equal
// shares.
func TestRanks(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"weights": func(*Config) {},
		"adapter": func(c *Config) { c.LoRA.On, c.LoRA.Rank = true, 4 },
	} {
		t.Run(name, func(t *testing.T) {
			trained := func(n int, shard string) (map[string]string, *crewman) {
				c := severalConfig(filepath.Join(t.TempDir(), "run"))
				c.Distributed.Shard = shard
				change(&c)
				all := together(t, n, c, false, nil)
				well(t, all)
				for r, x := range all {
					if fmt.Sprint(x.losses()) != fmt.Sprint(all[0].losses()) || !slices.Equal(x.summary.HeldOut, all[0].summary.HeldOut) {
						t.Errorf("%d ranks: rank %d has other losses", n, r)
					}
				}
				text := filesOf(t, c.Output.Dir)
				text["metrics.jsonl"] = "" // With parts the ranks send other numbers of bytes.
				return text, all[0]
			}
			_, one := trained(1, "none")
			for n := 2; n <= 3; n++ {
				text, several := trained(n, "none")
				for i, want := range one.losses() {
					if got := several.losses()[i]; math.Abs(got-want) > 2e-5*want {
						t.Errorf("%d ranks: the loss of step %d is %v, of one rank %v", n, i+1, got, want)
					}
				}
				for _, shard := range []string{"none", "optimizer"} {
					again, _ := trained(n, shard)
					for file := range text {
						if again[file] != text[file] {
							t.Errorf("%d ranks with shard = %q: %s differs", n, shard, file)
						}
					}
				}
			}
		})
	}
}

// If any of three ranks is told to stop, all stop in order; two ranks continue from the
// checkpoint, and end with the same bytes, however they divide the moments.
func TestRanksStopAndResume(t *testing.T) {
	for rank := range 3 {
		c := severalConfig(filepath.Join(t.TempDir(), "run"))
		for r, x := range together(t, 3, c, false, func(r int, x *crewman) {
			if r == rank {
				x.after = 6
			}
		}) {
			if !errors.Is(x.err, context.Canceled) {
				t.Fatalf("rank %d was stopped: rank %d returns %v", rank, r, x.err)
			}
		}
		var want map[string]string
		for _, shard := range []string{"none", "optimizer"} {
			again := c
			again.Output.Dir, again.Distributed.Shard = filepath.Join(t.TempDir(), shard), shard
			if err := os.CopyFS(again.Output.Dir, os.DirFS(c.Output.Dir)); err != nil {
				t.Fatal(err)
			}
			all := together(t, 2, again, true, nil)
			well(t, all)
			if s := all[0].summary; s.Resumed < 6 || s.Steps != 24 {
				t.Errorf("resumed to %+v", s)
			}
			got := filesOf(t, again.Output.Dir)
			if want == nil {
				want = got
			}
			if got["model.safetensors"] != want["model.safetensors"] {
				t.Error("the model depends on how the moments are kept")
			}
		}
	}
}

// TestRanksFail: an error of one rank ends all, and the first rank repeats it; ranks that
// differ do not begin, and say what differs.
func TestRanksFail(t *testing.T) {
	c := severalConfig(filepath.Join(t.TempDir(), "run"))
	passes := 0
	for r, x := range together(t, 3, c, false, func(r int, x *crewman) {
		if r == 1 {
			x.beforePass = func(int) error {
				if passes++; passes > 8 {
					return errors.New("the disk of this rank is gone")
				}
				return nil
			}
		}
	}) {
		if x.err == nil || !strings.Contains(x.err.Error(), "the disk of this rank is gone") || r != 1 && !strings.Contains(x.err.Error(), "rank 1: ") {
			t.Errorf("rank %d: %v", r, x.err)
		}
	}
	well(t, together(t, 2, c, true, nil))

	c = severalConfig(filepath.Join(t.TempDir(), "run"))
	for r, x := range together(t, 3, c, false, func(r int, x *crewman) {
		if r == 2 {
			x.config.Optimizer.LearningRate = 1
		}
	}) {
		var differ *ranks.DifferError
		if !errors.As(x.err, &differ) || differ.Rank != 2 || differ.Other != "optimizer.learning_rate = 1" || differ.First != "optimizer.learning_rate = 0.003" {
			t.Errorf("rank %d: %v", r, x.err)
		}
	}
}
