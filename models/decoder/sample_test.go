package decoder_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"onering/internal/graphtest"
	"onering/models"
)

// vocabularies: one block; several; blocks of 685; a prime, so that the last of
// the blocks of 512 is padded.
var vocabularies = []int{32, 320, 1500, 2048 + 7, 2053}

// pickers holds the sampling Programs of models whose hidden width is 1: with a
// hidden state of 1 the head is the logits.
type pickers map[string]*graphtest.Graph

// draw returns a Program that makes a choice, in any form and build, and the size of its
// vocabulary.
func (p pickers) draw(t *rapid.T, choice models.Choice, single bool) (g *graphtest.Graph, vocab int) {
	vocab = rapid.SampledFrom(vocabularies).Draw(t, "vocabulary")
	form := rapid.SampledFrom(models.Forms).Draw(t, "form")
	return p.of(t, vocab, choice, form, rapid.SampledFrom(builds).Draw(t, "build"), single), vocab
}

// of returns a Program.
func (p pickers) of(t interface{ Fatal(...any) }, vocab int, choice models.Choice, form models.Form, kind build, single bool) *graphtest.Graph {
	key := fmt.Sprint(vocab, choice, form, kind, single)
	if p[key] == nil {
		c := qwen2(models.Sizes{Hidden: 1, Heads: 1, KVHeads: 1, HeadDim: 2, Vocab: vocab})
		program, err := kind.of(c).Sample(choice, form)
		if err != nil {
			t.Fatal(err)
		}
		if p[key], err = graphtest.Load(program); err != nil {
			t.Fatal(err)
		}
		p[key].Single = single
	}
	return p[key]
}

// drawLogits makes logits of one of several kinds: normal, flat, a single
// large one, many of no mass at all, equal ones.
func drawLogits(t *rapid.T, vocab int) []float64 {
	seed := rapid.Uint64().Draw(t, "seed")
	kind := rapid.SampledFrom([]string{"normal", "wide", "flat", "one", "holes", "ties"}).Draw(t, "kind")
	logits := make([]float64, vocab)
	next := func() float64 { // xorshift gives uniform numbers in [0,1).
		seed ^= seed<<13 | 1
		seed ^= seed >> 7
		seed ^= seed << 17
		return float64(seed>>11) / (1 << 53)
	}
	for i := range logits {
		x := math.Sqrt(-2*math.Log(1-next())) * math.Cos(2*math.Pi*next())
		switch kind {
		case "normal":
			logits[i] = x
		case "wide":
			logits[i] = 20 * x
		case "one":
			logits[i] = -1000
		case "holes":
			if logits[i] = x; next() < 0.7 {
				logits[i] = -2000
			}
		case "ties":
			logits[i] = math.Floor(2 * x)
		}
		logits[i] = float64(float32(logits[i]))
	}
	if kind == "one" || kind == "holes" {
		logits[int(next()*float64(vocab))] = 1
	}
	return logits
}

func drawUniform(t *rapid.T) float64 {
	if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
		return rapid.SampledFrom([]float64{0, 1 - 1.0/(1<<24), 1.0 / (1 << 24), 1, 0.5}).Draw(t, "u")
	}
	return float64(float32(rapid.Float64Range(0, 1).Draw(t, "u")))
}

// inverse returns the first id whose cumulative probability exceeds u, and how far u is
// from the nearest boundary.
func inverse(p []float64, u float64) (id int, margin float64) {
	total := 0.0
	for _, v := range p {
		total += v
	}
	id, margin = -1, math.Inf(1)
	sum := 0.0
	for i, v := range p {
		if v == 0 {
			continue
		}
		sum += v / total
		margin = math.Min(margin, math.Abs(sum-u))
		if id < 0 && sum > u {
			id = i
		}
	}
	return id, margin
}

// TestDraw: the token is the first whose cumulative probability exceeds u; it never has
// probability 0 and is never padding; log-prob and entropy are those of softmax at the
// temperature.
func TestDraw(t *testing.T) {
	programs := make(pickers)
	rapid.Check(t, func(t *rapid.T) {
		single := rapid.Bool().Draw(t, "single")
		g, vocab := programs.draw(t, models.Draw, single)
		inv := rapid.SampledFrom([]float64{1, 0.5, 2}).Draw(t, "1/temperature")
		logits := drawLogits(t, vocab)
		us := []float64{drawUniform(t), drawUniform(t), drawUniform(t)}
		out, err := g.Run(map[string]graphtest.Tensor{
			"hidden": graphtest.Floats([]float64{1, 1, 1}, 3, 1), "lm_head.weight": graphtest.Floats(logits, vocab, 1),
			"inv_temperature": graphtest.Floats([]float64{inv}), "uniforms": graphtest.Floats(us, 3)})
		if err != nil {
			t.Fatal(err)
		}
		scaled := make([]float64, vocab)
		for i, l := range logits {
			scaled[i] = l * inv
		}
		logp := logSoftmax(scaled)
		p := make([]float64, vocab)
		for i, l := range logp {
			p[i] = math.Exp(l)
		}
		exact := 1e-12
		if single {
			exact = 1e-6
			top, total := slices.Max(scaled), 0.0
			for i := range p { // the precision of float32, relative to the largest probability
				p[i] = float64(float32(math.Exp(float64(float32(scaled[i] - top)))))
				total += p[i]
			}
			for i := range p {
				p[i] /= total
			}
		}
		for row, u := range us {
			checkDrawn(t, int(out["next"].Data[row]), p, u, exact)
			checkLogp(t, out, row, logp, exact)
		}
	})
}

