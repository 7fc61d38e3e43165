package runtime_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"onering/models"
	"onering/models/decoder"
	"onering/models/lora"
	"onering/runtime"
)

const adapterRank = 3

// adaptedModel is a small model without and with an adapter of all its modules.
func adaptedModel(t *testing.T, env *runtime.Env) (base, adapted decoder.Architecture, spec *lora.Adapter) {
	t.Helper()
	base = qwen2Of(models.Sizes{Layers: 2, Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 64, Vocab: 300, MaxPositions: 64})
	m, err := models.NewModel(base.Shape)
	check(t, err)
	settings := lora.Default()
	settings.Rank = adapterRank
	spec, err = lora.New(settings, m, "base")
	check(t, err)
	adapted = base
	adapted.Adapter = &spec.Adapter
	return base, adapted, spec
}

// adapterOf is an adapter whose Bs are not zero.
func adapterOf(t *testing.T, spec *lora.Adapter, seed uint64) *models.Weights {
	t.Helper()
	settings := lora.Default()
	settings.Rank = adapterRank
	w, err := spec.Init(settings, seed)
	check(t, err)
	t.Cleanup(func() { w.Close() })
	for i := range w.Data {
		w.Data[i] += 0.02 * float32(int(seed)+i%7-3)
	}
	return w
}

// TestAdapterIsMerged: a model beside an adapter samples and scores as the merged model,
// in which each matrix W is W + s B A. Its gradients follow from the merged model's
// gradient dW: s B^T dW for A, and s dW A^T for B.
func TestAdapterIsMerged(t *testing.T) {
	onDevices(t, func(t *testing.T, env *runtime.Env) {
		base, adapted, spec := adaptedModel(t, env)
		adapter := adapterOf(t, spec, 1)
		_, beside := madeUpRing(t, base, 7)
		check(t, beside.Adapt(adapted, adapter))
		merged := randomWeights(t, base, 7)
		folder := filepath.Join(t.TempDir(), "adapter")
		check(t, spec.Save(folder, adapter, nil))
		m, err := models.NewModel(base.Shape)
		check(t, err)
		check(t, lora.Merge(folder, m, merged))
		alone := runtime.NewRing(base, merged)
		defer alone.Close()

		sequences, sampled := sampleFamily(t, env, beside)
		learn := func(r *runtime.Ring) *runtime.Learner {
			l, err := env.NewLearner(r, runtime.LearnerOptions{StashBytes: everything, BlockTokens: 8})
			check(t, err)
			t.Cleanup(l.Close)
			p, err := l.Forward(sequences, 1, true)
			check(t, err)
			defer p.Release()
			for i, row := range p.LogProb {
				for k, logp := range row {
					if gap := math.Abs(float64(logp - sampled[i][k])); !(gap <= 2e-5) {
						t.Errorf("response %d, token %d: log-prob %v, sampled with %v", i, k, logp, sampled[i][k])
					}
				}
			}
			check(t, p.Backward(likeLogProb(p, 1), nil))
			check(t, env.Download(l.Gradients))
			return l
		}
		whole, low := learn(alone), learn(beside)
		check(t, env.Download(adapter))
		for _, name := range adapter.Layout.Names() {
			if module, isA := strings.CutSuffix(name, models.AdapterA); isA {
				compareLowRank(t, module, spec.Scale, adapter, low.Gradients, whole.Gradients)
			}
		}
	})
}

// compareLowRank compares the gradients of a module's A and B with those computed from
// the gradient of its matrix.
func compareLowRank(t *testing.T, module string, scale float64, adapter, low, whole *models.Weights) {
	t.Helper()
	tensor := func(w *models.Weights, name string) ([]float32, int) {
		data, shape, ok := w.View(name)
		if !ok {
			t.Fatalf("no tensor %q", name)
		}
		return data, shape[1]
	}
	a, in := tensor(adapter, module+models.AdapterA)
	b, rank := tensor(adapter, module+models.AdapterB)
	dw, _ := tensor(whole, strings.TrimPrefix(module, models.AdapterPrefix)+".weight")
	da, db := make([]float64, len(a)), make([]float64, len(b))
	for i, d := range dw {
		row, column := i/in, i%in
		for r := range rank {
			da[r*in+column] += scale * float64(b[row*rank+r]) * float64(d)
			db[row*rank+r] += scale * float64(d) * float64(a[r*in+column])
		}
	}
	for suffix, want := range map[string][]float64{models.AdapterA: da, models.AdapterB: db} {
		got, _ := tensor(low, module+suffix)
		var off, all float64
		for i, w := range want {
			off += (float64(got[i]) - w) * (float64(got[i]) - w)
			all += w * w
		}
		if all == 0 || !(math.Sqrt(off) <= 1e-5*math.Sqrt(all)) {
			t.Errorf("gradient of %s%s: off by %g, norm %g", module, suffix, math.Sqrt(off), math.Sqrt(all))
		}
	}
}

// TestBeside: Rings beside another share its weights, have their own adapters, and
// compute as each adapter does alone; a device holds the weights once.
func TestBeside(t *testing.T) {
	onDevices(t, func(t *testing.T, env *runtime.Env) {
		c, adapted, spec := adaptedModel(t, env)
		adapter := func(seed uint64) *models.Weights { return adapterOf(t, spec, seed) }
		logps := func(r *runtime.Ring) []float32 {
			l, err := env.NewLearner(r, runtime.LearnerOptions{HeadRows: 128, ScoreOnly: true})
			check(t, err)
			defer l.Close()
			p, err := l.Forward(madeSequences(), 1, false)
			check(t, err)
			defer p.Release()
			return flat(p.LogProb)
		}
		weights, shared := madeUpRing(t, c, 7)
		size := int64(4 * len(weights.Data))
		before, _ := env.Crossed()
		results := [][]float32{logps(shared)}
		for seed := range uint64(2) {
			r := shared.SharedWeights()
			check(t, r.Adapt(adapted, adapter(seed)))
			results = append(results, logps(r))
			r.Close()
		}
		results = append(results, logps(shared))
		if up, _ := env.Crossed(); env.Device() != "cpu" && up-before >= 2*size {
			t.Errorf("%d bytes went to the device; the weights, once, are %d", up-before, size)
		}
		for i, got := range results {
			_, alone := madeUpRing(t, c, 7)
			if i == 1 || i == 2 {
				check(t, alone.Adapt(adapted, adapter(uint64(i-1))))
			}
			same := 0
			for j, want := range logps(alone) {
				if got[j] != want {
					t.Fatalf("ring %d: log-prob %d is %v, alone %v", i, j, got[j], want)
				}
				if got[j] == results[0][j] {
					same++
				}
			}
			if (i == 1 || i == 2) && same > 0 {
				t.Errorf("ring %d: the adapter leaves %d log-probs as they are", i, same)
			}
		}
	})
}
