package qwen2_test

import (
	"testing"

	"onering/models"
	"onering/models/graph/graphtest"
)

// TestOfficialChecker passes every Program through the ONNX checker.
func TestOfficialChecker(t *testing.T) {
	var programs []models.Program
	add := func(err error, p ...models.Program) {
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, p...)
	}
	c := small()
	for _, width := range []int{6, 16} {
		c.HeadDim = width
		p, err := c.Prefill()
		add(err, p)
		for _, form := range models.Forms {
			p, err := c.Decode(form)
			add(err, p)
		}
	}
	for _, vocab := range vocabularies {
		c.Vocab = vocab
		for _, choice := range []models.Choice{models.Draw, models.Filter, models.Greedy} {
			for _, form := range models.Forms {
				p, err := c.Sample(choice, form)
				add(err, p)
			}
		}
	}
	for _, stash := range []models.Stash{models.StashInput, models.StashAttention, models.StashAll} {
		for _, blocks := range []int{1, 3} {
			f, b, err := c.Layer(stash, blocks)
			add(err, f, b)
		}
	}
	f, b, err := c.Norm()
	add(err, f, b)
	for _, entropy := range []bool{false, true} {
		f, target, b, err := c.Head(entropy)
		add(err, f, target, b)
	}
	graphtest.Check(t, programs...)
}
