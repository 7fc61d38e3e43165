package rundir

import (
	"bytes"
	"encoding/gob"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/train/doctor"
	"onering/train/metrics"
)

// Files that a run reads back may lie on a disk for days. Reading a damaged one ends with
// the content or an error.

func FuzzRound(f *testing.F) {
	var b bytes.Buffer
	gob.NewEncoder(&b).Encode(Round{
		Rollouts:     []Rollout{{Prompt: []int32{3, 4}, Response: []int32{5, 1}, LogProb: []float64{-1, -0.5}, Entropy: []float64{1, 2}, Text: "x"}},
		Trajectories: []Trajectory{{Reward: 1, Advantage: 0.5}},
		Updates:      []Update{{W: []float32{0.5, -1}, Delta: []float32{0, 1e-7}}},
		Kept:         []int{0}, Groups: 1, Steps: []metrics.Record{metrics.Record{}.With("loss", 0.5).With("step", 1).With("kind", "step")},
	})
	f.Add(b.Bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRound(bytes.NewReader(data))
		if err != nil {
			return
		}
		if len(r.Trajectories) != len(r.Rollouts) || len(r.Updates) != len(r.Rollouts) {
			t.Fatal("rollouts, trajectories and updates are not equally many")
		}
		for i, x := range r.Rollouts {
			for _, n := range []int{len(r.Trajectories[i].OldLogProb), len(r.Trajectories[i].RefLogProb), len(r.Updates[i].W), len(r.Updates[i].Delta)} {
				if n != 0 && n != len(x.Response) || len(x.LogProb) != len(x.Response) {
					t.Fatalf("rollout %d: %d figures for a response of %d tokens", i, n, len(x.Response))
				}
			}
		}
		for _, k := range r.Kept {
			_ = r.Rollouts[k]
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
	f.Add([]byte(`{"version":3,"round":1,"step":8,"micro_tokens":4096,"settings":{"a":"b"}}`))
	f.Add([]byte(`{"version":3,"round":-1}`))
	f.Add([]byte(`{"version":3,"micro_tokens":64,"alarms":{"losses":[0.5],"flat":1,"rounds":4,"first":[1,2,0],"warned":["+Inf",0,0]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		os.Mkdir(filepath.Join(dir, stateDir), 0o755)
		if err := os.WriteFile(stateJSON(dir), text, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := ReadState(dir)
		if err != nil {
			return
		}
		if s.Round < 0 || s.Step < 0 || s.MicroTokens < 1 {
			t.Fatalf("%+v", s)
		}
		d := doctor.New(doctor.Facts{})
		if d.Restore(s.Alarms) == nil {
			d.Look(metrics.Record{}.With("kind", "step").With("loss", 0.5), nil)
			d.Look(metrics.Record{}.With("kind", "round").With("entropy", 1.0), &doctor.Round{})
		}
	})
}
