//go:build !windows

package rl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"onering/data"
	"onering/models"
	"onering/policy"
	"onering/reward"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/train"
	"onering/train/metrics"
	"onering/train/ranks"
	"onering/train/rl"
	"onering/train/rundir"
)

// together trains with n ranks, each with a model of its own, and returns their errors.
// config makes the configuration of a rank; watch, which may be nil, is called for each
// finished round of rank r.
func together(env *runtime.Env, n int, resume bool, config func(rank int) rl.Config, watch func(ctx context.Context, stop func(), r int)) []error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	for r, transport := range ranks.Local(n) {
		wait.Go(func() {
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			group := ranks.New(transport)
			errs[r] = func() error {
				c := config(r)
				policy, err := train.OpenPolicy(env, c.Model.Path, c.Model.DType, c.LoRA, "base", c.Train.Seed, nil)
				if err != nil {
					return err
				}
				defer policy.Close()
				trainer, err := rl.NewOn(ctx, c, train.Setup{Ranks: group, Policy: policy, Log: slog.New(slog.DiscardHandler), Observer: watcher{told: func() {
					if watch != nil {
						watch(ctx, stop, r)
					}
				}}})
				if err != nil {
					return err
				}
				defer trainer.Close()
				_, err = trainer.Run(ctx, resume)
				return err
			}()
			if group.Lost() != nil {
				group.Abort(errs[r])
				return
			}
			errs[r] = errors.Join(errs[r], group.Close())
		})
	}
	wait.Wait()
	return errs
}

// A watcher is an Observer that is called when a round is done.
type watcher struct {
	metrics.Unobserved
	told func()
}

func (w watcher) Record(r metrics.Record) {
	if r.Get("kind") == "round" {
		w.told()
	}
}

// wellTogether is together for ranks that must all reach the end.
func wellTogether(t *testing.T, env *runtime.Env, n int, resume bool, config func(rank int) rl.Config) {
	t.Helper()
	for r, err := range together(env, n, resume, config, nil) {
		if err != nil {
			t.Fatalf("rank %d of %d: %v", r, n, err)
		}
	}
}

// responses returns the ids of all rollouts of a run, one line for each.
func responses(t *testing.T, dir string) (lines []string) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "rollouts", "*"))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var x struct {
				Problem string   `json:"problem"`
				Sample  int      `json:"sample"`
				IDs     []int32  `json:"ids"`
				Reward  *float64 `json:"reward"`
			}
			if err := json.Unmarshal([]byte(line), &x); err != nil {
				t.Fatal(err)
			}
			if len(x.IDs) == 0 {
				t.Fatalf("%s: no ids in %s", f, line)
			}
			reward := math.NaN()
			if x.Reward != nil {
				reward = *x.Reward
			}
			lines = append(lines, fmt.Sprint(x.Problem, x.Sample, x.IDs, reward))
		}
	}
	return lines
}

// apart returns the distance of the last checkpoints of two runs: the norm of the
// difference of their weights over the norm of the weights.
func apart(t *testing.T, a, b string) float64 {
	t.Helper()
	load := func(dir string) *models.Weights {
		names := list(t, dir)
		checkpoint := filepath.Join(dir, "checkpoints", names[len(names)-1])
		p, err := policy.Open(runtimetest.Test(t), policy.Options{Path: checkpoint, DType: "float32"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		if err := rundir.LoadWeights(checkpoint, p.Ring.Trained()); err != nil {
			t.Fatal(err)
		}
		return p.Weights
	}
	x, y := load(a), load(b)
	var d, norm float64
	for i := range x.Data {
		d += math.Pow(float64(x.Data[i])-float64(y.Data[i]), 2)
		norm += math.Pow(float64(y.Data[i]), 2)
	}
	return math.Sqrt(d / norm)
}

// The first 16 steps of the embedded run have the same rollouts, token for token, with
// three ranks as with one, and weights that differ by the rounding of sums; with a part of
// the moments on each rank the files are the same as with all, byte for byte. With
// ONERING_LONG=1 there are 24 steps, and two and four ranks as well.
func TestRanksEqualOne(t *testing.T) {
	env := runtimetest.Test(t)
	rounds, counts := 2, []int{1, 3}
	switch {
	case os.Getenv(longVariable) != "":
		rounds, counts = 3, []int{1, 2, 3, 4}
	case testing.Short():
		rounds = 1
	}
	run := func(n int, shard string) (dir string) {
		dir = filepath.Join(t.TempDir(), "run")
		base := embedded(t, "pmpo", 0, rounds)
		wellTogether(t, env, n, false, func(int) rl.Config {
			c := base
			c.Objective = embedded(t, "pmpo", 0, rounds).Objective
			c.Output.Dir, c.Rollout.Invariant, c.Distributed.Shard, c.Distributed.CheckEvery = dir, true, shard, 4
			return c
		})
		return dir
	}
	var one string
	for _, n := range counts {
		dir := run(n, "none")
		if n == 1 {
			one = dir
			continue
		}
		got, want := responses(t, dir), responses(t, one)
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%d ranks: response %d of %d is\n%s\nnot\n%s", n, i, len(want), got[i], want[i])
				break
			}
		}
		if d := apart(t, dir, one); d > 1e-6 {
			t.Errorf("%d ranks: weights are %.2g from those of one", n, d)
		}
		if n == 3 {
			same(t, "parts of the moments", withoutVolume(contents(t, run(n, "optimizer"))), withoutVolume(contents(t, dir)))
		}
	}
}

