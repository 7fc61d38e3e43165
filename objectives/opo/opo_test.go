package opo_test

import (
	"testing"

	"onering/objectives/objectivetest"
	_ "onering/objectives/opo"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "opo") }
