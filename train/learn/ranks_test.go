package learn_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"onering/models"
	"onering/train/learn"
	"onering/train/ranks"
)

// others is a second rank that this test plays: each Agree takes the next of its
// outcomes. Its scores and gradients are zero.
type others struct {
	learn.Alone
	outcomes []learn.Outcome
	agreed   []learn.Outcome // what the first rank gave
	sums     int
	gone     error
}

func (o *others) Size() int { return 2 }

func (o *others) Agree(own learn.Outcome) (learn.Outcome, error) {
	o.agreed = append(o.agreed, own)
	if len(o.outcomes) > 0 {
		own, o.outcomes = max(own, o.outcomes[0]), o.outcomes[1:]
	}
	return own, o.gone
}

var errTheirs = errors.New("rank 1: what they met")

// AgreeOn is called where an outcome says that somebody has an error.
func (o *others) AgreeOn(own error) error {
	if own == nil {
		return errTheirs
	}
	return own
}

func (o *others) Sum([]float32) error {
	o.sums++
	return nil
}

// What another rank meets decides here too: all compute a step again, leave it out
// or stop together, and gradients are summed only where all have theirs.
func TestRanks(t *testing.T) {
	const done, memory, notFinite, failed = learn.Done, learn.OutOfMemory, learn.NotFinite, learn.Failed
	noMemory := errors.New("bad_alloc")
	var nonfinite *learn.NonfiniteError
	for _, tt := range []struct {
		name     string
		known    bool
		outcomes []learn.Outcome // of the others
		fails    int             // pass whose memory ends here
		gone     error
		agreed   []learn.Outcome // of this rank
		sums     int
		tokens   int // of micro-batches afterwards
		check    func(error) bool
	}{
		{name: "all well", known: true, agreed: []learn.Outcome{done}, sums: 1, tokens: 512},
		{name: "all well, weighed", agreed: []learn.Outcome{done, done}, sums: 1, tokens: 512},
		{name: "their memory ends", known: true, outcomes: []learn.Outcome{memory}, agreed: []learn.Outcome{done, done}, sums: 1, tokens: 256},
		{name: "their memory ends, weighed", outcomes: []learn.Outcome{done, memory}, agreed: []learn.Outcome{done, done, done, done}, sums: 1, tokens: 256},
		{name: "our memory ends", fails: 1, agreed: []learn.Outcome{memory, done, done}, sums: 1, tokens: 256},
		{name: "theirs is not finite", outcomes: []learn.Outcome{notFinite}, agreed: []learn.Outcome{done}, tokens: 512,
			check: func(err error) bool { return errors.As(err, &nonfinite) && err.Error() == errTheirs.Error() }},
		{name: "theirs is not finite while our memory ends", fails: 1, outcomes: []learn.Outcome{notFinite}, agreed: []learn.Outcome{memory}, tokens: 512,
			check: func(err error) bool { return errors.As(err, &nonfinite) }},
		{name: "they fail", known: true, outcomes: []learn.Outcome{failed}, agreed: []learn.Outcome{done}, tokens: 512,
			check: func(err error) bool { return errors.Is(err, errTheirs) }},
		{name: "they are gone", known: true, gone: errors.New("no answer"), agreed: []learn.Outcome{done}, tokens: 512,
			check: func(err error) bool { return err != nil && err.Error() == "no answer" }},
	} {
		ranks := &others{outcomes: tt.outcomes, gone: tt.gone}
		passes := 0
		s, _ := open(t, models.F32, learn.Options{Optimizer: adamW, MicroTokens: 512, Ranks: ranks, BeforePass: func(int) error {
			if passes++; passes == tt.fails {
				return noMemory
			}
			return nil
		}})
		b, weigh := drawBatch(8), learn.Weigh(nil)
		if !tt.known {
			b, weigh = weighed(b)
		}
		_, err := s.Step(context.Background(), b, weigh)
		if tt.check == nil && err != nil || tt.check != nil && !tt.check(err) {
			t.Errorf("%s: error %v", tt.name, err)
		}
		if !slices.Equal(ranks.agreed, tt.agreed) || ranks.sums != tt.sums || s.State().MicroTokens != tt.tokens {
			t.Errorf("%s: agreed %v, %d sums, %d tokens", tt.name, ranks.agreed, ranks.sums, s.State().MicroTokens)
		}
		if updates := s.Optimizer().Updates; (updates == 1) != (err == nil) {
			t.Errorf("%s: %d updates with error %v", tt.name, updates, err)
		}
	}
}

