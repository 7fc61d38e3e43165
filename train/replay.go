package train

import (
	"errors"
	"log/slog"
	"math"

	"onering/models"
	"onering/models/adamw"
	"onering/objectives"
	"onering/runtime"
	"onering/train/metrics"
)

// A Replay is what became of a Failure when its step was computed again, without
// the update.
type Replay struct {
	Round  int    `json:"round"`
	Step   int    `json:"step"`
	Reason string `json:"reason"` // then
	// Found is what was not finite this time, from the first cause on; empty if
	// everything was.
	Found        []string           `json:"found,omitempty"`
	Loss         metrics.Exact      `json:"loss"`      // one number
	GradNorm     metrics.Exact      `json:"grad_norm"` // one number; none where the gradient was not reached
	Trajectories []ReplayTrajectory `json:"trajectories"`
	// SameBits says that the forward pass gave the same log-probs as then.
	SameBits bool `json:"same_bits"`
}

// A ReplayTrajectory is a trajectory of the batch in figures.
type ReplayTrajectory struct {
	Rollout   int     `json:"rollout"`
	Tokens    int     `json:"tokens"`
	Advantage float64 `json:"advantage"`
	// Nonfinite counts its log-probs, entropies and weights that are not finite.
	Nonfinite int           `json:"nonfinite"`
	LogProb   metrics.Exact `json:"logp_min_max"`
	Weight    metrics.Exact `json:"weight_min_max,omitempty"`
	// Gradient is the first tensor whose gradient from this trajectory alone is
	// not finite; empty if none is. It is looked for where the batch's was not.
	Gradient string `json:"gradient,omitempty"`
}

// Replay computes the step of a failure again on a policy that has the weights
// of then. The objective is to have the settings and, where it keeps one, the
// state of then.
func (f Failure) Replay(env *runtime.Env, policy *Policy, o objectives.Objective) (Replay, error) {
	out := Replay{Round: f.Round, Step: f.Step, Reason: f.Reason, SameBits: true}
	l, err := env.NewLearner(policy.Ring, runtime.LearnerOptions{Stash: stashFor(policy, f.MicroTokens), EntropyGradient: objectives.WeighsEntropy(o)})
	if err != nil {
		return out, err
	}
	defer l.Close()
	opt, err := env.NewOptimizer(policy.Ring, l.Gradients, runtime.OptimizerOptions{})
	if err != nil {
		return out, err
	}
	defer opt.Close()
	t := &Trainer{Policy: policy, env: env, learner: l, microTokens: f.MicroTokens, log: slog.New(slog.DiscardHandler)}
	t.Config.Rollout.Temperature = f.Temperature

	b := objectives.Batch{Step: f.Step - 1, Steps: f.Steps}
	sequences, live := make([]runtime.Sequence, len(f.Trajectories)), make([]bool, len(f.Trajectories))
	for i, x := range f.Trajectories {
		r := Rollout{Prompt: x.Prompt, Response: x.Response}
		sequences[i], live[i] = r.sequence(), true
		b.Trajectories = append(b.Trajectories, objectives.Trajectory{
			Reward: x.Reward, Advantage: x.Advantage, OldLogProb: x.OldLogProb, RefLogProb: x.RefLogProb,
			Truncated: x.Truncated, Degenerate: x.Degenerate,
		})
		live[i] = x.Advantage != 0 || l.HasEntropyGradient() || len(x.RefLogProb) > 0
	}
	if err := t.checkWeights(); err != nil {
		out.Found = append(out.Found, err.Error())
	}
	if policy.Geometry().Compute == models.F16 {
		t.setLossScale(adamw.NewLossScale())
	}
	micro := microBatches(sequences, live, f.MicroTokens)
	passes, err := t.forward(b, sequences, live, micro)
	defer release(passes)
	if err != nil {
		return out, err
	}
	for i, x := range b.Trajectories {
		y := ReplayTrajectory{Rollout: f.Trajectories[i].Rollout, Tokens: len(x.LogProb), Advantage: x.Advantage, LogProb: extremes(x.LogProb)}
		y.Nonfinite = countNonfinite(x.LogProb) + countNonfinite(x.Entropy)
		out.Trajectories = append(out.Trajectories, y)
		for pos, v := range f.Trajectories[i].LogProb {
			if pos >= len(x.LogProb) || math.Float64bits(v) != math.Float64bits(x.LogProb[pos]) && !(math.IsNaN(v) && math.IsNaN(x.LogProb[pos])) {
				out.SameBits = false
			}
		}
	}
	if err := finiteLogProbs(b); err != nil {
		out.Found = append(out.Found, t.explain(err, sequences).Error())
		return out, nil
	}
	x, err := think(o, f.Objective, b)
	if err != nil {
		return out, err
	}
	out.Loss = metrics.Exact{x.loss}
	for i := range x.w {
		y := &out.Trajectories[i]
		y.Weight = extremes(x.w[i])
		y.Nonfinite += countNonfinite(x.w[i])
	}
	if err := x.finite(); err != nil {
		out.Found = append(out.Found, err.Error())
		return out, nil
	}
	if err := t.backward(passes, micro, x); err != nil {
		return out, err
	}
	norm, err := opt.GradNorm()
	for errors.Is(err, runtime.ErrOverflow) {
		if err = t.scaled(true); !errors.Is(err, errScale) {
			break
		}
		if passes, err = t.forward(b, sequences, live, micro); err == nil {
			err = t.backward(passes, micro, x)
		}
		if err != nil {
			release(passes)
			return out, err
		}
		norm, err = opt.GradNorm()
	}
	if err == nil {
		out.GradNorm = metrics.Exact{norm}
		return out, nil
	}
	out.Found = append(out.Found, gradientError(err).Error())
	for i := range sequences {
		if out.Trajectories[i].Gradient, err = t.gradientOf(sequences[i], x, i); err != nil {
			return out, err
		}
	}
	return out, nil
}

// gradientOf names the first tensor whose gradient from one trajectory is not
// finite.
func (t *Trainer) gradientOf(s runtime.Sequence, x thought, i int) (string, error) {
	if len(x.w[i]) == 0 {
		return "", nil
	}
	p, err := t.learner.Forward([]runtime.Sequence{s}, t.Config.Rollout.Temperature, true)
	if err != nil {
		return "", err
	}
	defer p.Release()
	t.learner.ZeroGradients()
	var v [][]float64
	if x.v != nil {
		v = x.v[i : i+1]
	}
	if err := p.Backward(x.w[i:i+1], v); err != nil {
		return "", err
	}
	if err := t.env.Download(t.learner.Gradients); err != nil {
		return "", err
	}
	return firstNonfiniteTensor(t.learner.Gradients), nil
}

func firstNonfiniteTensor(w *models.Weights) string {
	for _, x := range w.Tensors() {
		if !allFinite(x.Data) {
			return x.Name
		}
	}
	return ""
}

func countNonfinite(x []float64) (n int) {
	for _, v := range x {
		if nonfinite(v) {
			n++
		}
	}
	return n
}

// extremes are the smallest and the largest of x; NaN where there is one.
func extremes(x []float64) metrics.Exact {
	if len(x) == 0 {
		return nil
	}
	low, high := x[0], x[0]
	for _, v := range x {
		low, high = min(low, v), max(high, v)
	}
	return metrics.Exact{low, high}
}
