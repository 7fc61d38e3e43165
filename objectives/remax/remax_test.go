package remax_test

import (
	"testing"

	"onering/objectives/objectivetest"
	_ "onering/objectives/remax"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "remax") }
