package m2po_test

import (
	"testing"

	_ "onering/objectives/m2po"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "m2po") }
