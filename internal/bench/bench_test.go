package bench_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"onering/internal/bench"
	"onering/internal/bench/limits"
	"onering/models"
	_ "onering/models/all"
	"onering/policy"
	"onering/runtime/runtimetest"
)

// The lengths have the requested mean, none exceeds three times the mean, and they vary.
func TestLengths(t *testing.T) {
	for _, n := range []int{1, 4, 32, 1000} {
		for _, mean := range []int{1, 10, 1000} {
			l := limits.Lengths(n, mean)
			sum := 0
			for _, x := range l {
				sum += x
			}
			got := float64(sum) / float64(n)
			if len(l) != n || slices.Min(l) < 1 || slices.Max(l) > 3*mean {
				t.Errorf("%d lengths of mean %d: %v", n, mean, l)
			}
			if n >= 32 && mean > 1 && (got < 0.93*float64(mean) || got > 1.07*float64(mean) || slices.Max(l) < 2*mean || slices.Min(l) > mean/2) {
				t.Errorf("%d lengths have mean %g, want %d; %d to %d", n, got, mean, slices.Min(l), slices.Max(l))
			}
		}
	}
}

// A round has the tokens that it says it has, and leaves nothing on the disk.
func TestRun(t *testing.T) {
	env := runtimetest.Test(t)
	model, err := policy.ReadModel(filepath.Join("..", "..", "bench", "tiny"))
	if err != nil {
		t.Fatal(err)
	}
	policy, err := policy.Random(env, model, models.Compute{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	o := bench.DefaultRound()
	o.Prompts, o.Samples, o.Prompt, o.Length, o.Slots, o.Steps, o.Dir, o.Roofline = 2, 3, 5, 6, 4, 2, t.TempDir(), true
	r, err := o.Run(context.Background(), env, policy, bench.DefaultParts())
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, n := range limits.Lengths(6, 6) {
		want += n
	}
	if r.Responses != 6 || r.PromptTokens != 10 || r.ResponseTokens != want || r.Longest > 18 || r.Peaks == nil || r.CheckpointBytes < int64(12*policy.Ring.Trained().Parameters()) {
		t.Errorf("%+v, want %d tokens", r, want)
	}
	for name, p := range map[string]bench.Phase{
		"rollout": r.Warm.Rollout, "forward": r.Warm.Forward, "backward": r.Warm.Backward, "optimizer": r.Warm.Optimizer, "prefill": r.Warm.Prefill,
	} {
		if !(p.Seconds > 0 && p.LimitSeconds > 0 && p.LimitShare > 0) {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(o.Dir, "*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if left, _ := filepath.Glob(filepath.Join(o.Dir, ".*")); len(left) > 2 {
		t.Errorf("%v is left", left)
	}
}
