package decoder_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/decoder"
)

// A build is a kind of graph. Graphs of 16 bits are always for CUDA.
type build struct{ models.Compute }

var (
	float32Build = build{models.Compute{Type: models.F32}}
	cudaBuild    = build{models.Compute{Type: models.F32, Provider: models.CUDA}}
	builds       = []build{float32Build, cudaBuild, {models.Compute{Type: models.BF16, Provider: models.CUDA}}, {models.Compute{Type: models.F16}}}
)

func (b build) of(a decoder.Architecture) decoder.Architecture {
	a.Compute = b.Compute
	return a
}

func (b build) String() string {
	if b.Provider == models.CUDA {
		return b.Type.String() + " for CUDA"
	}
	return b.Type.String()
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
			for _, choice := range models.Choices {
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
