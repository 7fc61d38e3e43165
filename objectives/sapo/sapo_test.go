package sapo_test

import (
	"testing"

	"onering/objectives/objectivetest"
	_ "onering/objectives/sapo"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "sapo") }
