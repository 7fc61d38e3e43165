// Package modeltest checks that a family of models follows the rules of package models.
// Graphs run in float64, in the interpreter of package graphtest, so no ONNX Runtime is
// needed and nothing is rounded.
//
//	func TestConformance(t testing.TB) { modeltest.Run(t, config) }
//
// Run finds contradictions between the parts of a family. What the family should compute
// is known only to Golden, which compares with PyTorch's numbers.
package modeltest

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"onering/models"
)

// Run checks the family of a config.json with the model that it states, which should be
// small: a width of about ten, two layers, a vocabulary of about twenty. Each rule is a
// subtest:
//
//   - config: both spellings of config.json, that of published models and that of
//     transformers 5, state the same model, and what changes the computation changes the
//     graphs or is refused by the name of its key.
//   - folder: a saved folder loads as it was, and one with a tensor more or fewer
//     is refused.
//   - weights: some Program reads each weight, and each weight gets a gradient.
//   - decode: prompts and tokens added one by one give the states that the layers
//     of training give, in every form and for every way of computing.
//   - gradients: layers and norm backward are the differences of layers and norm
//     forward, however much is stashed and in however many blocks.
//   - adapter: with low-rank products beside the weights all that holds too, and the
//     states are those of the weights with the products added to them.
func Run(t *testing.T, config string) {
	t.Helper()
	m := must(models.ParseConfig([]byte(config), nil))(t)
	w := draw(t, m, 1)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) { r.check(t, config, m, w) })
	}
}

// rules are the subtests of Run.
var rules = []struct {
	name  string
	check func(t testing.TB, config string, m models.Model, w *models.Weights)
}{{"config", checkConfig}, {"folder", checkFolder}, {"weights", checkWeights}, {"decode", checkDecode},
	{"gradients", checkGradients}, {"adapter", checkAdapter}}

// draw returns random weights. Those of a fresh model would hide mistakes: its norms are one and its biases zero.
func draw(t testing.TB, m models.Model, seed uint64) *models.Weights {
	t.Helper()
	w := must(m.Init(seed))(t)
	t.Cleanup(func() { w.Close() })
	r := rand.New(rand.NewPCG(seed, 0x6d6f64656c))
	for _, tensor := range w.Tensors() {
		mean := 0.0
		if len(tensor.Shape) == 1 && tensor.Data[0] == 1 {
			mean = 1
		}
		for i := range tensor.Data {
			tensor.Data[i] = float32(mean + 0.4*r.NormFloat64())
		}
	}
	return w
}

