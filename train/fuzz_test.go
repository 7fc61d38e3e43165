package train

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/objectives"
	"onering/train/metrics"
)

// The files that a run reads back lie on a disk for days. Whatever has become
// of them, reading them ends with what was written or with an error.

func FuzzRound(f *testing.F) {
	var b bytes.Buffer
	gob.NewEncoder(&b).Encode(roundState{
		Rollouts:     []Rollout{{Prompt: []int32{3, 4}, Response: []int32{5, 1}, LogProb: []float64{-1, -0.5}, Entropy: []float64{1, 2}, Text: "x"}},
		Trajectories: []objectives.Trajectory{{Reward: 1, Advantage: 0.5}},
		Updates:      []update{{W: []float32{0.5, -1}, Delta: []float32{0, 1e-7}}},
		Kept:         []int{0}, Groups: 1, Steps: []metrics.Record{metrics.Record{}.With("loss", 0.5).With("step", 1).With("kind", "step")},
	})
	f.Add(b.Bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeRound(bytes.NewReader(data))
		if err != nil {
			return
		}
		for i := range s.Rollouts {
			s.Rollouts[i].sequence()
			if len(s.Trajectories[i].OldLogProb) != len(s.Rollouts[i].Response) {
				t.Fatal("old log-probs do not fit the response")
			}
			if n := len(s.Updates[i].W); n != len(s.Updates[i].Delta) || n != 0 && n != len(s.Rollouts[i].Response) {
				t.Fatal("what its tokens weighed does not fit the response")
			}
		}
		for _, k := range s.Kept {
			_ = s.Rollouts[k]
		}
	})
}

func FuzzFailure(f *testing.F) {
	text, _ := json.Marshal(Failure{
		Version: failureVersion, Round: 1, Step: 2, Steps: 3, Objective: "pmpo", Temperature: 1, MicroTokens: 64,
		Trajectories: []FailureTrajectory{{Prompt: []int32{1}, Response: []int32{2, 3}, LogProb: metrics.Exact{-1, inf}, OldLogProb: metrics.Exact{-inf, -1}, Entropy: metrics.Exact{1, 2}}},
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

func FuzzSums(f *testing.F) {
	f.Add(strings.Repeat("0", 64) + "  model.safetensors\n")
	f.Add(strings.Repeat("f", 64) + "  ../x\n")
	f.Fuzz(func(t *testing.T, text string) {
		sums, err := parseSums(strings.NewReader(text))
		if err != nil {
			return
		}
		for name := range sums {
			if !filepath.IsLocal(name) {
				t.Fatalf("%q leads out of the folder", name)
			}
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":2,"round":1,"step":8,"micro_tokens":4096,"settings":{"a":"b"}}`))
	f.Add([]byte(`{"version":2,"round":-1}`))
	f.Add([]byte(`{"version":2,"micro_tokens":64,"alarms":{"losses":[0.5],"flat":1,"rounds":4,"first":[1,2,0],"warned":["+Inf",0,0]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		os.Mkdir(filepath.Join(dir, stateDir), 0o755)
		if err := os.WriteFile(filepath.Join(dir, stateDir, stateFile), text, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := readState(dir)
		if err != nil {
			return
		}
		if s.Round < 0 || s.Step < 0 || s.MicroTokens < 1 {
			t.Fatalf("%+v", s)
		}
		a := metrics.NewAlarms(slog.New(slog.DiscardHandler))
		if a.Restore(s.Alarms) == nil {
			a.Step(metrics.Record{}.With("loss", 0.5))
			a.Round(metrics.Record{}.With("entropy", 1.0))
		}
	})
}

// A round's parts have to fit together; one without updates is of an older
// checkpoint.
func TestDecodeRoundUpdates(t *testing.T) {
	for _, tt := range []struct {
		updates []update
		ok      bool
	}{
		{nil, true},
		{[]update{{}}, true},
		{[]update{{W: []float32{1}, Delta: []float32{1}}}, true},
		{[]update{{W: []float32{1}}}, false},
		{[]update{{W: []float32{1, 2}, Delta: []float32{1, 2}}}, false},
		{[]update{{}, {}}, false},
	} {
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(roundState{
			Rollouts:     []Rollout{{Prompt: []int32{3}, Response: []int32{5}, LogProb: []float64{-1}, Entropy: []float64{1}}},
			Trajectories: []objectives.Trajectory{{}}, Groups: 1, Updates: tt.updates,
		}); err != nil {
			t.Fatal(err)
		}
		s, err := decodeRound(&b)
		if (err == nil) != tt.ok || err == nil && len(s.Updates) != 1 {
			t.Errorf("%+v: %v", tt.updates, err)
		}
	}
}
