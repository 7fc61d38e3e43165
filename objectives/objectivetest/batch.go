package objectivetest

import (
	"math/rand/v2"
	"slices"

	"onering/objectives"
)

// A source draws batches that suit an objective.
type source struct {
	*rand.Rand
	o objectives.Objective
}

func draw(o objectives.Objective, seed uint64) source {
	return source{rand.New(rand.NewPCG(seed, 0x0e)), o}
}

// batch draws groups of responses with the given lengths, d being the log-ratio of
// each token. Rewards differ within every group of two and more.
func (s source) batch(groups [][]int, d func() float64) objectives.Batch {
	b := objectives.Batch{Step: 3, Steps: 10}
	for _, lengths := range groups {
		group := make([]objectives.Trajectory, len(lengths))
		for k, n := range lengths {
			group[k] = s.trajectory(n, d)
			group[k].Reward = float64(k % 2)
		}
		objectives.SetAdvantages(s.o, group)
		b.Trajectories = append(b.Trajectories, group...)
	}
	return b
}

// ordinary draws a batch as training has it: most tokens near their old log-prob,
// some far off, on both sides.
func (s source) ordinary() objectives.Batch {
	return s.batch([][]int{{9, 14, 6, 11}, {5, 8, 12}}, func() float64 {
		if s.Float64() < 0.3 {
			return s.NormFloat64()
		}
		return 0.15 * s.NormFloat64()
	})
}

// onPolicy draws a batch whose log-probs are the old ones.
func (s source) onPolicy() objectives.Batch {
	return s.batch([][]int{{4, 7, 3}, {6, 2}}, func() float64 { return 0 })
}

func (s source) trajectory(n int, d func() float64) objectives.Trajectory {
	t := objectives.Trajectory{LogProb: make([]float64, n), OldLogProb: make([]float64, n)}
	for j := range n {
		t.OldLogProb[j] = -s.ExpFloat64()
		t.LogProb[j] = t.OldLogProb[j] + d()
	}
	if objectives.NeedsReference(s.o) {
		t.RefLogProb = make([]float64, n)
		for j := range n {
			t.RefLogProb[j] = t.LogProb[j] + 0.2*s.NormFloat64()
		}
	}
	if objectives.NeedsEntropy(s.o) {
		t.Entropy = make([]float64, n)
		for j := range n {
			t.Entropy[j] = s.ExpFloat64()
		}
	}
	return t
}

// clone copies b with everything it points to.
func clone(b objectives.Batch) objectives.Batch {
	b.Trajectories = cloneAll(b.Trajectories)
	return b
}

func cloneAll(group []objectives.Trajectory) []objectives.Trajectory {
	group = slices.Clone(group)
	for i := range group {
		t := &group[i]
		for _, s := range []*[]float64{&t.LogProb, &t.OldLogProb, &t.RefLogProb, &t.Entropy, &t.TokenAdvantage} {
			*s = slices.Clone(*s)
		}
	}
	return group
}

// overwrite changes every number that b points to.
func overwrite(b objectives.Batch) {
	for i := range b.Trajectories {
		t := &b.Trajectories[i]
		for _, s := range [][]float64{t.LogProb, t.OldLogProb, t.RefLogProb, t.Entropy, t.TokenAdvantage} {
			for j := range s {
				s[j] = -1e3
			}
		}
		*t = objectives.Trajectory{Reward: -1e3, Advantage: -1e3}
	}
}

// rows returns a fresh slice of the shape of b's log-probs, filled with v.
func rows(b objectives.Batch, v float64) [][]float64 {
	w := make([][]float64, len(b.Trajectories))
	for i, t := range b.Trajectories {
		w[i] = make([]float64, len(t.LogProb))
		for j := range w[i] {
			w[i][j] = v
		}
	}
	return w
}

// weights returns what o.Weights gives for b.
func weights(o objectives.Objective, b objectives.Batch) [][]float64 {
	w := rows(b, 0)
	o.Weights(b, w)
	return w
}

// largest returns the largest |x| of a row.
func largest(row []float64) float64 {
	m := 0.0
	for _, x := range row {
		m = max(m, x, -x)
	}
	return m
}
