package rl_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"onering/policy"
	"onering/reward"
	"onering/runtime/runtimetest"
	"onering/train/rl"
)

// A parted reward is math's reward plus a bonus for short responses, in parts.
type parted struct {
	Short float64 `toml:"short" range:"[0,1)"`

	mu     sync.Mutex
	groups map[int]int // sizes of the groups that were graded
	fail   error
}

func (r *parted) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	r.mu.Lock()
	r.groups[len(group)]++
	r.mu.Unlock()
	rule, err := reward.New("math")
	if err != nil {
		return nil, err
	}
	scores, err := rule.Score(ctx, group)
	for i, s := range group {
		if answer, _ := s.Problem.Fields.Get("answer"); answer != s.Problem.Answers[0] || s.Prompt != s.Problem.Text || len(s.PromptIDs) != 8 {
			err = fmt.Errorf("the sample lacks parts: %+v", s)
		}
		short := 0.0
		if len(s.IDs) < 20 {
			short = r.Short
		}
		scores[i].Components = map[string]float64{"right": scores[i].Value, "short": short}
		scores[i].Log = map[string]float64{"tokens": float64(len(s.IDs))}
		scores[i].Value += short
	}
	return scores, errors.Join(err, r.fail)
}

// partedRun is the configuration of a short run with the reward.
func partedRun(t *testing.T) (rl.Config, *parted) {
	rule := &parted{Short: 0.25, groups: map[int]int{}}
	c := embedded(t, "grpo", 3, 1)
	c.Rollout.PromptsPerRound = 16
	c.Reward = rl.RewardConfig{Name: "parted", Rule: rule}
	return c, rule
}

