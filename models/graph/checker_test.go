package graph_test

import (
	"testing"

	"onering/internal/graphtest"
	"onering/models"
)

// TestOfficialChecker passes every case, forward and backward, through the ONNX
// checker and its shape inference.
func TestOfficialChecker(t *testing.T) {
	var programs []models.Program
	add := func(p models.Program, err error) {
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, p)
	}
	for _, c := range graphtest.Cases() {
		add(c.Forward())
		if c.Differentiable() {
			add(c.Backward())
		}
	}
	graphtest.Check(t, programs...)
}
