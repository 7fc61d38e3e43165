package rl

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"onering/objectives"
	"onering/policy"
	"onering/runtime/runtimetest"
	"onering/train/learn"
	"onering/train/metrics"
)

// A step whose gradients overflow float16 is computed again with half the loss scale,
// until they do not: no batch is lost, and the scale at which the search began does not
// matter. If no scale is small enough, the run stops with an error.
func TestLossScaleIsFound(t *testing.T) {
	env := runtimetest.Test(t)
	run := func(scale float64, broken bool) (found float64, rounds []metrics.Record, weights []float32, err error) {
		c := tiny(filepath.Join(t.TempDir(), "run"), 2)
		c.Model.DType = "float16"
		if broken {
			c.Objective.Settings = enormous{c.Objective.Settings}
		}
		policy, err := policy.Open(env, policy.Options{Path: c.Model.Path, DType: c.Model.DType})
		if err != nil {
			t.Fatal(err)
		}
		defer policy.Close()
		trainer, err := New(context.Background(), c, env, policy, slog.New(slog.DiscardHandler), collector{rounds: &rounds})
		if err != nil {
			t.Fatal(err)
		}
		defer trainer.Close()
		trainer.run.Stepper.Restore(learn.State{LossScale: &learn.LossScale{Scale: scale}})
		_, err = trainer.Run(context.Background(), false)
		return trainer.run.Stepper.State().LossScale.Scale, rounds, slices.Clone(policy.Weights.Data), err
	}
	found, rounds, weights, err := run(1<<40, false)
	if err != nil {
		t.Fatal(err)
	}
	if !(found < 1<<40) || found < 1<<10 || len(rounds) != 2 {
		t.Fatalf("scale %g after %d rounds", found, len(rounds))
	}
	if r := rounds[0]; r.Get("skipped_steps") != nil || r.Float("loss_scale") < found || r.Float("loss_scale") >= 1<<40 {
		t.Errorf("round %v", r)
	}
	again, _, same, err := run(1<<30, false)
	if err != nil {
		t.Fatal(err)
	}
	if again != found || !slices.Equal(weights, same) {
		t.Errorf("the run that began with a smaller scale is another: it found %g, not %g", again, found)
	}
	_, _, _, err = run(4, true)
	var at *learn.NonfiniteError
	if !errors.As(err, &at) || at.What != "a gradient in float16" {
		t.Errorf("gradients that no scale makes small enough: %v", err)
	}
}

type collector struct {
	silent
	rounds *[]metrics.Record
}

func (c collector) Record(r metrics.Record) {
	if r.Get("kind") == "round" {
		*c.rounds = append(*c.rounds, r)
	}
}

// enormous is an objective whose gradients float16 cannot hold.
type enormous struct{ objectives.Objective }

func (e enormous) Weights(b objectives.Batch, w [][]float64) {
	for i := range w {
		for t := range w[i] {
			w[i][t] = 1e30
		}
	}
}
