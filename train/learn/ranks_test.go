package learn_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"onering/models"
	"onering/train/learn"
	"onering/train/ranks"
)

// others plays a second rank whose scores and gradients are zero: each Agree takes the
// next of its outcomes.
type others struct {
	learn.Ranks
	outcomes []byte
	agreed   []byte // the value of the first rank
	sums     []int  // the first element of each bucket
	gone     error
}

func (o *others) Size() int { return 2 }

func (o *others) Agree(own byte) (byte, error) {
	o.agreed = append(o.agreed, own)
	if len(o.outcomes) > 0 {
		own, o.outcomes = max(own, o.outcomes[0]), o.outcomes[1:]
	}
	return own, o.gone
}

var errTheirs = errors.New("rank 1: what they met")

// AgreeOn is called if an outcome has another rank's error.
func (o *others) AgreeOn(own error) error {
	if own == nil {
		return errTheirs
	}
	return own
}

func (o *others) SumParts(_ []float32, bounds []int) error {
	o.sums = append(o.sums, bounds[0])
	return nil
}

// TestRanks: an error on one rank decides for all: the ranks compute a step again, leave
// it out or stop together. Gradients are summed once, in an attempt that all ranks have
// completed, even after errors.
func TestRanks(t *testing.T) {
	const done, joint, memory, notFinite, failed = 0, 1, 2, 3, 4
	noMemory := errors.New("bad_alloc")
	var nonfinite *learn.NonfiniteError
	for _, tt := range []struct {
		name     string
		known    bool
		apart    bool
		outcomes []byte // errors of the other ranks
		fails    int    // the number of the pass in which memory ends
		gone     error
		agreed   []byte // of this rank
		sums     int
		tokens   int // number of micro-batches afterwards
		check    func(error) bool
	}{
		{name: "all well", known: true, agreed: []byte{done}, sums: 1, tokens: 512},
		{name: "all well, weighed", agreed: []byte{done, done}, sums: 1, tokens: 512},
		{name: "all well, apart", apart: true, agreed: []byte{done, done}, sums: 1, tokens: 512},
		{name: "theirs depend on each other", apart: true, outcomes: []byte{done, joint}, agreed: []byte{done, done, done, done}, sums: 2, tokens: 512},
		{name: "their memory ends", known: true, outcomes: []byte{memory}, agreed: []byte{done, done}, sums: 2, tokens: 256},
		{name: "their memory ends, weighed", outcomes: []byte{done, memory}, agreed: []byte{done, done, done, done}, sums: 2, tokens: 256},
		{name: "our memory ends", fails: 1, agreed: []byte{memory, done, done}, sums: 1, tokens: 256},
		{name: "theirs is not finite", outcomes: []byte{notFinite}, agreed: []byte{done}, tokens: 512,
			check: func(err error) bool { return errors.As(err, &nonfinite) && err.Error() == errTheirs.Error() }},
		{name: "theirs is not finite while our memory ends", fails: 1, outcomes: []byte{notFinite}, agreed: []byte{memory}, tokens: 512,
			check: func(err error) bool { return errors.As(err, &nonfinite) }},
		{name: "they fail", known: true, outcomes: []byte{failed}, agreed: []byte{done}, sums: 1, tokens: 512,
			check: func(err error) bool { return errors.Is(err, errTheirs) }},
		{name: "they are gone", known: true, gone: errors.New("no answer"), agreed: []byte{done}, sums: 1, tokens: 512,
			check: func(err error) bool { return err != nil && err.Error() == "no answer" }},
	} {
		ranks := &others{Ranks: ranks.Alone(), outcomes: tt.outcomes, gone: tt.gone}
		passes := 0
		s, _ := open(t, models.F32, learn.Options{Optimizer: adamW, Passes: learn.Passes{MicroTokens: 512}, Ranks: ranks, BeforePass: func(int) error {
			if passes++; passes == tt.fails {
				return noMemory
			}
			return nil
		}})
		b, weigh := drawBatch(8), learn.Weigh(nil)
		if !tt.known {
			b, weigh = weighed(b)
			b.Apart = tt.apart
		}
		_, err := s.Step(context.Background(), b, weigh)
		if tt.check == nil && err != nil || tt.check != nil && !tt.check(err) {
			t.Errorf("%s: error %v", tt.name, err)
		}
		if !slices.Equal(ranks.agreed, tt.agreed) || len(ranks.sums) != tt.sums || s.State().MicroTokens != tt.tokens {
			t.Errorf("%s: agreed %v, %d sums, %d tokens", tt.name, ranks.agreed, len(ranks.sums), s.State().MicroTokens)
		}
		if updates := s.Optimizer().Updates; (updates == 1) != (err == nil) {
			t.Errorf("%s: %d updates with error %v", tt.name, updates, err)
		}
	}
}

