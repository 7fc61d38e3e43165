package gspo_test

import (
	"testing"

	_ "onering/objectives/gspo"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "gspo") }
