// Package bench measures a model of random weights: its parts one by one, and a whole
// round of reinforcement learning, phase by phase.
package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"onering/internal/bench/limits"
	"onering/internal/memory"
	"onering/models"
	"onering/policy"
	"onering/runtime"
	"onering/sampler"
	"onering/train"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/rundir"
)

// A Round states the sizes of a measured round.
type Round struct {
	Prompts     int    `range:"[1,16777216]" help:"problems of a round"`
	Samples     int    `range:"[1,16777216]" help:"responses to each problem of a round"`
	Prompt      int    `toml:"prompt_length" range:"[1,16777216]" help:"tokens of each prompt of a round"`
	Length      int    `range:"[1,16777216]" help:"mean tokens of the responses of a round; their lengths spread up to three times as many"`
	Slots       int    `range:"[1,16777216]" help:"responses that a round samples at once"`
	Steps       int    `toml:"updates" range:"[1,16777216]" help:"optimizer steps of a round"`
	MicroTokens int    `range:"[1,16777216]" help:"tokens of a pass of a round"`
	Dir         string `help:"folder on the disk that a round's checkpoint is written to and removed from (default the system's for temporary files)"`
	Roofline    bool   `help:"measure products of matrices and the speed of memory too, and say what share of that limit each phase of --round reaches"`
}

// DefaultRound is eight problems and the lengths of the paper.
func DefaultRound() Round {
	return Round{Prompts: 8, Samples: 4, Prompt: 150, Length: 1000, Slots: 32, Steps: 4, MicroTokens: 4096}
}

// A Phase is a part of a round. LimitSeconds is the least time that the machine needs for
// it, and LimitShare that time as a share of Seconds; a phase at its limit has 1.
type Phase struct {
	Seconds      float64 `json:"seconds"`
	LimitSeconds float64 `json:"limit_seconds,omitzero"`
	LimitShare   float64 `json:"limit_share,omitzero"`
}

// phases are the parts of a round. Rollout contains the computation of prompts, which is also given separately.
type phases struct {
	Seconds    float64 `json:"seconds"`
	Rollout    Phase   `json:"rollout"`
	Prefill    Phase   `json:"prefill"`
	Forward    Phase   `json:"forward"`
	Backward   Phase   `json:"backward"`
	Optimizer  Phase   `json:"optimizer"`
	Checkpoint Phase   `json:"checkpoint"`
	PeakBytes  int64   `json:"peak_bytes,omitzero"` // peak of the host's memory up to the end of this round
}

// A result has two rounds: the first of a program, which allocates all memory, and the next one.
type result struct {
	Cold            phases        `json:"cold"`
	Warm            phases        `json:"warm"`
	Responses       int           `json:"responses"`
	PromptTokens    int           `json:"prompt_tokens"`   // tokens of prompts; each problem's prompt is computed once
	ResponseTokens  int           `json:"response_tokens"` // tokens that are sampled and trained on
	Longest         int           `json:"longest"`         // tokens of the longest response
	CheckpointBytes int64         `json:"checkpoint_bytes"`
	Peaks           *limits.Peaks `json:"peaks,omitempty"`
}

// Run measures a round twice: rollout, the steps' forward and backward passes and updates, and a checkpoint. parts
// states the optimizer and where its state lies. Rewards, tokenization and the loss are left out.
func (o Round) Run(ctx context.Context, env *runtime.Env, p *policy.Policy, parts Parts) (r result, err error) {
	b := &bencher{Round: o, parts: parts, env: env, policy: p, clock: metrics.NewStopwatch()}
	b.lengths = limits.Lengths(o.Prompts*o.Samples, o.Length)
	if err := b.open(); err != nil {
		return r, fmt.Errorf("bench: %w", err)
	}
	defer b.close()
	r.Responses, r.PromptTokens = len(b.lengths), o.Prompts*o.Prompt
	for _, n := range b.lengths {
		r.ResponseTokens, r.Longest = r.ResponseTokens+n, max(r.Longest, n)
	}
	var peaks limits.Peaks // of all measurements: the machine's speed varies by the minute
	for _, to := range []*phases{&r.Cold, &r.Warm} {
		if *to, err = b.round(ctx); err != nil {
			return r, fmt.Errorf("bench: %w", err)
		}
		if o.Roofline {
			now, err := limits.Machine(env)
			if err != nil {
				return r, err
			}
			peaks = peaks.Most(now)
		}
	}
	r.CheckpointBytes = b.written
	if o.Roofline {
		r.Peaks = &peaks
		b.limits(&r.Cold, peaks)
		b.limits(&r.Warm, peaks)
	}
	return r, nil
}

// A bencher has what the rounds of a Run share.
type bencher struct {
	Round
	parts   Parts
	env     *runtime.Env
	policy  *policy.Policy
	model   limits.Model
	lengths []int
	decoder *runtime.Decoder
	stepper *learn.Stepper
	clock   *metrics.Stopwatch
	decode  limits.Work // seconds of all decode steps of the newest rollout
	passes  limits.Work // seconds of all forward passes of the newest round
	written int64
}

