package qwen2_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"onering/models"
	"onering/models/graph/graphtest"
)

// computes are the types that graphs compute in.
var computes = []models.DType{models.F32, models.BF16, models.F16}

// TestOfficialChecker passes every Program, in every type, through the ONNX
// checker.
func TestOfficialChecker(t *testing.T) {
	var programs []models.Program
	for _, d := range computes {
		c := small()
		c.Compute = d
		all := allPrograms(t, c)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			p := all[name]
			p.Name = fmt.Sprintf("%v %s", d, name)
			programs = append(programs, p)
		}
	}
	c := small()
	for _, c.Vocab = range vocabularies {
		for _, choice := range []models.Choice{models.Draw, models.Filter, models.Greedy} {
			for _, form := range models.Forms {
				p, err := c.Sample(choice, form)
				if err != nil {
					t.Fatal(err)
				}
				programs = append(programs, p)
			}
		}
	}
	graphtest.Check(t, programs...)
}
