package drgrpo_test

import (
	"testing"

	_ "onering/objectives/drgrpo"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "drgrpo") }
