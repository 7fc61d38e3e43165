package dapo_test

import (
	"testing"

	_ "onering/objectives/dapo"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "dapo") }
