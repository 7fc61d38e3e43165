package rl

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"math"
	"slices"

	"onering/models/optim/adamw"
	"onering/objectives"
	"onering/policy"
	"onering/runtime"
	"onering/train"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/rundir"
)

// A Replay is the result of computing the step of a Failure again, without the update.
type Replay struct {
	Round  int    `json:"round"`
	Step   int    `json:"step"`
	Reason string `json:"reason"` // the failure's reason
	// Found lists what was not finite this time, the first cause first; empty if
	// everything was finite.
	Found        []string           `json:"found,omitempty"`
	Loss         metrics.Exact      `json:"loss"`      // the loss, a single number
	GradNorm     metrics.Exact      `json:"grad_norm"` // one number; none if the step ended before its gradients
	Trajectories []replayTrajectory `json:"trajectories"`
	// SameBits says that the forward pass gave the log-probs of the failure.
	SameBits bool `json:"same_bits"`
}

// A replayTrajectory has the figures of a replay for one trajectory of the batch.
type replayTrajectory struct {
	Rollout   int     `json:"rollout"`
	Tokens    int     `json:"tokens"`
	Advantage float64 `json:"advantage"`
	// Nonfinite counts its log-probs, entropies and weights that are not finite.
	Nonfinite int           `json:"nonfinite"`
	LogProb   metrics.Exact `json:"logp_min_max"`
	Weight    metrics.Exact `json:"weight_min_max,omitempty"`
	// Gradient is the first tensor whose gradient from this trajectory alone is not
	// finite; empty if none is. It is set only if the gradient of the whole batch is not
	// finite.
	Gradient string `json:"gradient,omitempty"`
}

// Replay computes the step of a failure again, without its update, on a policy that has the weights before it. The
// objective has the settings of the run and, where it keeps one, its state before the step. Where the gradient of the
// batch is not finite, Replay also computes the gradient of each trajectory alone.
func (f Failure) Replay(ctx context.Context, env *runtime.Env, policy *policy.Policy, o objectives.Objective) (Replay, error) {
	out := Replay{Round: f.Round, Step: f.Step, Reason: f.Reason}
	stepper, err := learn.New(env, policy.Ring, learn.Options{
		Optimizer:   adamw.Default(), // which computes the norm of the gradients; nothing is updated
		Temperature: f.Temperature, Passes: train.PassesOf(policy, f.MicroTokens, objectives.NeedsOf(o).Apart),
		EntropyGradient: objectives.NeedsOf(o).EntropyGradient,
	})
	if err != nil {
		return out, err
	}
	defer stepper.Close()
	if err := stepper.CheckWeights(); err != nil { // the first cause, so it is found first
		out.Found = append(out.Found, err.Error())
	}
	b, step := f.batches(o)
	report, err := stepper.Gradients(ctx, step, func(s learn.Scores) (learn.Loss, error) {
		setScores(b, s)
		loss, _, err := weigh(o, f.Objective, b, s)
		return loss, err
	})
	var nonfinite *learn.NonfiniteError
	if err != nil && !errors.As(err, &nonfinite) {
		return out, err
	}
	out.Trajectories, out.SameBits = f.compare(report)
	if report.Loss.LogProb != nil {
		out.Loss = metrics.Exact{report.Loss.Value}
	}
	if nonfinite == nil {
		out.GradNorm = metrics.Exact{report.GradNorm}
		return out, nil
	}
	inGradient := report.Loss.LogProb != nil && report.Loss.Check() == nil // the loss and the weights were finite
	for i, k := range nonfinite.Sequences {
		nonfinite.Sequences[i] = f.Trajectories[k].Rollout
	}
	nonfinite.Among = "trajectories of the round"
	out.Found = append(out.Found, nonfinite.Error())
	if !inGradient {
		return out, nil
	}
	for i := range step.Sequences {
		if out.Trajectories[i].Gradient, err = gradientOf(ctx, stepper, step.Sequences[i:i+1], report.Loss, i); err != nil {
			return out, err
		}
	}
	return out, nil
}

