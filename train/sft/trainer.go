package sft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"onering/data"
	"onering/policy"
	"onering/runtime"
	"onering/train"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/ranks"
	"onering/train/rundir"
	"onering/train/saving"
)

// An Observer is told how far a run is, by one goroutine.
type Observer interface {
	// Begin opens a phase of total units, such as "sft" of 512 steps.
	Begin(phase, units string, total int)
	// Advance says that n more units are done.
	Advance(n int)
	// Record hands over a line of metrics.jsonl: kind is step or eval.
	Record(r metrics.Record)
}

// A Trainer trains one policy on demonstrations.
type Trainer struct {
	Config Config
	// Resumed, if not nil, is called when a run is resumed, after its folder and
	// checkpoint have been found to belong to it. An error ends Run.
	Resumed func() error

	env      *runtime.Env
	policy   *policy.Policy
	log      *slog.Logger
	observer Observer
	learn    *Set
	held     *Set // nil if nothing is held out
	ranks    *ranks.Group
	stepper  *learn.Stepper
	output
	clock  *metrics.Stopwatch
	course course

	beforePass func(tokens int) error // set by tests; see learn.Options
}

// An output is what Run opens.
type output struct {
	folder *rundir.Folder // nil on all ranks but the first
	saver  *saving.Saver
}

// A course is where a run is, and what it remembers besides weights and moments.
type course struct {
	at     saving.Position // Round is 0
	score  *float64        // minus the held-out loss at this position, if it was measured
	alarms *metrics.Alarms
}

// A Summary is what a run came to, from its beginning, also if it was resumed.
type Summary struct {
	Folder         string
	Demonstrations int
	Tokens         int // that are learned in one pass over them
	Steps          int
	Loss           [2]float64 // of the first and of the last step
	HeldOut        [2]float64 // loss before and after; NaN without held-out demonstrations
	Resumed        int        // steps that were done when the run was last resumed
	Seconds        float64    // since it began or was last resumed
}

// NewOn opens everything that a run needs and checks that it fits together. heldOut are
// the demonstrations of data.eval. The run folder is made by Run. Of several ranks all
// call it, and then Run; the first writes the folder, and is the one whose log and
// observer are told of what concerns all.
func NewOn(group *ranks.Group, c Config, env *runtime.Env, policy *policy.Policy, list, heldOut []data.Demonstration, log *slog.Logger, observer Observer) (*Trainer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := learn.CheckWeights(policy.Weights); err != nil {
		return nil, fmt.Errorf("train: %s: %w", c.Model.Path, err)
	}
	t := &Trainer{Config: c, env: env, policy: policy, log: log, observer: observer, ranks: group, clock: metrics.NewStopwatch()}
	t.course.alarms = metrics.NewAlarms(log)
	encoder, err := NewEncoder(c, policy)
	if err != nil {
		return nil, err
	}
	if c.Data.HeldOut > 0 {
		if list, heldOut, err = split(list, c.Data.HeldOut, c.Train.Seed); err != nil {
			return nil, err
		}
	}
	if t.learn, err = encoder.EncodeAll(list, "--data", log); err != nil {
		return nil, err
	}
	if len(heldOut) > 0 {
		if t.held, err = encoder.EncodeAll(heldOut, "--eval-data", log); err != nil {
			return nil, err
		}
	}
	t.stepper, err = learn.New(env, policy.Ring, learn.Options{
		Optimizer: c.Optimizer.Rule, MaxGradNorm: c.Optimizer.MaxGradNorm,
		Temperature: 1, Passes: train.PassesOf(policy, env, c.Train.MicroTokens, t.learn.longest(), true),
		Observe: t.clock.Enter, Log: log,
		Ranks: group, Shard: c.Distributed.Shard == "optimizer",
		BeforePass: func(tokens int) error {
			if t.beforePass == nil {
				return nil
			}
			return t.beforePass(tokens)
		},
	})
	return t, err
}

// split holds out a share of the demonstrations.
func split(list []data.Demonstration, share float64, seed int64) (kept, held []data.Demonstration, err error) {
	n := max(1, int(math.Round(share*float64(len(list)))))
	if n >= len(list) {
		return nil, nil, fmt.Errorf("train: data.held_out = %v (--held-out) of %d demonstrations leaves none to learn from", share, len(list))
	}
	chosen := make([]bool, len(list))
	for _, i := range rand.New(rand.NewPCG(uint64(seed), math.MaxUint64)).Perm(len(list))[:n] {
		chosen[i] = true
	}
	for i, d := range list {
		if chosen[i] {
			held = append(held, d)
		} else {
			kept = append(kept, d)
		}
	}
	return kept, held, nil
}

