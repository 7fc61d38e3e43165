package luspo_test

import (
	"testing"

	_ "onering/objectives/luspo"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "luspo") }
