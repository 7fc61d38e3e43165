package runtime_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/models/decoder"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/sampler"
)

// widened returns the architecture of a golden model with rows of whole blocks.
func widened(m *model) decoder.Architecture {
	a := m.arch
	heads := 64
	for heads%2 == 0 && heads/2*a.HeadDim%64 == 0 {
		heads /= 2
	}
	a.Heads, a.KVHeads = max(2, heads), max(2, heads)/2
	a.Layers, a.Hidden, a.FFN = 2, 64, 128
	if a.KindOf != nil {
		a.KindOf = a.KindOf[len(a.KindOf)-2:]
	}
	return a
}

// seen are log-probs and gradients of an adapter's tensors.
type seen struct {
	logp      [][]float32
	gradients []float32
}

// learn computes log-probs and gradients over sequences.
func learn(t *testing.T, env *runtime.Env, ring *runtime.Ring, sequences []runtime.Sequence) seen {
	t.Helper()
	l, err := env.NewLearner(ring, runtime.LearnerOptions{})
	check(t, err)
	defer l.Close()
	p, err := l.Forward(sequences, 1, true)
	check(t, err)
	defer p.Release()
	s := seen{}
	var w [][]float64
	for _, row := range p.LogProb {
		s.logp = append(s.logp, slices.Clone(row))
		w = append(w, make([]float64, len(row)))
		for i := range row {
			w[len(w)-1][i] = float64(i%3) - 0.7
		}
	}
	check(t, p.Backward(w, nil))
	check(t, env.Download(l.Gradients))
	s.gradients = slices.Clone(l.Gradients.Data)
	return s
}

// TestHeld: beside a base in fewer bits, log-probs and gradients of an adapter are those beside the
// numbers that it holds: in bfloat16 to the last bit, for every family. The sampler's log-probs are the
// learner's. With ONERING_LONG=1 all folders are tried, else some that differ most.
func TestHeld(t *testing.T) {
	env := runtimetest.Test(t)
	if env.Device() != "cpu" {
		t.Skip("is about the CPU")
	}
	for _, dir := range unlessLong(goldensOn(t, env), "tied", "headdim-all", "llama_small", "qwen3_small", "gemma3", "qwen3_5", "lfm2") {
		if filepath.Base(filepath.Dir(dir)) == "lora" {
			continue
		}
		types := []models.DType{models.F32, models.BF16}
		if strings.HasPrefix(filepath.Base(dir), "qwen3_5") || strings.HasPrefix(filepath.Base(dir), "lfm2") {
			types = types[:1] // their mixers have no operators in bfloat16 here
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			a := widened(open(t, env, dir))
			weights := randomWeights(t, a, 3)
			for _, d := range []models.DType{models.BF16, models.F16, models.I8, models.NF4} {
				for _, compute := range types {
					if _, err := a.Shape.Architecture(models.Compute{Type: compute, Base: d}); err != nil {
						continue // the values of the delta rule are no whole blocks
					}
					t.Run(fmt.Sprint(d, " in ", compute), func(t *testing.T) {
						testHeld(t, env, a, weights, d, compute)
						testSampled(t, env, a, weights, d, compute)
					})
				}
			}
		})
	}
}

