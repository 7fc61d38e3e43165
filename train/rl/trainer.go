package rl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"onering/data"
	"onering/policy"
	"onering/reward"
	"onering/train"
	"onering/train/doctor"
	"onering/train/metrics"
	"onering/train/rundir"
)

// A trainer runs the paper's loop (section 4, Algorithm 1) on one policy: it is the
// train.Task of reinforcement learning.
type trainer struct {
	Config Config

	log       *slog.Logger
	run       *train.Run
	roller    *roller
	learner   *learner
	evaluator *evaluator
	grades    *book // Begin opens it; nil if there is nothing to record
	summary   Summary

	round  *round      // the round in progress, or one that is not scored yet; else nil
	failed *failedStep // the next step, which was not finite and is to be left out; else nil
}

var _ train.Task = (*trainer)(nil)

// NewOn opens everything a run needs on the policy of s, and checks that it fits together; after an error everything
// is closed but the policy. The run folder is made by Run. Of several ranks all call it, and then Run.
func NewOn(ctx context.Context, c Config, s train.Setup) (t *trainer, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p, log := s.Policy, s.Log
	if want := policy.ComputeTypes[c.Model.DType]; p.Geometry().Compute != want {
		return nil, fmt.Errorf("train: model.dtype = %q, but the policy computes in %v: open it with OpenPolicy", c.Model.DType, p.Geometry().Compute)
	}
	opened := &trainer{Config: c, log: log}
	defer func() {
		if err != nil {
			opened.Close()
		}
	}()
	limit := c.longest() // tokens of prompt and response
	if m := p.Model.MaxPositions; m > 0 && limit > m {
		log.Warn("responses are cut where the model's positions end", "because", "the model's "+p.Model.Context(), "max_prompt_tokens",
			c.Rollout.MaxPromptTokens, "max_new_tokens", limit-c.Rollout.MaxPromptTokens)
	}
	if err := ready(ctx, c, log); err != nil {
		return nil, err
	}
	p.Ring.Offload = c.Optimizer.Offload
	if opened.run, err = openRun(c, s); err != nil { // it divides the ring, so it comes before other readers
		return nil, err
	}
	if opened.roller, err = newRoller(c, s, limit); err != nil {
		return nil, err
	}
	if opened.evaluator, err = newEvaluator(c, opened.roller, s); err != nil {
		return nil, err
	}
	opened.learner, err = newLearner(c, opened.run)
	return opened, err
}

// ready tells the reward which template the prompts have, asks the reward, the objective and the environment whether they
// can begin, and logs where responses have to state their answers.
func ready(ctx context.Context, c Config, log *slog.Logger) error {
	template, err := c.Model.PromptTemplate()
	if err != nil {
		return err
	}
	reward.SetTemplate(c.Reward.Rule, template.Name)
	environmentReady := func(ctx context.Context) error { return reward.Ready(ctx, c.Environment.Settings) }
	err = errors.Join(reward.Ready(ctx, c.Reward.Rule), reward.Ready(ctx, c.Objective.Settings), c.Environment.InTime(ctx, environmentReady))
	if err != nil {
		return err
	}
	if rule := reward.Extract(c.Reward.Rule); rule != "" {
		attrs := []any{"extract", rule, "template", template.Name}
		if asked := template.Instruction(); asked != "" {
			attrs = append(attrs, "instruction", asked)
		}
		log.Info("where responses have to state their answers", attrs...)
	}
	return nil
}

// Preflight does what a run does before it samples, but for opening the model: it asks the
// reward and the environment whether they can begin, and opens the problems and the suites,
// whose prompts p makes. It warns of what the data and the settings alone show.
func Preflight(ctx context.Context, c Config, p *data.Prompter, log *slog.Logger) (err error) {
	defer func() { err = errors.Join(err, reward.Close(c.Reward.Rule), reward.Close(c.Environment.Settings)) }()
	if err := ready(ctx, c, log); err != nil {
		return err
	}
	problems, err := openTraining(c, p, log)
	if err != nil {
		return err
	}
	_, suites, err := openSuites(c.Eval, c.Reward.Rule) // err is returned at the end: the warnings come in any case
	facts := doctor.Facts{Settings: train.Values(&c), Steps: c.steps(), Data: problems.faults(suites, c.Data.Prompt)}
	for _, f := range doctor.New(facts).Begin() {
		log.Warn(f.Text, "cause", f.Cause)
	}
	for _, s := range suites {
		for _, q := range s.Problems {
			if _, _, err := p.Prompt(q); err != nil {
				return fmt.Errorf("train: eval.suites: %s: %w", s.Name, err)
			}
		}
	}
	return err
}

