package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"onering/models"
	"onering/runtime"
)

// BenchOptions say what Bench measures.
type BenchOptions struct {
	Batch   []int // batch sizes of decoding
	Context int   // tokens in the cache when decoding begins
	Steps   int   // decode steps timed
	Rows    int   // sequences of the training pass
	Tokens  int   // tokens of each, and of the prompt whose prefill is timed
	Stash   models.Stash
}

// DefaultBench is what bench/compare.py measures; it lowers Stash too, which a
// run chooses by the memory there is.
func DefaultBench() BenchOptions {
	return BenchOptions{Batch: []int{1, 8, 32}, Context: 190, Steps: 16, Rows: 4, Tokens: 512, Stash: models.StashAll}
}

// A DecodeBench is how fast a policy samples.
type DecodeBench struct {
	// Decode is by batch size.
	Decode map[string]StepBench `json:"decode"`
	// PrefillSeconds is the time to the first token of a prompt, warm.
	PrefillSeconds float64 `json:"prefill_seconds"`
	PeakBytes      int64   `json:"peak_bytes"`
}

// A StepBench is one batch size: the mean of the decode steps.
type StepBench struct {
	StepMilliseconds float64 `json:"step_ms"`
	TokensPerSecond  float64 `json:"tokens_per_second"`
}

// A TrainBench is one optimizer step by phase, after a warm-up.
type TrainBench struct {
	Tokens   int     `json:"tokens"`
	Forward  float64 `json:"forward_seconds"`
	Backward float64 `json:"backward_seconds"`
	// Seconds is forward and backward: what compare.py compares.
	Seconds   float64 `json:"seconds"`
	Optimizer float64 `json:"optimizer_seconds,omitempty"`
	PeakBytes int64   `json:"peak_bytes"`
}

func (o BenchOptions) prompt(r *rand.Rand, p *Policy, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(p.Model.Vocab))
	}
	return ids
}

// BenchDecode measures prefill and decoding.
func BenchDecode(env *runtime.Env, p *Policy, o BenchOptions) (DecodeBench, error) {
	b := DecodeBench{Decode: make(map[string]StepBench), PrefillSeconds: math.Inf(1)}
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range o.Batch {
		step, err := o.decode(env, p, r, n)
		if err != nil {
			return b, fmt.Errorf("train: bench: batch %d: %w", n, err)
		}
		b.Decode[strconv.Itoa(n)] = step
	}
	d, err := env.NewDecoder(p.Ring, 1, o.Tokens+1)
	if err != nil {
		return b, err
	}
	defer d.Close()
	if err := d.SetSampling(1, 1, 0, false); err != nil {
		return b, err
	}
	prompt := o.prompt(r, p, o.Tokens)
	one, value := make([]int32, 1), make([]float32, 1)
	for range 3 {
		began := time.Now()
		prefix, err := d.Prefill([][]int32{prompt})
		if err == nil {
			err = d.Start(prefix, []int{0}, []float32{0.5}, one, value, make([]float32, 1))
		}
		if err != nil {
			return b, fmt.Errorf("train: bench: prefill: %w", err)
		}
		b.PrefillSeconds = min(b.PrefillSeconds, time.Since(began).Seconds())
		d.Free(0)
		d.Drop(prefix[0])
	}
	b.PeakBytes = peakBytes()
	return b, nil
}

func (o BenchOptions) decode(env *runtime.Env, p *Policy, r *rand.Rand, n int) (StepBench, error) {
	d, err := env.NewDecoder(p.Ring, n, o.Context+o.Steps+3)
	if err != nil {
		return StepBench{}, err
	}
	defer d.Close()
	if err := d.SetSampling(1, 1, 0, false); err != nil {
		return StepBench{}, err
	}
	prefix, err := d.Prefill([][]int32{o.prompt(r, p, o.Context)})
	if err != nil {
		return StepBench{}, err
	}
	slots, prefixes, u := make([]int, n), make([]int, n), make([]float32, n)
	next, logp, entropy := make([]int32, n), make([]float32, n), make([]float32, n)
	for i := range slots {
		slots[i], prefixes[i], u[i] = i, prefix[0], r.Float32()
	}
	if err := d.Start(prefixes, slots, u, next, logp, entropy); err != nil {
		return StepBench{}, err
	}
	ids := make([]int32, n)
	var began time.Time
	for i := range o.Steps + 2 {
		if i == 2 { // the first two warm up
			began = time.Now()
		}
		copy(ids, next)
		if err := d.Step(slots, ids, u, next, logp, entropy); err != nil {
			return StepBench{}, err
		}
	}
	seconds := time.Since(began).Seconds() / float64(o.Steps)
	return StepBench{seconds * 1e3, float64(n) / seconds}, nil
}

// BenchTrain measures one pass forward and backward, and with optimize the
// update as well, which takes memory for the moments.
func BenchTrain(env *runtime.Env, p *Policy, o BenchOptions, optimize bool) (TrainBench, error) {
	var b TrainBench
	l, err := env.NewLearner(p.Ring, runtime.LearnerOptions{Stash: o.Stash})
	if err != nil {
		return b, err
	}
	defer l.Close()
	r := rand.New(rand.NewPCG(1, 1))
	var sequences []runtime.Sequence
	var w [][]float64
	for range o.Rows {
		sequences = append(sequences, runtime.Sequence{Tokens: o.prompt(r, p, o.Tokens+1), Prompt: 1})
		row := make([]float64, o.Tokens)
		for i := range row {
			row[i] = r.NormFloat64() / 1000
		}
		w = append(w, row)
	}
	b.Tokens = o.Rows * o.Tokens
	for range 2 { // the first pass warms up
		l.ZeroGradients()
		began := time.Now()
		pass, err := l.Forward(sequences, 1, true)
		if err != nil {
			return b, fmt.Errorf("train: bench: forward: %w", err)
		}
		b.Forward = time.Since(began).Seconds()
		if err := pass.Backward(w, nil); err != nil {
			return b, fmt.Errorf("train: bench: backward: %w", err)
		}
		pass.Release()
		b.Seconds = time.Since(began).Seconds()
		b.Backward = b.Seconds - b.Forward
	}
	if optimize {
		opt, err := env.NewOptimizer(p.Ring, l.Gradients, runtime.OptimizerOptions{})
		if err != nil {
			return b, err
		}
		defer opt.Close()
		for range 2 {
			began := time.Now()
			if _, err := opt.Step(runtime.AdamW{LearningRate: 1e-6, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, MaxGradNorm: 1}); err != nil {
				return b, fmt.Errorf("train: bench: update: %w", err)
			}
			b.Optimizer = time.Since(began).Seconds()
		}
	}
	b.PeakBytes = peakBytes()
	return b, nil
}
