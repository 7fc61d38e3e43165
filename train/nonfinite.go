package train

import (
	"context"
	"errors"
	"fmt"

	"onering/data"
	"onering/objectives"
	"onering/runtime"
	"onering/train/learn"
	"onering/train/metrics"
)

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

// notFinite ends a step that failed with err. Where it met NaN or an infinity the
// batch is written to failures/, and the step is skipped or the run stops, as
// train.on_nonfinite says.
func (t *Trainer) notFinite(r *underway, batch []int, b objectives.Batch, w [][]float64, err error) (metrics.Record, error) {
	var e *learn.NonfiniteError
	if !errors.As(err, &e) {
		return nil, err
	}
	for i, k := range e.Sequences {
		e.Sequences[i] = batch[k]
	}
	e.Among = "the round"
	failed := &FailedStepError{e, t.folder.FailureFile(t.step + 1)}
	if err := t.failure(r, batch, b, w, e).write(failed.File); err != nil {
		return nil, errors.Join(e, err)
	}
	c := t.Config.Train
	if c.OnNonfinite != "skip" {
		return nil, failed
	}
	if t.skipped >= c.SkipLimit {
		return nil, fmt.Errorf("%w; train.skip_limit = %d steps were skipped before", failed, c.SkipLimit)
	}
	// Replay needs the weights before the step.
	if t.saved != t.position() {
		if err := t.save(t.saver.Background); err != nil {
			return nil, errors.Join(failed, err)
		}
	}
	t.skipped++
	t.log.Warn("an optimizer step is skipped", "step", t.step+1, "skipped", t.skipped, "limit", c.SkipLimit, "reason", failed)
	return metrics.Record{}.With("skipped", t.skipped).With("reason", e.What), nil
}

// samplingFailed adds the cause to an error of the sampler, which stops at
// log-probs that are not finite.
func (t *Trainer) samplingFailed(err error, problems []data.Problem) error {
	_, prompt, failed := t.prompter.Prompt(problems[0])
	if failed != nil {
		return err
	}
	s := runtime.Sequence{Tokens: append(prompt[:len(prompt):len(prompt)], prompt[0]), Prompt: len(prompt)}
	scores, failed := t.stepper.Score(context.Background(), []runtime.Sequence{s})
	if failed != nil || !learn.Nonfinite(scores.LogProb[0][0]) {
		return err
	}
	return fmt.Errorf("%w: %s", err, t.stepper.Cause(s))
}

// checkRollouts refuses a round whose sampling met NaN or infinities.
func (t *Trainer) checkRollouts(r *round) error {
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
	e.Among = "the round"
	return fmt.Errorf("train: round %d: %w", t.round+1, t.stepper.Explain(err, r.sequences))
}
