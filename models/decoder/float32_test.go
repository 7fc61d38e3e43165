package decoder_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/models/decoder"
	"onering/models/optim/adamw"
)

var update = flag.Bool("update", false, "write testdata/float32.sha256 anew")

// decodeForms are the forms of Decode.
func decodeForms(c decoder.Architecture) []models.Form {
	if c.Geometry().Compute == models.F32 {
		return models.Forms
	}
	return []models.Form{models.Direct}
}

// allPrograms builds every Program of a config, by a name of its own.
func allPrograms(t *testing.T, c decoder.Architecture) map[string]models.Program {
	t.Helper()
	all := make(map[string]models.Program)
	add := func(name string, err error, programs ...models.Program) {
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range programs {
			all[p.Name+name] = p
		}
	}
	for _, width := range []int{6, 16} {
		c.HeadDim = width
		p, err := c.Prefill()
		add(fmt.Sprintf(" width %d", width), err, p)
		for _, form := range decodeForms(c) {
			p, err := c.Decode(form)
			add(fmt.Sprintf(" width %d", width), err, p)
		}
	}
	for _, choice := range models.Choices {
		for _, form := range models.Forms {
			p, err := c.Sample(choice, form)
			add(fmt.Sprintf(" form %d", form), err, p)
			padded := c
			padded.Vocab = 2053 // sampling in blocks, the last of which is not full
			p, err = padded.Sample(choice, form)
			add(fmt.Sprintf(" form %d, padded vocabulary", form), err, p)
		}
	}
	for _, full := range []bool{false, true} {
		for _, blocks := range []int{1, 3} {
			f, b, err := c.Layer(0, full, blocks)
			add(fmt.Sprintf(" stash %d blocks %d", map[bool]int{true: 2}[full], blocks), err, f, b)
		}
	}
	f, b, err := c.Norm()
	add("", err, f, b)
	for _, entropy := range []bool{false, true} {
		f, target, b, err := c.Head(models.HeadForm{EntropyGradient: entropy})
		add(fmt.Sprintf(" entropy %v", entropy), err, f, target, b)
		f, _, b, err = c.Head(models.HeadForm{Full: true, EntropyGradient: entropy})
		add(fmt.Sprintf(" entropy %v stash 3", entropy), err, f, b)
		f, _, b, err = c.Head(models.HeadForm{EntropyGradient: entropy, Kept: true})
		add(fmt.Sprintf(" entropy %v", entropy), err, f, b)
		f, _, _, err = c.Head(models.HeadForm{Full: true, Kept: true, Squares: true})
		add(" stash 3", err, f)
	}
	rows, err := c.Rows()
	add("", err, rows.Gather, rows.Add, rows.Pair)
	norm, err := c.GradNorm()
	add("", err, norm)
	step, err := adamw.AdamW{}.Program(nil, models.F32)
	add("", err, step)
	if from, to := c.Copied(); to > from {
		step, err := adamw.AdamW{}.Program(nil, c.Geometry().Compute)
		add("", err, step)
	}
	return all
}

// TestFloat32Bytes: support for other precisions leaves the bytes of the float32 graphs
// unchanged, and so all results measured with these graphs.
func TestFloat32Bytes(t *testing.T) {
	const file = "testdata/float32.sha256"
	programs := allPrograms(t, small())
	var sums strings.Builder
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(programs[name].ONNX().Encode()), name)
	}
	if *update {
		if err := os.WriteFile(file, []byte(sums.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	have := strings.Split(sums.String(), "\n")
	for i, line := range strings.Split(string(want), "\n") {
		if i >= len(have) || have[i] != line {
			t.Fatalf("line %d of %s is %q, the graphs give %q; -update writes it anew where graphs are meant to change", i+1, file, line, have[min(i, len(have)-1)])
		}
	}
}