// several takes steps with n ranks, lets each collect the optimizer's state, and returns
// the weights of each.
func several(t *testing.T, n, bucket int, shard, known bool) (weights, states [][]float32) {
	t.Helper()
	weights, states = make([][]float32, n), make([][]float32, n)
	errs, sent := make([]error, n), make([]int64, n)
	var wait sync.WaitGroup
	for r, transport := range ranks.Local(n) {
		group := ranks.New(transport)
		s, w := open(t, models.F32, learn.Options{Optimizer: adamW, Passes: learn.Passes{MicroTokens: 128}, Ranks: group, Shard: shard, Bucket: bucket})
		wait.Go(func() {
			for step := range 3 {
				b := drawBatch(8 + step)
				b.LearningRate = 1e-4 // AdamW turns the rounding of tiny gradients into steps of this size.
				b.Live = make([]bool, len(b.Sequences))
				for i := range b.Live {
					if b.Live[i] = i%4 != 3; !b.Live[i] {
						clear(b.Weights[i])
					}
				}
				weigh := learn.Weigh(nil)
				if !known {
					b, weigh = weighed(b)
					b.Apart = step == 1
				}
				report, err := s.Step(context.Background(), b, weigh)
				for i, row := range report.LogProb {
					if len(row) != len(b.Sequences[i].Tokens)-8 || slices.Contains(row, 0) {
						err = errors.Join(err, fmt.Errorf("sequence %d has log-probs %v", i, row))
					}
				}
				errs[r] = errors.Join(errs[r], err)
			}
			predicted := ranks.Volume(r, n, s.Buckets(), func(from, to int) int64 { return 4 * int64(to-from) })
			if sent[r] = group.Sent(); sent[r] != 3*predicted {
				errs[r] = errors.Join(errs[r], fmt.Errorf("sent %d bytes in three steps of %d", sent[r], predicted))
			}
			errs[r] = errors.Join(errs[r], s.Collect(true))
			weights[r] = slices.Clone(w.Data)
			states[r] = slices.Clone(s.Optimizer().State["exp_avg_sq"].Data)
			// A rank that reads a checkpoint sends its whole content to the others.
			if r > 0 {
				clear(w.Data)
			}
			errs[r] = errors.Join(errs[r], s.Follow())
			if !slices.Equal(w.Data, weights[r]) {
				errs[r] = errors.Join(errs[r], errors.New("the weights of the first rank did not arrive"))
			}
			for _, b := range s.Optimizer().Buckets() {
				if from, to := b[r], b[r+1]; !slices.Equal(s.Optimizer().State["exp_avg_sq"].Data[from:to], states[0][from:to]) {
					errs[r] = errors.Join(errs[r], errors.New("the state did not arrive"))
				}
			}
		})
	}
	wait.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d of %d: %v", r, n, err)
		}
	}
	all := int64(0)
	for _, bytes := range sent {
		all += bytes
	}
	// For any owners of the moments: 4 bytes of each parameter go to all ranks but one, twice.
	if want := 3 * int64(8*(n-1)*len(weights[0])); all != want {
		t.Errorf("%d ranks have sent %d bytes in three steps, want %d", n, all, want)
	}
	return weights, states
}

