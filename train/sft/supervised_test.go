package sft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/data"
	"onering/models/optim/adamw"
	"onering/policy"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/train"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/ranks"
)

var quiet = slog.New(slog.DiscardHandler)

// A recorder keeps the records of a run, and cancels it after so many steps.
type recorder struct {
	metrics.Unobserved
	records []metrics.Record
	cancel  func()
	after   int
}

func (r *recorder) Record(m metrics.Record) {
	r.records = append(r.records, m)
	if r.cancel != nil && m.Get("kind") == "step" && m.Get("step") == r.after {
		r.cancel()
	}
}

// losses returns the losses of the steps.
func (r *recorder) losses() (losses []float64) {
	for _, m := range r.records {
		if m.Get("kind") == "step" {
			losses = append(losses, m.Float("loss"))
		}
	}
	return losses
}

// sums are demonstrations for the embedded model.
func sums(n int) (list []data.Demonstration) {
	for i := range n {
		list = append(list, data.Demonstration{Prompt: fmt.Sprintf("%d+%d=", i, 3*i), Response: fmt.Sprint(4 * i), Place: fmt.Sprint("sum ", i)})
	}
	return list
}

func configured(dir string) Config {
	c := Default(data.Arithmetic)
	c.Data.Train, c.Output.Dir = "sums", dir
	c.Train.Epochs, c.Optimizer.Warmup = 4, 2
	return c
}

// openPolicy opens the model of a run, with a new adapter where the run trains one.
func openPolicy(t *testing.T, env *runtime.Env, c Config) *policy.Policy {
	t.Helper()
	policy, err := policy.Open(env, policy.Options{Path: c.Model.Path, DType: c.Model.DType})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(policy.Close)
	if c.LoRA.On {
		if err := policy.NewAdapter(c.LoRA.Settings, c.Model.Path, 1); err != nil {
			t.Fatal(err)
		}
	}
	return policy
}

// open opens a run of the embedded model on 64 sums.
func open(t *testing.T, c Config, log *slog.Logger, observer metrics.Observer) *trainer {
	t.Helper()
	env := runtimetest.Test(t)
	policy := openPolicy(t, env, c)
	trainer, err := NewOn(c, train.Setup{Ranks: ranks.Alone(), Policy: policy, Log: log, Observer: observer}, sums(64), nil)
	if err != nil {
		t.Fatal(err)
	}
	return trainer
}

// run trains with a Trainer of its own.
func run(ctx context.Context, t *testing.T, c Config, r *recorder, resume bool) (Summary, error) {
	t.Helper()
	trainer := open(t, c, quiet, r)
	defer trainer.Close()
	return trainer.Run(ctx, resume)
}

// losses trains and returns the losses of the steps.
func losses(t *testing.T, log *slog.Logger, change func(*Config), beforePass func(int) error) ([]float64, *trainer, error) {
	t.Helper()
	c := configured(filepath.Join(t.TempDir(), "run"))
	change(&c)
	var r recorder
	trainer := open(t, c, log, &r)
	defer trainer.Close()
	trainer.run.BeforePass = beforePass
	_, err := trainer.Run(context.Background(), false)
	return r.losses(), trainer, err
}