// withoutVolume removes from a run's contents the number of bytes that the ranks sent.
func withoutVolume(files map[string]string) map[string]string {
	var lines []string
	for line := range strings.Lines(files["metrics.jsonl"]) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil {
			delete(fields, "ranks/sent_bytes")
			delete(fields, "ranks/predicted_bytes")
			delete(fields, "ranks/early_bytes")
		}
		text, _ := json.Marshal(fields)
		lines = append(lines, string(text))
	}
	files["metrics.jsonl"] = strings.Join(lines, "\n")
	return files
}

// kindConfig is a tiny run of a kind, as several ranks train it.
func kindConfig(kind, dir string) rl.Config {
	c := chaosConfig(kind, dir)
	c.Rollout.Invariant, c.Distributed.CheckEvery = true, 1
	return c
}

// Every kind of run is the same with three ranks as with one, with evaluations, objectives
// that remember, reference policies, float16, curricula and rewards that vary; and two
// runs of three ranks are equal to the byte.
func TestRanksOfEveryKind(t *testing.T) {
	env := runtimetest.Test(t)
	for kind := range chaosKinds {
		t.Run(kind, func(t *testing.T) {
			run := func(n int) (dir string) {
				dir = filepath.Join(t.TempDir(), "run")
				wellTogether(t, env, n, false, func(int) rl.Config { return kindConfig(kind, dir) })
				return dir
			}
			one, three := run(1), run(3)
			got, want := responses(t, three), responses(t, one)
			if !slices.Equal(got, want) {
				t.Errorf("other responses:\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			// A learning rate of 1e-3 enlarges rounding errors, and float16 has larger ones.
			if d := apart(t, three, one); d > 3e-4 {
				t.Errorf("weights are %.2g from those of one rank", d)
			}
			same(t, "the second time", contents(t, run(3)), contents(t, three))
		})
	}
}

// TestRanksOfFamilies: layers with states in place of keys and values train on two ranks as on one.
func TestRanksOfFamilies(t *testing.T) {
	env := runtimetest.Test(t)
	for name, config := range map[string]string{
		"lfm2": `"model_type": "lfm2", "full_attn_idxs": [1], "block_ff_dim": 48, "block_multiple_of": 8, "num_key_value_heads": 1`,
		"qwen3_5": `"model_type": "qwen3_5_text", "full_attention_interval": 2, "head_dim": 16, "num_key_value_heads": 1,
			"linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 6`,
	} {
		t.Run(name, func(t *testing.T) {
			from := freshModel(t, `{"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 25,
				"max_position_embeddings": 64, "initializer_range": 0.1, "eos_token_id": 24, `+config+`}`)
			run := func(n int) (dir string) {
				dir = filepath.Join(t.TempDir(), "run")
				wellTogether(t, env, n, false, func(int) rl.Config {
					c := kindConfig("remax", dir)
					set(&c, "grpo", `{"EntropyBonus":0.5}`) // a fresh model earns no reward
					c.Model.Path, c.Train.Rounds, c.Rollout.PromptsPerRound, c.Rollout.SamplesPerPrompt = from, 2, 4, 4
					return c
				})
				return dir
			}
			one, two := run(1), run(2)
			if !slices.Equal(responses(t, two), responses(t, one)) {
				t.Error("two ranks have other responses than one")
			}
			if d := apart(t, two, one); d > 3e-4 {
				t.Errorf("weights are %.2g from those of one rank", d)
			}
			same(t, "the second time", contents(t, run(2)), contents(t, two))
		})
	}
}

// freshModel writes the folder of a random model for the characters of the embedded task.
func freshModel(t *testing.T, config string) (dir string) {
	t.Helper()
	words := t.TempDir()
	vocab := map[string]int{"<pad>": 23, "<eos>": 24}
	for i, c := range `0123456789+-=;c\boxed{}` {
		vocab[string(c)] = i
	}
	text, err := json.Marshal(vocab)
	for name, text := range map[string]string{"vocab.json": string(text), "merges.txt": "#version: 0.2\n",
		"tokenizer_config.json": `{"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<eos>", "added_tokens_decoder": {"24": {"content": "<eos>", "special": true}}}`} {
		err = errors.Join(err, os.WriteFile(filepath.Join(words, name), []byte(text), 0o666))
	}
	m, failed := models.ParseConfig([]byte(config), nil)
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	w, err := m.Init(3)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	dir = filepath.Join(t.TempDir(), "model")
	if err := m.Save(dir, w, models.SaveOptions{Tokenizer: words}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A run that four ranks began and two continue ends with the same bytes as a run that two
// continued from the same checkpoint, with moments and float32 weights in parts or not,
// and with an adapter too. Only the first rank reads the folder.
func TestRanksResume(t *testing.T) {
	env := runtimetest.Test(t)
	volumes := map[string]float64{}
	for name, change := range map[string]func(*rl.Config){
		"weights": func(*rl.Config) {},
		"parts": func(c *rl.Config) { // and a reference that moves
			set(c, "dapo", `{"KLBeta":0.05}`)
			c.Distributed.Shard, c.Model.ReferenceUpdate, c.Model.ReferenceSteps = "optimizer", 0.5, 2
		},
		"halves": func(c *rl.Config) { // The float32 weights are in parts too, beside a reference.
			set(c, "grpo", `{"KLBeta":0.05}`)
			c.Model.DType, c.Distributed.Shard = "float16", "optimizer"
		},
		"adapter": func(c *rl.Config) {
			c.LoRA.On, c.LoRA.Rank, c.Distributed.Shard = true, 2, "optimizer"
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := func(dir, shard string) func(int) rl.Config {
				return func(r int) rl.Config {
					c := kindConfig("dapo", dir)
					change(&c)
					if shard != "" {
						c.Distributed.Shard = shard
					}
					if c.Train.KeepLast = 0; r > 0 {
						c.Output.Dir = filepath.Join(dir, "nowhere") // as if on another machine
					}
					return c
				}
			}
			dir := filepath.Join(t.TempDir(), "run")
			wellTogether(t, env, 4, false, config(dir, ""))
			names := list(t, dir)
			if len(names) < 4 {
				t.Fatalf("checkpoints %v", names)
			}
			if name != "halves" { // These runs take steps again until the loss scale is found.
				volumes[name] = sentPerStep(t, dir)
			}
			ends := map[string]map[string]string{}
			for _, shard := range []string{"none", "optimizer"} {
				again := filepath.Join(t.TempDir(), "again")
				if err := os.CopyFS(again, os.DirFS(dir)); err != nil {
					t.Fatal(err)
				}
				for _, name := range names[len(names)/2:] {
					if err := os.RemoveAll(filepath.Join(again, "checkpoints", name)); err != nil {
						t.Fatal(err)
					}
				}
				wellTogether(t, env, 2, true, config(again, shard))
				ends[shard] = lastFiles(t, again)
			}
			for name, text := range ends["none"] {
				if ends["optimizer"][name] != text {
					t.Errorf("%s depends on how the moments are kept", name)
				}
			}
			if got := list(t, dir); len(ends["none"]) < 3 || len(got) == 0 {
				t.Errorf("compared %d files", len(ends["none"]))
			}
		})
	}
	// With so few weights there is one range, owned by the first of four ranks. The first
	// rank sends its sums to three ranks; without parts it sends three quarters twice.
	if volumes["weights"] <= 0 || volumes["parts"] != 2*volumes["weights"] || volumes["adapter"] <= 0 || 4*volumes["adapter"] > volumes["parts"] {
		t.Errorf("bytes sent in a step: %v", volumes)
	}
}

// sentPerStep returns how many bytes of gradients and weights the first rank sent in each
// step of a run: as many as it had predicted.
func sentPerStep(t *testing.T, dir string) (bytes float64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var step struct {
			Kind      string
			Sent      float64 `json:"ranks/sent_bytes"`
			Predicted float64 `json:"ranks/predicted_bytes"`
		}
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			t.Fatal(err)
		}
		if step.Kind != "step" {
			continue
		}
		if step.Sent != step.Predicted || bytes != 0 && step.Sent != bytes {
			t.Errorf("sent %v bytes, predicted %v, in the step before %v", step.Sent, step.Predicted, bytes)
		}
		bytes = step.Sent
	}
	return bytes
}

// lastFiles returns the tensors of a run's last checkpoint, and its rollouts.
func lastFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	names := list(t, dir)
	out := map[string]string{"responses": strings.Join(responses(t, dir), "\n")}
	for _, pattern := range []string{"*.safetensors", "state/*.safetensors"} {
		files, _ := filepath.Glob(filepath.Join(dir, "checkpoints", names[len(names)-1], pattern))
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			out[filepath.Base(f)] = string(text)
		}
	}
	return out
}

