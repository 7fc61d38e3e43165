package p3o

import (
	"testing"

	"onering/objectives"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) {
	for name, pull := range map[string]bool{"pull": true, "cap only": false} {
		t.Run(name, func(t *testing.T) {
			objectivetest.RunNew(t, func() objectives.Objective {
				o, err := objectives.New("p3o")
				if err != nil {
					t.Fatal(err)
				}
				o.(*p3o).Pull = pull
				return o
			})
		})
	}
}

// TestLive: with the pull, a response without advantage is trained on, too.
func TestLive(t *testing.T) {
	for _, pull := range []bool{true, false} {
		o := &p3o{Pull: pull}
		if objectives.Live(o, objectives.Trajectory{}) != pull {
			t.Errorf("pull %v: Live is wrong of a response without advantage", pull)
		}
	}
}

// TestMask: a mask drops the term of the advantage and leaves the pull, with the KL penalty
// and without.
func TestMask(t *testing.T) {
	for _, beta := range []float64{0, 0.1} {
		made, err := objectives.New("p3o")
		if err != nil {
			t.Fatal(err)
		}
		o := made.(*p3o)
		o.TopEntropy, o.KLBeta = 0.5, beta
		b := objectives.Batch{Trajectories: []objectives.Trajectory{{
			LogProb: []float64{-1, -2}, OldLogProb: []float64{-1.5, -1.2}, RefLogProb: []float64{-1.1, -1.9},
			Entropy: []float64{0.1, 2}, Advantage: 1,
		}}}
		weights := func() []float64 {
			w := b.Zeros()
			objectives.Weights(o, b, w)
			return w[0]
		}
		with := weights()
		b.Trajectories[0].Advantage = 0
		without := weights()
		if with[0] != without[0] || with[0] == 0 || with[1] == without[1] {
			t.Errorf("kl_beta %v: the weights are %v, and %v without advantage; the first token is masked", beta, with, without)
		}
	}
}
