package rl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"onering/data"
	"onering/internal/memory"
	"onering/objectives"
	"onering/policy"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/train/learn"
	"onering/train/metrics"
)

type silent = metrics.Unobserved

func tiny(dir string, rounds int) Config {
	c := Default()
	c.Model.Path, c.Model.Template, c.Data.Train = data.Arithmetic, "no", TrainFiles{{Path: data.Arithmetic}}
	c.Rollout.PromptsPerRound, c.Rollout.SamplesPerPrompt = 4, 4
	c.Rollout.MaxNewTokens, c.Rollout.MaxPromptTokens, c.Rollout.Slots = 40, 16, 16
	c.Optimizer.LearningRate = 1e-4
	c.Train.Rounds, c.Train.BatchSize, c.Train.SaveEvery = rounds, 4, 50
	c.Train.KeepLast = 1
	c.Output.Dir = dir
	return c
}

// Rounds do not make the process larger. With ONERING_LONG the test runs a thousand rounds.
func TestMemoryIsFlat(t *testing.T) {
	env := runtimetest.Test(t)
	if resident() == 0 {
		t.Skip("this system does not tell how much memory is resident")
	}
	rounds, warm := 120, 40
	switch {
	case testing.Short():
		t.Skip("trains for some seconds")
	case os.Getenv("ONERING_LONG") != "":
		rounds, warm = 1000, 100
	}
	c := tiny(filepath.Join(t.TempDir(), "run"), rounds)
	policy, err := policy.Open(env, policy.Options{Path: c.Model.Path, DType: c.Model.DType})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	w := &weigher{warm: warm}
	trainer, err := New(context.Background(), c, env, policy, slog.New(slog.DiscardHandler), w)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	if _, err := trainer.Run(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	t.Logf("resident after %d rounds: %s, after %d: %s; peak %s", warm, memory.Text(w.first), rounds, memory.Text(w.last), memory.Text(memory.Peak()))
	if w.last > w.first+w.first/10+4<<20 {
		t.Errorf("memory grew from %s to %s", memory.Text(w.first), memory.Text(w.last))
	}
}

// resident returns the memory that this process has resident now, 0 if the system does
// not tell.
func resident() int64 {
	text, _ := os.ReadFile("/proc/self/statm")
	var size, pages int64
	fmt.Sscan(string(text), &size, &pages)
	return pages * int64(os.Getpagesize())
}

// A weigher takes the resident memory after rounds, after a garbage collection.
type weigher struct {
	silent
	warm, n     int
	first, last int64
}

func (w *weigher) Record(r metrics.Record) {
	if r.Get("kind") != "round" {
		return
	}
	w.n++
	if w.n < w.warm || w.n%w.warm != 0 {
		return
	}
	goruntime.GC()
	debug.FreeOSMemory()
	w.last = resident()
	if w.n == w.warm {
		w.first = w.last
	}
}

// A step whose allocation fails is computed again with smaller micro-batches, to the same
// record within rounding.
func TestAllocationFails(t *testing.T) {
	env := runtimetest.Test(t)
	c := tiny(filepath.Join(t.TempDir(), "run"), 1)
	c.Train.BatchSize = 16
	policy, err := policy.Open(env, policy.Options{Path: c.Model.Path, DType: c.Model.DType})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	var log bytes.Buffer
	trainer, err := New(context.Background(), c, env, policy, slog.New(slog.NewTextHandler(&log, nil)), silent{})
	if err != nil {
		t.Fatal(err)
	}
	failures := 0
	trainer.run.BeforePass = func(tokens int) error {
		if tokens > 150 {
			if failures++; failures == 1 {
				return errors.New("runtime: a buffer on cuda:0: allocating 8 bytes: out of memory")
			}
			return errors.New("runtime: program \"layer\": run on N=300: Failed to allocate memory for requested buffer of size 1")
		}
		return nil
	}
	if _, err := trainer.Run(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	if failures == 0 || trainer.run.Stepper.State().MicroTokens >= c.Train.MicroTokens || !strings.Contains(log.String(), "micro-batches are halved") {
		t.Errorf("%d failures, micro-batches of %d tokens, log:\n%s", failures, trainer.run.Stepper.State().MicroTokens, &log)
	}
	// If micro-batches cannot be smaller, the run ends with the error.
	c.Train.Rounds = 2
	again, err := New(context.Background(), c, env, policy, slog.New(slog.DiscardHandler), silent{})
	if err != nil {
		t.Fatal(err)
	}
	trainer.Close()
	defer again.Close()
	again.run.BeforePass = func(int) error { return errors.New("bad_alloc") }
	if _, err := again.Run(context.Background(), true); err == nil || !strings.Contains(err.Error(), "bad_alloc") {
		t.Errorf("error %v", err)
	}
}

// The advice of an estimate makes the run fit.
func TestEstimateAdvice(t *testing.T) {
	c := tiny("", 1)
	c.Rollout.Slots, c.Rollout.PromptsPerRound = 512, 256
	model, err := policy.ReadModel(data.Arithmetic)
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.EstimateMemory(model, Split{})
	if err != nil {
		t.Fatal(err)
	}
	if n := int64(model.Layout().Size); e.Of("weights").Device != 4*n || e.Of("gradients").Device != 4*n || e.Of("moments").Device != 8*n || e.Peak < e.Certain()+e.Of("KV cache").Device+e.Of("activations").Device {
		t.Errorf("estimate %+v", e)
	}
	e.Available = e.Peak
	if err := e.Check(c, model); err != nil {
		t.Error(err)
	}
	// For any available memory between the least and the most, the estimate of the
	// settings that the error names fits. All passes of a step are kept at once for an
	// objective that weighs whole batches.
	if c.Objective.Settings, err = objectives.New("m2po"); err != nil {
		t.Fatal(err)
	}
	c.Rollout.Slots, c.Train.BatchSize, c.Train.MicroTokens, c.Rollout.MaxNewTokens = 128, 1024, 2880, 400
	model = math1B5
	if e, err = c.EstimateMemory(model, Split{}); err != nil {
		t.Fatal(err)
	}
	least := e.Peak // all settings that the advice may name
	for n := c.Rollout.MaxNewTokens; n > 0; n /= 2 {
		for slots := c.Rollout.Slots; slots > 0; slots /= 2 {
			for micro := c.Train.MicroTokens; micro >= learn.SmallestMicroBatch; micro /= 2 {
				less := c
				less.Rollout.MaxNewTokens, less.Rollout.Slots, less.Train.MicroTokens = n, slots, micro
				x, err := less.EstimateMemory(model, Split{})
				if err != nil {
					t.Fatal(err)
				}
				least = min(least, x.Peak)
			}
		}
	}
	const parts = 8
	for i := range parts {
		e.Available = e.Certain() + (e.Peak-e.Certain())*int64(i)/parts
		err := e.Check(c, model)
		if err == nil || e.Refuse(c, model) != nil {
			t.Fatalf("error %v", err)
		}
		less := c
		found := regexp.MustCompile(`(slots|micro_tokens|max_new_tokens) = (\d+)`).FindAllStringSubmatch(err.Error(), -1)
		for _, m := range found {
			n, _ := strconv.Atoi(m[2])
			*map[string]*int{"slots": &less.Rollout.Slots, "micro_tokens": &less.Train.MicroTokens, "max_new_tokens": &less.Rollout.MaxNewTokens}[m[1]] = n
		}
		if got, _ := less.EstimateMemory(model, Split{}); found != nil && got.Peak > e.Available {
			t.Errorf("%v: with that it is %s", err, memory.Text(got.Peak))
		}
		if fits := least <= e.Available; fits != (found != nil) {
			t.Errorf("part %d of %d: that some settings fit is %t: %v", i, parts, fits, err)
		}
	}
	e.Available = e.Of("weights").Device
	if err := e.Refuse(c, model); err == nil || !strings.Contains(err.Error(), "smaller model") {
		t.Errorf("error %v", err)
	}
}

func ExampleMemoryEstimate_Lines() {
	needs := []runtime.Need{
		{What: "weights", Device: 3e9}, {What: "gradients", Device: 3e9}, {What: "moments", Device: 6e9}, {What: "KV cache", Device: 2e8},
		{What: "activations", Device: 4e8}, {What: "activations", Device: 1e8}, {What: "other", Device: 12e7},
	}
	for _, line := range (MemoryEstimate{Needs: needs, Peak: 12.82e9, Copy: 9e9, PromptTokens: 1024, ResponseTokens: 3000}).Lines() {
		fmt.Println(line[0]+":", line[1])
	}
	// Output:
	// weights: 3.00 GB
	// gradients: 3.00 GB
	// moments: 6.00 GB
	// KV cache: 200.0 MB
	// activations: 500.0 MB
	// other: 120.0 MB
	// peak: 12.82 GB
	// checkpoint copy: 9.00 GB more, where there is room
	// assumed: every prompt of 1024 tokens and every response of 3000; shorter ones take less
}
