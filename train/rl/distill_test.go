//go:build !windows

package rl_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/data"
	"onering/models"
	"onering/policy"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/sampler"
	"onering/train/metrics"
)

// TestDistill: a policy with noise on its weights learns from the model without it,
// whatever the rewards: the loss, which estimates the reverse KL, falls. It takes a single
// response to each problem.
func TestDistill(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	env := runtimetest.Test(t)
	p, err := policy.Open(env, policy.Options{Path: data.Arithmetic, DType: "float32"})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(4, 2))
	for i := range p.Weights.Data {
		p.Weights.Data[i] *= float32(1 + 0.3*r.NormFloat64())
	}
	c := embedded(t, "opd", 1, 3)
	c.Rollout.PromptsPerRound, c.Rollout.SamplesPerPrompt = 512, 1
	c.Model.Path = filepath.Join(t.TempDir(), "noisy")
	err = p.Model.Save(c.Model.Path, p.Weights, models.SaveOptions{DType: models.F32, Tokenizer: p.Dir})
	p.Close()
	if err != nil {
		t.Fatal(err)
	}
	c.Model.Reference = data.Arithmetic
	c.Eval.Suites = nil
	_, rounds := learn(t, env, c)
	if x := rounds[0].Float("frac_reward_zero_std"); x != 0 {
		t.Errorf("the rewards of %v of the groups of one are said to be equal", x)
	}
	first := rounds[0].Float("loss")
	last := rounds[len(rounds)-1].Float("loss")
	t.Logf("loss %v in the first round, %v in the last", first, last)
	if !(last < first/2) || !(last > 0) {
		t.Errorf("loss %v in the first round, %v in the last", first, last)
	}
}

// TestGreedy: with ReMax a round has a greedy response to each problem, equal to greedy
// decoding; other rewards are compared with its reward; and the other responses do not
// change.
func TestGreedy(t *testing.T) {
	env := runtimetest.Test(t)
	run := func(objective string, k int) (dir string, rounds []metrics.Record) {
		c := embedded(t, objective, 1, 1)
		c.Rollout.PromptsPerRound, c.Rollout.SamplesPerPrompt, c.Train.BatchSize, c.Eval.Suites = 64, k, 64, nil
		c.Rollout.Invariant = true
		_, rounds = learn(t, env, c)
		return c.Output.Dir, rounds
	}
	dir, rounds := run("remax", 3)
	plain, _ := run("opo", 3)
	if got, want := responses(t, dir), responses(t, plain); !slices.Equal(got, want) {
		t.Errorf("other responses beside greedy ones:\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	baselines := checkGreedy(t, env, dir, 3)
	sum := 0.0
	for _, x := range baselines {
		sum += x
	}
	if got := rounds[0].Float("reward_greedy"); math.Abs(got-sum/64) > 1e-12 || sum == 0 || sum == 64 {
		t.Errorf("reward_greedy is %v, and the greedy responses earned %v", got, baselines)
	}
	dir, _ = run("remax", 1)
	if got := checkGreedy(t, env, dir, 1); !slices.Equal(got, baselines) {
		t.Errorf("beside one response greedy ones earn %v, beside three %v", got, baselines)
	}
}

// checkGreedy compares the greedy responses of the first round of a run, of k responses
// to each problem, with those of a decoder, and the advantages with the greedy responses'
// rewards, which it returns.
func checkGreedy(t *testing.T, env *runtime.Env, dir string, k int) (rewards []float64) {
	t.Helper()
	policy, err := policy.Open(env, policy.Options{Path: data.Arithmetic, DType: "float32"})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	decoder, err := env.NewDecoder(policy.Ring, 2, 56)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	text, err := os.ReadFile(filepath.Join(dir, "rollouts", "round-00001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	weighed := 0
	for i, row := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var x struct {
			PromptIDs         []int32 `json:"prompt_ids"`
			Reward, Advantage float64
			W                 []float64
			Greedy            *struct {
				Response string
				Reward   float64
				IDs      []int32
				LogP     []float64
			}
		}
		if err := json.Unmarshal([]byte(row), &x); err != nil {
			t.Fatal(err)
		}
		if (x.Greedy != nil) != (i%k == 0) {
			t.Fatalf("line %d: greedy %+v", i, x.Greedy)
		}
		if x.Greedy != nil {
			options := sampler.Options{Sampling: sampler.Greedy(40), EOS: policy.Model.EOS}
			want, _, err := sampler.Sample(t.Context(), decoder, options, []sampler.Request{{Prompt: x.PromptIDs, Samples: 1}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(x.Greedy.IDs, want[0].IDs) || len(x.Greedy.LogP) != len(x.Greedy.IDs) || x.Greedy.Response == "" {
				t.Errorf("line %d: the greedy response is %+v, decoding gives %v", i, x.Greedy, want[0].IDs)
			}
			rewards = append(rewards, x.Greedy.Reward)
		}
		if want := x.Reward - rewards[len(rewards)-1]; x.Advantage != want || (x.W != nil) != (want != 0) {
			t.Errorf("line %d: the advantage is %v, want %v; weights %v", i, x.Advantage, want, x.W)
		}
		if x.Advantage != 0 {
			weighed++
		}
	}
	if weighed == 0 {
		t.Error("no response has an advantage")
	}
	return rewards
}