func testHeld(t *testing.T, env *runtime.Env, a decoder.Architecture, weights *models.Weights, d, compute models.DType) {
	a.Type, a.Adapter = compute, &models.Adapter{Rank: 3, Scale: 0.5, Modules: models.ModulesOf(a)}
	adapter, err := models.NewWeights(a.AdapterLayout())
	check(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range adapter.Data {
		adapter.Data[i] = float32(r.NormFloat64() / 8)
	}
	ringOf := func(a decoder.Architecture, w *models.Weights) *runtime.Ring {
		ring := runtime.NewRing(a, w)
		check(t, ring.Adapt(a, adapter))
		t.Cleanup(ring.Close)
		return ring
	}
	base := a
	base.Base = d
	held, same := narrowed(t, base, weights)
	ring := ringOf(base, held)

	got, sequences := drawn(t, env, ring, compute)
	x, want := learn(t, env, ring, sequences), learn(t, env, ringOf(a, same), sequences)
	if compute == models.BF16 {
		if !reflect.DeepEqual(x, want) {
			t.Error("log-probs or gradients are not those of the same numbers in bfloat16")
		}
		for i, y := range got {
			if !slices.Equal(y.LogProb, x.logp[i]) {
				t.Errorf("response %d: the sampler's log-probs %v, the learner's %v", i, y.LogProb, x.logp[i])
			}
		}
		return
	}
	for i, y := range got {
		for k := range y.LogProb {
			if gap := math.Abs(float64(y.LogProb[k] - x.logp[i][k])); !(gap < 1e-4) {
				t.Errorf("response %d: token %d has a gap of %g", i, k, gap)
			}
			if off := math.Abs(float64(x.logp[i][k] - want.logp[i][k])); !(off < 1e-4) {
				t.Errorf("response %d: log-prob %d is %v, want %v", i, k, x.logp[i][k], want.logp[i][k])
			}
		}
	}
	var off, all float64
	for i, g := range want.gradients {
		off, all = off+math.Pow(float64(x.gradients[i]-g), 2), all+math.Pow(float64(g), 2)
	}
	if !(math.Sqrt(off/all) < 1e-4) || all == 0 {
		t.Errorf("gradients are off by %g of their norm", math.Sqrt(off/all))
	}
}

// narrowed returns weights as an architecture's Base holds them, and the same numbers in float32.
func narrowed(t *testing.T, base decoder.Architecture, weights *models.Weights) (held, same *models.Weights) {
	from, to := base.Held()
	held, err := weights.Narrowed(base.Base, from, to)
	check(t, err)
	t.Cleanup(func() { held.Close() })
	same, err = models.NewWeights(weights.Layout)
	check(t, err)
	t.Cleanup(func() { same.Close() })
	held.Each(func(first int, part []float32) { copy(same.Data[first:], part) })
	return held, same
}

// drawn samples some responses, with one slot and with five, and returns them and their sequences.
func drawn(t *testing.T, env *runtime.Env, ring *runtime.Ring, compute models.DType) (got []sampler.Response, sequences []runtime.Sequence) {
	reqs := []sampler.Request{{Prompt: []int32{1, 5, 7}, ID: 1, Samples: 3}, {Prompt: []int32{3, 2, 9, 11, 4}, ID: 2, Samples: 2}}
	for _, slots := range []int{1, 5} {
		decoder, err := env.NewDecoder(ring, slots, 40)
		check(t, err)
		again, _, err := sampler.Sample(context.Background(), decoder, sampler.Options{Sampling: sampler.Plain(20), Seed: 5}, reqs, nil)
		check(t, err)
		decoder.Close()
		if got != nil && compute == models.BF16 && !reflect.DeepEqual(got, again) {
			t.Error("rows of five slots differ from those of one")
		}
		got = again
	}
	for _, x := range got {
		sequences = append(sequences, runtime.NewSequence(reqs[x.Request].Prompt, x.IDs))
	}
	return got, sequences
}

// testSampled samples with a model whose Base holds the head, too, and demands the log-probs of the
// numbers that it holds.
func testSampled(t *testing.T, env *runtime.Env, a decoder.Architecture, weights *models.Weights, d, compute models.DType) {
	a.Type = compute
	base := a
	base.Base, base.Sampled = d, true
	held, same := narrowed(t, base, weights)
	if _, _, wide := held.View(a.Geometry().Head); wide {
		t.Error("the head is held in float32")
	}
	ring, plain := runtime.NewRing(base, held), runtime.NewRing(a, same)
	defer ring.Close()
	defer plain.Close()
	got, sequences := drawn(t, env, ring, compute)
	want := learn(t, env, plain, sequences).logp
	for i, y := range got {
		for k := range y.LogProb {
			if gap := math.Abs(float64(y.LogProb[k] - want[i][k])); !(gap < 1e-4) || compute == models.BF16 && gap > 0 {
				t.Errorf("response %d: token %d has the log-prob %v, want %v", i, k, y.LogProb[k], want[i][k])
			}
		}
	}
}