// Close frees everything but the policy.
func (t *Trainer) Close() {
	if t.saver != nil {
		t.saver.Close()
	}
	t.stepper.Close()
	if t.folder != nil {
		t.folder.Close()
	}
}

// perEpoch is how many steps a pass over the demonstrations takes.
func (t *Trainer) perEpoch() int {
	return (len(t.learn.Examples) + t.Config.Train.BatchSize - 1) / t.Config.Train.BatchSize
}

// Steps is how many steps the whole run takes.
func (t *Trainer) Steps() int { return t.Config.Train.Epochs * t.perEpoch() }

// Run trains and writes the run folder, which at the end is a Hugging Face folder too.
// With resume it continues from the folder's newest whole checkpoint, or from the
// beginning if there is none yet. When ctx ends or an error occurs, the run is saved
// as reinforcement learning saves it: see rl.Trainer.Run.
func (t *Trainer) Run(ctx context.Context, resume bool) (s Summary, err error) {
	began, c := time.Now(), t.Config
	nan := math.NaN()
	s = Summary{Folder: c.Output.Dir, Demonstrations: len(t.learn.Examples), Tokens: t.learn.tokens, Loss: [2]float64{nan, nan}, HeldOut: [2]float64{nan, nan}}
	ctx, end := t.ranks.Context(ctx)
	defer end()
	if t.ranks.First() {
		t.folder, err = rundir.Open(c.Output.Dir, resume)
	}
	if err := t.ranks.AgreeOn(err); err != nil {
		return s, err
	}
	if err := t.checkSame(); err != nil {
		return s, err
	}
	t.saver = saving.New(saving.Due{Steps: c.Train.SaveSteps, Minutes: c.Train.SaveMinutes}, t.ranks,
		&rundir.Saver{Folder: t.folder, KeepLast: c.Train.KeepLast, KeepBest: c.Train.KeepBest}, t, t.log)
	if resume {
		if err := t.resume(&s); err != nil {
			return s, err
		}
	}
	if err := t.train(ctx, &s); err != nil {
		if t.ranks.Lost() != nil {
			t.ranks.Leave() // what the first rank has is whole, and it can save alone
		}
		stopped := t.saver.Stop(t.course.at, err)
		if stopped != err && ctx.Err() != nil {
			t.log.Error("stopping was not clean", "reason", stopped)
		}
		return s, stopped
	}
	if err := t.ranks.AgreeOn(t.finish()); err != nil {
		return s, errors.Join(err, t.saver.Stop(t.course.at, nil))
	}
	s.Steps, s.Seconds = t.course.at.Step, time.Since(began).Seconds()
	return s, nil
}

// train evaluates and takes steps until the last one is done.
func (t *Trainer) train(ctx context.Context, s *Summary) error {
	steps := t.Steps()
	var order []int // of the present pass
	pass, begun := -1, false
	for {
		at := &t.course.at
		if at.Next == saving.ToEvaluate {
			if err := t.evaluate(ctx, s); err != nil {
				return err
			}
			begun = false
		}
		if at.Step == steps {
			return nil
		}
		if err := t.ranks.AgreeOn(errors.Join(ctx.Err(), t.saver.Poll())); err != nil {
			return err
		}
		if !begun {
			t.observer.Begin("sft", "steps", steps)
			t.observer.Advance(at.Step)
			begun = true
		}
		if n := at.Step / t.perEpoch(); n != pass || order == nil {
			pass, order = n, rand.New(rand.NewPCG(uint64(t.Config.Train.Seed), uint64(n))).Perm(len(t.learn.Examples))
		}
		from := at.Step % t.perEpoch() * t.Config.Train.BatchSize
		// A step that has begun is finished.
		record, err := t.step(context.WithoutCancel(ctx), order[from:min(from+t.Config.Train.BatchSize, len(order))])
		if err != nil {
			err = fmt.Errorf("train: step %d: %w", at.Step+1, err)
		} else {
			err = t.stepDone(record, s)
		}
		if err := t.ranks.AgreeOn(err); err != nil {
			return err
		}
		if err := t.checkWeights(); err != nil {
			return err
		}
		t.observer.Record(record)
		t.observer.Advance(1)
		if at.Step < steps && at.Next != saving.ToEvaluate {
			if err := t.saver.AfterStep(*at); err != nil {
				return err
			}
		}
	}
}

