package train

import (
	"strings"
	"testing"

	"onering/objectives"
)

// A meddler is an objective that does something to its batch.
type meddler struct {
	objectives.Objective
	change func(x *objectives.Trajectory)
}

func (m meddler) Weights(b objectives.Batch, w [][]float64) {
	m.Objective.Weights(b, w)
	m.change(&b.Trajectories[1])
}

// TestChangedBatch: whatever an objective changes of its batch is found out, with the
// objective's name.
func TestChangedBatch(t *testing.T) {
	for what, change := range map[string]func(x *objectives.Trajectory){
		"":           func(*objectives.Trajectory) {},
		"reward":     func(x *objectives.Trajectory) { x.Reward++ },
		"advantage":  func(x *objectives.Trajectory) { x.Advantage = -x.Advantage },
		"log-prob":   func(x *objectives.Trajectory) { x.LogProb[2] *= 1 + 1e-15 },
		"order":      func(x *objectives.Trajectory) { x.LogProb[0], x.LogProb[1] = x.LogProb[1], x.LogProb[0] },
		"old":        func(x *objectives.Trajectory) { x.OldLogProb[0] = 0 },
		"entropy":    func(x *objectives.Trajectory) { x.Entropy[1] = 0 },
		"length":     func(x *objectives.Trajectory) { x.Entropy = x.Entropy[:2] },
		"truncated":  func(x *objectives.Trajectory) { x.Truncated = true },
		"degenerate": func(x *objectives.Trajectory) { x.Degenerate = true },
	} {
		o, err := objectives.New("grpo")
		if err != nil {
			t.Fatal(err)
		}
		trajectory := func(advantage float64) objectives.Trajectory {
			return objectives.Trajectory{
				Reward: 1, Advantage: advantage, LogProb: []float64{-1, -2, -3}, OldLogProb: []float64{-1.1, -2, -3}, Entropy: []float64{1, 2, 3},
			}
		}
		b := objectives.Batch{Trajectories: []objectives.Trajectory{trajectory(1), trajectory(-1)}, Steps: 1}
		_, _, err = weigh(meddler{o, change}, "mine", b)
		if what == "" && err != nil || what != "" && (err == nil || !strings.HasPrefix(err.Error(), `objective "mine" changes its batch: `)) {
			t.Errorf("%s: error %v", what, err)
		}
	}
}
