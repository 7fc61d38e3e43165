package rl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"onering/internal/files"
	"onering/internal/strict"
	"onering/objectives"
	"onering/runtime"
	"onering/sampler"
	"onering/train"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/rundir"
)

// failureVersion is raised when an older file can no longer be read.
const failureVersion = 1

// maxFailure bounds the size of a file that is read.
const maxFailure = 1 << 30

// A Failure is the batch of an optimizer step that met NaN or an infinity, with
// everything that is needed to compute the step again.
type Failure struct {
	Version int    `json:"version"`
	Round   int    `json:"round"`
	Step    int    `json:"step"` // number of the step, from 1
	Steps   int    `json:"steps"`
	Reason  string `json:"reason"`
	// Checkpoint holds the weights before the step, relative to the file.
	Checkpoint  string  `json:"checkpoint"`
	Objective   string  `json:"objective"`
	Temperature float64 `json:"temperature"`
	MicroTokens int     `json:"micro_tokens"`
	// LeftOut says that trajectories that could have no weight were not computed:
	// their log-probs are the old ones.
	LeftOut bool `json:"left_out,omitempty"`
	// Trajectories in the order of the batch.
	Trajectories []failureTrajectory `json:"trajectories"`
}

// A failureTrajectory is a trajectory of that batch.
type failureTrajectory struct {
	Rollout  int       `json:"rollout"` // its number in the round
	Problem  string    `json:"problem"`
	Prompt   []int32   `json:"prompt_ids"`
	Response []int32   `json:"response_ids"`
	Kept     [][]int32 `json:"kept,omitempty"` // as in rollouts/
	// Observed are the tokens in the response that the policy did not sample.
	Observed   []sampler.Observed `json:"observed,omitempty"`
	Reward     float64            `json:"reward"`
	Advantage  float64            `json:"advantage"`
	Group      int                `json:"group,omitempty"`
	Truncated  bool               `json:"truncated,omitempty"`
	Degenerate bool               `json:"degenerate,omitempty"`
	// LogProb and Entropy were computed in the forward pass, and Weights by the
	// objective. The other fields were the step's input.
	LogProb    metrics.Exact `json:"logp"`
	OldLogProb metrics.Exact `json:"old_logp"`
	RefLogProb metrics.Exact `json:"ref_logp,omitempty"`
	// SampleLogProb is the sampler's log-prob, if that is not OldLogProb.
	SampleLogProb  metrics.Exact `json:"sample_logp,omitempty"`
	TokenAdvantage metrics.Exact `json:"token_advantage,omitempty"`
	Entropy        metrics.Exact `json:"entropy"`
	Weights        metrics.Exact `json:"weights,omitempty"`
}

// failure collects what replaying a failed step takes, at the position before the step.
func (t *trainer) failure(step *failedStep, at train.Position) Failure {
	c := t.Config
	f := Failure{
		Version: failureVersion, Round: at.Round + 1, Step: at.Step + 1, Steps: step.batch.Steps, Reason: step.Error(),
		Checkpoint: filepath.ToSlash(rundir.CheckpointDir("..", at.Step)), Objective: c.Objective.Name,
		Temperature: c.Rollout.Temperature, MicroTokens: t.run.Stepper.State().MicroTokens, LeftOut: step.leftOut,
	}
	for i, j := range step.rollouts {
		x, y := step.batch.Trajectories[i], &t.round.rollouts[j]
		one := failureTrajectory{
			Rollout: j, Problem: t.round.problems[y.Problem].ID, Prompt: y.Prompt, Response: x.IDs, Observed: y.Observed, Kept: y.Kept,
			Reward: x.Reward, Advantage: x.Advantage, Group: x.Group, Truncated: x.Truncated, Degenerate: x.Degenerate,
			LogProb: x.LogProb, OldLogProb: x.OldLogProb, RefLogProb: x.RefLogProb, Entropy: x.Entropy,
			TokenAdvantage: x.TokenAdvantage,
		}
		if t.round.rescored { // else they are OldLogProb
			one.SampleLogProb = x.SampleLogProb
		}
		if step.weights != nil {
			one.Weights = step.weights[i]
		}
		f.Trajectories = append(f.Trajectories, one)
	}
	return f
}

