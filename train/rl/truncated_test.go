package rl_test

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"onering/runtime/runtimetest"
)

// With train.truncated = "mask" the truncated responses have no weights and the other
// weights follow from the divisor: GRPO divides by the number of responses, which stays,
// and DAPO by the number of tokens that count, which falls.
func TestTruncatedMask(t *testing.T) {
	env := runtimetest.Test(t)
	type line struct {
		Advantage float64
		Truncated bool
		IDs       []int32
		W         []float64
	}
	for _, tt := range []struct {
		objective string
		byTokens  bool
	}{{"grpo", false}, {"dapo", true}} {
		var runs [2][]line
		for i, how := range []string{"zero", "mask"} {
			c := embedded(t, tt.objective, 1, 1)
			c.Rollout.PromptsPerRound, c.Rollout.MaxNewTokens, c.Train.BatchSize, c.Train.Truncated = 16, 12, 16*8, how
			c.Eval.Suites = nil
			learn(t, env, c)
			f, err := os.Open(filepath.Join(c.Output.Dir, "rollouts", "round-00001.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			rows := bufio.NewScanner(f)
			rows.Buffer(nil, 1<<20)
			for rows.Scan() {
				var x line
				if err := json.Unmarshal(rows.Bytes(), &x); err != nil {
					t.Fatal(err)
				}
				runs[i] = append(runs[i], x)
			}
		}
		factor, all, ended := 1.0, 0, 0
		for _, x := range runs[0] {
			all += len(x.W)
			if !x.Truncated {
				ended += len(x.W)
			}
		}
		if tt.byTokens {
			factor = float64(all) / float64(ended)
		}
		cut, kept := 0, 0
		for i, x := range runs[0] {
			y := runs[1][i]
			switch {
			case x.W == nil:
			case x.Truncated && len(y.W) > 0:
				t.Errorf("%s: rollout %d is truncated and has %d weights", tt.objective, i, len(y.W))
			case x.Truncated && x.Advantage != 0:
				cut++
			case !x.Truncated:
				kept++
				for j, w := range x.W {
					if math.Abs(y.W[j]-factor*w) > 1e-5*math.Abs(w) {
						t.Fatalf("%s: rollout %d, token %d: weight %v, want %v times %v", tt.objective, i, j, y.W[j], factor, w)
					}
				}
			}
		}
		if cut < 4 || kept < 8 {
			t.Errorf("%s: %d truncated responses had weights and %d others", tt.objective, cut, kept)
		}
	}
}