// Several ranks get the same weights and moments as one, up to the rounding of sums, and
// all get the same bits, whether each holds all moments or a part, in one bucket or in
// many.
func TestRanksTogether(t *testing.T) {
	far := func(a, b []float32) float64 {
		var d, norm float64
		for i := range a {
			d += math.Pow(float64(a[i])-float64(b[i]), 2)
			norm += math.Pow(float64(b[i]), 2)
		}
		return math.Sqrt(d / norm)
	}
	for i, known := range []bool{true, false, true} {
		bucket := []int{0, 700, 5000}[i]
		weights, states := several(t, 1, bucket, false, known)
		for n := 2; n <= 4; n++ {
			whole, moments := several(t, n, bucket, false, known)
			parts, collected := several(t, n, bucket, true, known)
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

// Buckets are summed during the backward pass, a layer's buckets once the last
// micro-batch has passed the layer. The sums have the bits of the ranks' gradients added
// in the order of the ranks, as they have where all are summed at the end.
func TestOverlap(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	for turn := range 6 {
		n, bucket, micro, known := 2+turn%3, 300+draw.IntN(4000), 60+draw.IntN(200), turn%2 == 0
		b := drawBatch(5 + draw.IntN(8))
		b.Live = make([]bool, len(b.Sequences))
		for i := range b.Live {
			if b.Live[i] = draw.IntN(4) > 0; !b.Live[i] {
				clear(b.Weights[i])
			}
		}
		early, atOnce := summed(t, n, bucket, micro, b, known), summed(t, n, 1<<30, micro, b, known)
		want := slices.Clone(atOnce[0].own)
		for _, x := range atOnce[1:] {
			for i, v := range x.own {
				want[i] += v
			}
		}
		for r, x := range early {
			if !slices.Equal(x.own, atOnce[r].own) {
				t.Errorf("turn %d: rank %d of %d has handed over what was not final, in buckets of %d", turn, r, n, bucket)
			}
			if !slices.Equal(x.sum, want) || !slices.Equal(atOnce[r].sum, want) {
				t.Errorf("turn %d: rank %d of %d has other sums in buckets of %d", turn, r, n, bucket)
			}
			// All buckets are summed early except those of the embedding, whose gradients are final
			// last.
			most := 0
			if slices.ContainsFunc(x.own, func(v float32) bool { return v != 0 }) {
				most = max(0, len(want)-(x.embedding+bucket-1)/bucket*bucket)
			}
			if x.early != most || atOnce[r].early > 0 {
				t.Errorf("turn %d: rank %d of %d has handed over %d gradients early in buckets of %d, want %d", turn, r, n, x.early, bucket, most)
			}
		}
	}
}

// A part is a rank's share of a step.
type part struct {
	own, sum  []float32 // gradients, before and after the reduction
	early     int
	embedding int // its last element
}

// A recorder records the buckets that a rank passes on, before their sums are taken.
type recorder struct {
	*ranks.Group
	own, all []float32
	firsts   []int
}

func (g *recorder) SumParts(x []float32, bounds []int) error {
	if g.own == nil {
		g.own, g.all = make([]float32, len(x)), x
	}
	from, to := bounds[0], bounds[len(bounds)-1]
	copy(g.own[from:to], x[from:to])
	g.firsts = append(g.firsts, from)
	return g.Group.SumParts(x, bounds)
}

// summed has n ranks compute the gradients of a batch.
func summed(t *testing.T, n, bucket, micro int, b learn.Batch, known bool) []part {
	t.Helper()
	parts, errs := make([]part, n), make([]error, n)
	weigh := learn.Weigh(nil)
	if !known {
		b, weigh = weighed(b)
	}
	var wait sync.WaitGroup
	for r, transport := range ranks.Local(n) {
		group := &recorder{Group: ranks.New(transport)}
		s, w := open(t, models.F32, learn.Options{Passes: learn.Passes{MicroTokens: micro}, Ranks: group, Bucket: bucket})
		wait.Go(func() {
			report, err := s.Gradients(context.Background(), b, weigh)
			embedding, _ := w.Layout.Find("model.embed_tokens.weight")
			parts[r], errs[r] = part{group.own, slices.Clone(group.all), report.Early, embedding.Offset + embedding.Size}, err
			if !slices.IsSortedFunc(group.firsts, func(a, b int) int { return b - a }) || group.firsts[len(group.firsts)-1] != 0 {
				errs[r] = errors.Join(err, fmt.Errorf("buckets at %v", group.firsts))
			}
		})
	}
	wait.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d of %d: %v", r, n, err)
		}
	}
	return parts
}
