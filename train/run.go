package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"time"

	"onering/data"
	"onering/sampler"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/rundir"
)

// A run is a chain of small deterministic pieces: evaluate, sample a round,
// take one optimizer step, close the round. Between any two of them its whole
// state is a few counts, the weights and moments, and the round under way. That
// is what a checkpoint holds, so a resumed run does the same pieces with the
// same bits.

// underway is a round between its sampling and its end.
type underway struct {
	*round
	problems []data.Problem
	stats    sampler.Stats
	batches  [][]int          // the rollouts of each optimizer step
	steps    []metrics.Record // of the steps that are done
}

// A position tells the points of a run at which it can be saved from one
// another.
type position struct {
	round, step       int
	inside, evaluated bool
}

// nowhere is where a run was saved that never was.
var nowhere = position{round: -1}

func (t *Trainer) position() position { return position{t.round, t.step, t.now != nil, t.evaluated} }

// Run trains for Config.Train.Rounds rounds, writing the run folder. With
// resume it continues from the folder's last whole checkpoint, or from the
// beginning where there is none yet.
//
// When ctx ends, the step under way is finished and a checkpoint written before
// Run returns ctx's error. So it is before any other error, as long as the
// weights are those of a step; where the run folder cannot be written the
// checkpoint goes to the system's folder for temporary files, and the error
// names it.
func (t *Trainer) Run(ctx context.Context, resume bool) (s Summary, err error) {
	began := time.Now()
	c := t.Config
	if t.folder, err = rundir.Open(c.Output.Dir, resume); err != nil {
		return s, err
	}
	s.Folder = t.folder.Dir
	s.Reward[0] = math.NaN()
	t.saver = &rundir.Saver{Folder: t.folder, KeepLast: c.Train.KeepLast, KeepBest: c.Train.KeepBest, CheckMemory: checkMemory, Log: t.log}
	t.alarms = metrics.NewAlarms(t.log)
	t.savedAt = began
	if resume {
		if err := t.restore(); err != nil {
			return s, err
		}
		if t.Resumed != nil {
			if err := t.Resumed(); err != nil {
				return s, err
			}
			if err := t.folder.ReadConfig(); err != nil {
				return s, err
			}
		}
	}
	if err = t.rounds(ctx, &s); err != nil {
		stopped := t.stop(err)
		if stopped != err && ctx.Err() != nil {
			// Whoever asked for the stop may look no further than that.
			t.log.Error("stopping was not clean", "reason", stopped)
		}
		return s, stopped
	}
	s.Rounds, s.Steps, s.Seconds = t.round, t.step, time.Since(began).Seconds()
	return s, nil
}

// rounds trains until the last round is done and saved.
func (t *Trainer) rounds(ctx context.Context, s *Summary) error {
	for {
		if t.now == nil {
			if err := t.between(ctx, s); err != nil || t.round >= t.Config.Train.Rounds {
				return err
			}
			if err := t.sample(ctx); err != nil {
				return err
			}
		}
		if err := t.learn(ctx); err != nil {
			return err
		}
		record, err := t.closeRound()
		if err != nil {
			return err
		}
		if math.IsNaN(s.Reward[0]) {
			s.Reward[0] = record.Float("reward")
		}
		s.Reward[1] = record.Float("reward")
		s.LogPGap = max(s.LogPGap, record.Float("logp_gap_max"))
		t.observer.Round(record)
	}
}

// between evaluates and saves between two rounds, where that is due.
func (t *Trainer) between(ctx context.Context, s *Summary) (err error) {
	c := t.Config.Train
	last := t.round >= c.Rounds
	if !t.evaluated {
		if t.round == 0 || last || c.EvalEvery > 0 && t.round%c.EvalEvery == 0 {
			e, failed := t.evaluate(ctx)
			if failed != nil {
				return failed
			}
			if t.round == 0 {
				s.First = e
			}
			s.Last = e
			t.score = e.mean()
			if len(e.Results) > 0 {
				t.observer.Evaluated(e)
				err = t.folder.Append(e.record())
			}
		}
		t.evaluated = true
		if err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case last:
		// The end is waited for.
		if err = t.saver.Wait(); err == nil && t.saved != t.position() {
			err = t.save(t.saver.Write)
		}
		s.Checkpoint = rundir.CheckpointDir(t.folder.Dir, t.step)
	case t.round > 0 && t.saved != t.position() && (c.SaveEvery > 0 && t.round%c.SaveEvery == 0 || t.saveDue()):
		err = t.save(t.saver.Background)
	}
	return err
}

// saveDue says whether the steps or the time since the last checkpoint ask for
// another one.
func (t *Trainer) saveDue() bool {
	c := t.Config.Train
	return t.overdue || c.SaveSteps > 0 && t.step%c.SaveSteps == 0 ||
		c.SaveMinutes > 0 && time.Since(t.savedAt) >= time.Duration(c.SaveMinutes*float64(time.Minute))
}

// save writes the run's state one way or the other.
func (t *Trainer) save(write func(rundir.Snapshot) error) error {
	snap, err := t.snapshot()
	if err != nil {
		return err
	}
	err = write(snap)
	t.env.Forget(t.held()...)
	if err != nil {
		return err
	}
	t.saved, t.savedAt, t.overdue = t.position(), time.Now(), false
	return nil
}

