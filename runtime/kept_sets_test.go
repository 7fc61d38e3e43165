package runtime_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onering/models"
	"onering/runtime"
	"onering/sampler"
)

// TestKeptSets: what filters have kept in sampling gives the learner the sampler's log-probs and
// entropies, packed or not, behind one copy of a prompt or apart, with stored logits or not.
// The gradient of log q(y) is the sum over the kept tokens i of (1[i=y] - q(i)) times that of
// log pi(i), which a learner over the whole vocabulary gives. The sums of squares are those of q.
func TestKeptSets(t *testing.T) { onDevices(t, testKeptSets) }

func testKeptSets(t *testing.T, env *runtime.Env) {
	c := qwen2Of(models.Sizes{Hidden: 32, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 16, FFN: 48, Vocab: 300, MaxPositions: 64})
	c.Tied, c.RopeTheta, c.Provider = true, 1e6, env.Provider()
	_, ring := madeUpRing(t, c, 1)
	r := rand.New(rand.NewPCG(5, 6))
	var reqs []sampler.Request
	for i := range 2 {
		prompt := make([]int32, 3+i)
		for j := range prompt {
			prompt[j] = int32(r.IntN(c.Vocab))
		}
		reqs = append(reqs, sampler.Request{Prompt: prompt, ID: uint64(i), Samples: 3})
	}
	const temperature = 0.9
	way := sampler.Plain(4)
	way.Temperature, way.TopP, way.TopK = temperature, 0.8, 12
	d, err := env.NewDecoder(ring, 4, 32)
	check(t, err)
	sampled, _, err := sampler.Sample(context.Background(), d, sampler.Options{Sampling: way, Kept: true, Seed: 7}, reqs, nil)
	d.Close()
	check(t, err)
	var sequences []runtime.Sequence
	var logp, entropy [][]float64
	float64s := func(x []float32) (y []float64) {
		for _, v := range x {
			y = append(y, float64(v))
		}
		return y
	}
	for i, x := range sampled {
		s := runtime.NewSequence(reqs[x.Request].Prompt, x.IDs)
		if s.Kept = x.Kept; len(s.Kept) == 0 || len(s.Kept[0]) < 2 || len(s.Kept[0]) > 12 {
			t.Fatalf("response %d: %v are kept", i, s.Kept)
		}
		sequences, logp, entropy = append(sequences, s), append(logp, float64s(x.LogProb)), append(entropy, float64s(x.Entropy))
	}
	sequences[1].Kept = slices.Clone(sequences[1].Kept)
	sequences[1].Kept[2] = nil // the whole vocabulary, which the last vocabulary's oracle computes
	whole := func(o runtime.LearnerOptions, list []runtime.Sequence) *runtime.Pass {
		l, err := env.NewLearner(ring, o)
		check(t, err)
		defer l.Close()
		p, err := l.Forward(list, temperature, false)
		check(t, err)
		p.Release()
		return p
	}

	// The oracle: each kept token in place of the sampled one.
	var each []runtime.Sequence
	var weights, squares [][]float64
	number := 0
	w := make([][]float64, len(sequences))
	for i, s := range sequences {
		from := s.Scored[0].From
		squares = append(squares, nil)
		for k := range s.Kept {
			set := s.Kept[k]
			if set == nil {
				for id := range int32(c.Vocab) {
					set = append(set, id)
				}
			}
			var list []runtime.Sequence
			for _, id := range set {
				list = append(list, runtime.NewSequence(s.Tokens[:from+k], []int32{id}))
			}
			scores := whole(runtime.LearnerOptions{}, list).LogProb
			mass, sum := 0.0, 0.0
			for _, x := range scores {
				mass += math.Exp(float64(x[0]))
			}
			w[i] = append(w[i], math.Sin(float64(number)))
			for j, x := range scores {
				q := math.Exp(float64(x[0])) / mass
				one := 0.0
				if set[j] == s.Tokens[from+k] {
					one = 1
					logp[i][k] = math.Log(q)
				}
				sum += q * q
				weights = append(weights, []float64{w[i][k] * (one - q)})
			}
			number++
			each, squares[i] = append(each, list...), append(squares[i], sum)
		}
	}
	entropy[1][2] = 0
	gradients := func(o runtime.LearnerOptions, list []runtime.Sequence, w [][]float64, size int) (all [][]float32, logp, h [][]float32) {
		l, err := env.NewLearner(ring, o)
		check(t, err)
		defer l.Close()
		for from := 0; from < len(list); from += size {
			to := min(from+size, len(list))
			p, err := l.Forward(list[from:to], temperature, from%2 == 0)
			check(t, err)
			logp, h = append(logp, p.LogProb...), append(h, p.Entropy...)
			check(t, p.Backward(w[from:to], nil))
			p.Release()
		}
		check(t, env.Download(l.Gradients))
		for _, x := range l.Gradients.Tensors() {
			all = append(all, slices.Clone(x.Data))
		}
		return all, logp, h
	}
	want, _, _ := gradients(runtime.LearnerOptions{}, each, weights, 50)
	for _, o := range append(slices.Clone(learners), runtime.LearnerOptions{Unshared: true, EntropyGradient: true}) {
		for _, size := range []int{1, 4, len(sequences)} {
			what := fmt.Sprintf("%+v in parts of %d", o, size)
			got, p, h := gradients(o, sequences, w, size)
			near(t, what+": log-probs", p, logp, 1e-5)
			h[1][2] = 0
			near(t, what+": entropies", h, entropy, 1e-5)
			compareShared(t, what, got, want, 1e-4)
		}
	}
	near(t, "sums of squares", whole(runtime.LearnerOptions{Squares: true, HeadRows: 64}, sequences).SumSquares, squares, 1e-5)
	if whole(runtime.LearnerOptions{}, sequences).SumSquares != nil {
		t.Error("sums of squares that nobody asked for")
	}

	for name, set := range map[string][][]int32{
		"sets for 1 of its 4 scored ones": {nil}, "not in its set": {{299}, nil, nil, nil}, "in ascending order": {{5, sequences[0].Tokens[3], 0}, nil, nil, nil},
		"ids of kept set": {{sequences[0].Tokens[3], 300}, nil, nil, nil},
	} {
		s := sequences[0]
		s.Kept = set
		l, err := env.NewLearner(ring, runtime.LearnerOptions{ScoreOnly: true})
		check(t, err)
		if _, err := l.Forward([]runtime.Sequence{s}, 1, false); err == nil {
			t.Errorf("%s: not refused", name)
		} else {
			t.Log(err)
		}
		l.Close()
	}
}
