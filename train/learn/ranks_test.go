package learn_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"onering/models"
	"onering/train/learn"
)

// others are ranks of which this test plays all but the first: each Agree takes
// the next of their outcomes, and Sum adds gradients that are those of this rank.
type others struct {
	outcomes []learn.Outcome
	agreed   []learn.Outcome // what the first rank gave
	sums     int
	gone     error
}

func (o *others) Agree(_ context.Context, own learn.Outcome) (learn.Outcome, error) {
	o.agreed = append(o.agreed, own)
	if len(o.outcomes) > 0 {
		own, o.outcomes = max(own, o.outcomes[0]), o.outcomes[1:]
	}
	return own, o.gone
}

func (o *others) Sum(_ context.Context, g *models.Weights) error {
	o.sums++
	for i := range g.Data {
		g.Data[i] *= 2
	}
	return nil
}

// What another rank meets decides here too: all compute a step again, leave it out
// or stop together, and gradients are summed only where all have theirs.
func TestRanks(t *testing.T) {
	const done, memory, notFinite, failed = learn.Done, learn.OutOfMemory, learn.NotFinite, learn.Failed
	noMemory := errors.New("bad_alloc")
	alone, _ := open(t, models.F32, learn.Options{Optimizer: adamW})
	want, _ := gradients(t, alone, drawBatch(8), nil)
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
			check: func(err error) bool { return errors.As(err, &nonfinite) }},
		{name: "theirs is not finite while our memory ends", fails: 1, outcomes: []learn.Outcome{notFinite}, agreed: []learn.Outcome{memory}, tokens: 512,
			check: func(err error) bool { return errors.As(err, &nonfinite) }},
		{name: "they fail", known: true, outcomes: []learn.Outcome{failed}, agreed: []learn.Outcome{done}, tokens: 512,
			check: func(err error) bool { return errors.Is(err, learn.ErrOtherRank) }},
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
		r, err := s.Step(context.Background(), b, weigh)
		if tt.check == nil && err != nil || tt.check != nil && !tt.check(err) {
			t.Errorf("%s: error %v", tt.name, err)
		}
		if !slices.Equal(ranks.agreed, tt.agreed) || ranks.sums != tt.sums || s.State().MicroTokens != tt.tokens {
			t.Errorf("%s: agreed %v, %d sums, %d tokens", tt.name, ranks.agreed, ranks.sums, s.State().MicroTokens)
		}
		if updates := s.Optimizer().Updates; (updates == 1) != (err == nil) {
			t.Errorf("%s: %d updates with error %v", tt.name, updates, err)
		}
		if d := r.GradNorm/want.GradNorm - 2; err == nil && (d > 1e-5 || d < -1e-5) {
			t.Errorf("%s: norm %v of two equal ranks, %v of one", tt.name, r.GradNorm, want.GradNorm)
		}
	}
}