func (f Failure) write(path string) error {
	if err := files.MakeFolder(filepath.Dir(path)); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	return files.WriteFile(path, func(w io.Writer) error { return json.NewEncoder(w).Encode(f) })
}

// ReadFailure reads a file of failures/ in a run folder. Its errors say which files can be named.
func ReadFailure(path string) (Failure, error) {
	var f Failure
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, fmt.Errorf("train: %q: no such file; name one of failures/ in a run folder", path)
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxFailure) {
		return f, fmt.Errorf("train: %q is not the file of a failed step; name one of failures/ in a run folder", path)
	}
	file, err := files.Open(path)
	if err != nil {
		return f, fmt.Errorf("train: %w", err)
	}
	defer file.Close()
	if f, err = decodeFailure(file); err != nil {
		return f, fmt.Errorf("train: %q is not the file of a failed step: %w; name one of failures/ in a run folder", path, err)
	}
	return f, nil
}

// decodeFailure reads a failure and checks that it can be replayed: its version, and that all lists have the
// lengths of responses.
func decodeFailure(r io.Reader) (f Failure, err error) {
	text, err := io.ReadAll(r)
	if err == nil {
		err = strict.Known(text, &f)
	}
	if err != nil {
		return f, err
	}
	if f.Version != failureVersion {
		return f, fmt.Errorf("it is of version %d; this program reads version %d", f.Version, failureVersion)
	}
	if len(f.Trajectories) == 0 || !(f.Temperature > 0) || f.MicroTokens < 1 || f.Step < 1 {
		return f, errors.New("it holds no batch")
	}
	for i, x := range f.Trajectories {
		n := len(x.Response)
		if len(x.Prompt) == 0 || len(x.OldLogProb) != n || len(x.RefLogProb) != 0 && len(x.RefLogProb) != n || len(x.Kept) != 0 && len(x.Kept) != n {
			return f, fmt.Errorf("trajectory %d: its parts do not have the %d tokens of its response", i, n)
		}
	}
	return f, nil
}

// A failedStep is an optimizer step that met NaN or an infinity, with its batch.
type failedStep struct {
	err      *learn.NonfiniteError // its sequences are rollouts of the round
	rollouts []int                 // rollouts of the round, in the order of the batch
	batch    objectives.Batch      // as far as it was computed
	weights  [][]float64           // dLoss/dlogp; nil before the objective was asked
	leftOut  bool                  // responses that cannot have weight were not computed
}

func (e *failedStep) Error() string { return e.err.Error() }

func (e *failedStep) Unwrap() error { return e.err }

// A FailedStepError is an optimizer step of a run that met NaN or an infinity, and whose batch is in a file for
// `onering replay`. The sequences of its *learn.NonfiniteError are numbers in the round.
type FailedStepError struct {
	Err  *learn.NonfiniteError
	File string
}

func (e *FailedStepError) Error() string {
	return e.Err.Error() + "; to look at the batch: onering replay " + e.File
}

func (e *FailedStepError) Unwrap() error { return e.Err }

// nonfinite writes the batch of a step that met NaN or an infinity to failures/, on the first rank. It returns an error
// where the run stops, and nil where the step is to be left out, as train.on_nonfinite and train.skip_limit say.
func (t *trainer) nonfinite(step *failedStep, at train.Position) error {
	c, reported := t.Config.Train, t.reported(step, at)
	if t.run.Ranks.First() {
		if err := t.failure(step, at).write(reported.File); err != nil {
			return errors.Join(step, err)
		}
	}
	if c.OnNonfinite != "skip" {
		return reported
	}
	if t.learner.skipped >= c.SkipLimit {
		return fmt.Errorf("%w; train.skip_limit = %d steps were skipped before", reported, c.SkipLimit)
	}
	return nil
}

// reported is a failed step as users hear of it.
func (t *trainer) reported(step *failedStep, at train.Position) *FailedStepError {
	return &FailedStepError{step.err, rundir.FailureFile(t.Config.Output.Dir, at.Step+1)}
}

// explainSampling adds the cause to an error of the sampler, which stops at log-probs that are not finite.
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
	if e, ok := errors.AsType[*learn.NonfiniteError](err); ok {
		e.Among = "trajectories of the round"
	}
	return l.run.Stepper.Explain(err, r.sequences)
}
