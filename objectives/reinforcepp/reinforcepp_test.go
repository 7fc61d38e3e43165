package reinforcepp_test

import (
	"testing"

	"onering/objectives/objectivetest"
	_ "onering/objectives/reinforcepp"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "reinforcepp") }
