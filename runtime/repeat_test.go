package runtime_test

import (
	"math"
	"strings"
	"testing"

	"onering/models"
	"onering/models/decoder"
	"onering/runtime"
)

// TestGradientsRepeat computes a gradient several times: it has the same bits each time,
// on a GPU too, which avoids kernels that add in any order.
func TestGradientsRepeat(t *testing.T) { inTypes(t, testGradientsRepeat) }

func testGradientsRepeat(t *testing.T, env *runtime.Env, set func(*decoder.Architecture)) {
	if strings.HasPrefix(env.Device(), "stand-in-cuda") {
		runtime.Unordered(env)
	}
	c := qwen2Of(models.Sizes{Layers: 2, Hidden: 192, Heads: 6, KVHeads: 2, HeadDim: 32, FFN: 400, Vocab: 1000, MaxPositions: 512})
	c.Tied, c.Block.QKNorm = true, true
	set(&c)
	w, ring := madeUpRing(t, c, 7)
	l, err := env.NewLearner(ring, runtime.LearnerOptions{HeadRows: 400, BlockTokens: 64, EntropyGradient: true})
	check(t, err)
	defer l.Close()
	const count, turns = 12, 4
	var sequences []runtime.Sequence
	for i := range count {
		tokens := make([]int32, 90-4*i)
		for j := range tokens {
			tokens[j] = int32((i + j*j) % 97) // There are few tokens, so that many are the same.
		}
		sequences = append(sequences, runtime.NewSequence(tokens[:5+i], tokens[5+i:]))
	}
	var first []float32
	for turn := range turns {
		l.ZeroGradients()
		p, err := l.Forward(sequences, 0.8, true)
		check(t, err)
		check(t, p.Backward(likeLogProb(p, 0.3), likeLogProb(p, -0.1)))
		p.Release()
		check(t, env.Download(l.Gradients))
		if turn == 0 {
			first = append(first, l.Gradients.Data...)
			continue
		}
		for _, name := range w.Layout.Names() {
			place, _ := w.Layout.Find(name)
			differ, worst := 0, 0.0
			for i := place.Offset; i < place.Offset+place.Size; i++ {
				if x, y := l.Gradients.Data[i], first[i]; math.Float32bits(x) != math.Float32bits(y) {
					differ++
					worst = max(worst, math.Abs(float64(x-y)))
				}
			}
			if differ > 0 {
				t.Errorf("turn %d: %d of %d gradients of %s differ, by up to %g", turn, differ, place.Size, name, worst)
			}
		}
	}
}
