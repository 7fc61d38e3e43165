package gmpo_test

import (
	"testing"

	_ "onering/objectives/gmpo"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "gmpo") }
