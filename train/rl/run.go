package rl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"onering/internal/memory"
	"onering/reward"
	"onering/train/grades"
	"onering/train/metrics"
	"onering/train/rundir"
	"onering/train/saving"
)

// A run is a chain of small deterministic pieces: evaluate, make a round, take one
// optimizer step, finish the round. Between any two of them its whole state is its
// position, the weights, the optimizer's state and the round that it is inside.
// That is what a checkpoint holds, so a resumed run does the same pieces with the
// same bits.

// Run trains for Config.Train.Rounds rounds and writes the run folder. With resume
// it continues from the folder's newest whole checkpoint, or from the beginning if
// there is none yet.
//
// When ctx ends, Run finishes the present optimizer step, writes a checkpoint and
// returns ctx's error. It also writes one before it returns any other error, unless
// an update has failed halfway. If the run folder cannot be written, the checkpoint
// goes to the system's folder for temporary files, which the error names.
func (t *Trainer) Run(ctx context.Context, resume bool) (s Summary, err error) {
	began := time.Now()
	group := t.learner.ranks
	ctx, end := group.Context(ctx)
	defer end()
	if group.First() {
		t.folder, err = rundir.Open(t.Config.Output.Dir, resume)
	}
	if err := group.AgreeOn(err); err != nil {
		return s, err
	}
	if err := t.checkSame(); err != nil {
		return s, err
	}
	s.Folder, s.Reward[0] = t.Config.Output.Dir, math.NaN()
	c := t.Config.Train
	t.saver = saving.New(saving.Due{Rounds: c.SaveEvery, Steps: c.SaveSteps, Minutes: c.SaveMinutes}, group,
		&rundir.Saver{Folder: t.folder, KeepLast: c.KeepLast, KeepBest: c.KeepBest}, t, t.log)
	if resume {
		if err := t.resume(); err != nil {
			return s, err
		}
		if err := group.AgreeOn(t.recall(&s)); err != nil {
			return s, err
		}
	}
	if reward.Varies(t.Config.Reward.Rule) {
		if t.roller.grades, err = grades.Open(t.folder, group, rewardSettings(t.Config), t.at.Round, t.log); err != nil {
			return s, err
		}
	}
	if err = t.rounds(ctx, &s); err != nil {
		if group.Lost() != nil {
			group.Leave() // what the first rank has is whole, and it can save alone
		}
		stopped := t.saver.Stop(t.at, err)
		if stopped != err && ctx.Err() != nil {
			// A caller that ended ctx may look only for ctx's error.
			t.log.Error("stopping was not clean", "reason", stopped)
		}
		return s, stopped
	}
	s.Rounds, s.Steps, s.Seconds = t.at.Round, t.at.Step, time.Since(began).Seconds()
	return s, nil
}

// resume restores the newest checkpoint and tells the caller.
func (t *Trainer) resume() error {
	if err := t.restore(); err != nil {
		return err
	}
	var err error
	if t.Resumed != nil {
		if err = t.Resumed(); err == nil {
			err = t.folder.ReadConfig() // Resumed may have written it
		}
	}
	return t.learner.ranks.AgreeOn(err)
}

// recall fills the summary with what the folder says of the run before it was
// resumed.
func (t *Trainer) recall(s *Summary) error {
	s.Resumed = t.at.Round
	return t.folder.Records(func(record map[string]any) {
		number := func(name string) float64 { x, _ := record[name].(float64); return x }
		switch {
		case record["kind"] == "round":
			s.addRound(number("reward"), number("logp_gap_max"))
		case record["kind"] == "eval":
			s.Last = evaluationOf(record)
			if number("round") == 0 {
				s.First = s.Last
			}
		}
	})
}

// addRound notes a finished round.
func (s *Summary) addRound(reward, gap float64) {
	if math.IsNaN(s.Reward[0]) {
		s.Reward[0] = reward
	}
	s.Reward[1], s.LogPGap = reward, max(s.LogPGap, gap)
}

