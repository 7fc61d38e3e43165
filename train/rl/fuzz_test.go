package rl

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"onering/train/metrics"
)

// The file of a failed step may lie on a disk for days. Reading the file ends with its
// content or an error, even if it was damaged.

func FuzzFailure(f *testing.F) {
	text, _ := json.Marshal(Failure{
		Version: failureVersion, Round: 1, Step: 2, Steps: 3, Objective: "pmpo", Temperature: 1, MicroTokens: 64,
		Trajectories: []failureTrajectory{{Prompt: []int32{1}, Response: []int32{2, 3}, LogProb: metrics.Exact{-1, math.Inf(1)}, OldLogProb: metrics.Exact{math.Inf(-1), -1}, Entropy: metrics.Exact{1, 2}}},
	})
	f.Add(text)
	f.Add([]byte(`{"version":1,"trajectories":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := decodeFailure(bytes.NewReader(data))
		if err != nil {
			return
		}
		again, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		y, err := decodeFailure(bytes.NewReader(again))
		if err != nil {
			t.Fatal(err)
		}
		if last, _ := json.Marshal(y); !bytes.Equal(last, again) {
			t.Fatalf("%s\n%s", again, last)
		}
	})
}