// stop saves what there is before a run ends with err, and returns err with
// what is to be said about that.
func (t *Trainer) stop(err error) error {
	err = errors.Join(err, t.saver.Wait())
	if t.saver.Failed() {
		t.saved = nowhere
	}
	var half *learn.UpdateError
	if errors.As(err, &half) {
		return fmt.Errorf("%w; the update was not finished: resume from the last checkpoint", err)
	}
	if t.saved == t.position() || t.step == 0 && t.now == nil {
		return err
	}
	failed := t.save(t.saver.Write)
	if failed == nil {
		t.log.Info("saved a checkpoint before stopping", "folder", rundir.CheckpointDir(t.folder.Dir, t.step), "step", t.step)
		return err
	}
	err = errors.Join(err, failed)
	snap, failed := t.snapshot()
	if failed != nil {
		return errors.Join(err, failed)
	}
	dir, failed := t.saver.Rescue(snap)
	if failed != nil {
		return errors.Join(err, fmt.Errorf("train: nor could step %d be saved elsewhere: %w; the checkpoints in %s are as they were", t.step, failed, t.folder.Dir))
	}
	return errors.Join(err, fmt.Errorf("train: step %d is saved in %s: resume there, or move its %s into %s once that can be written",
		t.step, dir, rundir.CheckpointDir("", t.step), filepath.Dir(rundir.CheckpointDir(t.folder.Dir, t.step))))
}

// sample begins a round: it samples, verifies and takes the advantages.
func (t *Trainer) sample(ctx context.Context) error {
	c, r := t.Config, t.Config.Rollout
	t.clock.Take()
	first := t.round * r.PromptsPerRound
	now := &underway{problems: t.problems.Take(c.Data.Seed, first, r.PromptsPerRound)}

	t.clock.Enter(metrics.PhaseRollout)
	t.observer.Begin(fmt.Sprintf("round %d/%d: rollout", t.round+1, c.Train.Rounds), "trajectories", len(now.problems)*r.SamplesPerPrompt)
	decoder := sampler.Decoder(t.decoder)
	if r.Invariant {
		invariant := sampler.NewInvariant(t.decoder)
		defer invariant.Close()
		decoder = invariant
	}
	rollouts, stats, err := Roll(ctx, decoder, t.prompter, now.problems, Request{
		Sampling: r.Sampling, EOS: t.Policy.Model.EOS,
		Samples: r.SamplesPerPrompt, Seed: uint64(c.Train.Seed), FirstID: uint64(first),
	}, t.reward, func(int) { t.observer.Advance(1) })
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("train: round %d: %w", t.round+1, t.samplingFailed(err, now.problems))
	}
	if err != nil {
		return err
	}
	t.clock.Enter(metrics.PhaseOther)
	now.round, now.stats = newRound(rollouts, r.SamplesPerPrompt, t.Objective), stats
	if err := t.checkRollouts(now.round); err != nil {
		return err
	}
	if err := t.scoreRound(ctx, now.round); err != nil {
		return err
	}
	now.batches = t.batches(now.kept)
	t.now, t.evaluated, t.score = now, false, nil
	return nil
}

// batches cuts the kept rollouts of a round into optimizer steps, in an order
// that follows from the seed and the round.
func (t *Trainer) batches(kept []int) [][]int {
	c := t.Config.Train
	order := rand.New(rand.NewPCG(uint64(c.Seed), uint64(t.round)))
	var out [][]int
	for range c.Epochs {
		shuffled := append([]int{}, kept...)
		order.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for from := 0; from < len(shuffled); from += c.BatchSize {
			out = append(out, shuffled[from:min(from+c.BatchSize, len(shuffled))])
		}
	}
	return out
}

// learn takes the optimizer steps of the round that are left.
func (t *Trainer) learn(ctx context.Context) error {
	now := t.now
	left := now.batches[len(now.steps):]
	t.observer.Begin(fmt.Sprintf("round %d/%d: learn", t.round+1, t.Config.Train.Rounds), "steps", len(left))
	for i, batch := range left {
		if err := errors.Join(ctx.Err(), t.saver.Poll()); err != nil {
			return err
		}
		// A step that has begun is finished.
		record, err := t.oneStep(context.WithoutCancel(ctx), now, batch)
		if err != nil {
			return fmt.Errorf("train: round %d, step %d: %w", t.round+1, t.step+1, err)
		}
		t.step++
		record = append(metrics.Record{}.With("kind", "step").With("step", t.step).With("round", t.round+1), record...)
		now.steps = append(now.steps, record)
		t.alarms.Step(record) // first: the step counts also where it cannot be recorded
		if err := t.folder.Append(record); err != nil {
			return err
		}
		t.observer.Advance(1)
		// After the last step the round is closed first.
		if i+1 < len(left) && t.saveDue() {
			if t.overdue = t.saver.Busy(); t.overdue {
				continue
			}
			if err := t.save(t.saver.Background); err != nil {
				return err
			}
		}
	}
	return nil
}

// closeRound writes the round's rollouts and record.
func (t *Trainer) closeRound() (metrics.Record, error) {
	now := t.now
	if err := t.folder.WriteRollouts(t.round+1, now.lines()); err != nil {
		return nil, err
	}
	record := append(metrics.Record{}.With("kind", "round").With("round", t.round+1).With("step", t.step), now.metrics(now.stats, now.steps)...)
	record = append(record, t.clock.Take()...)
	t.round++
	t.now = nil
	t.alarms.Round(record)
	return record, t.folder.Append(record)
}
