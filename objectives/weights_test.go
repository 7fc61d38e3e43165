package objectives_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"onering/objectives"
)

const twoResponses = `{"groups":[[
	{"reward":1,"logp":[-0.9,-0.2],"old_logp":[-1.0,-0.1]},
	{"reward":0,"logp":[-2.0],"old_logp":[-1.5],"ref_logp":null}]],"step":2,"steps":10,"state":null}`

func decode(t *testing.T, text string) objectives.WeightsInput {
	t.Helper()
	in, err := objectives.DecodeWeights(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// TestWeightsJSON: the contract of the command, key by key.
func TestWeightsJSON(t *testing.T) {
	for name, keys := range map[string]string{
		"drgrpo": "advantage clipped weights",
		"gpg":    "advantage weights",
		"gmpo":   "advantage clipped ratio log_ratio weights",
		"pmpo":   "advantage p ess target_ess clip_fraction clipped ratio log_ratio ess_at_p_max at_p_max weights",
	} {
		out, err := objectives.ComputeWeights(makeObjective(t, name, nil), decode(t, twoResponses))
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

// TestWeightsByHand: r = e^0.1, e^-0.1 and, cut to 0.8, e^-0.5; A = +-1/2; N L = 6000.
func TestWeightsByHand(t *testing.T) {
	out, err := objectives.ComputeWeights(makeObjective(t, "drgrpo", nil), decode(t, twoResponses))
	if err != nil {
		t.Fatal(err)
	}
	if want := -0.5 / 6000 * (math.Exp(0.1) + math.Exp(-0.1) - 0.8); math.Abs(out.Loss-want) > 1e-18 {
		t.Errorf("loss = %v, want %v", out.Loss, want)
	}
	for k, want := range [][]float64{{-0.5 / 6000 * math.Exp(0.1), -0.5 / 6000 * math.Exp(-0.1)}, {0}} {
		row := out.Groups[0][k]
		for j := range want {
			if math.Abs(row.Weights[j]-want[j]) > 1e-18 || math.Signbit(row.Weights[j]) != (want[j] < 0) {
				t.Errorf("response %d: w = %v, want %v", k, row.Weights, want)
			}
		}
		if row.Advantage != 0.5-float64(k) || *row.Clipped != float64(k) {
			t.Errorf("response %d: advantage %v, clipped %v", k, row.Advantage, *row.Clipped)
		}
	}
}

func TestWeightsState(t *testing.T) {
	in := decode(t, `{"groups":[[{"reward":1,"logp":[-1,-1],"old_logp":[-1,-1]},{"reward":0,"logp":[-1,-1,-1,-1],"old_logp":[-1,-1,-1,-1]},{"reward":0,"logp":[],"old_logp":null}]]}`)
	out, err := objectives.ComputeWeights(makeObjective(t, "pmpo", settings{"p_rule": "length"}), in)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"mean":3,"variance":1}`; string(out.State) != want {
		t.Errorf("state = %s, want %s", out.State, want)
	}
	in.State = out.State
	in.Groups[0] = in.Groups[0][:1]
	out, err = objectives.ComputeWeights(makeObjective(t, "pmpo", settings{"p_rule": "length", "ema_decay": 0.5}), in)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"mean":2.5,"variance":0.5}`; string(out.State) != want {
		t.Errorf("state = %s, want %s", out.State, want)
	}
}

func TestWeightsErrors(t *testing.T) {
	for _, c := range []struct {
		name, objective string
		set             settings
		input, want     string
	}{
		{"nothing", "grpo", nil, ``, `no input: want one object`},
		{"not JSON", "grpo", nil, `{`, `it ends too early`},
		{"no groups", "grpo", nil, `{}`, `"groups" is missing`},
		{"two objects", "grpo", nil, `{"groups":[]} {"groups":[]}`, `more follows it`},
		{"a misspelt key", "grpo", nil, `{"groups":[[{"reward":1,"log_p":[]}]]}`, `unknown field "log_p"`},
		{"no reward", "grpo", nil, `{"groups":[[{"logp":[]}]]}`, `group 0, response 0: "reward" and "logp" must be given`},
		{"no logp", "grpo", nil, `{"groups":[[],[{"reward":1}]]}`, `group 1, response 0: "reward" and "logp"`},
		{"no old_logp", "grpo", nil, `{"groups":[[{"reward":1,"logp":[-1]}]]}`, `group 0, response 0: 0 old log-probs for 1 response tokens`},
		{"lengths that differ", "grpo", nil, `{"groups":[[{"reward":1,"logp":[-1],"old_logp":[-1]},{"reward":1,"logp":[-1],"old_logp":[-1,-2]}]]}`, `group 0, response 1: 2 old log-probs for 1 response tokens`},
		{"no reference", "grpo", settings{"kl_beta": 0.1}, `{"groups":[[{"reward":1,"logp":[-1],"old_logp":[-1]}]]}`, `0 reference log-probs for 1`},
		{"no entropy", "pmpo", settings{"p_rule": "entropy"}, `{"groups":[[{"reward":1,"logp":[-1],"old_logp":[-1]}]]}`, `0 entropies for 1`},
		{"token advantages", "gspo", nil, `{"groups":[[{"reward":1,"logp":[-1],"old_logp":[-1],"token_advantage":[]}]]}`, `0 token advantages for 1`},
		{"a number too large", "grpo", nil, `{"groups":[[{"reward":1e999,"logp":[],"old_logp":[]}]]}`, `cannot be a JSON number 1e999`},
		{"a state without use", "grpo", nil, `{"groups":[],"state":{"mean":1,"variance":1}}`, `the objective keeps none`},
		{"a state that is none", "pmpo", nil, `{"groups":[],"state":{"mean":1}}`, `pmpo: state`},
		{"an infinite loss", "gmpo", settings{"norm": "sum", "clip_mode": "none"}, `{"groups":[[{"reward":0,"logp":[-1,-1],"old_logp":[-601,-601]},{"reward":1,"logp":[],"old_logp":[]}]]}`, `the loss is +Inf`},
		{"an infinite weight", "grpo", settings{"clip_low": 1, "clip_high": 1e300, "advantage": "centered", "advantage_eps": 0}, `{"groups":[[{"reward":0,"logp":[-1,-1],"old_logp":[-801,-1]},{"reward":1,"logp":[-1],"old_logp":[-1]}]]}`, `is +Inf`},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, err := objectives.DecodeWeights(strings.NewReader(c.input))
			if err == nil {
				_, err = objectives.ComputeWeights(makeObjective(t, c.objective, c.set), in)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "objectives: ") {
				t.Errorf("error %v, want objectives: ... %s", err, c.want)
			}
		})
	}
}

// stub is an objective whose methods return what a test wants to see handled.
type stub struct {
	objectives.Objective
	text    string
	invalid error
	weight  float64
}

func (o *stub) Loss(b, at objectives.Batch) float64 { return 0 }
func (o *stub) Weights(b objectives.Batch, w [][]float64) {
	for i := range w {
		for j := range w[i] {
			w[i][j] = o.weight
		}
	}
}
func (o *stub) Validate() error                 { return o.invalid }
func (o *stub) MarshalText() ([]byte, error)    { return []byte(o.text), nil }
func (o *stub) UnmarshalText(text []byte) error { return nil }

func TestComputeWeightsRefuses(t *testing.T) {
	one := decode(t, twoResponses)
	missing := objectives.WeightsInput{Groups: [][]objectives.InputTrajectory{{{LogProb: []float64{}}}}}
	for _, c := range []struct {
		o    *stub
		in   objectives.WeightsInput
		want string
	}{
		{&stub{text: "{"}, one, "the text is not JSON"},
		{&stub{text: "1", invalid: errInvalid}, one, errInvalid.Error()},
		{&stub{text: "1", weight: math.Inf(1)}, one, "the weight of token 0 is +Inf"},
		{&stub{text: "1"}, missing, `"reward" is missing`},
	} {
		if _, err := objectives.ComputeWeights(c.o, c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
	out, err := objectives.ComputeWeights(&stub{text: "[1]"}, one)
	if err != nil || string(out.State) != "[1]" || out.Groups[0][0].Advantage != 0.5 {
		t.Errorf("got %+v, %v", out, err)
	}
}

func TestExplain(t *testing.T) {
	in := decode(t, `{"groups":[[
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
		out, err := objectives.ComputeWeights(makeObjective(t, c.name, nil), in)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := out.Explain(&b); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != c.want[1:] {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want[1:])
		}
		if err := out.Explain(failing{}); err == nil {
			t.Error("no error from a writer that fails")
		}
	}
}