func checkDrawn(t *rapid.T, got int, p []float64, u, exact float64) {
	if got < 0 || got >= len(p) {
		t.Fatalf("u = %v: id %d of %d", u, got, len(p))
	}
	if p[got] == 0 {
		t.Fatalf("u = %v: id %d of probability %v", u, got, p[got])
	}
	if want, margin := inverse(p, u); want >= 0 && margin > exact && got != want {
		t.Fatalf("u = %v: id %d, want %d (%v from a boundary)", u, got, want, margin)
	}
}

func checkLogp(t *rapid.T, out map[string]graphtest.Tensor, row int, logp []float64, exact float64) {
	id := int(out["next"].Data[row])
	if got := out["logp"].Data[row]; !(math.Abs(got-logp[id]) <= exact*(10+math.Abs(logp[id]))) {
		t.Fatalf("logp %v, want %v", got, logp[id])
	}
	checkEntropy(t, out, row, logp, exact)
}

func checkEntropy(t *rapid.T, out map[string]graphtest.Tensor, row int, logp []float64, exact float64) {
	h := 0.0
	for _, l := range logp {
		if p := math.Exp(l); p > 0 {
			h -= p * l
		}
	}
	if got := out["entropy"].Data[row]; !(math.Abs(got-h) <= exact*(10+h)) {
		t.Fatalf("entropy %v, want %v", got, h)
	}
}

// TestGreedy takes the first of the largest logits.
func TestGreedy(t *testing.T) {
	programs := make(pickers)
	rapid.Check(t, func(t *rapid.T) {
		g, vocab := programs.draw(t, models.Greedy, false)
		logits := drawLogits(t, vocab)
		out, err := g.Run(map[string]graphtest.Tensor{"hidden": graphtest.Floats([]float64{1}, 1, 1),
			"lm_head.weight": graphtest.Floats(logits, vocab, 1), "inv_temperature": graphtest.Floats([]float64{1})})
		if err != nil {
			t.Fatal(err)
		}
		if want := slices.Index(logits, slices.Max(logits)); int(out["next"].Data[0]) != want {
			t.Fatalf("id %v, want %d", out["next"].Data[0], want)
		}
		checkLogp(t, out, 0, logSoftmax(logits), 1e-12)
	})
}

// TestCandidates: the likeliest ids come in descending order with their log-probs, and no
// other id is likelier.
func TestCandidates(t *testing.T) {
	programs := make(pickers)
	rapid.Check(t, func(t *rapid.T) {
		g, vocab := programs.draw(t, models.Candidates, false)
		inv := rapid.SampledFrom([]float64{1, 0.5, 2}).Draw(t, "1/temperature")
		logits := drawLogits(t, vocab)
		k := min(rapid.SampledFrom([]int{1, 2, 5, 40, 512, vocab}).Draw(t, "k"), vocab)
		out, err := g.Run(map[string]graphtest.Tensor{
			"hidden": graphtest.Floats([]float64{1, 1}, 2, 1), "lm_head.weight": graphtest.Floats(logits, vocab, 1),
			"inv_temperature": graphtest.Floats([]float64{inv}), "k": graphtest.Ints([]int{k})})
		if err != nil {
			t.Fatal(err)
		}
		scaled := make([]float64, vocab)
		for i, l := range logits {
			scaled[i] = l * inv
		}
		logp := logSoftmax(scaled)
		sorted := slices.Clone(logp)
		slices.SortFunc(sorted, func(a, b float64) int { return cmp.Compare(b, a) })
		for row := range 2 {
			checkEntropy(t, out, row, logp, 1e-12)
			seen := map[int]bool{}
			for i := range k {
				id, got := int(out["candidates"].Data[row*k+i]), out["logp"].Data[row*k+i]
				if seen[id] {
					t.Fatalf("id %d is listed twice", id)
				}
				seen[id] = true
				if exact := 1e-12 * (10 + math.Abs(sorted[i])); math.Abs(got-logp[id]) > exact || math.Abs(got-sorted[i]) > exact {
					t.Fatalf("candidate %d is id %d with log-prob %v, which has %v; the one there has %v", i, id, got, logp[id], sorted[i])
				}
			}
		}
	})
}