// A rank that is told to stop stops all ranks in order, with a checkpoint that any number
// of ranks can resume; a rank that fails ends all with its error.
func TestRanksStop(t *testing.T) {
	env := runtimetest.Test(t)
	whole := filepath.Join(t.TempDir(), "whole")
	wellTogether(t, env, 3, false, func(int) rl.Config { return kindConfig("reference", whole) })
	for rank := range 3 {
		dir := filepath.Join(t.TempDir(), "run")
		config := func(int) rl.Config { return kindConfig("reference", dir) }
		for r, err := range together(env, 3, false, config, func(ctx context.Context, stop func(), r int) {
			if r == rank {
				stop()
			}
		}) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("rank %d was stopped: rank %d returns %v", rank, r, err)
			}
		}
		if len(list(t, dir)) == 0 {
			t.Fatal("there is no checkpoint")
		}
		wellTogether(t, env, 3, true, config)
		same(t, "stopped", contents(t, dir), contents(t, whole))
	}
}

// A reward that fails on one rank ends all with one message, and the run can be resumed.
func TestRanksFail(t *testing.T) {
	env := runtimetest.Test(t)
	dir := filepath.Join(t.TempDir(), "run")
	for r, err := range together(env, 3, false, func(rank int) rl.Config {
		c := kindConfig("reference", dir)
		c.Reward.Rule = &broken{after: []int{1000, 1000, 6}[rank]}
		return c
	}, nil) {
		var other *ranks.RankError
		if err == nil || !strings.Contains(err.Error(), "the grader is broken") || r != 2 && !(errors.As(err, &other) && other.Rank == 2) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if len(list(t, dir)) == 0 {
		t.Fatal("there is no checkpoint")
	}
	wellTogether(t, env, 2, true, func(int) rl.Config {
		c := kindConfig("reference", dir)
		c.Reward.Rule = &broken{after: 1000}
		return c
	})
}

// broken is a reward that fails after so many responses.
type broken struct {
	mu    sync.Mutex
	after int
}

func (b *broken) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.after -= len(group); b.after < 0 {
		return nil, errors.New("the grader is broken")
	}
	scores := make([]reward.Score, len(group))
	for i, x := range group {
		scores[i].Value = float64(len(x.IDs) % 2)
	}
	return scores, nil
}

