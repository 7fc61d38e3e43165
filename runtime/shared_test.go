package runtime_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"onering/runtime"
)

// promptGroups are responses to three prompts of 7, 1 and 4 tokens, and one to another
// prompt of 5. Two responses have no token or one. Each response owns a copy of its
// prompt's last token.
func promptGroups(vocab int) (sequences []runtime.Sequence, tokens, shared int) {
	for g, lengths := range [][]int{{5, 0, 9, 1}, {3, 6}, {8, 2, 4}, {6}} {
		prompt := make([]int32, []int{7, 1, 4, 5}[g])
		for t := range prompt {
			prompt[t] = int32((13*g + 7*t*t + 1) % vocab)
		}
		for k, n := range lengths {
			response := make([]int32, n)
			for t := range response {
				response[t] = int32((5*g + 11*k + 3*t*t) % vocab)
			}
			if n > 0 {
				tokens += len(prompt) + n - 1
			}
			sequences = append(sequences, runtime.NewSequence(prompt, response))
		}
	}
	return sequences, tokens, tokens - 2*6 - 2*3
}

// TestSharedPrompts: responses behind one copy of their prompt have the log-probs,
// entropies and gradients that they have apart, in every family and with adapters,
// in one micro-batch or several, with the same bits each time, and the layers compute
// the prompt's tokens once.
func TestSharedPrompts(t *testing.T) { onDevices(t, testSharedPrompts) }

func testSharedPrompts(t *testing.T, env *runtime.Env) {
	for _, dir := range goldensOn(t, env) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m := open(t, env, dir)
			sequences, tokens, shared := promptGroups(m.arch.Vocab)
			options := []runtime.LearnerOptions{{StashBytes: everything}, {BlockTokens: 6, EntropyGradient: true}}
			for _, o := range options {
				apart := o
				apart.Unshared = true
				want := sharedResult(t, env, m.ring, apart, sequences, len(sequences), tokens)
				got := sharedResult(t, env, m.ring, o, sequences, len(sequences), shared)
				compareShared(t, fmt.Sprintf("%+v, shared", o), got, want, 2e-5)
				if o.EntropyGradient {
					continue
				}
				compareShared(t, "again", sharedResult(t, env, m.ring, o, sequences, len(sequences), shared), got, 0)
				// In micro-batches of three, two responses with tokens to the first prompt are
				// together and one is apart, and all three to the third prompt are together.
				compareShared(t, "in micro-batches", sharedResult(t, env, m.ring, o, sequences, 3, tokens-6-2*3), want, 2e-5)
			}
		})
	}
}

// sharedResult returns the log-probs, the entropies and the gradients of sequences in
// micro-batches of size sequences, and checks how many tokens the layers compute.
func sharedResult(t *testing.T, env *runtime.Env, ring *runtime.Ring, o runtime.LearnerOptions, sequences []runtime.Sequence, each, tokens int) (all [][]float32) {
	t.Helper()
	l, err := env.NewLearner(ring, o)
	check(t, err)
	defer l.Close()
	all = make([][]float32, 2)
	i, n := 0, 0
	for part := range slices.Chunk(sequences, each) {
		p, err := l.Forward(part, 0.8, true)
		check(t, err)
		n += p.Tokens()
		w, v := make([][]float64, len(part)), make([][]float64, len(part))
		for s := range part {
			all[0], all[1] = append(all[0], p.LogProb[s]...), append(all[1], p.Entropy[s]...)
			for range p.LogProb[s] {
				i++
				w[s], v[s] = append(w[s], math.Sin(float64(i))), append(v[s], math.Cos(float64(i)))
			}
		}
		if !o.EntropyGradient {
			v = nil
		}
		check(t, p.Backward(w, v))
		p.Release()
	}
	if n != tokens {
		t.Errorf("the layers computed %d tokens, want %d", n, tokens)
	}
	check(t, env.Download(l.Gradients))
	for _, x := range l.Gradients.Tensors() {
		all = append(all, slices.Clone(x.Data))
	}
	return all
}

// compareShared compares results by the norm of their difference.
func compareShared(t *testing.T, what string, got, want [][]float32, most float64) {
	t.Helper()
	for i := range want {
		if len(got[i]) != len(want[i]) {
			t.Fatalf("%s: result %d has %d numbers, want %d", what, i, len(got[i]), len(want[i]))
		}
		gap, norm := 0.0, 0.0
		for k, x := range want[i] {
			gap, norm = math.Hypot(gap, float64(got[i][k]-x)), math.Hypot(norm, float64(x))
		}
		if !(gap <= most*norm) {
			t.Errorf("%s: result %d (log-probs, entropies, gradients of tensors) differs by %g, its norm is %g", what, i, gap, norm)
		}
	}
}