// open makes the decoder and the stepper of the round, and the model by which its limits are reckoned. The tokens of
// the round must fit the model.
func (b *bencher) open() (err error) {
	longest := b.Prompt + 3*b.Length + 1 // limits.Lengths cuts responses at three times the mean
	if most := b.policy.Geometry().MaxPositions; most > 0 && longest > most {
		return fmt.Errorf("a prompt of %d tokens and a response of up to %d are more than the %d positions of the model", b.Prompt, 3*b.Length, most)
	}
	if b.decoder, err = b.env.NewDecoder(b.policy.Ring, min(b.Slots, len(b.lengths)), longest); err != nil {
		return err
	}
	optimizer, err := models.NewOptimizer(b.parts.Optimizer)
	if err != nil {
		return err
	}
	b.model = limits.ModelOf(b.policy.Geometry(), b.policy.Ring.Trained().Parameters(), optimizer, b.policy.Adapter != nil)
	const apart = true // as for an objective that weighs each response by itself
	passes := train.PassesOf(b.policy, b.MicroTokens, apart)
	if b.env.Device() != "cpu" { // a run chooses it by the memory of the GPU
		passes.StashBytes = b.parts.stashBytes()
	}
	b.stepper, err = learn.New(b.env, b.policy.Ring, learn.Options{
		Optimizer: optimizer, MaxGradNorm: 1, Temperature: 1,
		Passes: passes, Observe: b.clock.Enter,
	})
	return err
}

func (b *bencher) close() {
	if b.decoder != nil {
		b.decoder.Close()
	}
	if b.stepper != nil {
		b.stepper.Close()
	}
}

// round runs and measures one round: rollout, steps and a checkpoint, between which memory is given back as in a run.
func (b *bencher) round(ctx context.Context) (p phases, err error) {
	began := time.Now()
	prompts := b.prompts()
	responses, err := b.sample(ctx, prompts, &p)
	if err != nil {
		return p, err
	}
	parameters := b.policy.Weights.Parameters()
	memory.GiveBack(parameters, b.decoder)
	b.clock.Take()
	if err := b.learn(ctx, prompts, responses); err != nil {
		return p, err
	}
	memory.GiveBack(parameters, b.stepper)
	times := b.clock.Take()
	at := func(phase metrics.Phase) float64 { return times.Float("seconds/" + string(phase)) }
	p.Forward.Seconds, p.Backward.Seconds, p.Optimizer.Seconds = at(metrics.PhaseScore), at(metrics.PhaseBackward), at(metrics.PhaseOptimizer)
	parent, err := os.MkdirTemp(b.Dir, ".onering-bench-")
	if err != nil {
		return p, err
	}
	defer os.RemoveAll(parent) // a run does not do this, so the time does not count
	if p.Checkpoint.Seconds, err = b.save(parent); err != nil {
		return p, err
	}
	p.Seconds, p.PeakBytes = time.Since(began).Seconds(), memory.Peak()
	return p, nil
}

// prompts returns random ids, the same in each round.
func (b *bencher) prompts() [][]int32 {
	r := rand.New(rand.NewPCG(2, 2))
	prompts := make([][]int32, b.Prompts)
	for i := range prompts {
		prompts[i] = randomIDs(r, b.policy, b.Prompt)
	}
	return prompts
}

// sample samples the responses.
func (b *bencher) sample(ctx context.Context, prompts [][]int32, p *phases) ([]sampler.Response, error) {
	requests := make([]sampler.Request, len(prompts))
	for i, prompt := range prompts {
		requests[i] = sampler.Request{Prompt: prompt, ID: uint64(i), Samples: b.Samples}
	}
	d := &timedDecoder{Decoder: b.decoder, model: b.model, prompt: b.Prompt, lengths: b.lengths, left: map[int]int{}, length: map[int]int{}}
	began := time.Now()
	sampling := sampler.Plain(1)
	sampling.MaxNewTokens = 3 * b.Length
	responses, _, err := sampler.Sample(ctx, d, sampler.Options{Sampling: sampling, EOS: []int32{endOfResponse}}, requests, nil)
	p.Rollout.Seconds, p.Prefill.Seconds, b.decode = time.Since(began).Seconds(), d.prefill, d.work
	return responses, err
}

// endOfResponse is the id that ends a response in these rounds.
const endOfResponse = 0

// A timedDecoder gives responses their planned lengths, whatever the model samples, and counts the work of its steps.
type timedDecoder struct {
	sampler.Decoder
	model   limits.Model
	prompt  int
	lengths []int       // planned lengths of the responses that have not begun
	left    map[int]int // tokens that the response in a slot still gets
	length  map[int]int // tokens that a slot has in the cache
	prefill float64     // seconds of computing prompts
	work    limits.Work
}

