//go:build !windows

package rl_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/runtime/runtimetest"
)

// TestEnvironmentStream: a stream of what the environment says lowers its cross-entropy, while the
// objective sees the policy's tokens alone: the log-probs of rollout and training agree, also of
// filtered sampling, and what the environment wrote has no weight in the lines of rollouts.
func TestEnvironmentStream(t *testing.T) {
	env := runtimetest.Test(t)
	c := episodes(t, &adder{}, 2)
	c.Rollout.TopP, c.Rollout.LogProb = 0.95, "kept"
	c.Eval.Suites, c.Train.EvalEvery = nil, 0
	if err := c.Stream.List.UnmarshalTOML([]map[string]any{{"tokens": "environment", "weight": 1.0}}); err != nil {
		t.Fatal(err)
	}
	c.Output.Dir = filepath.Join(t.TempDir(), "run")
	if _, err := continueRun(env, c, false); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(c.Output.Dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var losses []float64
	for line := range strings.Lines(string(text)) {
		var x struct {
			Kind         string
			Gap          float64 `json:"logp_gap_max"`
			Loss, Tokens float64
			StreamLoss   float64 `json:"stream/environment/loss"`
			StreamTokens float64 `json:"stream/environment/tokens"`
			RLLoss       float64 `json:"stream/rl/loss"`
		}
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatal(err)
		}
		if x.Gap > 1e-4 {
			t.Errorf("the gap is %g", x.Gap)
		}
		if x.Kind == "step" {
			losses = append(losses, x.StreamLoss)
			if d := x.Loss - x.RLLoss - x.StreamLoss; x.StreamTokens == 0 || d > 1e-9 || d < -1e-9 {
				t.Errorf("%+v", x)
			}
		}
	}
	if n := len(losses); n < 2 || losses[n-1] >= losses[0] {
		t.Errorf("the cross-entropies of the steps are %v", losses)
	}
	others := 0
	for _, line := range rolloutLines(t, c.Output.Dir) {
		for _, turn := range line.Turns {
			for i := turn.From; turn.Author == "environment" && i < turn.To; i++ {
				if others++; line.W[i] != 0 || line.LogP[i] != 0 || len(line.Kept[i]) > 0 {
					t.Errorf("token %d of the environment has %v, %v and %v", i, line.W[i], line.LogP[i], line.Kept[i])
				}
			}
		}
	}
	if others == 0 {
		t.Error("the environment wrote nothing")
	}
}
