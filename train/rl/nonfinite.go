package rl

import (
	"errors"
	"fmt"

	"onering/objectives"
	"onering/runtime"
	"onering/train"
	"onering/train/learn"
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

// nonfinite writes the batch of a step that met NaN or an infinity to failures/. It returns
// an error where the run stops, and nil where the step is left out, as train.on_nonfinite
// says.
func (t *Trainer) nonfinite(step *failedStep, at train.Position) error {
	c, failed := t.Config.Train, t.reported(step, at)
	if t.run.Ranks.First() {
		if err := t.failure(step, at).write(failed.File); err != nil {
			return errors.Join(step, err)
		}
	}
	if c.OnNonfinite != "skip" {
		return failed
	}
	if t.learner.skipped >= c.SkipLimit {
		return fmt.Errorf("%w; train.skip_limit = %d steps were skipped before", failed, c.SkipLimit)
	}
	return nil
}

// reported is a failed step as users hear of it.
func (t *Trainer) reported(step *failedStep, at train.Position) *FailedStepError {
	return &FailedStepError{step.err, rundir.FailureFile(t.Config.Output.Dir, at.Step+1)}
}

// explainSampling adds the cause to an error of the sampler, which stops at
// log-probs that are not finite.
func (l *learner) explainSampling(err error, prompt []int32) error {
	cause := l.run.Stepper.Cause(runtime.NewSequence(prompt, prompt[:1]))
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
	return l.run.Stepper.Explain(err, r.sequences)
}
