package runtime_test

import (
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"onering/models"
	"onering/models/decoder"
	"onering/runtime"
	"onering/sampler"
)

// The family "runtime_test" differs from Qwen2: biases at all products except queries,
// keys and values, norms of heads, a layer without rotary embedding, frequencies and
// names of its own. No other code mentions this family.
func init() {
	models.Register("runtime_test", "", func(c *models.ConfigFile) (models.Design, error) {
		names := decoder.LlamaNames
		names.Layer, names.Q, names.QNorm = "decoder.%d.", "attention.query", "attention.query_norm.weight"
		return decoder.Read(c, decoder.Shape{
			Sizes: models.Sizes{MaxPositions: 64}, RopeTheta: 500, RMSEps: 1e-5, Names: names,
			Block:  decoder.Block{OBias: true, MLPBias: true, QKNorm: true},
			Kinds:  models.Kinds{{Frequencies: []float32{1, 0.5, 0.1, 0.02, 0.001}, Scale: 1}, {Frequencies: make([]float32, 5), Scale: 1}},
			KindOf: []int{0, 1, 0},
		})
	})
}

const familyConfig = `{"model_type": "runtime_test", "architectures": ["RuntimeTestForCausalLM"], "hidden_size": 24, "intermediate_size": 40,
	"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "vocab_size": 61}`

// TestRegisteredFamily: a family that registers itself is saved, loaded, sampled
// from and learned from. Its log-probs are the same in sampling and scoring, and
// its gradients are the slopes of the log-probs.
func TestRegisteredFamily(t *testing.T) { onDevices(t, testRegisteredFamily) }

func testRegisteredFamily(t *testing.T, env *runtime.Env) {
	m, err := models.ParseConfig([]byte(familyConfig), nil)
	check(t, err)
	made, err := m.Init(5)
	check(t, err)
	defer made.Close()
	r := rand.New(rand.NewPCG(1, 2))
	for _, tensor := range made.Tensors() { // Norms and biases of a fresh model are 1 and 0.
		for i := range tensor.Data {
			tensor.Data[i] = float32(0.3 * r.NormFloat64())
		}
	}
	dir := filepath.Join(t.TempDir(), "model")
	check(t, m.Save(dir, made, models.SaveOptions{}))
	m, w, err := models.Load(dir)
	check(t, err)
	defer w.Close()
	if !slices.Equal(w.Data, made.Data) {
		t.Fatal("the folder holds other weights")
	}
	arch, err := m.Architecture(models.Compute{})
	check(t, err)
	ring := runtime.NewRing(arch, w)
	defer ring.Close()

	sequences, sampled := sampleFamily(t, env, ring)
	l, err := env.NewLearner(ring, runtime.LearnerOptions{StashBytes: everything, BlockTokens: 8})
	check(t, err)
	defer l.Close()
	weights := make([][]float64, len(sequences))
	loss := func() float64 {
		p, err := l.Forward(sequences, 1, false)
		check(t, err)
		defer p.Release()
		sum := 0.0
		for i := range weights {
			for k, x := range weights[i] {
				sum += x * float64(p.LogProb[i][k])
			}
		}
		return sum
	}
	p, err := l.Forward(sequences, 1, true)
	check(t, err)
	for i, logps := range p.LogProb {
		for k, logp := range logps {
			if gap := math.Abs(float64(logp - sampled[i][k])); !(gap <= 1e-5) {
				t.Errorf("response %d, token %d: log-prob %v in scoring, %v in sampling", i, k, logp, sampled[i][k])
			}
			weights[i] = append(weights[i], r.NormFloat64())
		}
	}
	check(t, p.Backward(weights, nil))
	p.Release()
	check(t, env.Download(l.Gradients, w))
	for _, tensor := range l.Gradients.Tensors() {
		norm := 0.0
		for _, g := range tensor.Data {
			norm += float64(g) * float64(g)
		}
		norm = math.Sqrt(norm)
		values, _, _ := w.View(tensor.Name)
		was := slices.Clone(values)
		along := func(h float64) float64 { // the loss after a step h along the gradient
			for i, g := range tensor.Data {
				values[i] = was[i] + float32(h*float64(g)/norm)
			}
			check(t, env.Upload(w))
			return loss()
		}
		const h = 3e-3
		slope := (along(h) - along(-h)) / (2 * h)
		copy(values, was)
		if !(math.Abs(slope-norm) <= 5e-3*(1+norm)) {
			t.Errorf("%s: a step along the gradient of norm %g changes the loss by %g of its length", tensor.Name, norm, slope)
		}
	}
	check(t, env.Upload(w))
}

// sampleFamily samples responses and returns them with their log-probs.
func sampleFamily(t *testing.T, env *runtime.Env, ring *runtime.Ring) (sequences []runtime.Sequence, logps [][]float32) {
	t.Helper()
	d, err := env.NewDecoder(ring, 3, 40)
	check(t, err)
	defer d.Close()
	prompts := [][]int32{{1, 2, 3, 4, 5}, {6}, {7, 8, 9}}
	var requests []sampler.Request
	for i, p := range prompts {
		requests = append(requests, sampler.Request{Prompt: p, ID: uint64(i), Samples: 2})
	}
	options := sampler.Options{Seed: 3}
	options.Temperature, options.TopP, options.MaxNewTokens = 1, 1, 20
	responses, _, err := sampler.Sample(context.Background(), d, options, requests, nil)
	check(t, err)
	for _, x := range responses {
		prompt := prompts[x.Request]
		sequences = append(sequences, runtime.NewSequence(prompt, x.IDs))
		logps = append(logps, x.LogProb)
	}
	return sequences, logps
}
