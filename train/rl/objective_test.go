package rl

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"onering/objectives"
	"onering/train/learn"
)

// A meddler is an objective that changes its batch.
type meddler struct {
	objectives.Objective
	change func(x *objectives.Trajectory)
}

func (m meddler) Weights(b objectives.Batch, w [][]float64) {
	m.Objective.Weights(b, w)
	m.change(&b.Trajectories[1])
}

// TestChangedBatch: any change of a batch by its objective is detected, with the
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
		_, _, err = weigh(meddler{o, change}, "mine", b, learn.Scores{LogProb: [][]float64{b.Trajectories[0].LogProb, b.Trajectories[1].LogProb}})
		if what == "" && err != nil || what != "" && (err == nil || !strings.HasPrefix(err.Error(), `objective "mine" changes its batch: `)) {
			t.Errorf("%s: error %v", what, err)
		}
	}
}

// TestBatches: every kept rollout is in one step of each epoch, in an order of the
// seed, the round and the epoch; with shuffle = "prompts" the rollouts to one prompt
// follow one another.
func TestBatches(t *testing.T) {
	c := Default()
	c.Rollout.PromptsPerRound, c.Rollout.SamplesPerPrompt, c.Train.BatchSize, c.Train.Epochs = 8, 4, 6, 3
	kept := []int{0, 1, 2, 3, 5, 6, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27, 29}
	for _, shuffle := range []string{"responses", "prompts"} {
		c.Train.Shuffle = shuffle
		r := &roller{config: c}
		steps := r.batches(3, kept)
		if !reflect.DeepEqual(steps, r.batches(3, kept)) || reflect.DeepEqual(steps, r.batches(4, kept)) {
			t.Errorf("%s: the order does not follow from the round", shuffle)
		}
		per := len(steps) / c.Train.Epochs
		var orders [][]int
		for epoch := range slices.Chunk(steps, per) {
			order := slices.Concat(epoch...)
			if sorted := slices.Sorted(slices.Values(order)); !slices.Equal(sorted, kept) {
				t.Errorf("%s: an epoch has the rollouts %v, want %v", shuffle, sorted, kept)
			}
			if slices.ContainsFunc(orders, func(o []int) bool { return slices.Equal(o, order) }) {
				t.Errorf("%s: two epochs have the order %v", shuffle, order)
			}
			orders = append(orders, order)
			runs := 1
			for i, j := range order[1:] {
				if j/4 != order[i]/4 {
					runs++
				}
			}
			if (runs == 6) != (shuffle == "prompts") {
				t.Errorf("%s: the order %v has %d runs of one prompt; there are 6 prompts", shuffle, order, runs)
			}
		}
	}
}
