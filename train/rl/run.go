package rl

import (
	"context"
	"errors"
	"fmt"

	"onering/internal/memory"
	"onering/reward"
	"onering/train"
	"onering/train/doctor"
	"onering/train/metrics"
)

// Begin implements train.Task: it opens the book of grades where a run that is resumed would not get the same grades or
// answers again, and says that the steps go on if the run was resumed inside a round.
func (t *trainer) Begin(at train.Position) (err error) {
	if at.Inside {
		t.beginLearning(at, len(t.round.steps))
	}
	if reward.Varies(t.Config.Reward.Rule) || t.roller.player != nil && !t.roller.player.Repeats() {
		t.grades, err = openBook(t.run.Folder, t.run.Ranks, gradingSettings(t.Config), at.Round, t.log)
		t.roller.grades = t.grades
	}
	return err
}

// Next implements train.Task. A round is sampled, scored, learned in several steps and
// finished; before the first, and after each, the run may be evaluated. The run is Inside a round
// from its scoring on; a sampled round that is not scored yet waits in t.round. A step that met NaN
// or an infinity is not repeated but skipped, after a checkpoint was saved (see step).
func (t *trainer) Next(at train.Position) train.Piece {
	do := t.roll
	switch {
	case at.Inside && t.failed != nil:
		do = t.skipStep
	case at.Inside && len(t.round.steps) < len(t.round.batches):
		do = t.step
	case at.Inside:
		do = t.finishRound
	case !at.Evaluated:
		do = t.evaluate
	case at.Round >= t.Config.Train.Rounds || t.run.Stopped():
		return nil
	case t.round != nil:
		do = t.scoreRound
	}
	return func(ctx context.Context) (train.Done, error) { return do(ctx, at) }
}

// roll samples the next round into t.round. The position stays: the round is not saved before it is scored.
func (t *trainer) roll(ctx context.Context, at train.Position) (train.Done, error) {
	n, c := at.Round, t.Config
	t.run.Clock.Take() // the round's times begin here
	t.run.Clock.Enter(metrics.PhaseRollout)
	t.run.Observer.Begin(fmt.Sprintf("round %d/%d: rollout", n+1, c.Train.Rounds), "trajectories", t.roller.count(c.Rollout.PromptsPerRound)*c.samplesPerPrompt())
	problems := t.roller.problems.Round(n)
	r, err := t.roller.roll(ctx, n, problems, func() { t.run.Observer.Advance(1) }, func(err error) error {
		if _, prompt, failed := t.roller.prompter.Prompt(problems[0]); failed == nil && ctx.Err() == nil {
			err = t.learner.explainSampling(err, prompt)
		}
		return err
	})
	t.run.Clock.Enter(metrics.PhaseOther)
	memory.GiveBack(t.roller.policy.Weights.Parameters(), t.roller) // the cache's memory, for the steps that follow
	if err == nil {
		err = t.learner.checkSampled(r)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("train: round %d: %w", n+1, err)
	}
	if err == nil {
		t.round = r
	}
	return train.Done{At: at}, err
}

// scoreRound sets the log-probs that a round needs before its first step, and then the advantages.
func (t *trainer) scoreRound(ctx context.Context, at train.Position) (train.Done, error) {
	err := t.learner.score(ctx, t.round)
	if err == nil {
		if err = t.roller.prepare(t.round, at.Round); err != nil {
			err = fmt.Errorf("train: round %d: %w", at.Round+1, err)
		}
	}
	t.beginLearning(at, 0)
	return train.Done{At: train.Position{Round: at.Round, Step: at.Step, Inside: true}}, err
}

// beginLearning tells the observer that the steps of a round begin, with step number from.
func (t *trainer) beginLearning(at train.Position, from int) {
	t.run.Observer.Begin(fmt.Sprintf("round %d/%d: learn", at.Round+1, t.Config.Train.Rounds), "steps", len(t.round.batches)-from)
}

// step takes the next optimizer step of the round, and finishes it even if ctx is cancelled meanwhile. If the step met NaN
// or an infinity and train.on_nonfinite is "skip", it only asks for a checkpoint, and skipStep follows at the same position.
func (t *trainer) step(ctx context.Context, at train.Position) (train.Done, error) {
	record, err := t.learner.step(context.WithoutCancel(ctx), t.round, t.round.batches[len(t.round.steps)], at)
	if failed := (*failedStep)(nil); errors.As(err, &failed) {
		if err = t.nonfinite(failed, at); err == nil {
			t.failed = failed
			return train.Done{At: at, Save: train.Now}, nil // replaying the step takes the weights before it
		}
	}
	if err == nil {
		err = t.learner.moveReference(at.Step + 1)
	}
	return t.stepDone(at, record, err)
}

