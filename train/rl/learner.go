package rl

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"math"

	"onering/models"
	"onering/objectives"
	"onering/objectives/means"
	"onering/runtime"
	"onering/train"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/rundir"
	"onering/train/streams"
)

// A learner scores rounds and takes their optimizer steps (Algorithm 1, lines 2 to
// 13, of which the objective does all but the update).
type learner struct {
	config    Config
	run       *train.Run
	objective objectives.Objective
	needs     objectives.Needs
	reference *reference // nil unless the objective needs one
	streams   []*streams.Opened
	teachers  []*reference // of the streams that have one
	skipped   int          // optimizer steps left out because of NaN or infinities
	clock     clock
}

// openRun opens the run whose optimizer steps a learner takes.
func openRun(c Config, s train.Setup) (*train.Run, error) {
	o, needs := c.Optimizer, objectives.NeedsOf(c.Objective.Settings)
	return train.New(s, c.Model.Path, c.Distributed, learn.Options{
		Optimizer: o.Rule, MaxGradNorm: o.MaxGradNorm,
		Temperature: c.Rollout.Temperature, Passes: c.Train.storing(train.PassesOf(s.Policy, c.Train.MicroTokens, needs.Apart)),
		EntropyGradient: needs.EntropyGradient, Squares: needs.Squares,
	})
}

// newLearner makes the learner of a run: it opens the reference policy if the objective needs one, the streams,
// and their teachers. After an error the learner holds what was opened, for the caller to close: a reference that
// failed to open, too.
func newLearner(c Config, run *train.Run) (*learner, error) {
	l := &learner{config: c, run: run, objective: c.Objective.Settings, clock: clock{rounds: c.Train.Rounds, steps: float64(c.steps())}}
	l.needs = objectives.NeedsOf(l.objective)
	var err error
	if l.needs.Reference {
		if l.reference, err = newReference(run.Policy.Env, c, run.Policy); err != nil && c.Model.Reference != "" {
			err = fmt.Errorf("train: model.reference: %w", err)
		}
	}
	for _, s := range c.Stream.List {
		if err != nil {
			return l, err
		}
		var o *streams.Opened
		o, err = s.Open(c.Model.TemplateSettings, run.Policy, run.Log)
		l.streams = append(l.streams, o)
		if err == nil && s.Teacher != "" {
			c.Model.Reference = s.Teacher // in this function's copy: newReference opens it
			var teacher *reference
			teacher, err = newReference(run.Policy.Env, c, run.Policy)
			l.teachers = append(l.teachers, teacher)
		}
		if err != nil {
			err = fmt.Errorf("train: stream %q: %w", s.Name, err)
		}
	}
	return l, err
}

// score sets the old policy's log-probs of a new round: the sampler's, which are there already, or with old_logp =
// "rescore" the learner's, and then it also measures the gap between the two. It sets the sums of squared
// probabilities, the reference policy's log-probs and those of the streams' teachers, where they are needed.
func (l *learner) score(ctx context.Context, r *round) error {
	r.rescored = l.config.Rollout.OldLogProb == "rescore"
	if !r.rescored && !l.needs.Squares && l.reference == nil && len(l.teachers) == 0 {
		return nil
	}
	l.run.Clock.Enter(metrics.PhaseScore)
	defer l.run.Clock.Enter(metrics.PhaseOther)
	if r.rescored || l.needs.Squares {
		scores, err := l.run.Stepper.Score(ctx, r.sequences)
		if err != nil {
			return err
		}
		for i, logp := range scores.LogProb {
			if r.rescored {
				r.trajectories[i].OldLogProb = logp
				r.compare(i, logp)
			}
			if l.needs.Squares {
				r.trajectories[i].SumPiSquared = scores.SumSquares[i]
			}
		}
	}
	scoreWith := func(model *reference, set func(i int, logp []float64)) error {
		scores, err := l.run.Stepper.ScoreWith(ctx, model.learner, r.sequences)
		for i := 0; err == nil && i < len(scores.LogProb); i++ {
			set(i, scores.LogProb[i])
		}
		return err
	}
	if l.reference != nil {
		if err := scoreWith(l.reference, func(i int, logp []float64) { r.trajectories[i].RefLogProb = logp }); err != nil {
			return err
		}
	}
	for _, teacher := range l.teachers {
		if err := scoreWith(teacher, func(i int, logp []float64) { r.rollouts[i].Teachers = append(r.rollouts[i].Teachers, logp) }); err != nil {
			return err
		}
	}
	return nil
}