// Restore restores an objective and, unless p is nil, the weights of p from a checkpoint. A checkpoint without a state that
// can be read, as where another model takes its place, restores no objective.
func (o ObjectiveConfig) Restore(checkpoint string, p *policy.Policy) error {
	if p != nil {
		if err := rundir.LoadWeights(checkpoint, p.Ring.Trained()); err != nil {
			return err
		}
	}
	state, err := rundir.ReadState(checkpoint)
	u, ok := o.Settings.(encoding.TextUnmarshaler)
	if err != nil || state.ObjectiveState == "" || !ok { // there is nothing to restore
		return nil
	}
	if err := u.UnmarshalText([]byte(state.ObjectiveState)); err != nil {
		return fmt.Errorf("state of objective %q: %w", o.Name, err)
	}
	return nil
}

// batches is the failure's batch as the objective and as the Stepper take it.
func (f Failure) batches(o objectives.Objective) (objectives.Batch, learn.Batch) {
	needs := objectives.NeedsOf(o) // Apart: the weights of a sequence depend on its own scores alone
	// f.Step and Number count steps from 1, Batch.Step from 0. LeftOut: what is not Live was not computed.
	b, step := objectives.Batch{Step: f.Step - 1, Steps: f.Steps}, learn.Batch{Number: f.Step, LiveOnly: f.LeftOut, Apart: needs.Apart}
	for _, x := range f.Trajectories {
		b.Trajectories = append(b.Trajectories, objectives.Trajectory{
			Reward: x.Reward, Advantage: x.Advantage, OldLogProb: x.OldLogProb, RefLogProb: x.RefLogProb,
			SampleLogProb: x.SampleLogProb, TokenAdvantage: x.TokenAdvantage, IDs: x.Response,
			Truncated: x.Truncated, Degenerate: x.Degenerate, Group: x.Group,
			Turns: (&rollout{graded: graded{Response: x.Response, Observed: x.Observed}}).turns(),
		})
		y := rollout{graded: graded{Prompt: x.Prompt, Response: x.Response, Observed: x.Observed, Kept: x.Kept}}
		step.Sequences = append(step.Sequences, y.sequence())
	}
	for _, x := range b.Trajectories {
		step.Live = append(step.Live, needs.Live(x))
	}
	return b, step
}

// compare puts the trajectories of a report into figures, and says whether their
// log-probs have the bits of the failure's; all NaN count as the same.
func (f Failure) compare(r learn.Report) (out []replayTrajectory, same bool) {
	same = true
	for i, x := range f.Trajectories {
		logp := r.LogProb[i]
		y := replayTrajectory{Rollout: x.Rollout, Tokens: len(logp), Advantage: x.Advantage, LogProb: extremes(logp)}
		y.Nonfinite = countNonfinite(logp) + countNonfinite(r.Entropy[i])
		if r.Loss.LogProb != nil {
			y.Weight = extremes(r.Loss.LogProb[i])
			y.Nonfinite += countNonfinite(r.Loss.LogProb[i])
		}
		out = append(out, y)
		if logp == nil { // the response was left out
			continue
		}
		for pos, v := range x.LogProb {
			if pos >= len(logp) || math.Float64bits(v) != math.Float64bits(logp[pos]) && !(math.IsNaN(v) && math.IsNaN(logp[pos])) {
				same = false
			}
		}
	}
	return out, same
}

// gradientOf names the first tensor whose gradient from one trajectory alone, number i of the batch,
// is not finite; "" if none is. alone has its sequence, and loss the weights of the whole batch.
func gradientOf(ctx context.Context, s *learn.Stepper, alone []runtime.Sequence, loss learn.Loss, i int) (string, error) {
	if len(loss.LogProb[i]) == 0 { // it has no tokens
		return "", nil
	}
	b := learn.Batch{Sequences: alone, Weights: loss.LogProb[i : i+1]}
	if loss.Entropy != nil {
		b.EntropyWeights = loss.Entropy[i : i+1]
	}
	_, err := s.Gradients(ctx, b, nil) // nil: the batch has its weights
	if found, ok := errors.AsType[*learn.NonfiniteError](err); ok {
		return found.Tensor, nil
	}
	return "", err
}

func countNonfinite(x []float64) (n int) {
	for _, v := range x {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			n++
		}
	}
	return n
}

// extremes are the smallest and the largest of x, or NaN twice if x has any.
func extremes(x []float64) metrics.Exact {
	if len(x) == 0 {
		return nil
	}
	return metrics.Exact{slices.Min(x), slices.Max(x)}
}
