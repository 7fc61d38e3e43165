package rl_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"onering/runtime/runtimetest"
)

// With kl_reward, responses to a prompt with equal rewards get advantages by the policy's
// distance from the reference: about 0 in the first round, where policy and reference are
// equal, and more in the second.
func TestKLReward(t *testing.T) {
	env := runtimetest.Test(t)
	c := embedded(t, "drgrpo", 1, 2)
	c.Rollout.PromptsPerRound, c.Train.BatchSize = 16, 16*8
	c.Eval.Suites = nil
	reflect.ValueOf(c.Objective.Settings).Elem().FieldByName("KLReward").SetFloat(1)
	learn(t, env, c)
	for round, most := range map[int]float64{1: 1e-3, 2: math.Inf(1)} {
		f, err := os.Open(filepath.Join(c.Output.Dir, "rollouts", fmt.Sprintf("round-%05d.jsonl", round)))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		rows := bufio.NewScanner(f)
		rows.Buffer(nil, 1<<20)
		sum, flat, far := map[string]float64{}, map[string]bool{}, 0.0
		last := map[string]float64{}
		farthest := map[string]float64{}
		for rows.Scan() {
			var x struct {
				Problem           string
				Reward, Advantage float64
			}
			if err := json.Unmarshal(rows.Bytes(), &x); err != nil {
				t.Fatal(err)
			}
			if before, seen := last[x.Problem]; !seen {
				flat[x.Problem] = true
			} else if before != x.Reward {
				flat[x.Problem] = false
			}
			last[x.Problem] = x.Reward
			sum[x.Problem] += x.Advantage
			farthest[x.Problem] = max(farthest[x.Problem], math.Abs(x.Advantage))
		}
		for problem, equal := range flat {
			if equal {
				far = max(far, farthest[problem])
			}
			if math.Abs(sum[problem]) > 1e-6 {
				t.Errorf("round %d: the advantages of %s sum to %v", round, problem, sum[problem])
			}
		}
		if far > most || round == 2 && far < 1e-2 {
			t.Errorf("round %d: advantages among equal rewards are up to %v", round, far)
		}
	}
}
