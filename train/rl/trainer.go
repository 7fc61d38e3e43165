package rl

import (
	"context"
	"fmt"
	"log/slog"
	"math"

	"onering/policy"
	"onering/reward"
	"onering/runtime"
	"onering/train"
	"onering/train/metrics"
	"onering/train/ranks"
	"onering/train/rundir"
)

// A Trainer runs the paper's loop (section 4, Algorithm 1) on one policy: it is the
// train.Task of reinforcement learning.
type Trainer struct {
	Config Config

	log       *slog.Logger
	run       *train.Run
	roller    *roller
	learner   *learner
	evaluator *evaluator
	grades    *book // opened by Begin; nil if there is nothing to remember
	summary   Summary

	round *round      // the round that the run is inside or that is not scored yet, else nil
	skip  *failedStep // the next step, which is to be left out
}

var _ train.Task = (*Trainer)(nil)

// New is NewOn of a process that is the only rank.
func New(ctx context.Context, c Config, env *runtime.Env, p *policy.Policy, log *slog.Logger, observer metrics.Observer) (*Trainer, error) {
	return NewOn(ctx, c, train.Setup{Ranks: ranks.Alone(), Policy: p, Log: log, Observer: observer})
}

// NewOn opens everything a run needs and checks that it fits together. The run
// folder is made by Run. Of several ranks all call it, and then Run.
func NewOn(ctx context.Context, c Config, s train.Setup) (t *Trainer, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p, log := s.Policy, s.Log
	if want := policy.ComputeTypes[c.Model.DType]; p.Geometry().Compute != want {
		return nil, fmt.Errorf("train: model.dtype = %q, but the policy computes in %v: open it with OpenPolicy", c.Model.DType, p.Geometry().Compute)
	}
	opened := &Trainer{Config: c, log: log}
	defer func() {
		if err != nil {
			opened.Close()
		}
	}()
	limit := c.longest()
	if m := p.Model.MaxPositions; m > 0 && limit > m {
		log.Warn("responses are cut where the model's positions end", "max_position_embeddings", m, "max_prompt_tokens", c.Rollout.MaxPromptTokens, "max_new_tokens", max(c.Rollout.MaxNewTokens, c.Eval.MaxNewTokens))
	}
	template, err := c.Model.PromptTemplate()
	if err != nil {
		return nil, err
	}
	reward.SetTemplate(c.Reward.Rule, template.Name)
	if rule := reward.Extract(c.Reward.Rule); rule != "" {
		log.Info("where responses have to state their answers", "extract", rule, "template", template.Name)
	}
	if opened.roller, err = newRoller(c, s, limit); err != nil {
		return nil, err
	}
	if opened.evaluator, err = newEvaluator(c, opened.roller, s); err != nil {
		return nil, err
	}
	if opened.run, err = openRun(c, s); err != nil {
		return nil, err
	}
	opened.learner, err = newLearner(c, opened.run)
	return opened, err
}

// Close frees everything but the policy, and closes the reward.
func (t *Trainer) Close() {
	if t.run != nil {
		t.run.Close()
	}
	if err := reward.Close(t.Config.Reward.Rule); err != nil {
		t.log.Warn("the reward was not closed", "reason", err)
	}
	t.grades.close()
	if t.roller != nil {
		t.roller.close()
	}
	if t.learner != nil {
		t.learner.close()
	}
}

// A Summary is what a run came to, from its beginning, also if it was resumed.
type Summary struct {
	Folder     string // the run folder
	Checkpoint string // the last checkpoint in it
	Rounds     int
	Steps      int
	First      evaluation // before training; no Results without suites
	Last       evaluation
	Reward     [2]float64 // mean reward of the first and the last round
	LogPGap    float64    // the largest between rollout and training log-probs in any round
	Resumed    int        // rounds that were done when the run was last resumed
	Seconds    float64    // since it began or was last resumed
}

// Run trains for Config.Train.Rounds rounds and writes the run folder; see train.Run.
func (t *Trainer) Run(ctx context.Context, resume bool) (Summary, error) {
	t.summary = Summary{Folder: t.Config.Output.Dir, Reward: [2]float64{math.NaN()}}
	end, err := t.run.Do(ctx, t, resume)
	s := t.summary
	s.Resumed = end.Resumed.Round
	if err == nil {
		s.Rounds, s.Steps, s.Seconds = end.At.Round, end.At.Step, end.Seconds
		s.Checkpoint = rundir.CheckpointDir(s.Folder, s.Steps)
	}
	return s, err
}

// Recall implements train.Task.
func (t *Trainer) Recall(r metrics.Record) {
	switch r.Get("kind") {
	case "round":
		t.summary.addRound(r)
	case "eval":
		t.summary.addEvaluation(evaluationOf(r))
	}
}

// addRound notes a finished round.
func (s *Summary) addRound(r metrics.Record) {
	reward := r.Float("reward")
	if math.IsNaN(s.Reward[0]) {
		s.Reward[0] = reward
	}
	s.Reward[1] = reward
	if gap := r.Float("logp_gap_max"); gap > s.LogPGap {
		s.LogPGap = gap
	}
}

// addEvaluation notes an evaluation.
func (s *Summary) addEvaluation(e evaluation) {
	if e.Round == 0 {
		s.First = e
	}
	s.Last = e
}
