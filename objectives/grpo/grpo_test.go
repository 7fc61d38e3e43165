package grpo_test

import (
	"testing"

	_ "onering/objectives/grpo"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "grpo") }
