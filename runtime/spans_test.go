package runtime_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/runtime"
	"onering/runtime/runtimetest"
)

// drawSpans draws spans of tokens first to n-1. The first begins at first.
func drawSpans(r *rand.Rand, first, n int) (spans []runtime.Span) {
	for from := first; from < n; {
		to := min(n, from+1+r.IntN(4))
		spans = append(spans, runtime.Span{From: from, To: to})
		from = to + r.IntN(5) // 0: side by side
	}
	return spans
}

// conversations draws conversations of several turns that begin with one of three
// prefixes, of 7, 1 and 4 tokens. Some have no turn.
func conversations(r *rand.Rand, vocab int) (all []runtime.Sequence) {
	for _, n := range []int{7, 1, 4} {
		prefix := make([]int32, n)
		for i := range prefix {
			prefix[i] = int32(r.IntN(vocab))
		}
		for range 2 + r.IntN(3) {
			s := runtime.Sequence{Tokens: slices.Clone(prefix)}
			for range r.IntN(20) {
				s.Tokens = append(s.Tokens, int32(r.IntN(vocab)))
			}
			s.Scored = drawSpans(r, n, len(s.Tokens)-r.IntN(3))
			all = append(all, s)
		}
	}
	return all
}

// inOneSpan is s with all tokens scored from its first scored token to its last.
func inOneSpan(s runtime.Sequence) runtime.Sequence {
	if n := len(s.Scored); n > 0 {
		s.Scored = []runtime.Span{{From: s.Scored[0].From, To: s.Scored[n-1].To}}
	}
	return s
}

// spansResult returns the log-probs, the entropies and the gradients of the scored tokens
// of sequences in micro-batches of size sequences. With long the sequences are computed
// as one span each, in which tokens that are not scored have the weight zero.
func spansResult(t *testing.T, env *runtime.Env, ring *runtime.Ring, o runtime.LearnerOptions, sequences []runtime.Sequence, each int, long bool) (all [][]float32) {
	t.Helper()
	l, err := env.NewLearner(ring, o)
	check(t, err)
	defer l.Close()
	all = make([][]float32, 2)
	number := 0.0
	for part := range slices.Chunk(sequences, each) {
		asked, rows := slices.Clone(part), 0
		for k := range asked {
			if long {
				asked[k] = inOneSpan(part[k])
			}
			rows += asked[k].Count()
		}
		p, err := l.Forward(asked, 0.8, number == 0) // the first pass is kept
		check(t, err)
		if got := p.HeadRows(); got != rows {
			t.Errorf("the head computed %d rows for %d scored tokens", got, rows)
		}
		w, v := make([][]float64, len(part)), make([][]float64, len(part))
		for k, s := range part {
			w[k], v[k] = make([]float64, len(p.LogProb[k])), make([]float64, len(p.LogProb[k]))
			i := 0
			for _, x := range s.Scored {
				if long {
					i = x.From - s.Scored[0].From
				}
				for range x.To - x.From {
					all[0], all[1] = append(all[0], p.LogProb[k][i]), append(all[1], p.Entropy[k][i])
					w[k][i], v[k][i] = math.Sin(number), math.Cos(number)
					i, number = i+1, number+1
				}
			}
		}
		if !o.EntropyGradient {
			v = nil
		}
		check(t, p.Backward(w, v))
		p.Release()
	}
	check(t, env.Download(l.Gradients))
	for _, x := range l.Gradients.Tensors() {
		all = append(all, slices.Clone(x.Data))
	}
	return all
}

// TestSpans: conversations of several turns have the same log-probs, entropies and
// gradients as one long span with weights of zero between the turns, behind one copy of
// their prefix or apart, in micro-batches of all sizes, in several families, with adapters
// and on the stand-ins for devices. The head computes the rows of scored tokens alone.
func TestSpans(t *testing.T) { onDevices(t, testSpans) }

func testSpans(t *testing.T, env *runtime.Env) {
	type way struct {
		runtime.LearnerOptions
		each int // sequences of a micro-batch
	}
	for i, dir := range fewGoldens(t) { // spans change no graphs
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m := open(t, env, dir)
			sequences := conversations(rand.New(rand.NewPCG(1, uint64(i))), m.arch.Vocab)
			kept := runtime.LearnerOptions{StashBytes: everything, HeadRows: 64, Unshared: true}
			blocks := runtime.LearnerOptions{BlockTokens: 6, EntropyGradient: true}
			for _, x := range []way{{kept, 3}, {blocks, 1}, {blocks, len(sequences)}} {
				want := spansResult(t, env, m.ring, x.LearnerOptions, sequences, x.each, true)
				got := spansResult(t, env, m.ring, x.LearnerOptions, sequences, x.each, false)
				compareShared(t, fmt.Sprintf("%+v", x), got, want, 1e-5)
			}
		})
	}
}

