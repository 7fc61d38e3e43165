package gpg_test

import (
	"testing"

	_ "onering/objectives/gpg"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "gpg") }
