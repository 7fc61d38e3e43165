package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/train/learn"
)

// supervise trains the embedded model on sums and returns its losses and the loss
// scale of its last step.
func supervise(t *testing.T, env *runtime.Env, dtype string, log *slog.Logger, change func(*SupervisedConfig)) (losses []float64, scale float64, err error) {
	t.Helper()
	policy, err := OpenPolicyOn(env, Arithmetic, dtype)
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	var sums []Demonstration
	for i := range 64 {
		sums = append(sums, Demonstration{Prompt: fmt.Sprintf("%d+%d=", i, 3*i), Response: fmt.Sprint(4 * i)})
	}
	c := DefaultSupervised()
	c.Epochs, c.Warmup = 4, 2
	change(&c)
	err = Supervise(context.Background(), env, policy, sums, c, log, func(_, _ int, loss, norm float64) {
		if losses = append(losses, loss); !(norm > 0) {
			t.Errorf("step %d: norm %v", len(losses), norm)
		}
	})
	return losses, policy.Ring.LossScale, err
}

// Of several ids that end a response SFT teaches the tokenizer's, else the first.
func TestSuperviseEnd(t *testing.T) {
	p, err := OpenPolicyOn(runtimetest.Test(t), Arithmetic, "float32")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	eos, ok := p.Tokenizer.EOS()
	for _, c := range []struct {
		ids  []int32
		want int32
	}{{[]int32{eos}, eos}, {[]int32{eos + 1, eos}, eos}, {[]int32{eos + 1, eos + 2}, eos + 1}} {
		if p.Model.EOS = c.ids; p.end() != c.want || !ok {
			t.Errorf("of %d responses learn to end with %d, want %d", c.ids, p.end(), c.want)
		}
	}
}

// Where memory ends during a warm start micro-batches are halved and the run goes
// on to the same losses; where they cannot be smaller its error is returned.
func TestSuperviseMemoryEnds(t *testing.T) {
	env := runtimetest.Test(t)
	quiet := slog.New(slog.DiscardHandler)
	want, _, err := supervise(t, env, "float32", quiet, func(*SupervisedConfig) {})
	if err != nil {
		t.Fatal(err)
	}
	if first, last := want[0], want[len(want)-1]; len(want) != 8 || !(last < first) {
		t.Errorf("losses %v", want)
	}
	noMemory := errors.New("Failed to allocate memory for requested buffer of size 1")
	var log bytes.Buffer
	passes := 0
	got, _, err := supervise(t, env, "float32", slog.New(slog.NewTextHandler(&log, nil)), func(c *SupervisedConfig) {
		c.MicroTokens = 512
		c.beforePass = func(tokens int) error {
			if passes++; tokens > 150 {
				return noMemory
			}
			return nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if passes <= len(got) || !strings.Contains(log.String(), "micro-batches are halved") {
		t.Errorf("%d passes for %d steps, log:\n%s", passes, len(got), &log)
	}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 0.02*want[i] {
			t.Errorf("step %d: loss %v, want %v", i+1, got[i], want[i])
		}
	}
	_, _, err = supervise(t, env, "float32", quiet, func(c *SupervisedConfig) { c.beforePass = func(int) error { return noMemory } })
	if !errors.Is(err, noMemory) || !strings.Contains(err.Error(), "step 1") {
		t.Errorf("error %v", err)
	}
}

// A warm start in float16 scales its loss, and learns as one in float32 does.
func TestSuperviseFloat16(t *testing.T) {
	env := runtimetest.Test(t)
	quiet := slog.New(slog.DiscardHandler)
	want, _, err := supervise(t, env, "float32", quiet, func(*SupervisedConfig) {})
	if err != nil {
		t.Fatal(err)
	}
	got, scale, err := supervise(t, env, "float16", quiet, func(*SupervisedConfig) {})
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 0.05*want[i] {
			t.Errorf("step %d: loss %v, want %v", i+1, got[i], want[i])
		}
	}
	if scale != learn.NewLossScale().Scale {
		t.Errorf("the loss scale is %g", scale)
	}
}