// TestReward: a run is graded by the reward of its configuration, by groups, in training
// and in evaluations, and stores the reward's results.
func TestReward(t *testing.T) {
	env := runtimetest.Test(t)
	c, rule := partedRun(t)
	s, rounds := learn(t, env, c)
	if want := map[int]int{8: 16, 1: 2 * 512}; !reflect.DeepEqual(rule.groups, want) {
		t.Errorf("groups by size %v, want %v", rule.groups, want)
	}
	plain := c
	plain.Output.Dir = filepath.Join(t.TempDir(), "plain")
	plain.Reward = rl.Default().Reward
	if p, _ := learn(t, env, plain); p.First.Results[0].Pass1 != s.First.Results[0].Pass1 {
		t.Errorf("pass@1 before training is %+v, and %+v by math: a response is right if it earns 1", s.First.Results[0].Pass1, p.First.Results[0].Pass1)
	}

	f, err := os.Open(filepath.Join(c.Output.Dir, "rollouts", "round-00001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var earned, right, tokens, n float64
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for ; lines.Scan(); n++ {
		var x struct {
			Reward  float64
			Rewards map[string]float64
			Log     map[string]float64
			IDs     []int32
		}
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		if len(x.Rewards) != 3 || x.Reward != x.Rewards["parted"] || x.Reward != x.Rewards["right"]+x.Rewards["short"] || x.Log["tokens"] != float64(len(x.IDs)) {
			t.Fatalf("line %s", lines.Text())
		}
		earned, right, tokens = earned+x.Reward, right+x.Rewards["right"], tokens+float64(len(x.IDs))
	}
	if n != 128 || right == 0 || earned <= right {
		t.Errorf("%v lines earn %v, %v of it for right answers", n, earned, right)
	}
	for name, want := range map[string]float64{"reward": earned / n, "reward/parted/mean": earned / n, "reward/right/mean": right / n, "reward/short/mean": (earned - right) / n, "reward_log/tokens/mean": tokens / n} {
		if got := rounds[0].Float(name); !(math.Abs(got-want) < 1e-12) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// An unboxed reward is math's reward for responses without their boxes.
type unboxed struct{ reward.Reward }

func (r unboxed) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	bare := slices.Clone(group)
	for i := range bare {
		bare[i].Response = strings.NewReplacer(`\boxed{`, "the answer is ", "}", "").Replace(bare[i].Response)
	}
	return r.Reward.Score(ctx, bare)
}

func (r unboxed) SetTemplate(name string) { reward.SetTemplate(r.Reward, name) }
func (r unboxed) Extract() string         { return reward.Extract(r.Reward) }
func (r unboxed) WithExtract(rule string) reward.Reward {
	return unboxed{r.Reward.(reward.Extractor).WithExtract(rule)}
}

// TestNoBox: a response without a box earns 0 in training, while [eval] may still read
// its answer.
func TestNoBox(t *testing.T) {
	env := runtimetest.Test(t)
	c, _ := partedRun(t)
	rule, err := reward.New("math")
	if err != nil {
		t.Fatal(err)
	}
	c.Reward = rl.RewardConfig{Name: "math", Rule: unboxed{rule}}
	c.Eval.Extract = "auto"
	var log bytes.Buffer
	s, rounds := learnLogged(t, env, c, slog.New(slog.NewTextHandler(&log, nil)))
	if !strings.Contains(log.String(), `msg="where responses have to state their answers" extract=boxed template=no`) {
		t.Errorf("the log does not say where answers are looked for:\n%s", &log)
	}
	for name, want := range map[string]float64{"reward": 0, "no_answer_share": 1, "verifier/status/ok": 1, "verifier/status/limit": 0, "verifier/status/error": 0, "verifier/errors": 0} {
		if got := rounds[0].Float(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if first := s.First.Results[0]; first.Pass1.Value < 0.1 || first.Unanswered > 0.1 {
		t.Errorf("by extract = auto pass@1 is %v, and %v of the responses have no answer", first.Pass1.Value, first.Unanswered)
	}
	text, err := os.ReadFile(filepath.Join(c.Output.Dir, "rollouts", "round-00001.jsonl"))
	if err != nil || strings.Count(string(text), `"answer":"","reason":"no box","status":"ok","reward":0,`) != 128 {
		t.Errorf("rollouts (%v) begin %.300s", err, text)
	}
	c.Eval.Extract = "box"
	if err := c.Validate(); err == nil || err.Error() != `eval.extract = "box": must be one of boxed, tag, auto, last; without it that of the reward` {
		t.Errorf("error %v", err)
	}
}

// TestRewardFails: a response that cannot be graded ends the run; it does not
// count as a reward of 0.
func TestRewardFails(t *testing.T) {
	env := runtimetest.Test(t)
	c, rule := partedRun(t)
	c.Eval.Suites = nil
	rule.fail = errors.New("the judge is out")
	policy, err := policy.Open(env, policy.Options{Path: c.Model.Path, DType: c.Model.DType})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	trainer, err := rl.New(context.Background(), c, env, policy, slog.New(slog.DiscardHandler), &quiet{})
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	_, err = trainer.Run(context.Background(), false)
	if !errors.Is(err, rule.fail) || !strings.HasPrefix(err.Error(), `train: round 1: reward: problem "`) {
		t.Errorf("error %v", err)
	}
}

// TestRewardSettings: an impossible setting of a reward is an error with its key of the
// run file.
func TestRewardSettings(t *testing.T) {
	c, rule := partedRun(t)
	rule.Short = 2
	if err := c.Validate(); err == nil || err.Error() != "reward.short = 2: must be in [0, 1)" {
		t.Errorf("error %v", err)
	}
	c.Reward = rl.RewardConfig{Name: "none"}
	if err := c.Validate(); err == nil || err.Error() != `reward.name = "none": must be one of `+strings.Join(reward.Names(), ", ") {
		t.Errorf("error %v", err)
	}
}

// A sparse reward skips every third token count, and all responses to some
// problems; with nothing it skips all.
type sparse struct {
	parted
	nothing bool
}

func (r *sparse) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	scores, err := r.parted.Score(ctx, group)
	for i, s := range group {
		if r.nothing || len(s.IDs)%3 == 0 || s.PromptIDs[1]%4 == 0 {
			scores[i] = reward.Score{Skip: true, Reason: "no opinion"}
		}
	}
	return scores, err
}

// TestRewardSkips: a response without a grade counts in no average, is compared with no
// other response and is in no step; it is never a reward of 0.
func TestRewardSkips(t *testing.T) {
	env := runtimetest.Test(t)
	c, rule := partedRun(t)
	c.Eval.Suites = nil
	c.Reward.Rule = &sparse{parted: parted{Short: 0.25, groups: rule.groups}}
	_, rounds := learn(t, env, c)
	text, err := os.ReadFile(filepath.Join(c.Output.Dir, "rollouts", "round-00001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	type line struct {
		Problem   string
		Reward    *float64
		Skipped   bool
		Reason    string
		Advantage float64
		IDs       []int
		W         []float64
	}
	groups := map[string][]line{}
	skipped, earned, graded := 0.0, 0.0, 0.0
	for row := range strings.Lines(string(text)) {
		var x line
		if err := json.Unmarshal([]byte(row), &x); err != nil {
			t.Fatal(err)
		}
		groups[x.Problem] = append(groups[x.Problem], x)
		if x.Skipped != (x.Reward == nil) || x.Skipped && (x.W != nil || x.Advantage != 0 || x.Reason != "no opinion") {
			t.Errorf("a skipped response: %s", row)
		}
		if x.Skipped {
			skipped++
			continue
		}
		graded++
		earned += *x.Reward
	}
	whole, part := 0, 0
	for _, group := range groups {
		// GRPO's advantages are rewards minus their mean, over their deviation.
		sum, n, spread := 0.0, 0, map[float64]bool{}
		for _, x := range group {
			if !x.Skipped {
				sum, n, spread[*x.Reward] = sum+x.Advantage, n+1, true
			}
		}
		switch {
		case n == 0:
			whole++
		case n > 1 && n < 8 && len(spread) > 1:
			part++
		}
		if math.Abs(sum) > 1e-9 {
			t.Errorf("the advantages of %d graded responses sum to %v", n, sum)
		}
	}
	if whole == 0 || part == 0 {
		t.Errorf("%d groups without a grade, %d with some: the test shows nothing", whole, part)
	}
	if got := rounds[0].Float("reward"); math.Abs(got-earned/graded) > 1e-12 {
		t.Errorf("the mean reward is %v, want %v", got, earned/graded)
	}
	if got := rounds[0].Float("reward/skipped"); got != skipped {
		t.Errorf("reward/skipped is %v, want %v", got, skipped)
	}
}

// TestRewardSkipsAll: a run whose reward grades nothing does not continue as if it
// learned, with groups and without.
func TestRewardSkipsAll(t *testing.T) {
	t.Run("groups", func(t *testing.T) { skipAll(t, "fewer than two responses to each problem", func(*rl.Config) {}) })
	t.Run("single responses", func(t *testing.T) {
		skipAll(t, "no response", func(c *rl.Config) {
			c.Rollout.PromptsPerRound, c.Rollout.SamplesPerPrompt, c.Objective = 64, 1, embedded(t, "reinforcepp", 1, 1).Objective
		})
	})
}

// skipAll runs with a reward that skips everything, and wants a warning that says what was graded.
func skipAll(t *testing.T, graded string, change func(*rl.Config)) {
	env := runtimetest.Test(t)
	c, rule := partedRun(t)
	change(&c)
	c.Reward.Rule = &sparse{parted: parted{groups: rule.groups}, nothing: true}
	var warned bytes.Buffer
	policy, err := policy.Open(env, policy.Options{Path: c.Model.Path, DType: c.Model.DType})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	trainer, err := rl.New(context.Background(), c, env, policy, warnings(&warned), &quiet{})
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	s, err := trainer.Run(context.Background(), false)
	if err == nil || !strings.Contains(err.Error(), "train: round 1: the reward graded "+graded+", so") || !strings.Contains(err.Error(), "was skipped: no opinion") {
		t.Errorf("error %v", err)
	}
	if len(s.First.Results) > 0 || !strings.Contains(warned.String(), "the evaluation is left out") || !strings.Contains(warned.String(), "skipped 512 responses") {
		t.Errorf("results %v, warnings:\n%s", s.First.Results, &warned)
	}
}
