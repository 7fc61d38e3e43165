package cispo_test

import (
	"testing"

	_ "onering/objectives/cispo"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "cispo") }
