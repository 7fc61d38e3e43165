package dppo_test

import (
	"testing"

	_ "onering/objectives/dppo"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "dppo") }
