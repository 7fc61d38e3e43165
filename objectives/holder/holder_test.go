package holder

import (
	"testing"

	"onering/objectives"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) {
	objectivetest.Run(t, "holder")
	for _, mode := range []string{"token", "both", "none"} {
		t.Run(mode, func(t *testing.T) {
			objectivetest.RunNew(t, func() objectives.Objective {
				o, err := objectives.New("holder")
				if err != nil {
					t.Fatal(err)
				}
				h := o.(*holder)
				h.PRule, h.P, h.ClipMode = "fixed", -2, mode
				return h
			})
		})
	}
}
