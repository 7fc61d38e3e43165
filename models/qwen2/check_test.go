package qwen2_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"onering/models"
	"onering/models/graph/graphtest"
	"onering/models/qwen2"
)

// A build is a kind of graphs: the type that they compute in, and whether they
// are for the CUDA provider, as those of 16 bits are in any case.
type build struct {
	compute models.DType
	cuda    bool
}

var (
	float32Build = build{compute: models.F32}
	cudaBuild    = build{compute: models.F32, cuda: true}
	builds       = []build{float32Build, cudaBuild, {compute: models.BF16}, {compute: models.F16}}
)

func (b build) of(c qwen2.Config) qwen2.Config {
	c.Compute, c.CUDA = b.compute, b.cuda
	return c
}

func (b build) String() string {
	if b.cuda {
		return b.compute.String() + " for CUDA"
	}
	return b.compute.String()
}

// TestOfficialChecker passes every Program of every build through the ONNX
// checker.
func TestOfficialChecker(t *testing.T) {
	var programs []models.Program
	for _, b := range builds {
		all := allPrograms(t, b.of(small()))
		for _, name := range slices.Sorted(maps.Keys(all)) {
			p := all[name]
			p.Name = fmt.Sprintf("%v %s", b, name)
			programs = append(programs, p)
		}
	}
	for _, b := range builds[:2] {
		c := b.of(small())
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
	}
	graphtest.Check(t, programs...)
}
