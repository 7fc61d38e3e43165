package vespo_test

import (
	"testing"

	"onering/objectives/objectivetest"
	_ "onering/objectives/vespo"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "vespo") }
