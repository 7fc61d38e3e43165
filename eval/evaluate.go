package eval

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"onering/data"
	"onering/environment"
	"onering/reward"
	"onering/sampler"
)

// An Evaluator samples the responses to suites and grades them.
type Evaluator struct {
	Decoders sampler.Lanes
	Prompter *data.Prompter
	EOS      []int32 // the tokens that end a response
	Reward   reward.Reward
	// Journal, if not nil, remembers the scores of the suites in this order, and the environment's answers.
	Journal reward.Journal
	// Player, if not nil, plays an episode with each response.
	Player *environment.Player
	// Mine, if not nil, says for which tasks the responses are sampled here, and Added
	// receives each of them. A task is a problem that lacks responses; tasks are counted
	// over all suites. Other responses stay missing.
	Mine  func(task int) bool
	Added func(Response)
	// Progress, if not nil, receives the number of tokens of each graded response.
	Progress func(tokens int)
}

// An UngradedError says that the reward skipped responses of an evaluation. They
// are still missing: they count neither as right nor as wrong.
type UngradedError struct {
	Count   int
	Suite   string // suite of the first skipped response, with its problem and the reward's reason
	Problem string
	Reason  string
}

func (e *UngradedError) Error() string {
	return fmt.Sprintf("eval: the reward skipped %d responses, the first to problem %q of suite %q: %s; an evaluation needs a grade for each response",
		e.Count, e.Problem, e.Suite, cmp.Or(e.Reason, "it gave no reason"))
}

// Evaluate samples and grades the responses that are still missing. responses were made
// from the Plan of the same suites. Each response is added when it is graded, so those
// that were graded stay if there is an error or ctx ends. A response depends only on the
// settings, the problem's text and the number of the sample, and not on the number of
// slots or on earlier responses. This takes one slot of each decoder (see
// sampler.Invariant), unless it has only one.
//
// A problem whose prompt leaves no room in a slot counts as truncated. A response
// that the reward skips stays missing, and the error is an *UngradedError.
func (e Evaluator) Evaluate(ctx context.Context, suites []Suite, responses *Responses) error {
	w := wanted{Evaluator: e, suites: suites, responses: responses, maxTokens: e.Decoders.Decoders[0].MaxTokens()}
	if err := w.addTasks(ctx); err != nil {
		return err
	}
	if e.Mine != nil {
		w.keepTasksSampledHere()
	}
	if len(w.tasks) == 0 {
		return nil
	}
	s, t := responses.Settings, e.Prompter.Tokenizer
	o := sampler.Options{
		Sampling: s.Sampling, EOS: e.EOS, Seed: s.Seed,
		Stops: e.Prompter.Template.Stops, Text: func() sampler.TextDecoder { return t.NewDecoder() },
	}
	g := reward.Grader{Reward: e.Reward, Journal: e.Journal, Player: e.Player, Invariant: true, GradeTruncated: s.GradeTruncated,
		Decode: func(ids []int32) string { return t.Decode(ids, true) }} // true leaves special tokens out
	if _, err := g.Sample(ctx, e.Decoders, o, w.tasks, w.add); err != nil {
		return err
	}
	if w.ungraded.Count > 0 {
		return &w.ungraded
	}
	return nil
}

// wanted are the responses that an evaluation still lacks.
type wanted struct {
	Evaluator
	suites    []Suite
	responses *Responses
	maxTokens int // maximum length of a slot

	tasks  []reward.Task
	places []place // the place of each task

	ungraded UngradedError // its Count is 0 if no response was skipped
}

// A place says to which problem of which suite a task belongs, and the numbers of the
// samples that it asks for.
type place struct {
	suite, problem string
	samples        []int
}

// addTasks makes a task of each problem that lacks responses.
func (w *wanted) addTasks(ctx context.Context) error {
	for i, suite := range w.suites {
		plan := w.responses.Suites[i]
		for j, key := range suite.keys() {
			missing := w.responses.Missing(plan.Name, j)
			if len(missing) == 0 {
				continue
			}
			at := place{plan.Name, plan.IDs[j], missing}
			if err := w.addTask(ctx, suite.Problems[j], key, at); err != nil {
				return fmt.Errorf("eval: suite %q, problem %q: %w", at.suite, at.problem, err)
			}
		}
	}
	return nil
}

// keepTasksSampledHere drops the tasks that are not sampled here.
func (w *wanted) keepTasksSampledHere() {
	tasks, places := w.tasks, w.places
	w.tasks, w.places = nil, nil
	for i := range tasks {
		if w.Mine(i) {
			w.tasks, w.places = append(w.tasks, tasks[i]), append(w.places, places[i])
		}
	}
}

// addTask adds the task for the missing responses to a problem, whose key decides its draws (see keys). A vocabulary
// that cannot express the problem is an error: the model is not at fault, but there is no score either.
func (w *wanted) addTask(ctx context.Context, p data.Problem, key uint64, at place) error {
	if err := w.Prompter.Tokenizer.Check(p.Text); err != nil {
		return err
	}
	s := w.responses.Settings
	t, err := reward.Grader{Player: w.Player}.Task(ctx, w.Prompter, environment.Start{Problem: p, Seed: key ^ s.Seed})
	if err != nil {
		return err
	}
	prompt := t.Request.Prompt
	if len(prompt) == 0 {
		return errors.New("the prompt is empty")
	}
	if len(prompt) >= w.maxTokens { // all responses count as wrong and truncated
		reason := fmt.Sprintf("the prompt has %d tokens, there is room for %d with the response", len(prompt), w.maxTokens)
		for _, k := range at.samples {
			if err := w.store(Response{Suite: at.suite, Problem: at.problem, Sample: k, Finish: string(sampler.Length), Reason: reason}); err != nil {
				return err
			}
		}
		return nil
	}
	r := sampler.Request{Prompt: prompt, ID: key, Samples: len(at.samples)}
	// The sampler numbers the samples of a request from 0. If other numbers are missing,
	// the request states their uniforms.
	if len(at.samples) < s.Samples && !s.Greedy {
		for _, k := range at.samples {
			u := make([]float32, min(s.MaxNewTokens, w.maxTokens-len(prompt)))
			for token := range u {
				u[token] = sampler.Uniform(s.Seed, key, k, token)
			}
			r.Uniforms = append(r.Uniforms, u)
		}
	}
	t.Samples, t.Request, t.Number = at.samples, r, len(w.tasks)
	w.tasks = append(w.tasks, t)
	w.places = append(w.places, at)
	return nil
}

// add adds a graded response, or counts one that the reward has skipped or not judged.
func (w *wanted) add(g reward.Graded) error {
	at := w.places[g.Request]
	if !g.Score.Judged() {
		if w.ungraded.Count++; w.ungraded.Count == 1 {
			w.ungraded.Suite, w.ungraded.Problem, w.ungraded.Reason = at.suite, at.problem, g.Score.Reason
		}
		return nil
	}
	x := Response{
		Suite: at.suite, Problem: at.problem, Sample: at.samples[g.Sample], Right: g.Score.Right(),
		Answer: g.Score.Answer, Reason: g.Score.Reason, Fault: string(g.Score.Status),
		Finish: string(g.Finish), Tokens: len(g.IDs), Text: g.Text, IDs: g.IDs, LogProb: g.LogProb,
	}
	if w.Added != nil {
		w.Added(x)
	}
	return w.store(x)
}

func (w *wanted) store(x Response) error {
	if err := w.responses.Add(x); err != nil {
		return err
	}
	if w.Progress != nil {
		w.Progress(x.Tokens)
	}
	return nil
}
