package objectives_test

import (
	"encoding"
	"encoding/json"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"onering/objectives"
)

// A fieldBatch is one of the batches of testdata/field, which has losses of the field: made by
// its field.py, in which each stands twice, as a formula and as a point of the parts.
type fieldBatch struct {
	Groups  [][]int
	Rewards []float64
	State   map[string]float64
	Step    [2]int `json:"step_steps"`
	Inputs  struct {
		New     [][]float64 `json:"logp"`
		Old     [][]float64 `json:"old_logp"`
		Ref     [][]float64 `json:"ref_logp"`
		Sample  [][]float64 `json:"sample_logp"`
		Squares [][]float64 `json:"sum_pi_squared"`
		Role    []string
		Episode []string
		Turns   [][]struct {
			To     int
			State  string
			Reward float64
		}
	}
	Methods map[string]struct {
		Run, Parts map[string]any
		Needs      []string
		Loss       float64
		Scale      float64
		W          [][]float64
		Advantage  []float64
		Tokens     [][]float64        `json:"token_advantage"`
		After      map[string]float64 `json:"state_after"`
	}
}

// groups returns the responses, with the further inputs that needs names.
func (b fieldBatch) groups(needs []string) [][]objectives.Trajectory {
	var groups [][]objectives.Trajectory
	for _, g := range b.Groups {
		var group []objectives.Trajectory
		for _, i := range g {
			x := objectives.Trajectory{Reward: b.Rewards[i], LogProb: b.Inputs.New[i], OldLogProb: b.Inputs.Old[i], RefLogProb: b.Inputs.Ref[i]}
			for _, need := range needs {
				switch need {
				case "sample_logp":
					x.SampleLogProb = b.Inputs.Sample[i]
				case "sum_pi_squared":
					x.SumPiSquared = b.Inputs.Squares[i]
				case "role":
					x.Role = b.Inputs.Role[i]
				case "episode":
					x.Episode = b.Inputs.Episode[i]
				case "turns":
					for _, turn := range b.Inputs.Turns[i] {
						x.Turns = append(x.Turns, objectives.Turn{To: turn.To, State: turn.State, Reward: turn.Reward})
					}
				}
			}
			group = append(group, x)
		}
		groups = append(groups, group)
	}
	return groups
}

// TestField evaluates every method by its name, and as a point of the objective "policy".
func TestField(t *testing.T) {
	folders, count := []string{filepath.Join("testdata", "field")}, 0
	for _, folder := range goldenFolders(t)[1:] {
		folders = append(folders, filepath.Join(folder, "..", "field"))
	}
	for _, folder := range folders {
		for _, name := range []string{"tiny", "onpolicy", "mixed", "shaped", "extreme"} {
			if file := filepath.Join(folder, name+".json"); exists(file) {
				var b fieldBatch
				readJSON(t, file, &b)
				for _, method := range slices.Sorted(maps.Keys(b.Methods)) {
					count++
					t.Run(filepath.Base(filepath.Dir(folder))+"/"+name+"/"+method, func(t *testing.T) { b.check(t, method) })
				}
			}
		}
	}
	if count < 81 {
		t.Errorf("%d methods were compared, want the 81 of testdata at least", count)
	}
}

// fieldNames are the objectives whose default settings are a method of the vectors.
var fieldNames = map[string]string{
	"policy": "-", "topr": "topr", "dppo_kl": "dppo_kl", "rec": "rec_one_side", "rec_ring": "rec_ring", "rollout_is": "rollout_is",
	"ipo": "ipo", "cppo": "cppo", "drpo": "drpo", "cfpo": "cfpo", "dcpo": "dcpo", "atr": "atr", "fipo": "fipo", "fspo": "sequence_log_band",
	"ctpo": "ctpo", "pnpo": "prefix_mean", "minpro": "before_min", "nfpo": "next_product", "turn": "turn_power_0", "real": "real", "tpo": "tpo",
	"verl_grpo": "verl_grpo", "art": "art_default", "dro": "-", "trl_grpo": "-", // with other numbers, tested through their parts
}

// TestFieldNames evaluates the objectives that are a method by their defaults.
func TestFieldNames(t *testing.T) {
	var b fieldBatch
	readJSON(t, filepath.Join("testdata", "field", "tiny.json"), &b)
	for name, method := range fieldNames {
		if m, ok := b.Methods[method]; ok {
			m.Run = map[string]any{"name": name}
			m.Parts = m.Run
			b.Methods[name] = m
			t.Run(name, func(t *testing.T) { b.check(t, name) })
		} else if method != "-" {
			t.Errorf("the vectors have no %s", method)
		}
	}
}

func (b fieldBatch) check(t *testing.T, method string) {
	m := b.Methods[method]
	parts := maps.Clone(m.Parts)
	if parts["name"] == nil {
		parts["name"] = "policy"
	}
	for _, keys := range []map[string]any{m.Run, parts} {
		name := keys["name"].(string)
		keys = maps.Clone(keys)
		delete(keys, "name")
		o := makeObjective(t, name, keys)
		if slices.Contains(m.Needs, "state") && len(b.State) > 0 {
			text, err := json.Marshal(b.State)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.(encoding.TextUnmarshaler).UnmarshalText(text); err != nil {
				t.Fatal(err)
			}
		}
		out, err := objectives.Evaluate(o, b.groups(m.Needs), b.Step[0], b.Step[1])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if math.Abs(out.Loss-m.Loss) > 1e-9*max(m.Scale, 1e-9) {
			t.Errorf("%s: loss %v, want %v", name, out.Loss, m.Loss)
		}
		most := 0.0
		for _, row := range m.W {
			for _, w := range row {
				most = max(most, math.Abs(w))
			}
		}
		for g, group := range b.Groups {
			for k, i := range group {
				top := 1e-4 * most
				for _, w := range m.W[i] {
					top = max(top, math.Abs(w))
				}
				for j, w := range m.W[i] {
					if x := out.Groups[g][k].Weights[j]; math.Abs(x-w) > 1e-9*top {
						t.Fatalf("%s: response %d, token %d: w = %v, want %v", name, i, j, x, w)
					}
				}
				if m.Advantage != nil && math.Abs(out.Groups[g][k].Advantage-m.Advantage[i]) > 1e-9 {
					t.Errorf("%s: response %d: advantage %v, want %v", name, i, out.Groups[g][k].Advantage, m.Advantage[i])
				}
			}
		}
		if m.After != nil {
			text, err := o.(encoding.TextMarshaler).MarshalText()
			var after map[string]float64
			if err == nil {
				err = json.Unmarshal(text, &after)
			}
			if err != nil {
				t.Fatal(err)
			}
			for role, want := range m.After {
				if math.Abs(after[role]-want) > 1e-12 {
					t.Errorf("%s: state %s, want %v", name, text, m.After)
				}
			}
		}
	}
}