// skipStep leaves the step out that was not finite, t.failed, and counts it.
func (t *trainer) skipStep(_ context.Context, at train.Position) (train.Done, error) {
	failed, l := t.failed, t.learner
	t.failed = nil
	l.skipped++
	t.log.Warn("an optimizer step is skipped", "step", at.Step+1, "skipped", l.skipped, "limit", t.Config.Train.SkipLimit, "reason", t.reported(failed, at))
	return t.stepDone(at, metrics.Record{}.With("skipped", l.skipped).With("reason", failed.err.What), nil)
}

// stepDone records a step that was taken or skipped, at the position before it; err is an error of taking it.
func (t *trainer) stepDone(at train.Position, record metrics.Record, err error) (train.Done, error) {
	round := at.Round + 1
	at.Step++
	if err != nil {
		memory.GiveBack(t.run.Policy.Weights.Parameters(), t.run.Stepper) // no other step follows
		return train.Done{}, fmt.Errorf("train: round %d, step %d: %w", round, at.Step, err)
	}
	record = append(metrics.Record{}.With("kind", "step").With("step", at.Step).With("round", round), record...)
	t.round.steps = append(t.round.steps, record)
	t.run.Observer.Advance(1)
	done := train.Done{At: at, Record: record, Save: train.IfDue}
	if len(t.round.steps) == len(t.round.batches) {
		done.Save = train.Never // the round is finished first
	}
	return done, nil
}

// finishRound writes the round's rollouts, returns its record and what to say of it, tells the order of problems what the
// round has taught, and forgets the round.
func (t *trainer) finishRound(_ context.Context, at train.Position) (train.Done, error) {
	memory.GiveBack(t.run.Policy.Weights.Parameters(), t.run.Stepper)
	if err := t.run.Folder.WriteRollouts(at.Round+1,
		t.round.lines(func(ids []int32) string { return t.roller.prompter.Tokenizer.Decode(ids, true) })); err != nil {
		return train.Done{}, err
	}
	record := append(metrics.Record{}.With("kind", "round").With("round", at.Round+1).With("step", at.Step),
		t.round.metrics(reward.FindsAnswers(t.Config.Reward.Rule))...)
	if t.roller.player != nil {
		record = append(record, t.round.episodes()...)
	}
	measures, idleShare := t.round.measures(t.Config)
	seen := t.evidence(idleShare)
	t.roller.problems.Learned(measures)
	record = append(append(record, t.round.sources(t.Config.Data, t.roller.problems)...), t.run.Clock.Take()...)
	t.summary.addRound(record)
	left := metrics.Left(t.summary.seconds, at.Round+1, t.Config.Train.Rounds)
	say := []string{roundLine(record, t.Config.Train.Rounds, left)}
	if reassurance := doctor.Right(t.round.steps); at.Round == 0 && reassurance != "" {
		say = append(say, reassurance)
	}
	t.round = nil
	return train.Done{At: train.Position{Round: at.Round + 1, Step: at.Step}, Record: record, Seen: seen, Say: say}, nil
}

// evaluate runs the suites before the first round, after the last one, also where the run stops early, and as often as
// train.eval_every says; elsewhere it only moves the position on, so that a due checkpoint is saved.
func (t *trainer) evaluate(ctx context.Context, at train.Position) (train.Done, error) {
	n, c := at.Round, t.Config.Train
	done := train.Done{At: train.Position{Round: n, Step: at.Step, Evaluated: true}, Save: train.IfDue}
	if n >= c.Rounds || t.run.Stopped() {
		done.Save = train.Now
	} else if n > 0 && (c.EvalEvery == 0 || n%c.EvalEvery != 0) {
		return done, nil
	}
	e, err := t.evaluator.evaluate(ctx, at, t.run.Folder)
	memory.GiveBack(t.roller.policy.Weights.Parameters(), t.roller)
	if err != nil {
		return done, err
	}
	t.summary.addEvaluation(e)
	if len(e.Results) > 0 { // there are suites, and all responses have a grade
		done.Record, done.Score, done.Say = e.record(), e.mean(), e.lines()
	}
	return done, nil
}
