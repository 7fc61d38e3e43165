package runtime_test

import (
	"testing"

	"onering/models"
	"onering/models/lora"
	"onering/runtime"
)

// TestBeside: Rings beside another compute with its weights and adapters of their
// own, as each adapter does alone; a device holds the weights once.
func TestBeside(t *testing.T) {
	onDevices(t, func(t *testing.T, env *runtime.Env) {
		if runtime.ProviderOf(env) == models.WebGPU {
			t.Skip("adapters are not for this device")
		}
		c := qwen2Of(models.Sizes{Layers: 2, Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 64, Vocab: 300, MaxPositions: 64})
		m, err := models.NewModel(c.Shape)
		check(t, err)
		settings := lora.Default()
		settings.Rank = 3
		spec, err := lora.New(settings, m, "base")
		check(t, err)
		adapted := c
		adapted.Adapter = &spec.Adapter
		adapter := func(seed uint64) *models.Weights {
			w, err := spec.Init(settings, seed)
			check(t, err)
			t.Cleanup(func() { w.Close() })
			for i := range w.Data { // B would be zero
				w.Data[i] += 0.02 * float32(int(seed)+i%7-3)
			}
			return w
		}
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
			r := shared.Beside()
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
