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
