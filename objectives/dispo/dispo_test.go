package dispo_test

import (
	"testing"

	_ "onering/objectives/dispo"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "dispo") }