// If memory runs out, micro-batches are halved and the losses are the same; if they
// cannot be halved, the error is returned. In float16 the loss is scaled, and the model
// learns as in float32.
func TestMemoryEndsAndFloat16(t *testing.T) {
	want, _, err := losses(t, quiet, func(*Config) {}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != 8 || !(want[7] < want[0]) {
		t.Errorf("losses %v", want)
	}
	near := func(got []float64, share float64) {
		t.Helper()
		for i := range want {
			if math.Abs(got[i]-want[i]) > share*want[i] {
				t.Errorf("step %d: loss %v, want %v", i+1, got[i], want[i])
			}
		}
	}
	noMemory := errors.New("Failed to allocate memory for requested buffer of size 1")
	var log bytes.Buffer
	passes := 0
	got, _, err := losses(t, slog.New(slog.NewTextHandler(&log, nil)), func(c *Config) { c.Train.MicroTokens = 512 }, func(tokens int) error {
		if passes++; tokens > 150 {
			return noMemory
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	near(got, 0.02)
	if passes <= len(got) || !strings.Contains(log.String(), "micro-batches are halved") {
		t.Errorf("%d passes for %d steps, log:\n%s", passes, len(got), &log)
	}
	if _, _, err = losses(t, quiet, func(*Config) {}, func(int) error { return noMemory }); !errors.Is(err, noMemory) || !strings.Contains(err.Error(), "step 1") {
		t.Errorf("error %v", err)
	}
	got, trainer, err := losses(t, quiet, func(c *Config) { c.Model.DType = "float16" }, nil)
	if err != nil {
		t.Fatal(err)
	}
	near(got, 0.05)
	if scale := trainer.run.Policy.Ring.LossScale; scale != 1<<16 {
		t.Errorf("the loss scale is %g", scale)
	}
}

// filesOf returns the files of a run folder that every run must write equally.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	_, err := os.Stat(filepath.Join(dir, "adapter_config.json"))
	adapter := err == nil
	all := map[string]string{}
	for _, name := range []string{"model.safetensors", "config.json", "adapter_model.safetensors", "adapter_config.json", "metrics.jsonl"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) && strings.HasPrefix(name, "adapter") != adapter {
			continue // the other folder has it
		}
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(string(text)) {
			if name == "metrics.jsonl" { // The test leaves out seconds and the time of day.
				line, _, _ = strings.Cut(line, `"seconds/`)
				line, _, _ = strings.Cut(line, `"time"`)
			}
			lines = append(lines, line)
		}
		all[name] = strings.Join(lines, "")
	}
	return all
}

// A run that is interrupted after any step and resumed ends with the same weights and
// metrics, the held-out loss included, as a run without interruption.
func TestResume(t *testing.T) { testResume(t, func(*Config) {}, "config.json") }

// TestResumeAdapter is TestResume for an adapter in place of the weights.
func TestResumeAdapter(t *testing.T) {
	testResume(t, func(c *Config) { c.LoRA.On, c.LoRA.Rank = true, 4 }, "adapter_config.json")
}

// testResume stops runs with settings that change makes; last names the file that a run
// writes last.
func testResume(t *testing.T, change func(*Config), last string) {
	settings := func(dir string) Config {
		c := configured(dir)
		c.Train.BatchSize, c.Train.EvalEvery, c.Train.SaveSteps, c.Data.HeldOut = 16, 3, 4, 0.1
		change(&c)
		return c
	}
	dir := t.TempDir()
	var whole recorder
	c := settings(filepath.Join(dir, "whole"))
	end, err := run(context.Background(), t, c, &whole, false)
	if err != nil {
		t.Fatal(err)
	}
	if end.Steps != 16 || end.Demonstrations != 58 || !(end.HeldOut[1] < end.HeldOut[0]) || !c.Finished() {
		t.Errorf("the run came to %+v", end)
	}
	want := filesOf(t, c.Output.Dir)
	for _, after := range []int{1, 3, 4, 9, 16} {
		c := settings(filepath.Join(dir, fmt.Sprint("stopped-", after)))
		ctx, cancel := context.WithCancel(context.Background())
		if _, err := run(ctx, t, c, &recorder{cancel: cancel, after: after}, false); after < 16 && !errors.Is(err, context.Canceled) {
			t.Fatalf("stopped after step %d: %v", after, err)
		}
		if after == 16 {
			os.Remove(filepath.Join(c.Output.Dir, last)) // This is the folder of a run that was killed while it wrote the model.
		}
		if c.Finished() {
			t.Errorf("stopped after step %d, and finished", after)
		}
		again, err := run(context.Background(), t, c, &recorder{}, true)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range filesOf(t, c.Output.Dir) {
			if text != want[name] {
				t.Errorf("stopped after step %d: %s differs", after, name)
			}
		}
		if !slices.Equal(again.Loss, end.Loss) || !slices.Equal(again.HeldOut, end.HeldOut) {
			t.Errorf("stopped after step %d: %+v, want %+v", after, again, end)
		}
	}
	// A run cannot resume with settings that change its course.
	c = settings(filepath.Join(dir, "stopped-9"))
	os.Remove(filepath.Join(c.Output.Dir, last))
	c.Optimizer.LearningRate = 1
	if _, err := run(context.Background(), t, c, &recorder{}, true); err == nil || !strings.Contains(err.Error(), "optimizer.learning_rate was 0.003 and is 1") {
		t.Errorf("resumed with another learning rate: %v", err)
	}
}

// TestSequence: learned tokens are scored, each turn as a span, anywhere in the sequence.
// The first id is not predicted, and tokens after the last turn are not computed.
func TestSequence(t *testing.T) {
	x := Example{IDs: []int32{9, 8, 7, 6, 5, 4, 3}, Learn: []bool{true, false, true, true, false, true, false}}
	s := x.sequence()
	if !slices.Equal(s.Tokens, x.IDs[:6]) || !slices.Equal(s.Scored, []runtime.Span{{From: 2, To: 4}, {From: 5, To: 6}}) || s.Count() != 3 {
		t.Errorf("%+v, %d tokens scored", s, s.Count())
	}
}

// TestTurns: a step on conversations scores the learned tokens alone, and its loss and
// gradient are those of whole conversations in which all other tokens have the weight zero.
func TestTurns(t *testing.T) {
	env := runtimetest.Test(t)
	policy := openPolicy(t, env, configured("out"))
	stepper, err := learn.New(env, policy.Ring, learn.Options{Optimizer: adamw.Default(), Temperature: 1, Passes: learn.Passes{MicroTokens: 40}})
	if err != nil {
		t.Fatal(err)
	}
	defer stepper.Close()
	var turns, whole learn.Batch
	learned := 0
	for i := range 6 {
		x := Example{IDs: make([]int32, 12+i), Learn: make([]bool, 12+i)}
		for k := range x.IDs {
			x.IDs[k], x.Learn[k] = int32(1+(i+k*k)%10), k%5 > 1
		}
		s := x.sequence()
		long := runtime.NewSequence(s.Prefix(), s.Tokens[len(s.Prefix()):])
		weights := make([]float64, long.Count())
		for k := range weights {
			if x.Learn[len(s.Prefix())+k] {
				weights[k] = -0.01
				learned++
			}
		}
		turns.Sequences, turns.Weights = append(turns.Sequences, s), append(turns.Weights, slices.Repeat([]float64{-0.01}, s.Count()))
		whole.Sequences, whole.Weights = append(whole.Sequences, long), append(whole.Weights, weights)
	}
	got, err := stepper.Gradients(context.Background(), turns, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := stepper.Gradients(context.Background(), whole, nil)
	if err != nil {
		t.Fatal(err)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Abs(b) }
	if got.Tokens != learned || len(slices.Concat(got.LogProb...)) != learned || want.Tokens <= learned || got.MicroBatches < 2 {
		t.Errorf("%d tokens scored, of whole conversations %d, in %d micro-batches; %d are learned", got.Tokens, want.Tokens, got.MicroBatches, learned)
	}
	if !near(got.Loss.Value, want.Loss.Value) || !near(got.GradNorm, want.GradNorm) || got.GradNorm == 0 {
		t.Errorf("loss %v and norm %v, of whole conversations %v and %v", got.Loss.Value, got.GradNorm, want.Loss.Value, want.GradNorm)
	}
}

// TestEncode checks the ids of demonstrations: their end, their length, and characters
// that the vocabulary lacks.
func TestEncode(t *testing.T) {
	env := runtimetest.Test(t)
	policy, err := policy.Open(env, policy.Options{Path: data.Arithmetic, DType: "float32"})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	c := configured("out")
	c.Data.MaxTokens = 8
	eos, _ := policy.Tokenizer.EOS()
	encode := func(d data.Demonstration) (*Example, error) {
		t.Helper()
		e, err := c.Encoder(policy)
		if err != nil {
			t.Fatal(err)
		}
		return e.Encode(d)
	}
	// If several ids end a response, the run learns the tokenizer's, or else the first.
	was := policy.Model.EOS
	for _, ends := range []struct {
		ids  []int32
		want int32
	}{{[]int32{eos}, eos}, {[]int32{eos + 1, eos}, eos}, {[]int32{eos + 1, eos + 2}, eos + 1}} {
		policy.Model.EOS = ends.ids
		if x, err := encode(data.Demonstration{Prompt: "1+1=", Response: "2"}); err != nil || x.IDs[len(x.IDs)-1] != ends.want || x.sequence().Count() != 2 {
			t.Errorf("of %d responses learn to end with %+v, %v, want %d", ends.ids, x, err, ends.want)
		}
	}
	policy.Model.EOS = was
	if x, err := encode(data.Demonstration{Response: "1+1=2", Whole: true}); err != nil || len(x.IDs) != 6 || x.sequence().Count() != 5 {
		t.Errorf("a text is %+v, %v", x, err)
	}
	// An end that a response already has is not written a second time.
	end := policy.Tokenizer.Decode([]int32{eos}, false)
	for _, d := range []data.Demonstration{{Prompt: "1+1=", Response: "2"}, {Response: "1+1=2", Whole: true}} {
		plain, err := encode(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, tail := range []string{end, end + "\n", end + " "} {
			ended := d
			ended.Response += tail
			if x, err := encode(ended); err != nil || !slices.Equal(x.IDs, plain.IDs) || !slices.Equal(x.Learn, plain.Learn) {
				t.Errorf("%q becomes %+v, %v; want %v", ended.Response, x, err, plain.IDs)
			}
		}
	}
	if x, err := encode(data.Demonstration{Prompt: "111+111=", Response: "222"}); x != nil || err != nil {
		t.Errorf("a long one is %+v, %v", x, err)
	}
	c.Data.AssistantOnly, c.Data.TooLong = false, "cut"
	if x, err := encode(data.Demonstration{Prompt: "111+111=", Response: "222"}); err != nil || len(x.IDs) != 8 || x.sequence().Count() != 7 || x.cut != 4 {
		t.Errorf("a long one is cut to %+v, %v", x, err)
	}
	if _, err := encode(data.Demonstration{Prompt: "1+1=", Response: "é2", Place: "f.jsonl: line 3"}); err == nil || !strings.Contains(err.Error(), `f.jsonl: line 3: tokenize: 'é' in "é2" is not in the vocabulary`) {
		t.Errorf("a character that is not in the vocabulary: %v", err)
	}
	// A run that would lose more than half is refused, and a smaller loss is a warning.
	var log bytes.Buffer
	c.Data.AssistantOnly, c.Data.TooLong = true, "drop"
	list := append(sums(3), data.Demonstration{Prompt: "111+111=", Response: "222"}, data.Demonstration{Prompt: "111+111=", Response: "222"})
	e, _ := c.Encoder(policy)
	if s, err := e.EncodeAll(list, 1, "--data", slog.New(slog.NewTextHandler(&log, nil))); err != nil || len(s.Examples) != 3 || !strings.Contains(log.String(), "dropped=2") {
		t.Errorf("%v, log %s", err, &log)
	}
	if _, err := e.EncodeAll(list[2:], 1, "--data", quiet); err == nil || !strings.Contains(err.Error(), "--data: 2 of 3 demonstrations have more than 8 tokens (--max-tokens") {
		t.Errorf("losing more than half: %v", err)
	}
	if _, err := e.EncodeAll(slices.Concat(list[4:], list[4:]), 2, "--data", quiet); err == nil || strings.Contains(err.Error(), "--too-long") {
		t.Errorf("pairs, which are not cut: %v", err)
	}
	e.config.Data.demonstrationData = nil // responses with labels, as kto learns them
	if _, err := e.EncodeAll(list[2:], 1, "--data", quiet); err == nil || strings.Contains(err.Error(), "--too-long") {
		t.Errorf("responses with labels, which are not cut: %v", err)
	}
}
