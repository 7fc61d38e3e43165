package runtime_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/runtime"
	hostkernels "onering/runtime/kernels/host"
	"onering/runtime/runtimetest"
	"onering/sampler"
)

// onCPU opens a golden model in bfloat16 on the CPU, with or without an adapter of made-up weights.
func onCPU(t *testing.T, golden string, adapted bool) (*runtime.Env, *model) {
	t.Helper()
	env := runtimetest.Test(t)
	if env.Device() != "cpu" {
		t.Skip("is about the CPU")
	}
	m := open(t, env, golden)
	m.arch.Type = models.BF16
	m.ring = runtime.NewRing(m.arch, m.weights)
	t.Cleanup(m.ring.Close)
	if adapted {
		all := models.ModulesOf(m.arch)
		some := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return strings.HasSuffix(name, "k_proj") || strings.HasSuffix(name, "up_proj") })
		m.arch.Adapter = &models.Adapter{Rank: 3, Scale: 0.5, Modules: some}
		w, err := models.NewWeights(m.arch.AdapterLayout())
		check(t, err)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range w.Data {
			w.Data[i] = float32(r.NormFloat64() / 8)
		}
		check(t, m.ring.Adapt(m.arch, w))
	}
	return env, m
}

// TestBFloat16HasNoGap: in bfloat16 the CPU computes the same log-probs to the last bit in decoding,
// with any number of rows, and in training, whose sequences share prompts or do not; and so with
// every kind of kernels.
func TestBFloat16HasNoGap(t *testing.T) {
	draws := map[string]sampler.Sampling{"plain": sampler.Plain(24), "greedy": sampler.Greedy(24), "cooler": sampler.Plain(24), "filtered": sampler.Plain(24)}
	for name, set := range map[string]func(*sampler.Sampling){"cooler": func(s *sampler.Sampling) { s.Temperature = 0.7 }, "filtered": func(s *sampler.Sampling) { s.TopP, s.TopK = 0.9, 20 }} {
		s := draws[name]
		set(&s)
		draws[name] = s
	}
	dirs := slices.DeleteFunc(allGoldens(t), func(dir string) bool { // adapters' folders; layers whose mixers have no operators here yet
		return filepath.Base(filepath.Dir(dir)) == "lora" || strings.HasPrefix(filepath.Base(dir), "qwen3_5") || strings.HasPrefix(filepath.Base(dir), "lfm2")
	})
	for _, dir := range dirs {
		for _, adapted := range []bool{false, true} {
			env, m := onCPU(t, dir, adapted)
			for name, draw := range draws {
				if isFamily(dir) && name != "cooler" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%v/%s", m.dir, adapted, name), func(t *testing.T) {
					var reqs []sampler.Request
					for i, r := range m.Greedy.Rows {
						reqs = append(reqs, sampler.Request{Prompt: r.Prompt, ID: uint64(i), Samples: 2})
					}
					var first []sampler.Response
					for i, slots := range []int{1, 4, 11} {
						check(t, hostkernels.Use([]string{"", "plain", ""}[i]))
						d, err := env.NewDecoder(m.ring, slots, 64)
						check(t, err)
						got, _, err := sampler.Sample(context.Background(), d, sampler.Options{Sampling: draw, EOS: m.eos, Seed: 5}, reqs, nil)
						check(t, err)
						d.Close()
						if first == nil {
							first = got
						} else if !reflect.DeepEqual(got, first) {
							t.Errorf("%d slots differ from one", slots)
						}
					}
					check(t, hostkernels.Choose())
					var sequences []runtime.Sequence
					for _, x := range first {
						sequences = append(sequences, runtime.NewSequence(m.Greedy.Rows[x.Request].Prompt, x.IDs))
					}
					for _, unshared := range []bool{false, true} {
						l, err := env.NewLearner(m.ring, runtime.LearnerOptions{ScoreOnly: true, Unshared: unshared})
						check(t, err)
						p, err := l.Forward(sequences, draw.Temperature, false)
						check(t, err)
						for i, x := range first {
							if !reflect.DeepEqual(x.LogProb, p.LogProb[i]) {
								t.Errorf("response %d, prompts apart %v: the sampler's log-probs %v, the learner's %v", i, unshared, x.LogProb, p.LogProb[i])
							}
						}
						p.Release()
						l.Close()
					}
				})
			}
		}
	}
}
