//go:build !windows

package rl_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/reward"
	"onering/runtime/runtimetest"
	"onering/train/rl"
)

// A brief reward gives more for each token that a response is shorter, and skips
// responses that end after an even number of tokens.
type brief struct {
	Tokens int `toml:"tokens"`
}

func (b *brief) Score(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	scores := make([]reward.Score, len(group))
	for i, s := range group {
		if scores[i].Skip = len(s.IDs)%2 == 0; !scores[i].Skip {
			scores[i].Value = 1 - float64(len(s.IDs))/float64(b.Tokens)
			scores[i].Log = map[string]float64{"tokens": float64(len(s.IDs))}
		}
	}
	return scores, nil
}

// several is a reward of two.
func several(combine string) func(*rl.Config) {
	return func(c *rl.Config) {
		every(c)
		math, err := reward.NewPart("math")
		if err != nil {
			panic(err)
		}
		short := reward.Part{Name: "brief", As: "short", Weight: 0.5, Threshold: 1, Reward: &brief{Tokens: 40}}
		if combine == "gate" {
			short.Threshold = 0.725
		}
		c.Reward = rl.RewardConfig{Rule: &reward.Combined{Combine: combine, Parts: []reward.Part{short, math}}}
	}
}

// TestSeveralRewards: a run is trained on two rewards. Each is in the rollouts and the
// metrics, and the run resumes to the same bits from inside a round.
func TestSeveralRewards(t *testing.T) {
	env := runtimetest.Test(t)
	for _, combine := range []string{"sum", "gate"} {
		dir, names := start(t, env, "reference", several(combine))
		checkParts(t, dir, combine)
		want := contents(t, dir)
		for _, name := range names[len(names)/2:] {
			if err := os.RemoveAll(filepath.Join(dir, "checkpoints", name)); err != nil {
				t.Fatal(err)
			}
		}
		c := chaosConfig("reference", dir)
		several(combine)(&c)
		if log, err := continueRun(env, c, true); err != nil || strings.Contains(log, "settings have changed") {
			t.Fatalf("error %v, log %s", err, log)
		}
		same(t, "resumed", contents(t, dir), want)

		c.Reward.Rule.(*reward.Combined).Parts[0].Weight = 0.25
		c.Reward.Rule.(*reward.Combined).Parts[0].Reward.(*brief).Tokens = 50
		if log, err := continueRun(env, c, true); err != nil || !strings.Contains(log, "reward.use.short.tokens was 40 and is 50; reward.use.short.weight was 0.5 and is 0.25") {
			t.Errorf("error %v, log %s", err, log)
		}
		c.Reward = rl.Default().Reward
		if log, err := continueRun(env, c, true); err != nil || !strings.Contains(log, "reward.name was short + math and is math") {
			t.Errorf("error %v, log %s", err, log)
		}
	}
}

// checkParts checks the rollouts and metrics of the first round against the rules.
func checkParts(t *testing.T, dir, combine string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "rollouts", "round-00001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	sum, count, gated := map[string]float64{}, map[string]float64{}, 0
	add := func(name string, x float64) { sum[name], count[name] = sum[name]+x, count[name]+1 }
	for line := range strings.Lines(string(text)) {
		var x struct {
			Reward  float64
			Rewards map[string]float64
			Log     map[string]float64
			IDs     []int32
		}
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatal(err)
		}
		right, judged := x.Rewards["math"]
		short, counts := x.Rewards["short"]
		if !judged || counts != (len(x.IDs)%2 == 1) || counts && short != 1-float64(len(x.IDs))/40 || counts != (x.Log["short/tokens"] > 0) || x.Reward != 0.5*short+right {
			t.Fatalf("line %s", line)
		}
		if combine == "gate" && counts && short < 0.725 {
			if gated++; right != 0 {
				t.Fatalf("behind the gate: %s", line)
			}
		}
		add("reward", x.Reward)
		add("reward/math/mean", right)
		if counts {
			add("reward/short/mean", short)
			add("reward_log/short/tokens/mean", x.Log["short/tokens"])
		}
	}
	if n := count["reward/short/mean"]; n == 0 || n == count["reward"] || combine == "gate" && gated == 0 {
		t.Errorf("%v of %v responses have the component, %d ended the gate", n, count["reward"], gated)
	}
	metrics, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(metrics)) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if record["kind"] != "round" {
			continue
		}
		for name := range sum {
			if got, ok := record[name].(float64); !ok || math.Abs(got-sum[name]/count[name]) > 1e-12 {
				t.Errorf("%s is %v, want %v", name, record[name], sum[name]/count[name])
			}
		}
		return
	}
	t.Error("there is no round")
}