// step takes the optimizer step at a position on a batch of a round's rollouts, and returns its figures. It notes the
// weights of tokens in the round, and on the round's first step the gap between the sampler's and the learner's
// log-probs. If it meets NaN or an infinity it updates nothing and returns a *failedStep.
func (l *learner) step(ctx context.Context, r *round, rollouts []int, at train.Position) (metrics.Record, error) {
	n, total := at.Step, l.clock.total(at, r)
	b := objectives.Batch{Trajectories: make([]objectives.Trajectory, len(rollouts)), Step: n, Steps: int(math.Round(total))}
	step := learn.Batch{
		Sequences: make([]runtime.Sequence, len(rollouts)), Live: make([]bool, len(rollouts)),
		Number: n + 1, LearningRate: l.config.Optimizer.Rate(l.config.Optimizer.LearningRate, n, total),
		Apart:    l.needs.Apart,
		LiveOnly: l.config.Train.Score == "trained" && !l.needs.All && !l.config.Optimizer.RateByESS, // which reads all responses
	}
	for i, j := range rollouts {
		b.Trajectories[i], step.Sequences[i] = r.trajectories[j], r.sequences[j]
		if l.config.Train.Truncated == "mask" && r.rollouts[j].Truncated {
			// It still counts as a response, but no token of it is scored.
			b.Trajectories[i], step.Sequences[i] = masked(r.trajectories[j]), runtime.Sequence{Tokens: r.rollouts[j].Prompt}
		}
		step.Live[i] = l.needs.Live(b.Trajectories[i])
	}
	sent := l.run.Ranks.Sent()
	report, stats, err := l.learn(ctx, r, rollouts, step, b, total)
	// Until the round's first update the weights are those that sampled, so
	// the log-probs of sampler and learner can be compared.
	if len(r.steps) == 0 && !r.rescored && report.Loss.LogProb != nil {
		for i, j := range rollouts {
			r.compare(j, report.LogProb[i]) // scores are nil if a response was left out
		}
	}
	if nonfinite, ok := errors.AsType[*learn.NonfiniteError](err); ok {
		setScores(b, report.Scores)
		for i, k := range nonfinite.Sequences {
			nonfinite.Sequences[i] = rollouts[k] // of the round, not of the batch
		}
		nonfinite.Among = "trajectories of the round"
		return nil, &failedStep{nonfinite, rollouts, b, report.Loss.LogProb, step.LiveOnly}
	}
	if err != nil {
		return nil, err
	}
	if ob, ok := l.objective.(objectives.Observer); ok {
		ob.Observe(b)
	}
	r.note(rollouts, b, report)
	record := append(report.Record(step.LearningRate), l.run.Volume(sent, report.Early)...)
	for _, s := range stats {
		record = record.With(s.Name, s.Value)
	}
	return record, nil
}

// learn takes the step of a batch with its streams, and returns the figures of both.
func (l *learner) learn(ctx context.Context, r *round, rollouts []int, step learn.Batch, b objectives.Batch, total float64) (
	report learn.Report, stats []objectives.Stat, err error) {
	mixed := streams.Mix(l.streams, step, b, r.streamed(rollouts), l.config.Train.Seed, total)
	report, err = mixed.Step(ctx, l.run.Stepper, b, l.loss(b, &stats))
	return report, append(stats, mixed.Record...), err
}

// moveReference moves the reference after optimizer step n, if it follows the policy then.
func (l *learner) moveReference(n int) error {
	m := l.config.Model
	if !l.moves() || n%m.ReferenceSteps != 0 {
		return nil
	}
	if err := l.reference.follow(l.run.Policy, m.ReferenceUpdate); err != nil {
		return &learn.UpdateError{Err: fmt.Errorf("the reference does not follow the policy: %w", err)}
	}
	return nil
}

// loss returns the function that the Stepper asks for the loss, once or several times: it sets the
// scores of b, asks the objective, and puts the objective's figures into stats in place of the last ones.
func (l *learner) loss(b objectives.Batch, stats *[]objectives.Stat) learn.Weigh {
	return func(s learn.Scores) (x learn.Loss, err error) {
		setScores(b, s)
		x, *stats, err = weigh(l.objective, l.config.Objective.Name, b, s)
		if l.config.Optimizer.RateByESS {
			x.Rate = rateByESS(b)
			*stats = append(*stats, objectives.Stat{Name: "ess/rate", Value: x.Rate})
		}
		return x, err
	}
}

