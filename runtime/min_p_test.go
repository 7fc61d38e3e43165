package runtime_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onering/models"
	"onering/runtime/runtimetest"
	"onering/sampler"
)

// TestMinP samples with min-p from a model. Each token must be at least min-p times
// as likely as the likeliest one, which greedy decoding of the same tokens gives. A
// bound just below 1 is greedy decoding, and 0 is not a bound. Other responses that are
// decoded at the same time change nothing.
func TestMinP(t *testing.T) {
	env := runtimetest.Test(t)
	c := qwen2Of(models.Sizes{Hidden: 64, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 32, FFN: 96, Vocab: 300, MaxPositions: 64})
	c.Tied, c.RopeTheta = true, 1e6
	_, ring := madeUpRing(t, c, 1)
	r := rand.New(rand.NewPCG(5, 6))
	var reqs []sampler.Request
	for i := range 4 {
		prompt := make([]int32, 3+i)
		for j := range prompt {
			prompt[j] = int32(r.IntN(c.Vocab))
		}
		reqs = append(reqs, sampler.Request{Prompt: prompt, ID: uint64(i), Samples: 3})
	}
	length, more := 8, []int{3, 5, 13}
	decode := func(slots int, s sampler.Sampling, reqs []sampler.Request) []sampler.Response {
		t.Helper()
		d, err := env.NewDecoder(ring, slots, 32)
		check(t, err)
		defer d.Close()
		invariant := sampler.NewInvariant(d, sampler.InvariantToSlots)
		defer invariant.Close()
		got, _, err := sampler.Sample(context.Background(), invariant, sampler.Options{Sampling: s, Seed: 7}, reqs, nil)
		check(t, err)
		return got
	}
	same := func(what string, got, want []sampler.Response) {
		t.Helper()
		for i := range got {
			if !slices.Equal(got[i].IDs, want[i].IDs) || !slices.Equal(got[i].LogProb, want[i].LogProb) {
				t.Errorf("%s: response %d is %v, want %v", what, i, got[i].IDs, want[i].IDs)
			}
		}
	}
	// unlikely counts the tokens below a share of the likeliest one's probability.
	unlikely := func(responses []sampler.Response, temperature, share float64) (n int) {
		t.Helper()
		var prefixes []sampler.Request
		var logp []float32
		for _, x := range responses {
			tokens := slices.Clone(reqs[x.Request].Prompt)
			for i, id := range x.IDs {
				prefixes = append(prefixes, sampler.Request{Prompt: slices.Clone(tokens), ID: 1, Samples: 1})
				logp, tokens = append(logp, x.LogProb[i]), append(tokens, id)
			}
		}
		greedy := sampler.Greedy(1)
		greedy.Temperature = temperature
		for i, x := range decode(8, greedy, prefixes) {
			if float64(logp[i]) < float64(x.LogProb[0])+math.Log(share)-1e-4 {
				n++
			}
		}
		return n
	}
	const temperature, share = 0.05, 0.3
	plain := sampler.Plain(length)
	plain.Temperature = temperature
	free := decode(5, plain, reqs)
	if unlikely(free, temperature, share) == 0 {
		t.Fatal("without min-p no token is unlikely: the test shows nothing")
	}
	for _, s := range []sampler.Sampling{
		{Temperature: temperature, TopP: 1, MinP: share, MaxNewTokens: length},
		{Temperature: temperature, TopP: 0.9, TopK: 20, MinP: share, MaxNewTokens: length},
	} {
		want := decode(2, s, reqs)
		if n := unlikely(want, temperature, share); n > 0 {
			t.Errorf("%s: %d tokens are less likely than that", s.Describe(), n)
		}
		for _, slots := range more {
			same(s.Describe(), decode(slots, s, reqs), want)
		}
	}
	highest := plain
	highest.MinP = math.Nextafter(1, 0)
	greedy := plain
	greedy.Greedy = true
	same("the highest bound", decode(5, highest, reqs), decode(5, greedy, reqs))
	// The lowest bound above 0 keeps all tokens, as no bound does.
	lowest := plain
	lowest.MinP = math.SmallestNonzeroFloat64
	same("the lowest bound", decode(5, lowest, reqs), free)
}
