package gdpo_test

import (
	"testing"

	_ "onering/objectives/gdpo"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "gdpo") }
