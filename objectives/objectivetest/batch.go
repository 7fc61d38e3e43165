package objectivetest

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"onering/objectives"
)

// A source draws batches that suit an objective.
type source struct {
	*rand.Rand
	o objectives.Objective
}

// draw returns a source of batches for o with a seed.
func draw(o objectives.Objective, seed uint64) source {
	return source{rand.New(rand.NewPCG(seed, 0x0e)), o}
}

// batch draws groups of responses with the given lengths; d draws the log-ratio of each
// token. Rewards differ within every group of two and more. If the objective needs one, each
// group has a greedy response (ReMax's baseline) while advantages are computed, and none
// afterwards, as in training.
func (s source) batch(groups [][]int, d func() float64) objectives.Batch {
	b := objectives.Batch{Step: 3, Steps: 10}
	round := make([][]objectives.Trajectory, len(groups))
	for g, lengths := range groups {
		greedy := s.greedy(0.5)
		for k, n := range lengths {
			t := s.trajectory(n, d)
			t.Reward, t.Greedy, t.Group = float64(k%2), greedy, g
			round[g] = append(round[g], t)
		}
	}
	objectives.SetAdvantages(s.o, round...)
	b.Trajectories = slices.Concat(round...)
	for i := range b.Trajectories {
		b.Trajectories[i].Greedy = nil // a step does not have it
	}
	return b
}

// group draws one group of responses with the given lengths and rewards. The greedy
// response to their prompt has the reward of the first.
func (s source) group(rewards []float64) []objectives.Trajectory {
	group := make([]objectives.Trajectory, len(rewards))
	for i, r := range rewards {
		group[i] = s.trajectory(1+s.IntN(12), func() float64 { return 0 })
		group[i].Reward = r
		if i == 0 {
			group[0].Greedy = s.greedy(r)
		}
		group[i].Greedy = group[0].Greedy
	}
	return group
}

// greedy draws a greedy response with a reward, or nil if the objective needs none.
func (s source) greedy(reward float64) *objectives.Trajectory {
	if !objectives.NeedsOf(s.o).Greedy {
		return nil
	}
	t := s.trajectory(1+s.IntN(12), func() float64 { return 0 })
	t.Reward = reward
	return &t
}

// ordinary draws a batch as in training: most tokens near their old log-prob, some far
// off, on both sides.
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

// trajectory draws a response of n tokens whose log-probs differ from the old ones by what d draws.
func (s source) trajectory(n int, d func() float64) objectives.Trajectory {
	t := objectives.Trajectory{
		LogProb: make([]float64, n), OldLogProb: make([]float64, n), SampleLogProb: make([]float64, n), IDs: make([]int32, n),
	}
	for j := range n {
		t.OldLogProb[j] = -s.ExpFloat64()
		t.SampleLogProb[j] = t.OldLogProb[j] + 0.1*s.NormFloat64()
		t.LogProb[j] = t.OldLogProb[j] + d()
		t.IDs[j] = s.Int32N(1000)
	}
	if objectives.NeedsOf(s.o).Reference {
		t.RefLogProb = make([]float64, n)
		for j := range n {
			t.RefLogProb[j] = t.LogProb[j] + 0.2*s.NormFloat64()
		}
	}
	if objectives.NeedsOf(s.o).Squares {
		t.SumPiSquared = make([]float64, n)
		for j, logp := range t.OldLogProb {
			t.SumPiSquared[j] = math.Exp(2 * logp)
		}
	}
	if objectives.NeedsOf(s.o).Entropy {
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

// cloneAll copies trajectories with everything they point to.
func cloneAll(group []objectives.Trajectory) []objectives.Trajectory {
	group = slices.Clone(group)
	for i := range group {
		t := &group[i]
		for _, s := range []*[]float64{&t.LogProb, &t.OldLogProb, &t.RefLogProb, &t.Entropy, &t.TokenAdvantage, &t.SampleLogProb, &t.SumPiSquared} {
			*s = slices.Clone(*s)
		}
		t.IDs, t.Turns, t.Components = slices.Clone(t.IDs), slices.Clone(t.Turns), maps.Clone(t.Components)
		if t.Greedy != nil {
			t.Greedy = &cloneAll([]objectives.Trajectory{*t.Greedy})[0]
		}
	}
	return group
}

// overwrite changes every number that b points to, in place, so that an objective that keeps a part of b shows it.
func overwrite(b objectives.Batch) {
	for i := range b.Trajectories {
		t := &b.Trajectories[i]
		for _, s := range [][]float64{t.LogProb, t.OldLogProb, t.RefLogProb, t.Entropy, t.TokenAdvantage, t.SampleLogProb, t.SumPiSquared} {
			for j := range s {
				s[j] = -1e3
			}
		}
		if t.Greedy != nil {
			*t.Greedy = objectives.Trajectory{Reward: -1e3}
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

// weights returns the result of o.Weights for b.
func weights(o objectives.Objective, b objectives.Batch) [][]float64 {
	w := rows(b, 0)
	objectives.Weights(o, b, w)
	return w
}

// entropyWeights returns the result of o.EntropyWeights for b; zeros if o has no such method.
func entropyWeights(o objectives.Objective, b objectives.Batch) [][]float64 {
	v := rows(b, 0)
	if e, ok := o.(objectives.EntropyWeigher); ok && e.WeighsEntropy() {
		e.EntropyWeights(b, v)
	}
	return v
}

// largest returns the largest |x| of a row.
func largest(row []float64) float64 {
	m := 0.0
	for _, x := range row {
		m = max(m, x, -x)
	}
	return m
}
