package rloo_test

import (
	"testing"

	"onering/objectives/objectivetest"
	_ "onering/objectives/rloo"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "rloo") }
