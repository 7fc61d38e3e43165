package rl

import (
	"context"
	"fmt"
	"log/slog"

	"onering/policy"
	"onering/reward"
	"onering/runtime"
	"onering/train/metrics"
	"onering/train/ranks"
	"onering/train/rundir"
	"onering/train/saving"
)

// An Observer is told how far a run is. Its methods are called from one
// goroutine at a time.
type Observer interface {
	// Begin opens a phase of total units, such as "rollout" of 512
	// trajectories; 0 is unknown. It closes the phase before.
	Begin(phase, units string, total int)
	// Advance says that n more units are done.
	Advance(n int)
	// Round hands over the round's record when it is complete.
	Round(r metrics.Record)
	// Evaluated hands over the result of an evaluation.
	Evaluated(e Evaluation)
}

// A Trainer runs the paper's loop (section 4, Algorithm 1) on one policy.
type Trainer struct {
	Config Config
	// Resumed, if not nil, is called when a run is resumed, after its folder and
	// checkpoint have been found to belong to it. Before that, nothing in the
	// folder is changed but what was half-written or damaged. An error ends Run.
	Resumed func() error

	log       *slog.Logger
	observer  Observer
	roller    *roller
	learner   *learner
	evaluator *evaluator
	folder    *rundir.Folder // opened by Run
	saver     *saving.Saver  // opened by Run
	clock     *metrics.Stopwatch
	alarms    *metrics.Alarms

	at    saving.Position
	round *round   // the round that the run is inside, else nil
	score *float64 // mean pass@1 at this position, if it was evaluated
}

// New is NewOn of a process that is the only rank.
func New(ctx context.Context, c Config, env *runtime.Env, policy *policy.Policy, log *slog.Logger, observer Observer) (*Trainer, error) {
	return NewOn(ctx, ranks.Alone(), c, env, policy, log, observer)
}

// NewOn opens everything a run needs and checks that it fits together. The run
// folder is made by Run. Of several ranks all call it, and then Run; the first writes the
// folder, and is the one whose log and observer are told of what concerns all.
func NewOn(ctx context.Context, group *ranks.Group, c Config, env *runtime.Env, p *policy.Policy, log *slog.Logger, observer Observer) (t *Trainer, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if want := policy.ComputeTypes[c.Model.DType]; p.Geometry().Compute != want {
		return nil, fmt.Errorf("train: model.dtype = %q, but the policy computes in %v: open it with OpenPolicy", c.Model.DType, p.Geometry().Compute)
	}
	opened := &Trainer{Config: c, log: log, observer: observer, clock: metrics.NewStopwatch(), alarms: metrics.NewAlarms(log)}
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
	if opened.roller, err = newRoller(c, group, env, p, limit, log); err != nil {
		return nil, err
	}
	if opened.evaluator, err = newEvaluator(c, opened.roller, observer, log); err != nil {
		return nil, err
	}
	if opened.learner, err = newLearner(c, group, env, p, opened.clock, log); err != nil {
		return nil, err
	}
	return opened, nil
}

// Close frees everything but the policy, and closes the reward.
func (t *Trainer) Close() {
	if t.saver != nil {
		t.saver.Close()
	}
	if err := reward.Close(t.Config.Reward.Rule); err != nil {
		t.log.Warn("the reward was not closed", "reason", err)
	}
	if t.roller != nil {
		t.roller.close()
	}
	if t.learner != nil {
		t.learner.close()
	}
	if t.folder != nil {
		t.folder.Close()
	}
}

// A Summary is what a run came to, from its beginning, also if it was resumed.
type Summary struct {
	Folder     string // the run folder
	Checkpoint string // the last checkpoint in it
	Rounds     int
	Steps      int
	First      Evaluation // before training; no Results without suites
	Last       Evaluation
	Reward     [2]float64 // mean reward of the first and the last round
	LogPGap    float64    // the largest between rollout and training log-probs in any round
	Resumed    int        // rounds that were done when the run was last resumed
	Seconds    float64    // since it began or was last resumed
}
