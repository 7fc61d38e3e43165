package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"onering/internal/memory"
	"onering/internal/stat"
	"onering/models"
	"onering/policy"
	"onering/runtime"
	"onering/sampler"
	"onering/train/learn"
	"onering/train/metrics"
)

// Parts say what Decode, Score and Train measure.
type Parts struct {
	Batch   []int `help:"batch sizes of decoding"`
	Context int   `range:"[1,16777216]" help:"tokens in the cache when decoding begins"`
	// Contexts are further batches to decode, by name: for each row its tokens in the cache when decoding begins.
	Contexts map[string][]int
	Steps    int             `range:"[1,16777216]" help:"decode steps to time"`
	Rows     int             `range:"[1,16777216]" help:"sequences of the training pass"`
	Tokens   int             `range:"[1,16777216]" help:"tokens of each sequence, and of the prompt"`
	Prompt   int             `range:"[1,16777216]" help:"how many of --tokens are the prompt's"`
	Group    int             `range:"[1,16777216]" help:"sequences of the training pass that have the same prompt, whose tokens are computed once"`
	Repeat   int             `range:"[1,16777216]" help:"passes to time after one that warms up; the fastest counts"`
	Offload  runtime.Offload `choice:"none moments all" note:"all is moments and the float32 weights of the layers" help:"what the host's memory keeps for the update"`
	Stash    string          `choice:"auto inputs" help:"what a training pass keeps for going backward: all that this reads, or the inputs of layers"`
	// Optimizer is the name of the optimizer whose update is timed.
	Optimizer string `toml:"-"`
	// Log, if not nil, receives each figure once it is measured, so that a failed bench still reports earlier ones.
	Log func(message string, args ...any)
}

// DefaultParts are the sizes that bench/compare.py measures.
func DefaultParts() Parts {
	return Parts{Batch: []int{1, 8, 32}, Context: 190, Steps: 16, Rows: 4, Tokens: 512, Prompt: 1, Group: 1,
		Stash: "auto", Repeat: 1, Optimizer: "adamw", Offload: "none"}
}

// A decoding holds the speeds of sampling.
type decoding struct {
	// Decode has steps by batch size, and by the names of Contexts.
	Decode map[string]step `json:"decode"`
	// PrefillSeconds is the time to the first token of a prompt, warm.
	PrefillSeconds float64 `json:"prefill_seconds,omitzero"`
	PeakBytes      int64   `json:"peak_bytes,omitzero"`
}

// A step holds the times of decode steps of one batch size: their mean and spread.
type step struct {
	StepMilliseconds float64 `json:"step_ms"`
	Median           float64 `json:"median_ms"`
	P10              float64 `json:"p10_ms"`
	P90              float64 `json:"p90_ms"`
	TokensPerSecond  float64 `json:"tokens_per_second,omitzero"`
}

// A scoring holds the time of a forward pass that stores no activations.
type scoring struct {
	Tokens          int     `json:"tokens"`
	Seconds         float64 `json:"seconds,omitzero"`
	TokensPerSecond float64 `json:"tokens_per_second,omitzero"`
	PeakBytes       int64   `json:"peak_bytes,omitzero"`
}

// A training holds the times of an optimizer step by phase.
type training struct {
	Tokens   int     `json:"tokens"`
	Forward  float64 `json:"forward_seconds,omitzero"`
	Backward float64 `json:"backward_seconds,omitzero"`
	// Seconds is the time of forward and backward, which compare.py compares.
	Seconds float64 `json:"seconds,omitzero"`
	// TokensPerSecond counts forward and backward alone: how many passes an update has depends on the recipe.
	TokensPerSecond float64 `json:"tokens_per_second,omitzero"`
	Optimizer       float64 `json:"optimizer_seconds,omitzero"`
	PeakBytes       int64   `json:"peak_bytes,omitzero"`
}

// stashBytes is as much as passes can take: a run chooses it by the memory.
func (o Parts) stashBytes() int {
	if o.Stash == "inputs" {
		return 0
	}
	return math.MaxInt
}

func (o Parts) log(message string, args ...any) {
	if o.Log != nil {
		o.Log(message, args...)
	}
}

// clock returns the seconds until f and what it has given to the device are done.
func clock(env *runtime.Env, f func() error) (float64, error) {
	if err := env.Wait(); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return 0, err
	}
	err := env.Wait()
	return time.Since(began).Seconds(), err
}

