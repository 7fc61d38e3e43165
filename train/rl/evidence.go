package rl

import (
	"cmp"
	"fmt"
	"slices"

	"onering/data"
	"onering/eval"
	"onering/objectives"
	"onering/reward"
	"onering/train"
	"onering/train/doctor"
)

// facts returns what is known of the run before its first round, for doctor's rules: among others the settings, and
// beside them the defaults of the run's objective.
func (t *trainer) facts() doctor.Facts {
	c, r, defaults := t.Config, t.roller, Default()
	defaults.Objective.Settings, _ = objectives.New(c.Objective.Name)
	prompts, f := r.prompter, train.FactsOf(r.policy)
	weights := map[string]float64{}
	if several, ok := c.Reward.Rule.(*reward.Combined); ok && several.Combine != "product" { // a product has no weights
		for _, part := range several.Parts {
			weights[cmp.Or(part.As, part.Name)] = part.Weight
		}
	}
	f.Settings, f.Defaults, f.Steps = train.Values(&c), train.Values(&defaults, "objective"), c.steps()
	f.ChatTemplateUnused = !prompts.Template.Talks(prompts.Tokenizer) && prompts.Tokenizer.CheckChat() == nil
	f.Extract, f.ComparesAnswers, f.Weights = reward.Extract(c.Reward.Rule), reward.FindsAnswers(c.Reward.Rule), weights
	f.Neighbor, f.Data = r.problems.neighbor(), r.problems.faults(t.evaluator.suites, c.Data.Prompt)
	return f
}

// evidence returns what doctor reads of the finished round: its steps, and of each response the grade, sums over its
// tokens, and how a response of one turn ended. idleShare is the share of problems from which no step learned anything.
func (t *trainer) evidence(idleShare float64) *doctor.Round {
	r, tokens, eos := t.round, t.roller.prompter.Tokenizer, t.roller.policy.Model.EOS
	out, known := &doctor.Round{Problems: r.problems, Steps: r.steps, IdleShare: idleShare}, map[int32]bool{}
	special := func(id int32) bool { // whether a token is left out of the text, as the end of a turn
		is, seen := known[id]
		if !seen {
			is = tokens.Token(id) != "" && tokens.Decode([]int32{id}, true) == ""
			known[id] = is
		}
		return is
	}
	for i, x := range r.responses() {
		s := doctor.Response{
			Problem: x.Problem, Text: x.Text, Answer: x.Score.Answer, Value: r.trajectories[i].Reward, Skipped: x.Score.Skip,
			Told:   x.Score.Reason == reward.ByEnvironment, // the environment gave the reward
			Judged: x.Score.Judged(), Right: x.Score.Right(), Parts: x.Score.Components, Tokens: len(x.Response), Truncated: x.Truncated,
			// MaxTurns cut it, and not MaxNewTokens. Between two turns is one of Observed, so the turns are one more.
			OutOfTurns: x.Truncated && t.roller.player != nil && len(x.Observed)+1 >= t.Config.Environment.MaxTurns && len(x.Response) < t.Config.Rollout.MaxNewTokens,
		}
		for j, logp := range x.LogProb {
			s.LogProb, s.Entropy = s.LogProb+logp, s.Entropy+x.Entropy[j]
		}
		if n := len(x.Response); n > 0 && len(x.Observed) == 0 {
			last := x.Response[n-1]
			atEOS := slices.Contains(eos, last)
			s.Stopped = !atEOS && !x.Truncated && len(t.Config.Model.Stop) > 0
			if atEOS && !special(last) { // the model's end tokens may be set wrongly
				s.EndsAt = tokens.Token(last)
			}
			// An end of a turn that is not among the model's end tokens may be what the response should have ended at.
			if at := slices.IndexFunc(x.Response, special); x.Truncated && at >= 0 && at < n-1 && !slices.Contains(eos, x.Response[at]) {
				s.WentOnAfter = tokens.Token(x.Response[at])
			}
		}
		out.Responses = append(out.Responses, s)
	}
	return out
}

// list returns the problems of files; nil for an embedded task.
func (o *problemOrder) list() (all []data.Problem) {
	for _, s := range o.sources {
		all = append(all, s.problems...)
	}
	return all
}

// faults says what is wrong with the problems.
func (o *problemOrder) faults(suites []eval.Suite, column string) []doctor.Finding {
	by := map[string][]data.Problem{}
	for _, s := range suites {
		by[s.Name] = s.Problems
	}
	return doctor.Problems(o.list(), by, column)
}

// neighbor returns a function that finds the answers of rows before and behind a problem's.
func (o *problemOrder) neighbor() func(q data.Problem, rows int) []string {
	var answers map[string][]string
	return func(q data.Problem, rows int) []string {
		if answers == nil {
			answers = map[string][]string{}
			for _, x := range o.list() {
				answers[fmt.Sprint(x.File, ":", x.Line)] = x.Answers
			}
		}
		return answers[fmt.Sprint(q.File, ":", q.Line+rows)]
	}
}
