package train

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"onering/data"
	"onering/eval"
	"onering/models"
	"onering/objectives"
	"onering/reward"
	"onering/runtime"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/rundir"
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
	Config    Config
	Policy    *Policy
	env       *runtime.Env
	Objective objectives.Objective
	// Resumed, if not nil, is called when the run that Run continues is the one
	// it was taken for. Until then nothing in its folder has changed but
	// what was half-written or damaged. An error ends Run.
	Resumed func() error

	log       *slog.Logger
	observer  Observer
	prompter  *data.Prompter
	problems  data.Problems
	suites    []eval.Suite
	decoder   *runtime.Decoder
	stepper   *learn.Stepper
	reference *runtime.Learner // of the policy that training began with, where the objective asks for it
	refWeight *models.Weights
	refRing   *runtime.Ring
	reward    reward.Reward
	folder    *rundir.Folder
	saver     *rundir.Saver
	clock     *metrics.Stopwatch
	alarms    *metrics.Alarms

	problemsDigest string
	round, step    int       // done so far
	now            *underway // the round between its sampling and its end
	evaluated      bool      // the evaluation that may come before the next round is done
	score          *float64  // mean pass@1 of that evaluation
	skipped        int       // optimizer steps left out because of NaN or infinities
	saved          position  // of the newest checkpoint
	savedAt        time.Time
	overdue        bool                   // a checkpoint waits for the one being written
	beforePass     func(tokens int) error // of tests: an allocation that fails
}

// New opens everything a run needs and checks that it fits together. The run
// folder is made by Run.
func New(ctx context.Context, c Config, env *runtime.Env, policy *Policy, log *slog.Logger, observer Observer) (t *Trainer, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if want := ComputeTypes[c.Model.DType]; policy.Geometry().Compute != want {
		return nil, fmt.Errorf("train: model.dtype = %q, but the policy computes in %v: open it with OpenPolicyOn", c.Model.DType, policy.Geometry().Compute)
	}
	t = &Trainer{Config: c, Policy: policy, env: env, Objective: c.Objective.Settings, log: log, observer: observer, clock: metrics.NewStopwatch(), saved: nowhere}
	made := t // which a return of nil hides
	defer func() {
		if err != nil {
			made.Close()
		}
	}()
	template, err := c.Model.PromptTemplate()
	if err != nil {
		return nil, err
	}
	if t.reward, err = reward.New("math"); err != nil {
		return nil, err
	}
	if t.prompter, err = policy.Prompter(template); err != nil {
		return nil, err
	}
	if t.problems, err = openTraining(c.Data, log); err != nil {
		return nil, err
	}
	if err = t.dropLong(); err != nil {
		return nil, err
	}
	t.problemsDigest = t.problems.Digest()
	if err := learn.CheckWeights(policy.Weights); err != nil {
		return nil, fmt.Errorf("train: %s: %w", c.Model.Path, err)
	}
	for _, name := range c.Eval.Suites {
		s, err := eval.Open(name, "", c.Eval.Options())
		if err != nil {
			return nil, fmt.Errorf("train: eval.suites: %w", err)
		}
		t.suites = append(t.suites, s)
	}
	limit := c.longest()
	if m := policy.Model.MaxPositions; m > 0 && limit > m {
		log.Warn("responses are cut where the model's positions end", "max_position_embeddings", m, "max_prompt_tokens", c.Rollout.MaxPromptTokens, "max_new_tokens", max(c.Rollout.MaxNewTokens, c.Eval.MaxNewTokens))
	}
	slots := min(c.Rollout.Slots, c.Rollout.PromptsPerRound*c.Rollout.SamplesPerPrompt)
	if c.Rollout.Invariant {
		slots++ // for the companion
	}
	if t.decoder, err = env.NewDecoder(policy.Ring, slots, policy.MaxTokens(limit)); err != nil {
		return nil, err
	}
	if t.stepper, err = t.newStepper(); err != nil {
		return nil, err
	}
	if objectives.NeedsReference(t.Objective) {
		if err = t.keepReference(env); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// dropLong leaves out problems whose prompt exceeds max_prompt_tokens.
func (t *Trainer) dropLong() error {
	list, ok := t.problems.(data.List)
	if !ok {
		return nil
	}
	kept := list[:0]
	for _, q := range list {
		_, prompt, err := t.prompter.Prompt(q)
		if err != nil {
			return err
		}
		if len(prompt) <= t.Config.Rollout.MaxPromptTokens {
			kept = append(kept, q)
		}
	}
	if len(kept) == 0 {
		return fmt.Errorf("train: every prompt of %s is longer than rollout.max_prompt_tokens = %d", t.Config.Data.Train, t.Config.Rollout.MaxPromptTokens)
	}
	if n := len(list) - len(kept); n > 0 {
		t.log.Warn("problems with a longer prompt than max_prompt_tokens are left out", "dropped", n, "kept", len(kept))
	}
	t.problems = kept
	return nil
}

// keepReference copies the weights: the reference policy stays what the policy
// was when training began.
func (t *Trainer) keepReference(env *runtime.Env) (err error) {
	if err := env.Download(t.Policy.Weights); err != nil {
		return err
	}
	defer env.Forget(t.Policy.Weights)
	if t.refWeight, err = models.NewWeights(t.Policy.Weights.Layout); err != nil {
		return err
	}
	copy(t.refWeight.Data, t.Policy.Weights.Data)
	if t.refRing, err = runtime.NewRing(t.Policy.Ring.Arch, t.refWeight); err != nil {
		return err
	}
	t.reference, err = env.NewLearner(t.refRing, runtime.LearnerOptions{Stash: models.StashInput, ScoreOnly: true})
	return err
}

// Close frees everything but the policy.
func (t *Trainer) Close() {
	if t.saver != nil {
		t.saver.Close()
	}
	if t.decoder != nil {
		t.decoder.Close()
	}
	if t.stepper != nil {
		t.stepper.Close()
	}
	if t.reference != nil {
		t.reference.Close()
	}
	if t.refRing != nil {
		t.refRing.Close()
	}
	if t.refWeight != nil {
		t.refWeight.Close()
	}
	if t.folder != nil {
		t.folder.Close()
	}
}

// A Summary is what a run came to.
type Summary struct {
	Folder     string // the run folder
	Checkpoint string // the last checkpoint in it
	Rounds     int
	Steps      int
	First      Evaluation // before training; no Results without suites
	Last       Evaluation
	Reward     [2]float64 // mean reward of the first and the last round
	Seconds    float64
	LogPGap    float64 // the largest between rollout and training log-probs in any round
}

// evaluate runs the suites; without any it returns nothing.
func (t *Trainer) evaluate(ctx context.Context) (Evaluation, error) {
	e := Evaluation{Round: t.round, Step: t.step}
	for _, s := range t.suites {
		c := t.Config.Eval
		if c.MaxNewTokens == 0 {
			c.MaxNewTokens = t.Config.Rollout.MaxNewTokens
		}
		t.observer.Begin("evaluate "+s.Name, "responses", len(s.Problems)*c.Samples)
		result, err := t.evaluateSuite(ctx, s, c)
		if err != nil {
			return e, err
		}
		e.Results = append(e.Results, result)
	}
	return e, nil
}

// steps is how many optimizer steps the whole run takes.
func (c Config) steps() int {
	perRound := c.Rollout.PromptsPerRound * c.Rollout.SamplesPerPrompt
	return c.Train.Rounds * c.Train.Epochs * ((perRound + c.Train.BatchSize - 1) / c.Train.BatchSize)
}
