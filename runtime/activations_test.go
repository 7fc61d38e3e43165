package runtime_test

import (
	"slices"
	"testing"

	"onering/models"
	"onering/runtime"
	"onering/runtime/runtimetest"
)

// TestPassesShareActivations: passes without kept activations together take the memory of
// one layer, and of one pass after Backward. They give the same bits as passes with kept
// activations or kept logits.
func TestPassesShareActivations(t *testing.T) {
	env := runtimetest.Test(t)
	const layers, passes = 5, 6
	a := qwen2Of(models.Sizes{Hidden: 16, FFN: 40, Layers: layers, Heads: 2, KVHeads: 1, HeadDim: 8, Vocab: 37, MaxPositions: 512})
	a.Tied = true
	_, ring := madeUpRing(t, a, 1)

	batch := make([][]runtime.Sequence, passes)
	for i := range batch {
		for s := range 3 {
			tokens := make([]int32, 24+i-s)
			for k := range tokens {
				tokens[k] = int32((7*k + 3*s + i) % 37)
			}
			batch[i] = append(batch[i], runtime.NewSequence(tokens[:4], tokens[4:]))
		}
	}
	most := everything // what the passes may take together
	run := func(keep bool) (logp []float32, gradients []float32, sets [2]int, bytes [2]int) {
		l, err := env.NewLearner(ring, runtime.LearnerOptions{StashBytes: most, HeadRows: 16})
		check(t, err)
		defer l.Close()
		var open []*runtime.Pass
		for _, b := range batch {
			p, err := l.Forward(b, 1, keep)
			check(t, err)
			open = append(open, p)
		}
		sets[0], bytes[0] = l.SpareActivations()
		for i, p := range slices.Backward(open) {
			w := make([][]float64, len(batch[i]))
			for s := range w {
				logp = append(logp, p.LogProb[s]...)
				w[s] = slices.Repeat([]float64{0.5}, len(p.LogProb[s]))
			}
			check(t, p.Backward(w, nil))
			p.Release()
		}
		sets[1], bytes[1] = l.SpareActivations()
		if l.Release(); env.Device() == "cpu" {
			if n, left := l.SpareActivations(); n != 0 || left != 0 {
				t.Errorf("%d sets of activations, of %d bytes, after Release", n, left)
			}
		}
		p, err := l.Forward(batch[0], 1, keep)
		check(t, err)
		if !slices.EqualFunc(p.LogProb, open[0].LogProb, slices.Equal) {
			t.Error("a pass gives other log-probs after Release")
		}
		p.Release()
		return logp, slices.Clone(l.Gradients.Data), sets, bytes
	}
	logp, gradients, sets, bytes := run(false)
	if sets != [2]int{1, 1} {
		t.Errorf("%v sets of activations after passes and after going back, want one each time", sets)
	}
	if bytes[0]*(layers-1) > bytes[1] {
		t.Errorf("passes that are not kept take %d bytes, with all of %d layers it is %d", bytes[0], layers, bytes[1])
	}
	keptLogP, keptGradients, keptSets, _ := run(true)
	if keptSets != [2]int{0, passes} {
		t.Errorf("%v sets of activations where all passes are kept, want 0 and %d", keptSets, passes)
	}
	if !slices.Equal(logp, keptLogP) || !slices.Equal(gradients, keptGradients) {
		t.Error("passes that are kept and passes that are not differ")
	}
	g := ring.Arch.Geometry()
	most = 0
	_, _, _, less := run(true)
	n := len(batch[0][0].Tokens) + len(batch[0][1].Tokens) + len(batch[0][2].Tokens) - 3 // tokens of the first pass, which keeps more activations
	for _, full := range []int{1, layers, layers + 1} {                                  // The last pass has room for the logits.
		base, each := g.InputBytes(n), g.StashBytes(0, n)
		logits := 4 * (n + 3 - 3*4) * g.Vocab // of the response tokens
		kept := min(full, layers) * each
		if most = base + kept + logits - 1; full > layers {
			kept, most = kept+logits, most+1
		}
		fullerLogP, fullerGradients, _, fuller := run(true)
		if !slices.Equal(logp, fullerLogP) || !slices.Equal(gradients, fullerGradients) {
			t.Errorf("%d layers that keep all: log-probs or gradients differ from those of passes that keep nothing", full)
		}
		if more := fuller[1] - less[1]; more < kept || more > kept*7/6+8*layers {
			t.Errorf("%d layers that keep all in one of %d passes take %d bytes more, want %d and up to a sixth more", full, passes, more, kept)
		}
	}
}
