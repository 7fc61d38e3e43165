package train

import "onering/objectives"

// An update is what the newest optimizer step did with the tokens of a rollout.
// Of several passes over a round the last one counts: delta of the first is 0 for
// the tokens of its first step.
type update struct {
	W     []float32 // dLoss/dlogp, as the objective said
	Delta []float32 // log-prob before the step, less that of the old policy
}

// note keeps what an optimizer step did with the rollouts of batch. Slices that
// are there stay as they are: a checkpoint may be written from them meanwhile.
func (r *round) note(batch []int, b objectives.Batch, w [][]float64) {
	for i, j := range batch {
		x := &b.Trajectories[i]
		u := update{W: make([]float32, len(w[i])), Delta: make([]float32, len(w[i]))}
		for t, v := range w[i] {
			u.W[t] = float32(v)
			u.Delta[t] = float32(x.LogProb[t] - x.OldLogProb[t])
		}
		r.updates[j] = u
	}
}