// Prefill implements sampler.Decoder, and adds up its seconds.
func (d *timedDecoder) Prefill(prompts [][]int32) ([]int, error) {
	began := time.Now()
	defer func() { d.prefill += time.Since(began).Seconds() }()
	return d.Decoder.Prefill(prompts)
}

// Begin implements sampler.Decoder. It gives each row the next planned length, and sets the planned ends.
func (d *timedDecoder) Begin(rows []sampler.Row) error {
	for _, r := range rows {
		d.left[r.Slot], d.length[r.Slot], d.lengths = d.lengths[0], d.prompt, d.lengths[1:]
	}
	err := d.Decoder.Begin(rows)
	d.end(rows)
	return err
}

// Step implements sampler.Decoder. It also adds the FLOPs and bytes that the step should take, by the tokens that its
// rows have with this one, and sets the planned ends.
func (d *timedDecoder) Step(rows []sampler.Row) error {
	cached := 0
	for _, r := range rows {
		d.length[r.Slot]++
		cached += d.length[r.Slot]
	}
	d.work = d.work.Add(d.model.Decode(len(rows), cached))
	err := d.Decoder.Step(rows)
	d.end(rows)
	return err
}

// end lets the responses in rows end as planned: it makes the last token of each the end token, and changes any
// earlier end token.
func (d *timedDecoder) end(rows []sampler.Row) {
	for i := range rows {
		next := &rows[i].Out.ID
		if d.left[rows[i].Slot]--; d.left[rows[i].Slot] == 0 {
			*next = endOfResponse
		} else if *next == endOfResponse {
			*next++
		}
	}
}

// learn takes the optimizer steps, with random weights of tokens. Each has an equal part of the responses, shuffled.
// It adds up the work of their forward passes.
func (b *bencher) learn(ctx context.Context, prompts [][]int32, responses []sampler.Response) error {
	r := rand.New(rand.NewPCG(3, 3))
	r.Shuffle(len(responses), func(i, j int) { responses[i], responses[j] = responses[j], responses[i] })
	b.passes = limits.Work{}
	for n := range b.Steps {
		asked := map[int]bool{}                                 // a step computes each prompt once
		batch := learn.Batch{Number: n + 1, LearningRate: 1e-9} // so small that the next round measures nearly the same model
		for _, x := range responses[n*len(responses)/b.Steps : (n+1)*len(responses)/b.Steps] {
			prompt := prompts[x.Request]
			b.passes = b.passes.Add(b.model.Response(len(prompt), len(x.IDs)))
			if !asked[x.Request] {
				asked[x.Request], b.passes = true, b.passes.Add(b.model.Prompt(len(prompt)))
			}
			batch.Sequences = append(batch.Sequences, runtime.NewSequence(prompt, x.IDs))
			w := make([]float64, len(x.IDs))
			for i := range w {
				w[i] = r.NormFloat64() / 1000
			}
			batch.Weights = append(batch.Weights, w)
		}
		if _, err := b.stepper.Step(ctx, batch, nil); err != nil {
			return fmt.Errorf("step %d: %w", n+1, err)
		}
	}
	return nil
}

// save writes a checkpoint to a folder as a run does, waits for the disk, and notes how many bytes it has. It returns
// the seconds until it was written.
func (b *bencher) save(parent string) (seconds float64, err error) {
	folder, err := rundir.Open(filepath.Join(parent, "run"), false) // a new run
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	saver := &rundir.Saver{Folder: folder, CheckMemory: memory.Fits, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	defer saver.Close()
	snap := rundir.Snapshot{State: rundir.State{Step: b.Steps, MicroTokens: b.MicroTokens}}
	learned := train.Learned{Policy: b.policy, Stepper: b.stepper}
	began := time.Now()
	if err := learned.SaveTo(&snap); err != nil {
		return 0, err
	}
	defer learned.Release()
	if err := saver.Write(snap); err != nil {
		return 0, err
	}
	seconds = time.Since(began).Seconds()
	b.written = 0
	err = filepath.WalkDir(parent, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info os.FileInfo
			if info, err = d.Info(); err == nil {
				b.written += info.Size()
			}
		}
		return err
	})
	return seconds, err
}

// limits sets the least times of the phases.
func (b *bencher) limits(p *phases, peaks limits.Peaks) {
	prefill := b.model.Prompt(b.Prompt)
	prefill.FLOPs *= float64(b.Prompts)
	set := func(x *Phase, seconds float64) {
		x.LimitSeconds = seconds
		if x.Seconds > 0 {
			x.LimitShare = seconds / x.Seconds
		}
	}
	set(&p.Prefill, prefill.Seconds(peaks))
	set(&p.Rollout, b.decode.Seconds(peaks)+prefill.Seconds(peaks))
	set(&p.Forward, b.passes.Seconds(peaks))
	set(&p.Backward, b.model.Backward(b.passes).Seconds(peaks))
	set(&p.Optimizer, float64(b.Steps)*b.model.Update().Seconds(peaks))
}
