package learn_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/models/optim/adamw"
	_ "onering/models/qwen2"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/train/learn"
	"onering/train/metrics"
)

var adamW = adamw.Default()

// open makes a Stepper on a fresh copy of a small model, whose weights it returns.
func open(t *testing.T, compute models.DType, o learn.Options) (*learn.Stepper, *models.Weights) {
	t.Helper()
	return openOn(t, runtimetest.Test(t), compute, o)
}

// openOn does the same as open, on a device.
func openOn(t *testing.T, env *runtime.Env, compute models.DType, o learn.Options) (*learn.Stepper, *models.Weights) {
	t.Helper()
	return openOffloaded(t, env, compute, runtime.OffloadNone, o)
}

// openOffloaded is openOn for a ring of which the host keeps a part.
func openOffloaded(t *testing.T, env *runtime.Env, compute models.DType, offload runtime.Offload, o learn.Options) (*learn.Stepper, *models.Weights) {
	t.Helper()
	m, w, err := models.Load("../../models/testdata/torch/tied/hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	arch, err := m.Architecture(models.Compute{Type: compute, Provider: env.Provider()})
	if err != nil {
		t.Fatal(err)
	}
	ring := runtime.NewRing(arch, w)
	t.Cleanup(ring.Close)
	ring.Offload = offload
	o.Temperature, o.MaxGradNorm, o.StashBytes = 1, 1, math.MaxInt
	if o.MicroTokens == 0 {
		o.MicroTokens = 4096
	}
	s, err := learn.New(env, ring, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, w
}

// drawBatch draws sequences of 9 to 48 tokens, and weights for them.
func drawBatch(n int) learn.Batch {
	r := rand.New(rand.NewPCG(1, 2))
	b := learn.Batch{LearningRate: 1e-2, Number: 1}
	for range n {
		tokens := make([]int32, 9+r.IntN(40))
		for i := range tokens {
			tokens[i] = int32(r.IntN(25))
		}
		s := runtime.NewSequence(tokens[:8], tokens[8:])
		row := make([]float64, s.Count())
		for i := range row {
			row[i] = r.NormFloat64() / 100
		}
		b.Sequences, b.Weights = append(b.Sequences, s), append(b.Weights, row)
	}
	return b
}

// weighed returns a batch to which a Weigh function gives the weights that b knows in advance.
func weighed(b learn.Batch) (learn.Batch, learn.Weigh) {
	x := learn.Loss{LogProb: b.Weights}
	b.Weights = nil
	return b, func(s learn.Scores) (learn.Loss, error) {
		x.Value = 0
		for i, row := range s.LogProb {
			for t, logp := range row {
				x.Value += x.LogProb[i][t] * logp
			}
		}
		return x, nil
	}
}

// gradients computes the gradients of a batch and returns a copy of them.
func gradients(t *testing.T, s *learn.Stepper, b learn.Batch, weigh learn.Weigh) (learn.Report, []float32) {
	t.Helper()
	r, err := s.Gradients(context.Background(), b, weigh)
	if err != nil {
		t.Fatal(err)
	}
	var all []float32
	err = s.WithoutScale(func(tensors []models.Tensor) error {
		for _, x := range tensors {
			all = append(all, x.Data...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, all
}

// distance is |a - b| / |b|.
func distance(a, b []float32) float64 {
	d, norm := 0.0, 0.0
	for i := range b {
		d += (float64(a[i]) - float64(b[i])) * (float64(a[i]) - float64(b[i]))
		norm += float64(b[i]) * float64(b[i])
	}
	return math.Sqrt(d / norm)
}

// TestLiveOnly: sequences that are not live are not computed, and leave the bits of the
// gradients unchanged. A batch that has only such sequences is a step with no gradient.
func TestLiveOnly(t *testing.T) {
	var passes []int
	s, w := open(t, models.F32, learn.Options{Optimizer: adamW, Passes: learn.Passes{MicroTokens: 200}, BeforePass: func(tokens int) error {
		passes = append(passes, tokens)
		return nil
	}})
	known := drawBatch(24)
	known.Live = make([]bool, 24)
	live, response := 0, 0
	for i, x := range known.Sequences {
		if known.Live[i] = i%3 == 1; !known.Live[i] {
			clear(known.Weights[i])
			continue
		}
		live += len(x.Tokens)
		response += x.Count()
	}
	b, weigh := weighed(known)
	all, want := gradients(t, s, b, weigh)
	passes, b.LiveOnly = nil, true
	var seen learn.Scores
	r, got := gradients(t, s, b, func(x learn.Scores) (learn.Loss, error) {
		seen = x
		return weigh(x)
	})
	if sum := sum(passes); sum != live {
		t.Errorf("%d tokens were computed, the live sequences have %d", sum, live)
	}
	if r.LeftOut != 16 || r.Tokens != response || all.LeftOut != 0 || all.MicroBatches <= r.MicroBatches {
		t.Errorf("%d sequences left out, %d response tokens in %d micro-batches; want 16, %d and fewer than %d", r.LeftOut, r.Tokens, r.MicroBatches, response, all.MicroBatches)
	}
	if !slices.Equal(got, want) || r.GradNorm != all.GradNorm {
		t.Error("the gradients have other bits than with the others scored")
	}
	for i, row := range seen.LogProb {
		if b.Live[i] && !slices.Equal(row, all.LogProb[i]) || !b.Live[i] && (row != nil || seen.Entropy[i] != nil) {
			t.Errorf("sequence %d, live %t: log-probs %v", i, b.Live[i], row)
		}
	}
	passes, b.Live = nil, make([]bool, 24)
	before := slices.Clone(w.Data)
	if r, err := s.Step(context.Background(), b, weigh); err != nil || r.GradNorm != 0 || r.LeftOut != 24 || len(passes) != 0 {
		t.Errorf("no live sequence: norm %v, %d left out, passes %v, %v", r.GradNorm, r.LeftOut, passes, err)
	}
	if !slices.Equal(w.Data, before) {
		t.Error("no live sequence: the weights moved")
	}
}

func sum(x []int) (n int) {
	for _, v := range x {
		n += v
	}
	return n
}

// Gradients and loss depend neither on how a batch is cut into micro-batches nor
// on whether its weights are known before the forward pass; nor on the sequences
// that are not live.
func TestMicroBatchesDoNotMatter(t *testing.T) {
	known := drawBatch(24)
	s, _ := open(t, models.F32, learn.Options{Optimizer: adamW})
	whole, want := gradients(t, s, known, nil)
	if whole.MicroBatches != 1 || whole.GradNorm == 0 || len(whole.LogProb) != 24 {
		t.Fatalf("%d micro-batches, norm %v", whole.MicroBatches, whole.GradNorm)
	}
	for _, tokens := range []int{1, 100, 300, 4096} {
		s, _ := open(t, models.F32, learn.Options{Optimizer: adamW, Passes: learn.Passes{MicroTokens: tokens}})
		asked, weigh := weighed(known)
		partly, _ := weighed(known)
		partly.Live = make([]bool, 24)
		zero := drawBatch(24)
		for i := range partly.Live {
			if partly.Live[i] = i%3 > 0; !partly.Live[i] {
				clear(zero.Weights[i])
			}
		}
		_, fewer := gradients(t, s, zero, nil)
		_, weighZero := weighed(zero)
		for _, tt := range []struct {
			name  string
			b     learn.Batch
			weigh learn.Weigh
			want  []float32
		}{
			{"known", known, nil, want}, {"asked", asked, weigh, want},
			{"not all live", partly, weighZero, fewer},
		} {
			r, got := gradients(t, s, tt.b, tt.weigh)
			if !(distance(got, tt.want) <= 1e-6) {
				t.Errorf("%d tokens, %s: gradients differ by %.2g of their norm", tokens, tt.name, distance(got, tt.want))
			}
			if tt.name == "not all live" {
				continue
			}
			if math.Abs(r.Loss.Value-whole.Loss.Value) > 1e-5*math.Abs(whole.Loss.Value) || math.Abs(r.GradNorm-whole.GradNorm) > 1e-5*whole.GradNorm {
				t.Errorf("%d tokens, %s: loss %v and norm %v, want %v and %v", tokens, tt.name, r.Loss.Value, r.GradNorm, whole.Loss.Value, whole.GradNorm)
			}
		}
	}
}

// TestApart: a batch whose sequences are weighed apart is computed pass by pass, with the
// bits of a batch with known weights. If the weights depend on other sequences after all,
// this step and all later steps use the weights of the whole batch.
func TestApart(t *testing.T) {
	const alone = 100
	var passes, asked, scored []int
	open := func(passTokens int) *learn.Stepper {
		s, _ := open(t, models.F32, learn.Options{Optimizer: adamW, Passes: learn.Passes{MicroTokens: 300, ApartTokens: passTokens}, BeforePass: func(tokens int) error {
			passes = append(passes, tokens)
			return nil
		}})
		return s
	}
	known := drawBatch(12)
	s := open(alone)
	_, want := gradients(t, s, known, nil)
	cut := passes
	b, weigh := weighed(known)
	b.Apart = true
	counting := func(x learn.Scores) (learn.Loss, error) {
		n := 0
		for _, row := range x.LogProb {
			if row != nil {
				n++
			}
		}
		asked, scored = append(asked, len(passes)), append(scored, n)
		return weigh(x)
	}
	passes = nil
	r, got := gradients(t, s, b, counting)
	if !slices.Equal(got, want) || !slices.Equal(passes, cut) || len(passes) < 3 || slices.Max(passes) > alone {
		t.Errorf("passes of %v tokens, with known weights %v; the same bits: %t", passes, cut, slices.Equal(got, want))
	}
	// Weigh is called after each pass, and then once more.
	for i, n := range asked {
		if n != min(i+1, len(passes)) || scored[i] == 0 || i > 0 && i < len(passes) && scored[i] <= scored[i-1] {
			t.Errorf("asked after %v passes with the scores of %v sequences", asked, scored)
			break
		}
	}
	if len(asked) != len(passes)+1 || slices.ContainsFunc(r.LogProb, func(x []float64) bool { return x == nil }) {
		t.Errorf("asked %d times for %d passes", len(asked), len(passes))
	}

	dependent := func(x learn.Scores) (learn.Loss, error) {
		loss, err := weigh(x)
		sum := 0.0
		for _, row := range x.LogProb {
			for _, logp := range row {
				sum += logp
			}
		}
		loss.LogProb = slices.Clone(loss.LogProb)
		for i, row := range loss.LogProb {
			loss.LogProb[i] = slices.Clone(row)
			for t := range row {
				loss.LogProb[i][t] *= sum
			}
		}
		return loss, err
	}
	joint := b
	joint.Apart = false
	passes = nil
	_, want = gradients(t, s, joint, dependent)
	together := len(passes)
	for i, n := range []int{len(cut) + together, together} {
		passes = nil
		if r, got := gradients(t, s, b, dependent); !slices.Equal(got, want) || len(passes) != n || r.MicroBatches != together {
			t.Errorf("step %d: %d passes, want %d; the same bits: %t", i, len(passes), n, slices.Equal(got, want))
		}
	}
	// Any value that is not finite is found before an update, with the scores of all sequences.
	s = open(alone)
	_, err := s.Step(context.Background(), b, func(x learn.Scores) (learn.Loss, error) {
		loss, err := dependent(x)
		loss.LogProb[5][0] = math.NaN()
		return loss, err
	})
	var nonfinite *learn.NonfiniteError
	if !errors.As(err, &nonfinite) || !slices.Equal(nonfinite.Sequences, []int{5}) || s.Optimizer().Updates != 0 {
		t.Errorf("NaN among the weights: %v", err)
	}
}

// If memory runs out, even in the middle, the step is computed again with smaller
// micro-batches, to the same update within rounding; if they cannot be smaller, nothing
// is updated.
func TestMemoryEnds(t *testing.T) {
	noMemory := errors.New(`runtime: program "layer": run on N=300: Failed to allocate memory for requested buffer of size 1`)
	for _, known := range []bool{true, false} {
		step := func(o learn.Options) (*learn.Stepper, learn.Report, []float32, error) {
			o.Optimizer = adamW
			s, w := open(t, models.F32, o)
			b, weigh := drawBatch(24), learn.Weigh(nil)
			if !known {
				b, weigh = weighed(b)
			}
			r, err := s.Step(context.Background(), b, weigh)
			return s, r, w.Data, err
		}
		_, _, want, err := step(learn.Options{})
		if err != nil {
			t.Fatal(err)
		}
		passes := 0
		s, r, got, err := step(learn.Options{Passes: learn.Passes{MicroTokens: 1024}, BeforePass: func(tokens int) error {
			if passes++; tokens > 300 || passes == 4 {
				return noMemory
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if n := s.State().MicroTokens; n != 128 || r.MicroBatches < 5 || r.MicroBatches > passes {
			t.Errorf("known %v: %d micro-batches of at most %d tokens after %d passes", known, r.MicroBatches, n, passes)
		}
		// The first update of AdamW is learning rate x sign(g) where g is not tiny:
		// elements whose gradient is only rounding may differ.
		if d := distance(got, want); !(d <= 1e-3) {
			t.Errorf("known %v: the update differs by %.2g", known, d)
		}
		s, _, got, err = step(learn.Options{BeforePass: func(int) error { return noMemory }})
		if !errors.Is(err, noMemory) || s.State().MicroTokens != learn.SmallestMicroBatch || s.Optimizer().Updates != 0 {
			t.Errorf("known %v: error %v at %d tokens after %d updates", known, err, s.State().MicroTokens, s.Optimizer().Updates)
		}
		if fresh, w := open(t, models.F32, learn.Options{}); fresh == nil || !slices.Equal(got, w.Data) {
			t.Errorf("known %v: a step that failed has changed the weights", known)
		}
	}
}

// TestFloat16: in float16 the loss scale is lowered until no gradient overflows; the
// gradients' norm and copy do not contain the scale.
func TestFloat16(t *testing.T) {
	exact, _ := open(t, models.F32, learn.Options{Optimizer: adamW})
	b := drawBatch(24)
	want, wantGradients := gradients(t, exact, b, nil)
	s, w := open(t, models.F16, learn.Options{Optimizer: adamW})
	s.Restore(learn.State{LossScale: &learn.LossScale{Scale: 1 << 40}})
	r, got := gradients(t, s, b, nil)
	if scale := s.State().LossScale.Scale; r.LossScale != scale || scale >= 1<<40 || scale < 1<<10 {
		t.Errorf("a step at a scale of %g leaves %g", r.LossScale, scale)
	}
	if math.Abs(r.GradNorm-want.GradNorm) > 0.02*want.GradNorm || !(distance(got, wantGradients) < 0.05) {
		t.Errorf("norm %v, want %v; gradients %.2g off", r.GradNorm, want.GradNorm, distance(got, wantGradients))
	}
	if err := s.Update(b.LearningRate); err != nil || s.State().LossScale.Clean != 1 {
		t.Errorf("error %v, scale %+v", err, s.State().LossScale)
	}
	before := slices.Clone(w.Data)
	for _, row := range b.Weights {
		for i := range row {
			row[i] = 1e30
		}
	}
	_, err := s.Step(context.Background(), b, nil)
	var at *learn.NonfiniteError
	if !errors.As(err, &at) || at.What != "a gradient in float16" || at.Tensor == "" || !slices.Equal(before, w.Data) {
		t.Errorf("gradients that no scale makes small enough: %v", err)
	}
}

// Figures that are not finite are found where they arise, and nothing is updated.
func TestNonfinite(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct {
		name   string
		change func(b *learn.Batch, w *models.Weights)
		weigh  learn.Weigh
		want   string
		tensor string
	}{
		{"weight of a token", func(b *learn.Batch, _ *models.Weights) { b.Weights[2][1] = nan }, nil,
			"the objective's weight of response token 1 is NaN (in 1 sequences of the batch: 2); nothing was updated", ""},
		{"loss", func(b *learn.Batch, _ *models.Weights) { b.Weights = nil }, func(s learn.Scores) (learn.Loss, error) {
			x := learn.Loss{Value: nan}
			for _, row := range s.LogProb {
				x.LogProb = append(x.LogProb, make([]float64, len(row)))
			}
			return x, nil
		}, "the loss is NaN: the objective's weights are finite; nothing was updated", ""},
		{"weight of the model", func(_ *learn.Batch, w *models.Weights) {
			x, _, _ := w.View("model.layers.1.mlp.down_proj.weight")
			x[7] = float32(nan)
		}, nil, "the weight model.layers.1.mlp.down_proj.weight is NaN at element 7; nothing was updated", ""},
		{"layer", func(_ *learn.Batch, w *models.Weights) {
			x, _, _ := w.View("model.layers.1.mlp.down_proj.weight")
			for i := range x {
				x[i] = 3e38
			}
		}, nil, "all weights are finite, but not the output of layer 1; nothing was updated", ""},
		{"gradient", func(b *learn.Batch, _ *models.Weights) {
			for _, row := range b.Weights {
				for i := range row {
					row[i] = 1e38
				}
			}
		}, nil, "the gradient of ", "model."},
	} {
		s, w := open(t, models.F32, learn.Options{Optimizer: adamW})
		b := drawBatch(4)
		tt.change(&b, w)
		before := fmt.Sprint(w.Data)
		r, err := s.Step(context.Background(), b, tt.weigh)
		var at *learn.NonfiniteError
		if !errors.As(err, &at) || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(at.Tensor, tt.tensor) {
			t.Errorf("%s: error %v with tensor %q, want %q", tt.name, err, at.Tensor, tt.want)
		}
		if s.Optimizer().Updates != 0 || fmt.Sprint(w.Data) != before {
			t.Errorf("%s: something was updated", tt.name)
		}
		if tt.name != "weight of a token" && r.LogProb[0] == nil {
			t.Errorf("%s: the report lacks the scores", tt.name)
		}
	}
}

// When the context ends no further micro-batch is begun.
func TestContextEnds(t *testing.T) {
	for _, known := range []bool{true, false} {
		ctx, cancel := context.WithCancel(context.Background())
		passes := 0
		s, _ := open(t, models.F32, learn.Options{Optimizer: adamW, Passes: learn.Passes{MicroTokens: 100}, BeforePass: func(int) error {
			if passes++; passes == 3 {
				cancel()
			}
			return nil
		}})
		b, weigh := drawBatch(24), learn.Weigh(nil)
		if !known {
			b, weigh = weighed(b)
		}
		if _, err := s.Step(ctx, b, weigh); !errors.Is(err, context.Canceled) || passes != 3 || s.Optimizer().Updates != 0 {
			t.Errorf("known %v: %v after %d passes and %d updates", known, err, passes, s.Optimizer().Updates)
		}
	}
}

// The phases are those of a step, in order.
func TestPhases(t *testing.T) {
	var seen []metrics.Phase
	s, _ := open(t, models.F32, learn.Options{Optimizer: adamW, Passes: learn.Passes{MicroTokens: 300}, Observe: func(p metrics.Phase) {
		if len(seen) == 0 || seen[len(seen)-1] != p {
			seen = append(seen, p)
		}
	}})
	b, weigh := weighed(drawBatch(12))
	for _, tt := range []struct {
		b     learn.Batch
		weigh learn.Weigh
		want  []metrics.Phase
	}{
		{b, weigh, []metrics.Phase{metrics.PhaseScore, metrics.PhaseWeights, metrics.PhaseBackward, metrics.PhaseOptimizer, metrics.PhaseOther, metrics.PhaseOptimizer, metrics.PhaseOther}},
		{drawBatch(12), nil, []metrics.Phase{metrics.PhaseScore, metrics.PhaseBackward, metrics.PhaseScore, metrics.PhaseBackward, metrics.PhaseOptimizer, metrics.PhaseOther, metrics.PhaseOptimizer, metrics.PhaseOther}},
	} {
		seen = nil
		if r, err := s.Step(context.Background(), tt.b, tt.weigh); err != nil || r.MicroBatches != 2 || !slices.Equal(seen, tt.want) {
			t.Errorf("phases %v of %d micro-batches, want %v; error %v", seen, r.MicroBatches, tt.want, err)
		}
	}
}