// TestSpansInHalf is TestSpans in 16 bits.
func TestSpansInHalf(t *testing.T) {
	inHalf(t, func(t *testing.T, env *runtime.Env, m *model, unit float64) {
		m.ring.LossScale = 4
		sequences := conversations(rand.New(rand.NewPCG(2, 2)), m.arch.Vocab)
		o := runtime.LearnerOptions{EntropyGradient: true}
		compareShared(t, "in 16 bits", spansResult(t, env, m.ring, o, sequences, len(sequences), false), spansResult(t, env, m.ring, o, sequences, len(sequences), true), 10*unit)
	})
}

// TestSpansOfGoldens: two sequences score alternate spans of one response; their
// log-probs and the sums of their gradients equal PyTorch's.
func TestSpansOfGoldens(t *testing.T) {
	env := runtimetest.Test(t)
	for i, dir := range goldens(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m, r := open(t, env, dir), rand.New(rand.NewPCG(3, uint64(i)))
			l, err := env.NewLearner(m.ring, runtime.LearnerOptions{})
			check(t, err)
			defer l.Close()
			var halves [2][]runtime.Sequence
			var logp, w [2][][]float64
			for i, s := range m.sequences {
				for h := range halves {
					halves[h] = append(halves[h], runtime.Sequence{Tokens: s.Tokens})
					logp[h], w[h] = append(logp[h], nil), append(w[h], nil)
				}
				first := len(s.Prefix())
				for from, h := first, 0; from < len(s.Tokens); h = 1 - h {
					x := runtime.Span{From: from, To: min(len(s.Tokens), from+1+r.IntN(5))}
					halves[h][i].Scored = append(halves[h][i].Scored, x)
					logp[h][i] = append(logp[h][i], m.Batch.LogP[i][x.From-first:x.To-first]...)
					w[h][i] = append(w[h][i], m.w[0][i][x.From-first:x.To-first]...)
					from = x.To
				}
			}
			for h, sequences := range halves {
				p, err := l.Forward(sequences, 1, true)
				check(t, err)
				near(t, "log-probs", p.LogProb, logp[h], 1e-4)
				check(t, p.Backward(w[h], nil))
				p.Release()
			}
			check(t, env.Download(l.Gradients))
			compareTensors(t, filepath.Join(dir, "grads.safetensors"), l.Gradients, func(name string, got, want []float32) {
				largest, worst := 0.0, 0.0
				for i := range want {
					largest, worst = max(largest, math.Abs(float64(want[i]))), max(worst, math.Abs(float64(got[i]-want[i])))
				}
				if !(worst <= 2e-5*largest) {
					t.Errorf("gradient of %s: largest difference %.2g of %.2g", name, worst, largest)
				}
			})
		})
	}
}

// TestImpossibleSpans: spans that are out of order, overlap, are empty or lie outside the
// tokens are refused, and so is a span with the first token, which no token precedes.
func TestImpossibleSpans(t *testing.T) {
	env := runtimetest.Test(t)
	m := open(t, env, goldens(t)[0])
	l, err := env.NewLearner(m.ring, runtime.LearnerOptions{ScoreOnly: true})
	check(t, err)
	defer l.Close()
	for _, spans := range [][]runtime.Span{{{0, 2}}, {{2, 2}}, {{3, 2}}, {{1, 6}}, {{1, 3}, {2, 4}}, {{3, 4}, {1, 2}}} {
		_, err := l.Forward([]runtime.Sequence{{Tokens: make([]int32, 5), Scored: spans}}, 1, false)
		if err == nil || !strings.Contains(err.Error(), "sequence 0 scores tokens") {
			t.Errorf("%v: %v", spans, err)
		}
	}
	p, err := l.Forward([]runtime.Sequence{{Tokens: make([]int32, 5), Scored: []runtime.Span{{1, 3}, {3, 4}}}, {Tokens: make([]int32, 5)}, {}}, 1, false)
	check(t, err)
	defer p.Release()
	if len(p.LogProb[0]) != 3 || len(p.LogProb[1]) != 0 || p.Tokens() != 3 {
		t.Errorf("log-probs %v of %d tokens", p.LogProb, p.Tokens())
	}
}