// must returns the value of a call that may not fail.
func must[T any](x T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

func must2[A, B any](a A, b B, err error) func(testing.TB) (A, B) {
	return func(t testing.TB) (A, B) {
		t.Helper()
		return a, must(b, err)(t)
	}
}

func must3[A, B, C any](a A, b B, c C, err error) func(testing.TB) (A, B, C) {
	return func(t testing.TB) (A, B, C) {
		t.Helper()
		return a, b, must(c, err)(t)
	}
}

// near fails if a number differs from the wanted one by more than tolerance times its size.
func near(t testing.TB, what string, got, want []float64, tolerance float64) {
	t.Helper()
	for i, x := range want {
		if !(math.Abs(got[i]-x) <= tolerance*(1+math.Abs(x))) {
			t.Fatalf("%s[%d] is %v, want %v", what, i, got[i], x)
		}
	}
}

// architectures returns a model's Architectures for all ways of computing.
func architectures(t testing.TB, m models.Model, adapter *models.Adapter) []models.Architecture {
	t.Helper()
	var all []models.Architecture
	for _, c := range []models.Compute{{Type: models.F32}, {Type: models.F32, Provider: models.CUDA},
		{Type: models.F16, Provider: models.CUDA}, {Type: models.BF16, Provider: models.CUDA}} {
		c.Adapter = adapter
		a := must(m.Architecture(c))(t)
		all = append(all, a)
	}
	return all
}

// An edit changes members of a config.json; a nil value removes the member.
type edit map[string]any

// apply returns the text with the edit.
func (e edit) apply(t testing.TB, config string) []byte {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal([]byte(config), &members); err != nil {
		t.Fatal(err)
	}
	to := members
	if text, ok := members["text_config"].(map[string]any); ok { // a model within a larger one
		to = text
	}
	for key, value := range e {
		to[key] = value
		if value == nil {
			delete(to, key)
		}
	}
	text := must(json.Marshal(members))(t)
	return text
}

// refused lists members that change the computation in ways that most families do not
// support. Their error must name the key, which is listed first.
var refused = []struct {
	key  string
	edit edit
}{
	{"hidden_act", edit{"hidden_act": "gelu"}},
	{"quantization_config", edit{"quantization_config": edit{"bits": 4}}},
	{"use_sliding_window", edit{"use_sliding_window": true, "sliding_window": 4, "max_window_layers": 0}},
	{"layer_types", edit{"layer_types": []string{"sliding_attention", "full_attention"}}},
	{"dynamic", edit{"rope_parameters": nil, "rope_scaling": edit{"type": "dynamic", "factor": 4.0}}},
	{"longrope", edit{"rope_scaling": nil, "rope_parameters": edit{"rope_type": "longrope", "factor": 4.0}}},
	{"partial_rotary_factor", edit{"partial_rotary_factor": 0.5}},
	{"num_experts", edit{"num_experts": 8}},
	{"num_local_experts", edit{"num_local_experts": 8}},
	{"attention_multiplier", edit{"attention_multiplier": 0.1}},
	{"clip_qkv", edit{"clip_qkv": 8.0}},
	{"attn_logit_softcapping", edit{"attn_logit_softcapping": 50.0}},
	{"final_logit_softcapping", edit{"final_logit_softcapping": 30.0}},
	{"logit_scale", edit{"logit_scale": 0.1}},
	{"residual_multiplier", edit{"residual_multiplier": 0.2}},
}

// meaning is what a model computes, as text: its angles and windows, and some of its graphs.
func meaning(t testing.TB, m models.Model) (all []string) {
	a := must(m.Architecture(models.Compute{}))(t)
	g := a.Geometry()
	layer, _ := must2(a.Layer(0, false, 1))(t)
	prefill := must(a.Prefill())(t)
	for _, p := range []models.Program{layer, prefill, must(a.Sample(models.Greedy, models.Direct))(t)} {
		all = append(all, string(p.ONNX().Encode()))
	}
	return append(all, fmt.Sprint(g.Kinds, g.KindOf))
}

// checkConfig compares the two spellings of rope_theta, and requires that each edit of refused changes what the model
// computes or is an error that names the key.
func checkConfig(t testing.TB, config string, _ models.Model, _ *models.Weights) {
	text := edit{}.apply(t, config) // written as edited ones are
	geometry := func(e edit) models.Geometry {
		m, err := models.ParseConfig(e.apply(t, string(text)), nil)
		if err != nil {
			t.Fatalf("%v: %v", e, err)
		}
		a := must(m.Architecture(models.Compute{}))(t)
		return a.Geometry()
	}
	published := geometry(edit{"rope_parameters": nil, "rope_scaling": nil, "rope_theta": 1234.5})
	v5 := geometry(edit{"rope_scaling": nil, "rope_theta": nil, "rope_parameters": edit{"rope_theta": 1234.5, "rope_type": "default"}})
	if !slices.Equal(published.Kinds[0].Frequencies, v5.Kinds[0].Frequencies) || published.RopeTheta != 1234.5 || v5.RopeTheta != 1234.5 {
		t.Errorf("rope_theta 1234.5 at the top gives frequencies %v, in rope_parameters %v", published.Kinds[0].Frequencies, v5.Kinds[0].Frequencies)
	}
	unchanged := meaning(t, must(models.ParseConfig(text, nil))(t))
	for _, r := range refused {
		if m, err := models.ParseConfig(r.edit.apply(t, string(text)), nil); err == nil {
			if slices.Equal(meaning(t, m), unchanged) {
				t.Errorf("%v changes the computation and is neither refused nor read", r.edit)
			}
		} else if !strings.Contains(err.Error(), r.key) {
			t.Errorf("the error for %v does not name %s: %v", r.edit, r.key, err)
		}
	}
}