// rateByESS is VCPO's factor of the learning rate (arXiv:2602.17616, D84).
func rateByESS(b objectives.Batch) float64 {
	ratios := make([]float64, len(b.Trajectories))
	for i := range ratios {
		ratios[i] = b.Trajectories[i].LogRatio()
	}
	return math.Sqrt(means.ESS(ratios, 1))
}

// masked returns a trajectory without its tokens. It counts as a response, as in TRL's
// mask_truncated_completions, and its reward has counted in its group.
func masked(t objectives.Trajectory) objectives.Trajectory {
	return objectives.Trajectory{Reward: t.Reward, Advantage: t.Advantage, Components: t.Components, Group: t.Group, Role: t.Role,
		Truncated: true, Degenerate: t.Degenerate}
}

// setScores puts the learner's scores into the trajectories of a batch. A response that was left
// out has no weight, whatever its log-probs are: it keeps the sampler's entropies and takes the old
// log-probs for its own, as does a response that is not computed yet.
func setScores(b objectives.Batch, s learn.Scores) {
	for i := range b.Trajectories {
		x := &b.Trajectories[i]
		if s.LogProb[i] == nil {
			x.LogProb = x.OldLogProb
			continue
		}
		x.LogProb, x.Entropy = s.LogProb[i], s.Entropy[i]
	}
}

// moves says whether the reference follows the policy.
func (l *learner) moves() bool { return l.reference != nil && l.config.Model.ReferenceUpdate != 0 }

// movedReference are the tensors of a checkpoint that hold a reference which has moved, and movesKey is the setting
// that says whether there are any.
const movedReference, movesKey = "reference", "model.reference_update"

// saveTo adds the learner's state, besides the weights and the optimizer's state, to a checkpoint: the
// number of skipped steps, a reference that has moved, and the objective's own state.
func (l *learner) saveTo(snap *rundir.Snapshot) error {
	s := &snap.State
	s.Skipped = l.skipped
	if l.moves() {
		w := l.reference.moving()
		if l.run.Ranks.Rank() == 0 { // which writes the checkpoint
			if err := l.run.Policy.Env.Download(w); err != nil {
				return err
			}
		}
		snap.Optimizer = map[string]*models.Weights{movedReference: w}
	}
	if m, ok := l.objective.(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err != nil {
			return fmt.Errorf("train: state of objective %q: %w", s.Objective, err)
		}
		s.ObjectiveState = string(text)
	}
	return nil
}

// restore reads the learner's state from the checkpoint dir, with state s. The first rank reads a reference that has
// moved, and gives it to the others.
func (l *learner) restore(s rundir.State, dir string) error {
	if s.ObjectiveState != "" {
		m, ok := l.objective.(encoding.TextUnmarshaler)
		if !ok {
			return fmt.Errorf("train: resume: %s holds a state that objective %q cannot read", dir, s.Objective)
		}
		if err := m.UnmarshalText([]byte(s.ObjectiveState)); err != nil {
			return fmt.Errorf("train: resume: state of objective %q: %w", s.Objective, err)
		}
	}
	l.skipped = s.Skipped
	moved := s.Settings[movesKey] != "" && s.Settings[movesKey] != "0"
	if !moved || l.reference == nil {
		return nil
	}
	if !l.moves() {
		return fmt.Errorf("train: resume: the reference of %s has followed the policy: %s can become another share, but not 0", dir, movesKey)
	}
	w := l.reference.moving()
	var err error
	if l.run.Ranks.Rank() == 0 {
		err = rundir.LoadOptimizer(dir, map[string]*models.Weights{movedReference: w})
	}
	return errors.Join(err, l.run.Stepper.Give(w))
}

// steps returns how many optimizer steps the whole run takes.
func (c Config) steps() int {
	perRound := c.Rollout.PromptsPerRound * c.Rollout.SamplesPerPrompt
	return c.Train.Rounds * c.Train.Epochs * ((perRound + c.Train.BatchSize - 1) / c.Train.BatchSize)
}
