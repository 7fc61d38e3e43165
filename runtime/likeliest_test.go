package runtime_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"onering/models"
	"onering/runtime/runtimetest"
	"onering/sampler"
)

// TestLikeliest asks for the likeliest tokens beside those that are sampled. They change no
// bit of the response, descend, and as many as the vocabulary has include the sampled token.
func TestLikeliest(t *testing.T) {
	invariant := smallDecoder(t, sampler.InvariantToSlots)
	reqs := []sampler.Request{{Prompt: []int32{5, 7, 9}, ID: 1, Samples: 2, LastGreedy: true}, {Prompt: []int32{8}, ID: 2, Samples: 1}}
	sample := func(s sampler.Sampling, top int) ([]sampler.Response, []sampler.Token) {
		t.Helper()
		var tokens []sampler.Token
		o := sampler.Options{Sampling: s, Seed: 7, Top: top, Token: func(x sampler.Token) { tokens = append(tokens, x) }}
		got, _, err := sampler.Sample(context.Background(), invariant, o, reqs, nil)
		check(t, err)
		return got, tokens
	}
	plain := sampler.Plain(5)
	filtered := plain
	filtered.TopK, filtered.Temperature = 10, 0.7
	for _, s := range []sampler.Sampling{plain, filtered, sampler.Greedy(5)} {
		want, bare := sample(s, 0)
		if bare[0].Likeliest != nil {
			t.Fatal("there are likeliest tokens that nobody asked for")
		}
		_, few := sample(s, 4)
		got, all := sample(s, 1000)
		for i := range want {
			if !slices.Equal(got[i].IDs, want[i].IDs) || !slices.Equal(got[i].LogProb, want[i].LogProb) {
				t.Errorf("%s: response %d is %v, want %v", s.Describe(), i, got[i], want[i])
			}
		}
		for i, x := range all {
			seen, sum, own := map[int32]bool{}, 0.0, float32(1)
			for j, y := range x.Likeliest {
				if seen[y.ID] = true; j > 0 && y.LogProb > x.Likeliest[j-1].LogProb {
					t.Fatalf("token %d: %v comes behind %v", i, y, x.Likeliest[j-1])
				}
				if sum += math.Exp(float64(y.LogProb)); y.ID == x.ID {
					own = y.LogProb
				}
			}
			if len(seen) != 300 || math.Abs(sum-1) > 1e-4 || math.Abs(float64(own-x.LogProb)) > 1e-4 {
				t.Errorf("%s, token %d: %d tokens with a probability of %v; the sampled one has %v and %v", s.Describe(), i, len(seen), sum, own, x.LogProb)
			}
			if !slices.EqualFunc(few[i].Likeliest, x.Likeliest[:4], func(a, b sampler.Candidate) bool { return a.LogProb == b.LogProb }) {
				t.Errorf("%s, token %d: the likeliest are %v, want %v", s.Describe(), i, few[i].Likeliest, x.Likeliest[:4])
			}
		}
	}
}

// TestScores: rows that choose by scores draw from the whole vocabulary, and the log-probs stay
// the model's.
func TestScores(t *testing.T) {
	invariant := smallDecoder(t, sampler.InvariantToNeighbours)
	for _, s := range []sampler.Sampling{sampler.Plain(6), sampler.Greedy(6)} {
		var tokens []sampler.Token
		o := sampler.Options{Sampling: s, Steering: sampler.Steering{Bias: map[int32]float64{7: 100, 280: 99}, Presence: 2}, Seed: 7, Top: 300, Token: func(x sampler.Token) { tokens = append(tokens, x) }}
		for _, samples := range []int{1, 2} {
			_, _, err := sampler.Sample(context.Background(), invariant, o, []sampler.Request{{Prompt: []int32{5, 7}, Samples: samples}}, nil)
			check(t, err)
		}
		for _, x := range tokens {
			at := slices.IndexFunc(x.Likeliest, func(y sampler.Candidate) bool { return y.ID == x.ID })
			if x.ID != 7 && x.ID != 280 || math.Abs(float64(x.Likeliest[at].LogProb-x.LogProb)) > 1e-5 {
				t.Errorf("%s: the token %d has the log-prob %v, and the model gives it %v", s.Describe(), x.ID, x.LogProb, x.Likeliest[at].LogProb)
			}
		}
		if len(tokens) != 18 {
			t.Errorf("%d tokens", len(tokens))
		}
	}
}

// smallDecoder decodes with a made-up model of 300 tokens in 4 slots.
func smallDecoder(t *testing.T, of sampler.Invariance) sampler.Decoder {
	t.Helper()
	c := qwen2Of(models.Sizes{Hidden: 64, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 32, FFN: 96, Vocab: 300, MaxPositions: 64})
	c.Tied, c.RopeTheta = true, 1e6
	_, ring := madeUpRing(t, c, 1)
	d, err := runtimetest.Test(t).NewDecoder(ring, 4, 32)
	check(t, err)
	t.Cleanup(d.Close)
	invariant := sampler.NewInvariant(d, of)
	t.Cleanup(invariant.Close)
	return invariant
}