// fastest calls f once to warm up and Repeat times by the clock, and returns the fewest seconds.
func (o Parts) fastest(env *runtime.Env, f func() error) (float64, error) {
	best := math.Inf(1)
	for i := range o.Repeat + 1 {
		seconds, err := clock(env, f)
		if err != nil {
			return 0, err
		}
		if i > 0 {
			best = min(best, seconds)
		}
	}
	return best, nil
}

// randomIDs returns random tokens for a prompt.
func randomIDs(r *rand.Rand, p *policy.Policy, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(p.Model.Vocab))
	}
	return ids
}

// Decode measures prefill and decoding, of each batch size and then of each of Contexts. With an error it returns the
// figures measured before.
func (o Parts) Decode(env *runtime.Env, p *policy.Policy) (decoding, error) {
	b := decoding{Decode: make(map[string]step)}
	r := rand.New(rand.NewPCG(1, 1))
	var err error
	if b.PrefillSeconds, err = o.prefill(env, p, r); err != nil {
		return b, fmt.Errorf("bench: prefill: %w", err)
	}
	b.PeakBytes = memory.Peak()
	o.log("prefill", "tokens", o.Tokens, "seconds", b.PrefillSeconds)
	measure := func(name string, contexts []int) error {
		step, err := o.decode(env, p, r, contexts)
		if err != nil {
			return fmt.Errorf("bench: batch %s: %w", name, err)
		}
		b.Decode[name] = step
		b.PeakBytes = memory.Peak()
		o.log("decode", "batch", name, "step_ms", step.StepMilliseconds)
		return nil
	}
	for _, n := range o.Batch {
		if err := measure(strconv.Itoa(n), slices.Repeat([]int{o.Context}, n)); err != nil {
			return b, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Contexts)) {
		if err := measure(name, o.Contexts[name]); err != nil {
			return b, err
		}
	}
	return b, nil
}

// prefill measures the time from a prompt to its first token, the fastest of at least two.
func (o Parts) prefill(env *runtime.Env, p *policy.Policy, r *rand.Rand) (float64, error) {
	d, err := env.NewDecoder(p.Ring, 1, o.Tokens+1)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	prompt := randomIDs(r, p, o.Tokens)
	o.Repeat = max(2, o.Repeat)
	return o.fastest(env, func() error {
		prefix, err := d.Prefill([][]int32{prompt})
		if err != nil {
			return err
		}
		defer d.Drop(prefix[0])
		defer d.Free(0)
		return d.Begin([]sampler.Row{{Prefix: prefix[0], Uniform: 0.5, Way: sampler.Plain(1)}})
	})
}

// decode measures decode steps of rows that begin with these numbers of tokens.
func (o Parts) decode(env *runtime.Env, p *policy.Policy, r *rand.Rand, contexts []int) (step, error) {
	n := len(contexts)
	d, err := env.NewDecoder(p.Ring, n, slices.Max(contexts)+o.Steps+3) // the first token, two steps to warm up, and those to time
	if err != nil {
		return step{}, err
	}
	defer d.Close()
	rows := make([]sampler.Row, n)
	prefixes := make(map[int]int) // by length
	for i, length := range contexts {
		if _, ok := prefixes[length]; !ok {
			prefix, err := d.Prefill([][]int32{randomIDs(r, p, length)})
			if err != nil {
				return step{}, err
			}
			prefixes[length] = prefix[0]
		}
		rows[i] = sampler.Row{Slot: i, Prefix: prefixes[length], Uniform: r.Float32(), Way: sampler.Plain(1)} // no filters
	}
	if err := d.Begin(rows); err != nil {
		return step{}, err
	}
	var times []float64
	for i := range o.Steps + 2 {
		began := time.Now()
		for i := range rows {
			rows[i].ID = rows[i].Out.ID // the newest token goes in
		}
		if err := d.Step(rows); err != nil {
			return step{}, err
		}
		if i >= 2 { // the first two steps warm up
			times = append(times, 1e3*time.Since(began).Seconds())
		}
	}
	mean := stat.Mean(times)
	return step{StepMilliseconds: mean, Median: stat.Quantile(times, 0.5), P10: stat.Quantile(times, 0.1),
		P90: stat.Quantile(times, 0.9), TokensPerSecond: 1e3 * float64(n) / mean}, nil
}

