package rundir

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"onering/sampler"
)

// A round's parts have to fit together.
func TestDecodeRoundUpdates(t *testing.T) {
	for _, tt := range []struct {
		updates []Update
		ok      bool
	}{
		{nil, false},
		{[]Update{{}}, true},
		{[]Update{{W: []float32{1}, Delta: []float32{1}}}, true},
		{[]Update{{W: []float32{1}}}, false},
		{[]Update{{W: []float32{1, 2}, Delta: []float32{1, 2}}}, false},
		{[]Update{{}, {}}, false},
	} {
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(Round{
			Rollouts:     []Rollout{{Prompt: []int32{3}, Response: []int32{5}, LogProb: []float64{-1}, Entropy: []float64{1}, Observed: []sampler.Observed{{At: 1}}}},
			Trajectories: []Trajectory{{}}, Groups: 1, Updates: tt.updates,
		}); err != nil {
			t.Fatal(err)
		}
		s, err := decodeRound(&b)
		if (err == nil) != tt.ok || err == nil && len(s.Updates) != 1 {
			t.Errorf("%+v: %v", tt.updates, err)
		}
	}
}

// A round of a later version is refused with both versions.
func TestLaterRound(t *testing.T) {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(Round{Version: roundVersion + 1, Groups: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := decodeRound(&b); err == nil || !strings.Contains(err.Error(), "of version 2; this program reads versions up to 1") {
		t.Errorf("error %v", err)
	}
}

// testdata/version3 is a checkpoint's state/ as it was written before rounds had a
// version, by a program that encoded objectives.Trajectory, verifier.Result and
// sampler.Stats themselves; round.json has what that program decoded from it. The present
// program must read the same.
func TestReadsOldRound(t *testing.T) {
	dir := filepath.Join("testdata", "version3")
	state, err := ReadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if state.Round != 0 || state.Step != 2 || !state.Inside || state.Objective != "grpo" || state.Settings["rollout.old_logp"] != "rescore" {
		t.Errorf("state %+v", state)
	}
	got, err := ReadRound(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "round.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want Round
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&want); err != nil {
		t.Fatal(err)
	}
	// JSON makes floats of the counts in the steps' records, and has no NaN.
	for _, r := range got.Steps {
		for i := range r {
			switch x := r[i].Value.(type) {
			case int:
				r[i].Value = float64(x)
			case float64:
				if math.IsNaN(x) {
					r[i].Value = "NaN"
				}
			}
		}
	}
	if !reflect.DeepEqual(got, &want) {
		a, _ := json.MarshalIndent(got, "", " ")
		b, _ := json.MarshalIndent(want, "", " ")
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}
}
