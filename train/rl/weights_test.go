package rl

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"onering/internal/settings"
	"onering/objectives"
)

const twoResponses = `{"groups":[[
	{"reward":1,"logp":[-0.9,-0.2],"old_logp":[-1.0,-0.1]},
	{"reward":0,"logp":[-2.0],"old_logp":[-1.5],"ref_logp":null}]],"step":2,"steps":10,"state":null}`

// withSettings constructs an objective with the given lines of TOML.
func withSettings(t *testing.T, name, lines string) objectives.Objective {
	t.Helper()
	file, err := settings.File("run.toml", []byte("[objective]\nname = \""+name+"\"\n"+lines))
	c := Default()
	if err == nil {
		_, err = settings.Resolve(&c, settings.Command{}, file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c.Objective.Settings
}

func decodeInput(t *testing.T, text string) weightsInput {
	t.Helper()
	in, err := ReadWeights(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// TestWeightsJSON checks the command's input and output, key by key.
func TestWeightsJSON(t *testing.T) {
	for name, keys := range map[string]string{
		"drgrpo": "advantage clipped weights",
		"gpg":    "advantage weights",
		"gmpo":   "advantage clipped ratio log_ratio weights",
		"pmpo":   "advantage p ess target_ess clip_fraction clipped ratio log_ratio ess_at_p_max at_p_max weights",
	} {
		out, err := decodeInput(t, twoResponses).Weigh(withSettings(t, name, ""))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		var top map[string]any
		if err := json.Unmarshal(data, &top); err != nil {
			t.Fatal(err)
		}
		if _, has := top["state"]; has != (name == "pmpo") {
			t.Errorf("%s: a state or none, wrongly: %s", name, data)
		}
		row := top["groups"].([]any)[0].([]any)[1].(map[string]any)
		if len(row) != len(strings.Fields(keys)) {
			t.Errorf("%s: %s, want the keys %s", name, data, keys)
		}
		for key := range strings.FieldsSeq(keys) {
			if _, ok := row[key]; !ok {
				t.Errorf("%s: no %q in %s", name, key, data)
			}
		}
	}
}

func TestWeightsState(t *testing.T) {
	in := decodeInput(t, `{"groups":[[{"reward":1,"logp":[-1,-1],"old_logp":[-1,-1]},{"reward":0,"logp":[-1,-1,-1,-1],"old_logp":[-1,-1,-1,-1]},{"reward":0,"logp":[],"old_logp":null}]]}`)
	out, err := in.Weigh(withSettings(t, "pmpo", `p_rule = "length"`))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"mean":3,"variance":1}`; string(out.State) != want {
		t.Errorf("state = %s, want %s", out.State, want)
	}
	in.State = out.State
	in.Groups[0] = in.Groups[0][:1]
	out, err = in.Weigh(withSettings(t, "pmpo", "p_rule = \"length\"\nema_decay = 0.5"))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"mean":2.5,"variance":0.5}`; string(out.State) != want {
		t.Errorf("state = %s, want %s", out.State, want)
	}
}

// TestWeightsGreedy: the reward of the greedy response is the baseline, in groups of one
// too.
func TestWeightsGreedy(t *testing.T) {
	in := decodeInput(t, `{"groups":[[{"reward":1,"logp":[-1,-1],"old_logp":[-1,-1],"greedy_reward":0.25}]]}`)
	result, err := in.Weigh(withSettings(t, "remax", ""))
	if err != nil {
		t.Fatal(err)
	}
	if x := result.Groups[0][0]; x.Advantage != 0.75 || x.Weights[1] != -0.375 {
		t.Errorf("%+v", x)
	}
}

// TestWeightsTurns: an objective ignores the numbers of an environment's tokens, which
// get the weight 0.
func TestWeightsTurns(t *testing.T) {
	whole := `{"groups":[[{"reward":1,"logp":[-0.9,-0.2],"old_logp":[-1.0,-0.1],"ids":[4,5]},{"reward":0,"logp":[-2.0],"old_logp":[-1.5]}]]}`
	turns := `{"groups":[[{"reward":1,"logp":[-0.9,0,7,-0.2],"old_logp":[-1.0,0,-3,-0.1],"ids":[4,8,9,5],"turns":[{"author":"policy","from":0,"to":1},{"author":"environment","from":1,"to":3},{"author":"policy","from":3,"to":4}]},{"reward":0,"logp":[-2.0],"old_logp":[-1.5]}]]}`
	for _, objective := range []string{"pmpo", "grpo", "gspo", "cispo"} {
		var of [2]weightsOutput
		for i, text := range []string{whole, turns} {
			in := decodeInput(t, text)
			out, err := in.Weigh(withSettings(t, objective, ""))
			if err != nil {
				t.Fatal(err)
			}
			of[i] = in.Widen(out)
		}
		want, got := of[0].Groups[0][0], of[1].Groups[0][0]
		if w := []float64{want.Weights[0], 0, 0, want.Weights[1]}; want.Weights[0] == 0 || !slices.Equal(got.Weights, w) || of[0].Loss != of[1].Loss || !reflect.DeepEqual(got.Diagnostics, want.Diagnostics) {
			t.Errorf("%s: %+v with turns, want %+v", objective, got, want)
		}
	}
}

func TestWeightsErrors(t *testing.T) {
	for _, c := range []struct{ name, objective, input, want string }{
		{"nothing", "grpo", ``, `no input: want one object`},
		{"not JSON", "grpo", `{`, `it ends in the middle of the JSON text`},
		{"no groups", "grpo", `{}`, `"groups" is missing`},
		{"two objects", "grpo", `{"groups":[]} {"groups":[]}`, `more text follows the JSON value`},
		{"a misspelt key", "grpo", `{"groups":[[{"reward":1,"log_p":[]}]]}`, `unknown key "groups[0][0].log_p"; did you mean "logp"?`},
		{"no reward", "grpo", `{"groups":[[{"logp":[]}]]}`, `group 0, response 0: "reward" and "logp" must be given`},
		{"no logp", "grpo", `{"groups":[[],[{"reward":1}]]}`, `group 1, response 0: "reward" and "logp"`},
		{"no old_logp", "grpo", `{"groups":[[{"reward":1,"logp":[-1]}]]}`, `group 0, response 0: 0 old log-probs for 1 response tokens`},
		{"no greedy response", "remax", `{"groups":[[{"reward":1,"logp":[-1],"old_logp":[-1]}]]}`, `group 0, response 0: its reward is compared with that of a greedy response, which is missing`},
		{"token advantages", "gspo", `{"groups":[[{"reward":1,"logp":[-1],"old_logp":[-1],"token_advantage":[]}]]}`, `0 token advantages for 1`},
		{"token advantages of whole responses", "pmpo", `{"groups":[[{"reward":1,"logp":[-1],"old_logp":[-1],"token_advantage":[1]}]]}`, `group 0, response 0: token advantages are given, but this objective has one for a whole response`},
		{"numbers of the policy's tokens alone", "grpo", `{"groups":[[{"reward":1,"logp":[-1,-2],"old_logp":[-1],"turns":[{"author":"policy","from":0,"to":2}]}]]}`, `group 0, response 0: a list has 1 numbers and logp 2`},
		{"turns of another response", "grpo", `{"groups":[[{"reward":1,"logp":[-1],"old_logp":[-1],"turns":[{"author":"policy","from":0,"to":2}]}]]}`, `group 0, response 0: turns[0]: its tokens are from 0 to 2`},
		{"a number too large", "grpo", `{"groups":[[{"reward":1e999,"logp":[],"old_logp":[]}]]}`, `groups[0][0].reward is 1e999, not a number`},
		{"a state that the objective cannot use", "grpo", `{"groups":[],"state":{"mean":1,"variance":1}}`, `the objective keeps none`},
		{"a state without a variance", "pmpo", `{"groups":[],"state":{"mean":1}}`, `pmpo: state`},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, err := ReadWeights(strings.NewReader(c.input))
			if err == nil {
				_, err = in.Weigh(withSettings(t, c.objective, ""))
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}

// stateful is an objective without weights, whose state is text.
type stateful struct {
	objectives.Objective
	text string
}

func (o stateful) Loss(b, at objectives.Batch) float64       { return 0 }
func (o stateful) Weights(b objectives.Batch, w [][]float64) {}
func (o stateful) MarshalText() ([]byte, error)              { return []byte(o.text), nil }

func TestWeightsStateMustBeJSON(t *testing.T) {
	one := decodeInput(t, twoResponses)
	if _, err := one.Weigh(stateful{text: "{"}); err == nil || !strings.Contains(err.Error(), "the text is not JSON") {
		t.Errorf("error %v", err)
	}
	if out, err := one.Weigh(stateful{text: "[1]"}); err != nil || string(out.State) != "[1]" {
		t.Errorf("state %s, %v", out.State, err)
	}
}

// fullDisk is a writer that fails.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestPrintWeights(t *testing.T) {
	in := decodeInput(t, `{"groups":[[
		{"reward":1,"logp":[-0.9,-0.2,-0.5,-0.5],"old_logp":[-1.9,-0.1,-0.5,-0.45]},
		{"reward":0,"logp":[],"old_logp":[]}],[{"reward":1,"logp":[-1],"old_logp":[-1]}]]}`)
	for _, c := range []struct{ name, want string }{
		{"pmpo", `
  response  tokens     A     f    eta*     p     ESS      r    log r  clipped  top 10 %
       0.0       4   0.5  0.25  0.4375  0.99  0.9559  1.087  0.08318     0.25      0.14
       0.1       0  -0.5     0       1  0.99       1      1        0        0         -
       1.0       1     0     0       1  0.99       1      1        0        0         -
loss -0.181122
`}, {"gpg", `
  response  tokens     A  f  eta*  p  ESS  r  log r  clipped  top 10 %
       0.0       4   0.5  -     -  -    -  -      -        -       0.1
       0.1       0  -0.5  -     -  -    -  -      -        -         -
       1.0       1     0  -     -  -    -  -      -        -         -
loss 0.21
`}} {
		out, err := in.Weigh(withSettings(t, c.name, ""))
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := out.Print(&b); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != c.want[1:] {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want[1:])
		}
		if err := out.Print(fullDisk{}); err == nil {
			t.Error("no error from a writer that fails")
		}
	}
}