// Ranks that differ do not begin, and each rank names the difference and where it is.
func TestRanksDiffer(t *testing.T) {
	env := runtimetest.Test(t)
	for thing, change := range map[string]func(*rl.Config){
		"configuration":   func(c *rl.Config) { c.Optimizer.LearningRate *= 2 },
		"set of problems": func(c *rl.Config) { c.Data.Train = rl.TrainFiles{{Path: "testdata/levels.jsonl"}} },
		"model":           func(c *rl.Config) { c.Model.Path = noisyModel(t) },
	} {
		dir := filepath.Join(t.TempDir(), "run")
		for r, err := range together(env, 3, false, func(rank int) rl.Config {
			c := kindConfig("dapo", dir)
			if thing == "set of problems" {
				c.Data.Train = rl.TrainFiles{{Path: "testdata/more.jsonl"}}
			}
			if rank == 1 {
				change(&c)
			}
			return c
		}, nil) {
			var differ *ranks.DifferError
			if !errors.As(err, &differ) || differ.Rank != 1 || differ.Thing != thing && thing != "set of problems" {
				t.Errorf("%s: rank %d: %v", thing, r, err)
			}
		}
		if entries, _ := os.ReadDir(filepath.Join(dir, "checkpoints")); len(entries) > 0 {
			t.Errorf("%s: something was trained", thing)
		}
	}
}

// noisyModel is the embedded model with one weight changed.
func noisyModel(t *testing.T) string {
	t.Helper()
	p, err := policy.Open(runtimetest.Test(t), policy.Options{Path: data.Arithmetic, DType: "float32"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Weights.Data[len(p.Weights.Data)/2] += 1e-3
	dir := filepath.Join(t.TempDir(), "model")
	if err := p.Model.Save(dir, p.Weights, models.SaveOptions{DType: models.F32, Tokenizer: p.Dir}); err != nil {
		t.Fatal(err)
	}
	return dir
}