// stepDone notes a step that was taken.
func (t *Trainer) stepDone(record metrics.Record, s *Summary) error {
	// The step is done, also if its record cannot be written.
	at := &t.course.at
	at.Step, t.course.score = at.Step+1, nil
	if every := t.Config.Train.EvalEvery; at.Step == t.Steps() || every > 0 && at.Step%every == 0 {
		at.Next = saving.ToEvaluate
	}
	s.addLoss(record.Float("loss"))
	t.course.alarms.Step(record)
	return t.folder.Append(record)
}

// addLoss notes the loss of a step.
func (s *Summary) addLoss(loss float64) {
	if math.IsNaN(s.Loss[0]) {
		s.Loss[0] = loss
	}
	s.Loss[1] = loss
}

// addHeldOut notes a held-out loss.
func (s *Summary) addHeldOut(loss float64) {
	if math.IsNaN(s.HeldOut[0]) {
		s.HeldOut[0] = loss
	}
	s.HeldOut[1] = loss
}

// step takes the next optimizer step, on these examples. Its loss is the mean of
// -log p over all learned tokens of the batch, so w = -1/N.
func (t *Trainer) step(ctx context.Context, examples []int) (metrics.Record, error) {
	n := t.course.at.Step
	b := learn.Batch{Number: n + 1, LearningRate: t.Config.Optimizer.rate(n, t.Steps())}
	learned := 0
	for k, i := range examples {
		b.Sequences = append(b.Sequences, t.learn.Examples[i].sequence())
		learned += b.Sequences[k].Count()
	}
	for _, s := range b.Sequences {
		b.Weights = append(b.Weights, slices.Repeat([]float64{-1 / float64(learned)}, s.Count()))
	}
	sent := t.ranks.Sent()
	report, err := t.stepper.Step(ctx, b, nil)
	var nonfinite *learn.NonfiniteError
	if errors.As(err, &nonfinite) {
		nonfinite.Among = "demonstrations of the batch"
		for _, k := range nonfinite.Sequences {
			t.log.Error("a demonstration has figures that are not finite", "place", t.learn.Examples[examples[k]].place)
		}
	}
	if err != nil {
		return nil, err
	}
	record := append(metrics.Record{}.With("kind", "step").With("step", n+1).With("epoch", float64(n+1)/float64(t.perEpoch())), report.Record(b.LearningRate)...)
	entropy := 0.0
	for _, row := range report.Entropy {
		for _, h := range row {
			entropy += h / float64(learned)
		}
	}
	record = append(record.With("entropy", entropy), t.learned().Volume(t.ranks, sent, report.Early)...)
	return append(record, t.clock.Take()...), nil
}

// evaluate measures the held-out loss and saves the run if that is due.
func (t *Trainer) evaluate(ctx context.Context, s *Summary) error {
	at := &t.course.at
	if t.held != nil {
		loss, err := t.heldOut(ctx)
		if err := t.ranks.AgreeOn(err); err != nil {
			return err
		}
		s.addHeldOut(loss)
		score := -loss
		t.course.score = &score
		record := metrics.Record{}.With("kind", "eval").With("step", at.Step).With("epoch", float64(at.Step)/float64(t.perEpoch())).
			With("loss", loss).With("perplexity", math.Exp(loss)).With("tokens", t.held.tokens)
		if err := t.ranks.AgreeOn(t.folder.Append(record)); err != nil {
			return err
		}
		t.observer.Record(record)
	}
	at.Next = saving.ToRoll
	if at.Step == 0 || at.Step == t.Steps() {
		return nil
	}
	return t.saver.AfterStep(*at)
}

// heldOut returns the mean of -log p over the learned tokens of the held-out
// demonstrations.
func (t *Trainer) heldOut(ctx context.Context) (float64, error) {
	const portion = 64 // demonstrations between two moves of the bar
	list, sum := t.held.Examples, 0.0
	t.observer.Begin("evaluate", "demonstrations", len(list))
	for from := 0; from < len(list); from += portion {
		part := list[from:min(from+portion, len(list))]
		sequences := make([]runtime.Sequence, len(part))
		for i, x := range part {
			sequences[i] = x.sequence()
		}
		scores, err := t.stepper.Score(ctx, sequences)
		if err != nil {
			return 0, fmt.Errorf("train: the held-out loss after step %d: %w", t.course.at.Step, err)
		}
		for _, row := range scores.LogProb {
			for _, logp := range row {
				sum -= logp
			}
		}
		t.observer.Advance(len(part))
	}
	return sum / float64(t.held.tokens), nil
}
