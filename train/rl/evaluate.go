package rl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"onering/data"
	"onering/eval"
	"onering/reward"
	"onering/train"
	"onering/train/metrics"
	"onering/train/rundir"
)

// An evaluation is the results of all suites at one point of a run.
type evaluation struct {
	Round, Step int
	Results     []eval.Score

	answers bool // the reward looks for answers in responses
}

// record returns the evaluation as a record of metrics.jsonl.
func (e evaluation) record() metrics.Record {
	r := metrics.Record{}.With("kind", "eval").With("round", e.Round).With("step", e.Step)
	for _, x := range e.Results {
		name := "eval/" + x.Suite
		r = r.With(name+"/pass@1", x.Pass1.Value).With(name+"/pass@1_low", x.Pass1.Low).With(name+"/pass@1_high", x.Pass1.High)
		for j, at := range x.PassK {
			r = r.With(fmt.Sprintf("%s/pass@%d", name, at.K), at.Value).With(fmt.Sprintf("%s/maj@%d", name, at.K), x.MajorityK[j].Value)
		}
		r = r.With(name+"/response_length", x.Tokens).With(name+"/truncated_share", x.Truncated)
		if e.answers {
			r = r.With(name+"/no_answer_share", x.Unanswered)
		}
	}
	if len(e.Results) > 1 {
		r = r.With("eval/average/pass@1", *e.mean())
	}
	return r
}

// lines returns the results of the evaluation in lines for people.
func (e evaluation) lines() (lines []string) {
	for _, x := range e.Results {
		lines = append(lines, fmt.Sprintf("after round %d: %s pass@1 %.1f %% of %d problems", e.Round, x.Suite, 100*x.Pass1.Value, x.Problems))
	}
	return lines
}

// evaluationOf reads an evaluation from a record of metrics.jsonl: pass@1 of each suite, sorted by name.
func evaluationOf(record metrics.Record) evaluation {
	e := evaluation{Round: int(record.Float("round"))}
	for _, m := range record {
		suite, isEval := strings.CutPrefix(m.Name, "eval/")
		suite, isPass := strings.CutSuffix(suite, "/pass@1")
		if value, ok := m.Value.(float64); ok && isEval && isPass && suite != "average" {
			x := eval.Score{Suite: suite}
			x.Pass1.Value = value
			e.Results = append(e.Results, x)
		}
	}
	slices.SortFunc(e.Results, func(a, b eval.Score) int { return strings.Compare(a.Suite, b.Suite) })
	return e
}

// mean returns the mean pass@1 of the suites, nil if there are none.
func (e evaluation) mean() *float64 {
	if len(e.Results) == 0 {
		return nil
	}
	mean := 0.0
	for _, x := range e.Results {
		mean += x.Pass1.Value / float64(len(e.Results))
	}
	return &mean
}

// An evaluator evaluates the suites of a run, with the decoder and the prompts of its training.
type evaluator struct {
	config   Config
	roller   *roller
	suites   []eval.Suite
	reward   reward.Reward // the training's reward, with the extraction of [eval]
	observer metrics.Observer
	log      *slog.Logger
}

// newEvaluator opens the suites.
func newEvaluator(c Config, r *roller, s train.Setup) (*evaluator, error) {
	rule, suites, err := openSuites(c.Eval, c.Reward.Rule)
	return &evaluator{c, r, suites, rule, s.Observer, s.Log}, err
}

// openSuites opens the suites of a run, and returns the reward that grades them.
func openSuites(c evalConfig, rule reward.Reward) (reward.Reward, []eval.Suite, error) {
	rule, err := reward.WithExtract(rule, c.Extract)
	if err != nil {
		return nil, nil, fmt.Errorf("train: eval.extract: %w", err)
	}
	suites, err := eval.Open(c.Suites.Paths(), "", func(string) data.Options { return reward.Reading(rule, c.Options()) })
	if err != nil {
		return nil, nil, fmt.Errorf("train: eval.suites: %w", err)
	}
	return rule, suites, nil
}

// evaluate evaluates the suites and stores the responses in the run folder. It returns no results if there are no
// suites, or if the reward leaves a response to any of them ungraded, of which it warns.
func (e *evaluator) evaluate(ctx context.Context, at train.Position, folder *rundir.Folder) (evaluation, error) {
	out := evaluation{Round: at.Round, Step: at.Step, answers: reward.FindsAnswers(e.reward)}
	for i, s := range e.suites {
		e.observer.Begin("evaluate "+s.Name, "responses", len(s.Problems)*e.settings(i).Samples)
		result, err := e.suite(ctx, i, at, folder)
		if _, ok := errors.AsType[*eval.UngradedError](err); ok {
			e.log.Warn("the evaluation is left out", "step", at.Step, "reason", err)
			return evaluation{Round: at.Round, Step: at.Step}, nil
		}
		if err != nil {
			return out, err
		}
		out.Results = append(out.Results, result)
	}
	return out, nil
}

// settings returns how the responses to the i-th suite are sampled and graded.
func (e *evaluator) settings(i int) eval.Settings {
	c, template := e.config.Eval.Alone(i), e.roller.prompter.Template
	o := eval.Settings{
		Template: template.Name, System: template.System, Args: template.Args, Stops: template.Stops, Environment: e.config.Environment.Describe(),
		Extract: reward.Extract(e.reward), GradeTruncated: c.GradeTruncated,
		Samples: c.Samples, Sampling: c.OrGreedy(), Seed: eval.TrainingSeed,
	}
	if c.MaxNewTokens == 0 {
		o.MaxNewTokens = e.config.Rollout.MaxNewTokens
	}
	return o
}

// suite evaluates the i-th suite and stores its responses in the run folder. Each rank samples its share of the problems,
// and gets the other ranks' responses.
func (e *evaluator) suite(ctx context.Context, i int, at train.Position, folder *rundir.Folder) (score eval.Score, err error) {
	suites := e.suites[i : i+1]
	r := e.roller
	var added []eval.Response // with several ranks, those that this one has sampled
	sampling := eval.Evaluator{
		Decoders: r.lanes, Prompter: r.prompter, EOS: r.policy.Model.EOS, Reward: e.reward,
		Player: r.player, Journal: r.grades.journal(at.Round, "evaluation of "+suites[0].Name),
		Progress: func(int) { e.observer.Advance(1) },
	}
	if r.ranks.Size() > 1 {
		sampling.Mine = r.mine
		sampling.Added = func(x eval.Response) { added = append(added, x) }
	}
	o := e.settings(i)
	o.Model = fmt.Sprint("round ", at.Round)
	var responses *eval.Responses
	file, err := folder.EvaluationFile(at.Round, suites[0].Name)
	if err == nil {
		responses, err = o.Plan(suites).Create(file)
	}
	if err == nil {
		defer func() { err = errors.Join(err, responses.Close()) }()
		err = sampling.Evaluate(ctx, suites, responses)
	}
	// All ranks must call it, also after an error.
	if err := r.gatherResponses(err, added, responses); err != nil {
		return score, err
	}
	report, err := responses.Report(reward.SameAnswer(e.reward))
	if err != nil {
		return score, err
	}
	return report.Suites[0], nil
}
