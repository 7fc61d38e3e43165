package train

import (
	"context"

	"onering/objectives"
	"onering/runtime"
	"onering/train/learn"
	"onering/train/metrics"
)

// stepPhases are the names of a Stepper's phases in the metrics.
var stepPhases = map[learn.Phase]metrics.Phase{
	learn.Forward: metrics.PhaseScore, learn.Weighing: metrics.PhaseWeights, learn.Backward: metrics.PhaseBackward, learn.Updating: metrics.PhaseOptimizer, learn.Idle: metrics.PhaseOther,
}

// newStepper opens what takes the run's optimizer steps.
func (t *Trainer) newStepper() (*learn.Stepper, error) {
	c, o, p := t.Config, t.Config.Optimizer, t.Policy
	return learn.New(t.env, p.Ring, learn.Options{
		Optimizer: o.AdamW,
		Offload:   o.Offload, MaxGradNorm: o.MaxGradNorm,
		Temperature: c.Rollout.Temperature, MicroTokens: c.Train.MicroTokens, Stash: p.stash(c.Train.MicroTokens),
		EntropyGradient: objectives.WeighsEntropy(t.Objective),
		Observe:         func(p learn.Phase) { t.clock.Enter(stepPhases[p]) },
		Log:             t.log,
		BeforePass: func(tokens int) error {
			if t.beforePass == nil {
				return nil
			}
			return t.beforePass(tokens)
		},
	})
}

// rate is the learning rate of the run's step n, from 1.
func (c Config) rate(n int) float64 {
	o := c.Optimizer
	return learn.Schedule{Peak: o.LearningRate, Warmup: o.Warmup, Steps: c.steps(), Shape: o.Schedule}.Rate(n)
}

// oneStep takes one optimizer step on the given rollouts of a round and returns
// its figures. A step that meets NaN or an infinity updates nothing.
func (t *Trainer) oneStep(ctx context.Context, r *underway, batch []int) (metrics.Record, error) {
	b := objectives.Batch{Trajectories: make([]objectives.Trajectory, len(batch)), Step: t.step, Steps: t.Config.steps()}
	step := learn.Batch{
		Sequences: make([]runtime.Sequence, len(batch)), Live: make([]bool, len(batch)),
		Number: t.step + 1, LearningRate: t.Config.rate(t.step + 1),
	}
	for i, j := range batch {
		b.Trajectories[i] = r.trajectories[j]
		step.Sequences[i], step.Live[i] = r.sequences[j], isLive(t.Objective, r.trajectories[j])
	}
	setScores := func(s learn.Scores) {
		for i := range b.Trajectories {
			b.Trajectories[i].LogProb, b.Trajectories[i].Entropy = s.LogProb[i], s.Entropy[i]
		}
	}
	var stats []objectives.Stat
	report, err := t.stepper.Step(ctx, step, func(s learn.Scores) (x learn.Loss, err error) {
		setScores(s)
		// Before the round's first update the same weights sampled: here the
		// log-probs of sampler and learner are compared.
		if len(r.steps) == 0 && !r.rescored {
			for i, j := range batch {
				r.compare(j, s.LogProb[i])
			}
		}
		x, stats, err = weigh(t.Objective, t.Config.Objective.Name, b)
		return x, err
	})
	if err != nil {
		setScores(report.Scores)
		return t.notFinite(r, batch, b, report.Loss.LogProb, err)
	}
	if ob, ok := t.Objective.(objectives.Observer); ok {
		ob.Observe(b)
	}
	r.note(batch, b, report.Loss.LogProb)

	record := metrics.Record{}.With("loss", report.Loss.Value).With("grad_norm", report.GradNorm).With("learning_rate", step.LearningRate).
		With("train_tokens", report.Tokens).With("micro_batches", report.MicroBatches)
	if report.LossScale != 0 {
		record = record.With("loss_scale", report.LossScale)
	}
	for _, s := range stats {
		record = record.With(s.Name, s.Value)
	}
	return record, nil
}

// scoreRound sets the old policy's log-probs of a new round: those of the
// sampler, or with old_logp = "rescore" the learner's; and the reference policy's
// where the objective asks for them.
func (t *Trainer) scoreRound(ctx context.Context, r *round) error {
	r.rescored = t.Config.Rollout.OldLogProb == "rescore"
	if !r.rescored && t.reference == nil {
		return nil
	}
	t.clock.Enter(metrics.PhaseScore)
	defer t.clock.Enter(metrics.PhaseOther)
	if r.rescored {
		scores, err := t.stepper.Score(ctx, r.sequences)
		if err != nil {
			return err
		}
		for i, logp := range scores.LogProb {
			r.trajectories[i].OldLogProb = logp
			r.compare(i, logp)
		}
	}
	if t.reference != nil {
		scores, err := t.stepper.ScoreWith(ctx, t.reference, r.sequences)
		if err != nil {
			return err
		}
		for i, logp := range scores.LogProb {
			r.trajectories[i].RefLogProb = logp
		}
	}
	return nil
}