// several takes steps with n ranks and returns the weights of each, which it also has
// collect the optimizer's state.
func several(t *testing.T, n int, shard, known bool) (weights, states [][]float32) {
	t.Helper()
	weights, states = make([][]float32, n), make([][]float32, n)
	errs := make([]error, n)
	var wait sync.WaitGroup
	for r, transport := range ranks.Local(n) {
		s, w := open(t, models.F32, learn.Options{Optimizer: adamW, MicroTokens: 128, Ranks: ranks.New(transport), Shard: shard})
		wait.Go(func() {
			for step := range 3 {
				b := drawBatch(8 + step)
				b.LearningRate = 1e-4 // AdamW turns the rounding of tiny gradients into steps of this size
				b.Live = make([]bool, len(b.Sequences))
				for i := range b.Live {
					if b.Live[i] = i%4 != 3; !b.Live[i] {
						clear(b.Weights[i])
					}
				}
				weigh := learn.Weigh(nil)
				if !known {
					b, weigh = weighed(b)
				}
				report, err := s.Step(context.Background(), b, weigh)
				for i, row := range report.LogProb {
					if len(row) != len(b.Sequences[i].Tokens)-8 || slices.Contains(row, 0) {
						err = errors.Join(err, fmt.Errorf("sequence %d has log-probs %v", i, row))
					}
				}
				errs[r] = errors.Join(errs[r], err)
			}
			errs[r] = errors.Join(errs[r], s.Collect())
			weights[r] = slices.Clone(w.Data)
			states[r] = slices.Clone(s.Optimizer().State["exp_avg_sq"].Data)
			// A rank that reads a checkpoint gives all what it has read.
			if r > 0 {
				clear(w.Data)
			}
			errs[r] = errors.Join(errs[r], s.Follow())
			if !slices.Equal(w.Data, weights[r]) {
				errs[r] = errors.Join(errs[r], errors.New("the weights of the first rank did not arrive"))
			}
			from, to := s.Optimizer().Own()
			if !slices.Equal(s.Optimizer().State["exp_avg_sq"].Data[from:to], states[0][from:to]) {
				errs[r] = errors.Join(errs[r], errors.New("the state did not arrive"))
			}
		})
	}
	wait.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d of %d: %v", r, n, err)
		}
	}
	return weights, states
}

// Several ranks come to the weights and the moments of one, up to the rounding of sums,
// and all to the same bits, whether each keeps all moments or a part.
func TestRanksTogether(t *testing.T) {
	far := func(a, b []float32) float64 {
		var d, norm float64
		for i := range a {
			d += math.Pow(float64(a[i])-float64(b[i]), 2)
			norm += math.Pow(float64(b[i]), 2)
		}
		return math.Sqrt(d / norm)
	}
	for _, known := range []bool{true, false} {
		weights, states := several(t, 1, false, known)
		for n := 2; n <= 4; n++ {
			whole, moments := several(t, n, false, known)
			parts, collected := several(t, n, true, known)
			for r := range n {
				if !slices.Equal(whole[r], whole[0]) || !slices.Equal(parts[r], whole[0]) {
					t.Errorf("rank %d of %d has other weights", r, n)
				}
			}
			if !slices.Equal(collected[0], moments[0]) {
				t.Errorf("moments of %d ranks in parts are others", n)
			}
			if w, m := far(whole[0], weights[0]), far(moments[0], states[0]); w > 1e-6 || m > 1e-5 {
				t.Errorf("%d ranks: weights are %.2g from those of one, moments %.2g", n, w, m)
			}
		}
	}
}
