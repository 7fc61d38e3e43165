package gpg

import (
	"testing"

	"onering/objectives"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "gpg") }

// TestVariantsConform runs the suite on settings other than the defaults.
func TestVariantsConform(t *testing.T) {
	for name, set := range map[string]func(*gpg){
		"rescale":     func(o *gpg) { o.Rescale = true },
		"KL, entropy": func(o *gpg) { o.KLBeta, o.EntropyBonus = 0.04, 0.01 },
	} {
		t.Run(name, func(t *testing.T) {
			objectivetest.RunNew(t, func() objectives.Objective {
				o, err := objectives.New("gpg")
				if err != nil {
					t.Fatal(err)
				}
				set(o.(*gpg))
				return o
			})
		})
	}
}

// TestRescale: alpha makes up for responses of groups with equal rewards, and not for
// responses whose advantage is 0 by chance.
func TestRescale(t *testing.T) {
	o := &gpg{Shared: objectives.Defaults("centered"), Rescale: true}
	var b objectives.Batch
	for _, rewards := range [][]float64{{0, 0.5, 1}, {1, 1}, {1}} {
		var group []objectives.Trajectory
		for _, r := range rewards {
			group = append(group, objectives.Trajectory{Reward: r, LogProb: []float64{-1}, OldLogProb: []float64{-1}})
		}
		objectives.SetAdvantages(o, group)
		b.Trajectories = append(b.Trajectories, group...)
	}
	w := [][]float64{{9}, {9}, {9}, {9}, {9}, {9}}
	o.Weights(b, w)
	for i, want := range []float64{0.5 * 2 / 6, 0, -0.5 * 2 / 6, 0, 0, 0} { // alpha = 6/(6-3), T = 6
		if w[i][0] != want {
			t.Errorf("response %d: w = %v, want %v", i, w[i][0], want)
		}
	}
	b.Trajectories = b.Trajectories[3:] // No response has an advantage: alpha is 1, not 1/0.
	o.Weights(b, w[3:])
	if loss := o.Loss(b, b); loss != 0 || w[3][0] != 0 {
		t.Errorf("all groups degenerate: loss %v, w = %v", loss, w[3])
	}
}
