package maxrl_test

import (
	"testing"

	_ "onering/objectives/maxrl"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "maxrl") }