// rounds trains until the last round is done and saved.
func (t *Trainer) rounds(ctx context.Context, s *Summary) error {
	if t.at.Next != saving.ToLearn {
		if err := t.evaluateAndSave(ctx, s); err != nil {
			return err
		}
	}
	for t.at.Round < t.Config.Train.Rounds {
		if t.at.Next != saving.ToLearn { // else the run was resumed inside a round
			round, err := t.roll(ctx)
			if err != nil {
				return err
			}
			if err := t.learner.score(ctx, round); err != nil {
				return err
			}
			t.round, t.score, t.at.Next = round, nil, saving.ToLearn
		}
		if err := t.learn(ctx); err != nil {
			return err
		}
		if err := t.finishRound(s); err != nil {
			return err
		}
		if err := t.evaluateAndSave(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// roll makes the next round.
func (t *Trainer) roll(ctx context.Context) (*round, error) {
	n, c := t.at.Round, t.Config
	t.clock.Take()
	t.clock.Enter(metrics.PhaseRollout)
	t.observer.Begin(fmt.Sprintf("round %d/%d: rollout", n+1, c.Train.Rounds), "trajectories", t.roller.count(c.Rollout.PromptsPerRound)*c.sampled())
	r, err := t.roller.roll(ctx, n, func() { t.observer.Advance(1) }, func(err error) error {
		if prompt, failed := t.roller.firstPrompt(n); failed == nil && ctx.Err() == nil {
			err = t.learner.explainSampling(err, prompt)
		}
		return err
	})
	t.clock.Enter(metrics.PhaseOther)
	memory.GiveBack(t.roller.policy.Weights.Parameters(), t.roller)
	if err == nil {
		err = t.learner.checkSampled(r)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("train: round %d: %w", n+1, err)
	}
	return r, err
}

// learn takes the optimizer steps of the round that are left.
func (t *Trainer) learn(ctx context.Context) error {
	defer memory.GiveBack(t.learner.policy.Weights.Parameters(), t.learner.stepper)
	left := t.round.batches[len(t.round.steps):]
	t.observer.Begin(fmt.Sprintf("round %d/%d: learn", t.at.Round+1, t.Config.Train.Rounds), "steps", len(left))
	for i, batch := range left {
		if err := t.learner.ranks.AgreeOn(errors.Join(ctx.Err(), t.saver.Poll())); err != nil {
			return err
		}
		// A step that has begun is finished.
		record, err := t.step(context.WithoutCancel(ctx), batch)
		if err != nil {
			err = fmt.Errorf("train: round %d, step %d: %w", t.at.Round+1, t.at.Step+1, err)
		} else {
			err = t.stepDone(record)
		}
		if err := t.learner.ranks.AgreeOn(err); err != nil {
			return err
		}
		if err := t.checkWeights(); err != nil {
			return err
		}
		t.observer.Advance(1)
		if i+1 < len(left) { // after the last step the round is finished first
			if err := t.saver.AfterStep(t.at); err != nil {
				return err
			}
		}
	}
	return nil
}

// stepDone notes a step that was taken.
func (t *Trainer) stepDone(record metrics.Record) error {
	// The step is done, also if its record cannot be written.
	t.at.Step++
	record = append(metrics.Record{}.With("kind", "step").With("step", t.at.Step).With("round", t.at.Round+1), record...)
	t.round.steps = append(t.round.steps, record)
	t.alarms.Step(record)
	return t.folder.Append(record)
}

// finishRound writes the round's rollouts and record.
func (t *Trainer) finishRound(s *Summary) error {
	if err := t.learner.ranks.AgreeOn(t.folder.WriteRollouts(t.at.Round+1, t.round.lines())); err != nil {
		return err
	}
	record := append(metrics.Record{}.With("kind", "round").With("round", t.at.Round+1).With("step", t.at.Step), t.round.metrics(reward.FindsAnswers(t.Config.Reward.Rule))...)
	t.roller.problems.Learned(t.round.measures())
	times := t.clock.Take()
	shares, err := t.learner.shares(t.round, times)
	if err != nil {
		t.log.Warn("the limits of the machine could not be measured", "reason", err)
	}
	record = append(append(append(record, t.round.sources(t.Config.Data, t.roller.problems)...), times...), shares...)
	t.round, t.at = nil, saving.Position{Round: t.at.Round + 1, Step: t.at.Step}
	t.alarms.Round(record)
	if err := t.learner.ranks.AgreeOn(t.folder.Append(record)); err != nil {
		return err
	}
	s.addRound(record.Float("reward"), record.Float("logp_gap_max"))
	t.observer.Round(record)
	return nil
}

// evaluateAndSave evaluates and saves between two rounds, where that is due.
func (t *Trainer) evaluateAndSave(ctx context.Context, s *Summary) error {
	if t.at.Next == saving.ToEvaluate {
		if err := t.evaluate(ctx, s); err != nil {
			return err
		}
	}
	if err := t.learner.ranks.AgreeOn(ctx.Err()); err != nil {
		return err
	}
	if t.at.Round < t.Config.Train.Rounds {
		return t.saver.AfterRound(t.at)
	}
	s.Checkpoint = rundir.CheckpointDir(t.Config.Output.Dir, t.at.Step)
	return t.saver.AfterLast(t.at)
}

// evaluate runs the suites before the first round, after the last one and as often
// as train.eval_every says.
func (t *Trainer) evaluate(ctx context.Context, s *Summary) error {
	n, c := t.at.Round, t.Config.Train
	if n > 0 && n < c.Rounds && (c.EvalEvery == 0 || n%c.EvalEvery != 0) {
		t.at.Next = saving.ToRoll
		return nil
	}
	e, err := t.evaluator.evaluate(ctx, t.at)
	memory.GiveBack(t.roller.policy.Weights.Parameters(), t.roller)
	if err != nil {
		return err
	}
	if n == 0 {
		s.First = e
	}
	s.Last, t.score, t.at.Next = e, e.mean(), saving.ToRoll
	if len(e.Results) == 0 {
		return nil
	}
	t.observer.Evaluated(e)
	return t.learner.ranks.AgreeOn(t.folder.Append(e.record()))
}