// sequences makes the random rows of a training pass, of which each Group have the same prompt, and a small random
// weight w for each token of a response.
func (o Parts) sequences(p *policy.Policy) (sequences []runtime.Sequence, w [][]float64) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range o.Rows {
		tokens := randomIDs(r, p, o.Tokens+1)
		if first := i - i%o.Group; first < i {
			copy(tokens[:o.Prompt], sequences[first].Tokens)
		}
		s := runtime.NewSequence(tokens[:o.Prompt], tokens[o.Prompt:])
		sequences = append(sequences, s)
		row := make([]float64, s.Count())
		for i := range row {
			row[i] = r.NormFloat64() / 1000
		}
		w = append(w, row)
	}
	return sequences, w
}

// Score measures the log-probs of given sequences, with no gradients in memory.
func (o Parts) Score(env *runtime.Env, p *policy.Policy) (scoring, error) {
	b := scoring{Tokens: o.Rows * o.Tokens}
	l, err := env.NewLearner(p.Ring, runtime.LearnerOptions{ScoreOnly: true})
	if err != nil {
		return b, err
	}
	defer l.Close()
	sequences, _ := o.sequences(p)
	const temperature, keep = 1, false // nothing is kept for a backward pass
	b.Seconds, err = o.fastest(env, func() error {
		pass, err := l.Forward(sequences, temperature, keep)
		if err == nil {
			pass.Release()
		}
		return err
	})
	if err != nil {
		return b, fmt.Errorf("bench: score: %w", err)
	}
	b.TokensPerSecond, b.PeakBytes = float64(b.Tokens)/b.Seconds, memory.Peak()
	o.log("score", "tokens", b.Tokens, "seconds", b.Seconds)
	return b, nil
}

// Train measures one pass forward and backward, and with update the optimizer's update, which needs memory for the
// state. Of Repeat measurements after one that warms up the fastest counts. With an error it returns the figures
// measured before.
func (o Parts) Train(ctx context.Context, env *runtime.Env, p *policy.Policy, update bool) (training, error) {
	b := training{Tokens: o.Rows * o.Tokens}
	clock := metrics.NewStopwatch()
	var failed error // of waiting for the device
	s, err := learn.New(env, p.Ring, learn.Options{
		MaxGradNorm: 1, Temperature: 1, Passes: learn.Passes{MicroTokens: o.Rows * (o.Tokens + 1), StashBytes: o.stashBytes()},
		Observe: func(p metrics.Phase) { // each phase lasts until the device is done
			failed = cmp.Or(failed, env.Wait())
			clock.Enter(p)
		},
	})
	if err != nil {
		return b, err
	}
	defer s.Close()
	batch := learn.Batch{LearningRate: 1e-6}
	batch.Sequences, batch.Weights = o.sequences(p)
	for i := range o.Repeat + 1 {
		clock.Take() // begin at 0
		_, err := s.Gradients(ctx, batch, nil)
		if err = cmp.Or(err, failed); err != nil {
			return b, fmt.Errorf("bench: %w", err)
		}
		times := clock.Take()
		forward, backward := times.Float("seconds/"+string(metrics.PhaseScore)), times.Float("seconds/"+string(metrics.PhaseBackward))
		if i == 1 || i > 1 && forward+backward < b.Seconds { // the first repeat warms up
			b.Forward, b.Backward, b.Seconds = forward, backward, forward+backward
		}
	}
	b.TokensPerSecond, b.PeakBytes = float64(b.Tokens)/b.Seconds, memory.Peak()
	o.log("train", "tokens", b.Tokens, "forward_seconds", b.Forward, "backward_seconds", b.Backward)
	if !update {
		return b, nil
	}
	optimizer, err := models.NewOptimizer(o.Optimizer)
	if err != nil {
		return b, err
	}
	if err := s.OpenOptimizer(optimizer); err != nil {
		return b, err
	}
	// An update takes the same time for any batch, so a sequence of two tokens is enough.
	short := o
	short.Rows, short.Tokens, short.Prompt = 1, 1, 1
	batch.Sequences, batch.Weights = short.sequences(p)
	for i := range o.Repeat + 1 {
		clock.Take()
		_, err := s.Step(ctx, batch, nil)
		if err = cmp.Or(err, failed); err != nil {
			return b, fmt.Errorf("bench: update: %w", err)
		}
		if x := clock.Take().Float("seconds/" + string(metrics.PhaseOptimizer)); i == 1 || i > 1 && x < b.Optimizer {
			b.Optimizer = x
		}
	}
	b.PeakBytes = memory.Peak()
	o.log("update", "seconds", b.Optimizer)
	return b, nil
}