// Close frees everything but the policy, and closes the reward and the environment.
func (t *trainer) Close() {
	if t.run != nil {
		t.run.Close()
	}
	if err := reward.Close(t.Config.Reward.Rule); err != nil {
		t.log.Warn("the reward was not closed", "reason", err)
	}
	if err := reward.Close(t.Config.Environment.Settings); err != nil {
		t.log.Warn("the environment was not closed", "reason", err)
	}
	t.grades.close()
	if t.roller != nil {
		t.roller.close()
	}
	if t.learner != nil {
		for _, scoring := range append(t.learner.teachers, t.learner.reference) {
			if scoring != nil {
				scoring.close()
			}
		}
	}
}

// A Summary is the result of a run, from its beginning, even if it was resumed.
type Summary struct {
	Folder     string `json:"folder"`               // the run folder
	Checkpoint string `json:"checkpoint,omitempty"` // the last checkpoint in it
	train.Ending
	Rounds  int          `json:"rounds"`
	Steps   int          `json:"steps"`
	Resumed int          `json:"resumed,omitempty"` // number of finished rounds when the run was last resumed
	Seconds float64      `json:"seconds"`           // since it began or was last resumed
	Reward  []float64    `json:"reward,omitempty"`  // means of the first and the last round
	LogPGap float64      `json:"logp_gap_max"`      // the largest between rollout and training log-probs in any round
	Suites  []suiteScore `json:"suites,omitempty"`
	// Diagnoses say what is wrong with the run, in the order in which it was found.
	Diagnoses []doctor.Finding `json:"diagnoses,omitempty"`
	seconds   float64          // of all rounds
	First     evaluation       `json:"-"` // before training; without Results if there are no suites
	Last      evaluation       `json:"-"`
}

// A suiteScore is pass@1 on held-out problems before and after.
type suiteScore struct {
	Suite    string   `json:"suite"`
	Problems int      `json:"problems,omitempty"` // 0 if the run was finished before it was resumed
	Before   *float64 `json:"before,omitempty"`   // nil if there was no evaluation before the training
	After    float64  `json:"after"`
}

// Run trains for Config.Train.Rounds rounds and writes the run folder; see train.Run. After an error the
// summary has what the run has recorded so far.
func (t *trainer) Run(ctx context.Context, resume bool) (Summary, error) {
	t.summary = Summary{Folder: t.Config.Output.Dir}
	end, err := t.run.Do(ctx, t, resume)
	s := t.summary
	s.Resumed = end.Resumed.Round
	s.compare()
	if err == nil {
		s.Rounds, s.Steps, s.Seconds = end.At.Round, end.At.Step, end.Seconds
		s.Checkpoint, s.Ending = rundir.CheckpointDir(s.Folder, s.Steps), end.Ending
		if s.Steps == 0 {
			t.log.Warn("the run took no optimizer step: the weights are those that it began with")
		}
	}
	return s, err
}

// Recall implements train.Task.
func (t *trainer) Recall(r metrics.Record) { t.summary.recall(r) }

// ReadSummary returns what the run in a folder has written of itself so far.
func ReadSummary(dir string) (Summary, error) {
	s := Summary{Folder: dir}
	err := train.Folder(dir).Records(func(fields map[string]any) {
		r := metrics.RecordOf(fields)
		s.recall(r)
		if round := r.Float("round"); round > 0 {
			s.Rounds = int(round)
		}
		if step := r.Float("step"); step > 0 {
			s.Steps = int(step)
		}
		if reason, ok := r.Get("reason").(string); ok && r.Get("kind") == "early" {
			s.Early = reason
		}
	})
	s.Seconds = s.seconds
	s.compare()
	return s, err
}

// compare puts the first and the last evaluation of each suite side by side.
func (s *Summary) compare() {
	for _, after := range s.Last.Results {
		score := suiteScore{Suite: after.Suite, Problems: after.Problems, After: after.Pass1.Value}
		for _, before := range s.First.Results {
			if before.Suite == after.Suite {
				score.Before = &before.Pass1.Value
			}
		}
		s.Suites = append(s.Suites, score)
	}
}

// recall notes a record that the run has written.
func (s *Summary) recall(r metrics.Record) {
	switch r.Get("kind") {
	case "round":
		s.addRound(r)
	case "eval":
		s.addEvaluation(evaluationOf(r))
	default:
		if f, ok := doctor.FindingOf(r); ok {
			s.Diagnoses = append(s.Diagnoses, f)
		}
	}
}

// addRound notes a finished round.
func (s *Summary) addRound(r metrics.Record) {
	reward := r.Float("reward")
	if s.Reward == nil {
		s.Reward = []float64{reward, reward}
	}
	s.Reward[1] = reward
	s.seconds += r.Seconds()
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
