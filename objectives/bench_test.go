package objectives_test

import (
	"math/rand/v2"
	"testing"

	"onering/objectives"
)

// benchmarkBatch is a minibatch of 32 responses of 1,000 tokens whose log-ratios have a standard deviation of 0.1.
func benchmarkBatch() (objectives.Batch, [][]float64) {
	r := rand.New(rand.NewPCG(1, 2))
	b := objectives.Batch{Step: 3, Steps: 10}
	for i := range 32 {
		t := objectives.Trajectory{Reward: float64(i % 2), Advantage: float64(i%2) - 0.5, Group: i / 8}
		for range 1000 {
			old := -r.ExpFloat64()
			t.OldLogProb = append(t.OldLogProb, old)
			t.LogProb = append(t.LogProb, min(old+0.1*r.NormFloat64(), 0))
			t.RefLogProb = append(t.RefLogProb, old+0.1*r.NormFloat64())
		}
		b.Trajectories = append(b.Trajectories, t)
	}
	return b, b.Zeros()
}

// BenchmarkObjectives is what a step spends in each objective: its loss, its weights and its figures.
func BenchmarkObjectives(b *testing.B) {
	for _, name := range builtIn {
		b.Run(name, func(b *testing.B) {
			o, err := objectives.New(name)
			if err != nil {
				b.Fatal(err)
			}
			batch, w := benchmarkBatch()
			b.ReportAllocs()
			for b.Loop() {
				objectives.Weights(o, batch, w)
				objectives.Loss(o, batch, batch)
				if d, ok := o.(objectives.Diagnoser); ok {
					d.Diagnose(batch)
				}
			}
		})
	}
}
