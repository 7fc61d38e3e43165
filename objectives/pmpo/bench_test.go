package pmpo_test

import (
	"math/rand/v2"
	"testing"

	"onering/objectives"
	"onering/objectives/pmpo"
)

// benchmarkBatch is 128 responses of 3,000 tokens whose log-ratios have the given
// standard deviation: 0.05 leaves p at p_max, 1 makes the solver work for every response.
func benchmarkBatch(std float64) (objectives.Batch, [][]float64) {
	r := rand.New(rand.NewPCG(1, 2))
	b := objectives.Batch{Steps: 1}
	w := make([][]float64, 128)
	for i := range w {
		t := objectives.Trajectory{Advantage: float64(i%2) - 0.5, LogProb: make([]float64, 3000), OldLogProb: make([]float64, 3000)}
		for j := range t.LogProb {
			t.OldLogProb[j] = -r.ExpFloat64()
			t.LogProb[j] = t.OldLogProb[j] + std*r.NormFloat64()
		}
		b.Trajectories = append(b.Trajectories, t)
		w[i] = make([]float64, 3000)
	}
	return b, w
}

// BenchmarkWeights is the whole PMPO layer of one optimizer step: clip, ESS
// matching, weights.
func BenchmarkWeights(b *testing.B) {
	for _, c := range []struct {
		name string
		std  float64
		set  func(*pmpo.PMPO)
	}{
		{"on-policy", 0, nil},
		{"saturated", 0.05, nil},
		{"interior", 1, nil},
		{"interior-p_max4", 0.5, func(o *pmpo.PMPO) { o.PMax = 4 }},
		{"attainable", 0.1, func(o *pmpo.PMPO) { o.Target = "attainable" }},
	} {
		b.Run(c.name, func(b *testing.B) {
			o := newPMPO(b, c.set)
			batch, w := benchmarkBatch(c.std)
			b.ReportAllocs()
			for b.Loop() {
				o.Weights(batch, w)
			}
		})
	}
}
