package rl

import (
	"context"
	"errors"
	"fmt"

	"onering/objectives"
	"onering/runtime"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/rundir"
)

// A failedStep is an optimizer step that met NaN or an infinity, with its batch.
type failedStep struct {
	err      *learn.NonfiniteError // its sequences are rollouts of the round
	rollouts []int                 // of the round, in the order of the batch
	batch    objectives.Batch      // as far as it was computed
	weights  [][]float64           // dLoss/dlogp; nil before the objective was asked
	leftOut  bool                  // what could have no weight was not computed
}

func (e *failedStep) Error() string { return e.err.Error() }

func (e *failedStep) Unwrap() error { return e.err }

// A FailedStepError is an optimizer step of a run that met NaN or an infinity, and
// whose batch is in a file for `onering replay`. The sequences of its
// *learn.NonfiniteError are numbers in the round.
type FailedStepError struct {
	Err  *learn.NonfiniteError
	File string
}

func (e *FailedStepError) Error() string {
	return e.Err.Error() + "; to look at the batch: onering replay " + e.File
}

func (e *FailedStepError) Unwrap() error { return e.Err }

// step takes an optimizer step on rollouts of the round. The batch of one that met
// NaN or an infinity is written to failures/; then the step is left out or the run
// stops, as train.on_nonfinite says.
func (t *Trainer) step(ctx context.Context, rollouts []int) (metrics.Record, error) {
	record, err := t.learner.step(ctx, t.round, rollouts, t.at.Step)
	var step *failedStep
	if !errors.As(err, &step) {
		return record, err
	}
	c, l := t.Config.Train, t.learner
	failed := &FailedStepError{step.err, rundir.FailureFile(t.Config.Output.Dir, t.at.Step+1)}
	var unwritten error
	if l.ranks.First() {
		unwritten = t.failure(step).write(failed.File)
	}
	if err := l.ranks.AgreeOn(unwritten); err != nil {
		return nil, errors.Join(step, err)
	}
	if c.OnNonfinite != "skip" {
		return nil, failed
	}
	if l.skipped >= c.SkipLimit {
		return nil, fmt.Errorf("%w; train.skip_limit = %d steps were skipped before", failed, c.SkipLimit)
	}
	if err := t.saver.BeforeSkip(t.at); err != nil {
		return nil, errors.Join(failed, err)
	}
	l.skipped++
	t.log.Warn("an optimizer step is skipped", "step", t.at.Step+1, "skipped", l.skipped, "limit", c.SkipLimit, "reason", failed)
	return metrics.Record{}.With("skipped", l.skipped).With("reason", step.err.What), nil
}

// explainSampling adds the cause to an error of the sampler, which stops at
// log-probs that are not finite.
func (l *learner) explainSampling(err error, prompt []int32) error {
	cause := l.stepper.Cause(runtime.NewSequence(prompt, prompt[:1]))
	if cause == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, cause)
}

// checkSampled refuses a round whose sampling met NaN or infinities.
func (l *learner) checkSampled(r *round) error {
	var scores learn.Scores
	for i := range r.rollouts {
		scores.LogProb = append(scores.LogProb, r.rollouts[i].LogProb)
		scores.Entropy = append(scores.Entropy, r.rollouts[i].Entropy)
	}
	err := scores.Check("sampled ")
	var e *learn.NonfiniteError
	if !errors.As(err, &e) {
		return err
	}
	e.Among = "trajectories of the round"
	return l.stepper.Explain(err, r.sequences)
}
