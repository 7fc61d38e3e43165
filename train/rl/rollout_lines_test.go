//go:build !windows

package rl_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"onering/runtime/runtimetest"
)

// The lines of a rollouts file have training's numbers for each token: a step raises the
// log-probs of responses that were better than their group and lowers the others', and
// after a round's first step the policy differs from the one that sampled. Each line has
// the prompt as the model read it, and the first line of a group has the row.
func TestRolloutLines(t *testing.T) {
	env := runtimetest.Test(t)
	for _, kind := range []string{"ema", "dapo"} {
		dir, _ := start(t, env, kind, nil)
		text, err := os.ReadFile(filepath.Join(dir, "rollouts", "round-00001.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		trained, left, moved := 0, 0, 0
		for row := range bytes.Lines(text) {
			var x struct {
				Sample           int
				Prompt, Response string
				PromptText       string `json:"prompt_text"`
				PromptIDs        []int  `json:"prompt_ids"`
				Columns          map[string]any
				Right            *bool
				Reward           float64
				Advantage        float64
				IDs              []int
				LogP, W, Delta   []float64
			}
			if err := json.Unmarshal(row, &x); err != nil {
				t.Fatal(err)
			}
			if row, _ := x.Columns["problem"].(string); x.PromptText != x.Prompt || len(x.PromptIDs) != len(x.Prompt) || (x.Sample == 0) != (row == x.Prompt) || x.Sample > 0 && row != "" {
				t.Fatalf("sample %d: prompt %q, as rendered %q, %d tokens, columns %v", x.Sample, x.Prompt, x.PromptText, len(x.PromptIDs), x.Columns)
			}
			if x.Right == nil || *x.Right != (x.Reward == 1) {
				t.Fatalf("reward %v, right %v", x.Reward, x.Right)
			}
			if len(x.LogP) != len(x.IDs) || len(x.W) != len(x.Delta) {
				t.Fatalf("%d tokens, %d log-probs, %d weights, %d deltas", len(x.IDs), len(x.LogP), len(x.W), len(x.Delta))
			}
			if x.W == nil {
				if kind == "ema" && x.Advantage != 0 {
					t.Errorf("a response of advantage %v has no weights", x.Advantage)
				}
				left++
				continue
			}
			trained++
			if len(x.W) != len(x.IDs) {
				t.Fatalf("%d tokens, %d weights", len(x.IDs), len(x.W))
			}
			sum, far := 0.0, 0.0
			for i := range x.W {
				sum += x.W[i]
				far = max(far, math.Abs(x.Delta[i]))
			}
			if kind == "ema" && sum*x.Advantage > 0 {
				t.Errorf("advantage %v and weights that sum to %v: the loss would rise", x.Advantage, sum)
			}
			if far > 1e-4 {
				moved++
			}
		}
		// One of a round's four steps is on the policy that sampled.
		if trained == 0 || moved == 0 || moved > trained*3/4 {
			t.Errorf("%s: %d rollouts were trained on, %d after the policy had moved", kind, trained, moved)
		}
		if left == 0 {
			t.Errorf("%s: groups whose rewards are all equal have weights", kind)
		}
	}
}

// Every line of metrics.jsonl has the time of day, and time does not run back.
func TestMetricsHaveTime(t *testing.T) {
	env := runtimetest.Test(t)
	before := time.Now().Truncate(time.Millisecond)
	dir, _ := start(t, env, "ema", nil)
	text, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for row := range bytes.Lines(text) {
		var x struct{ Time time.Time }
		if err := json.Unmarshal(row, &x); err != nil {
			t.Fatal(err)
		}
		if x.Time.Before(before) || x.Time.After(time.Now()) {
			t.Errorf("%s: not between %v and now", row, before)
		}
		before = x.Time
	}
}
