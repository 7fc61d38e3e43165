package decoder_test

import (
	"fmt"
	"math"
	"slices"
	"sort"
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

// draw returns a Program for a choice, in any form and build, and the size of its
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
	next := func() float64 { // xorshift, uniform in [0,1)
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

// inverse returns the first id, among those kept, whose cumulative probability
// exceeds u, and how far u is from the nearest boundary.
func inverse(p []float64, kept []bool, u float64) (id int, margin float64) {
	total := 0.0
	for i, v := range p {
		if kept == nil || kept[i] {
			total += v
		}
	}
	id, margin = -1, math.Inf(1)
	sum := 0.0
	for i, v := range p {
		if v == 0 || kept != nil && !kept[i] {
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

// TestDraw: the token is the first whose cumulative probability exceeds u; it is
// never one of no mass, nor padding; log-prob and entropy are those of softmax
// at the temperature.
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
			for i := range p { // what float32 can hold, of the largest's mass
				p[i] = float64(float32(math.Exp(float64(float32(scaled[i] - top)))))
				total += p[i]
			}
			for i := range p {
				p[i] /= total
			}
		}
		for row, u := range us {
			checkDrawn(t, int(out["next"].Data[row]), p, nil, u, exact)
			checkLogp(t, out, row, logp, exact)
		}
	})
}

func checkDrawn(t *rapid.T, got int, p []float64, kept []bool, u, exact float64) {
	if got < 0 || got >= len(p) {
		t.Fatalf("u = %v: id %d of %d", u, got, len(p))
	}
	if p[got] == 0 || kept != nil && !kept[got] {
		t.Fatalf("u = %v: id %d of probability %v", u, got, p[got])
	}
	if want, margin := inverse(p, kept, u); want >= 0 && margin > exact && got != want {
		t.Fatalf("u = %v: id %d, want %d (%v from a boundary)", u, got, want, margin)
	}
}

func checkLogp(t *rapid.T, out map[string]graphtest.Tensor, row int, logp []float64, exact float64) {
	id := int(out["next"].Data[row])
	if got := out["logp"].Data[row]; !(math.Abs(got-logp[id]) <= exact*(10+math.Abs(logp[id]))) {
		t.Fatalf("logp %v, want %v", got, logp[id])
	}
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

// filtered is the oracle of top-k, then top-p: the k most probable, of these
// the fewest that hold topP of the base, and what ties with the last.
func filtered(p []float64, k int, topP float64, renormalize bool) (kept []bool, short bool, margin float64) {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool { return p[order[i]] > p[order[j]] })
	held, base := 0.0, 1.0
	for _, i := range order[:k] {
		held += p[i]
	}
	if renormalize {
		base = held
	}
	margin = math.Inf(1)
	sum, smallest := 0.0, p[order[0]]
	for _, i := range order[:k] {
		margin = math.Min(margin, math.Abs(sum-topP*base))
		if sum >= topP*base && sum > 0 {
			break
		}
		smallest = p[i]
		sum += p[i]
	}
	margin = math.Min(margin, math.Abs(sum-topP*base))
	kept = make([]bool, len(p))
	for i, v := range p {
		kept[i] = v >= smallest
	}
	return kept, held < topP*base, margin
}

// TestFilter: top-k and top-p keep what the oracle keeps, and say when k was too
// small.
func TestFilter(t *testing.T) {
	programs := make(pickers)
	rapid.Check(t, func(t *rapid.T) {
		g, vocab := programs.draw(t, models.Filter, false)
		logits := drawLogits(t, vocab)
		k := min(rapid.SampledFrom([]int{1, 2, 5, 40, 512, vocab}).Draw(t, "k"), vocab)
		topP := float64(float32(rapid.SampledFrom([]float64{0.01, 0.5, 0.9, 0.95, 0.999, 1}).Draw(t, "top_p")))
		renormalize := rapid.Bool().Draw(t, "renormalize")
		u := drawUniform(t)
		flag := 0.0
		if renormalize {
			flag = 1
		}
		out, err := g.Run(map[string]graphtest.Tensor{
			"hidden": graphtest.Floats([]float64{1}, 1, 1), "lm_head.weight": graphtest.Floats(logits, vocab, 1),
			"inv_temperature": graphtest.Floats([]float64{1}), "uniforms": graphtest.Floats([]float64{u}, 1),
			"k": graphtest.Ints([]int{k}), "top_p": graphtest.Floats([]float64{topP}), "renormalize": graphtest.Floats([]float64{flag})})
		if err != nil {
			t.Fatal(err)
		}
		logp := logSoftmax(logits)
		p := make([]float64, vocab)
		for i, l := range logp {
			p[i] = math.Exp(l)
		}
		kept, short, margin := filtered(p, k, topP, renormalize)
		checkLogp(t, out, 0, logp, 1e-12)
		if margin < 1e-9 {
			return // what is kept depends on rounding
		}
		if got := out["short"].Data[0] == 1; got != short {
			t.Fatalf("short is %v, want %v", got, short)
		}
		checkDrawn(t, int(out["next"].Data[0]), p, kept, u, 1e-12)
	})
}

// TestMinP: of what top-k and top-p keep, min-p keeps the ids that are likely
// enough beside the likeliest one, and says nothing of log-probs and entropy.
func TestMinP(t *testing.T) {
	programs := make(pickers)
	rapid.Check(t, func(t *rapid.T) {
		choice := rapid.SampledFrom([]models.Choice{models.DrawMinP, models.FilterMinP}).Draw(t, "choice")
		g, vocab := programs.draw(t, choice, false)
		logits, u := drawLogits(t, vocab), drawUniform(t)
		minP := float64(float32(rapid.SampledFrom([]float64{0, math.SmallestNonzeroFloat32, 0.01, 0.1, 0.5, 0.95, 1 - 1.0/(1<<24)}).Draw(t, "min_p")))
		k, topP, renormalize := vocab, 1.0, false
		in := map[string]graphtest.Tensor{
			"hidden": graphtest.Floats([]float64{1}, 1, 1), "lm_head.weight": graphtest.Floats(logits, vocab, 1),
			"inv_temperature": graphtest.Floats([]float64{1}), "uniforms": graphtest.Floats([]float64{u}, 1),
			"min_p": graphtest.Floats([]float64{minP})}
		if choice == models.FilterMinP {
			k = min(rapid.SampledFrom([]int{1, 2, 5, 40, vocab}).Draw(t, "k"), vocab)
			topP = float64(float32(rapid.SampledFrom([]float64{0.01, 0.5, 0.9, 0.999, 1}).Draw(t, "top_p")))
			renormalize = rapid.Bool().Draw(t, "renormalize")
			flag := 0.0
			if renormalize {
				flag = 1
			}
			in["k"], in["top_p"], in["renormalize"] = graphtest.Ints([]int{k}), graphtest.Floats([]float64{topP}), graphtest.Floats([]float64{flag})
		}
		out, err := g.Run(in)
		if err != nil {
			t.Fatal(err)
		}
		logp := logSoftmax(logits)
		p := make([]float64, vocab)
		for i, l := range logp {
			p[i] = math.Exp(l)
		}
		checkLogp(t, out, 0, logp, 1e-12)
		kept, margin := make([]bool, vocab), math.Inf(1)
		for i := range kept {
			kept[i] = true
		}
		if choice == models.FilterMinP {
			kept, _, margin = filtered(p, k, topP, renormalize)
		}
		bound := minP * slices.Max(p)
		for i := range p {
			if p[i] != slices.Max(p) && minP > 0 {
				margin = min(margin, math.Abs(p[i]-bound)/bound)
			}
			kept[i] = kept[i] && p[i] >= bound
		}
		if margin < 1e-9 {
			return // what is kept depends on rounding
		}
		checkDrawn(t, int(out["next"].Data[0]), p, kept, u, 1e-12)
	})
}

// TestMinPBounds: 0 keeps every id that has mass, as does any share where all
// are equally likely, and the largest share below 1 keeps the likeliest alone.
func TestMinPBounds(t *testing.T) {
	const vocab = 320
	us, hidden := make([]float64, vocab), make([]float64, vocab)
	for i := range us {
		us[i], hidden[i] = (float64(i)+0.5)/vocab, 1
	}
	equal, rising := make([]float64, vocab), make([]float64, vocab)
	for i := range rising {
		rising[i] = float64(i) / vocab
	}
	for _, kind := range builds {
		for _, tt := range []struct {
			logits []float64
			minP   float64
			want   func(row int) int
		}{
			{equal, 0, func(row int) int { return row }},
			{equal, 0.5, func(row int) int { return row }},
			{equal, 1 - 1.0/(1<<24), func(row int) int { return row }},
			{rising, 1 - 1.0/(1<<24), func(int) int { return vocab - 1 }},
		} {
			g := make(pickers).of(t, vocab, models.DrawMinP, models.Direct, kind, false)
			out := run(t, g, map[string]graphtest.Tensor{
				"hidden": graphtest.Floats(hidden, vocab, 1), "lm_head.weight": graphtest.Floats(tt.logits, vocab, 1),
				"inv_temperature": graphtest.Floats([]float64{1}), "uniforms": graphtest.Floats(us, vocab), "min_p": graphtest.Floats([]float64{tt.minP})})
			for i, id := range out["next"].Data {
				if int(id) != tt.want(i) {
					t.Fatalf("%v, min-p %v: u = %v: id %v, want %d", kind, tt.minP, us[i], id, tt.want(i))
				}
			}
		}
	}
}

// TestFilterKeepsAll: top-p 1 over the whole vocabulary keeps every id that has
// mass.
func TestFilterKeepsAll(t *testing.T) {
	const vocab = 320
	logits, us := make([]float64, vocab), make([]float64, vocab)
	hidden := make([]float64, vocab)
	for i := range us {
		us[i], hidden[i] = (float64(i)+0.5)/vocab, 1
	}
	for _, kind := range builds {
		g := make(pickers).of(t, vocab, models.Filter, models.Direct, kind, false)
		out := run(t, g, map[string]graphtest.Tensor{
			"hidden": graphtest.Floats(hidden, vocab, 1), "lm_head.weight": graphtest.Floats(logits, vocab, 1),
			"inv_temperature": graphtest.Floats([]float64{1}), "uniforms": graphtest.Floats(us, vocab),
			"k": graphtest.Ints([]int{vocab}), "top_p": graphtest.Floats([]float64{1}), "renormalize": graphtest.Floats([]float64{0})})
		for i, id := range out["next"].Data {
			if int(id) != i {
				t.Fatalf("%v: u = %v: id %v, want %d", kind, us[i], id, i)
			}
		}
	}
}
