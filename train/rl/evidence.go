package rl

import (
	"math"
	"slices"

	"onering/data"
	"onering/eval"
	"onering/objectives"
	"onering/reward"
	"onering/train"
	"onering/train/doctor"
)

// facts returns what is known of the run before its first round.
func (t *trainer) facts() doctor.Facts {
	c, r := t.Config, t.roller
	w := r.policy.Ring.Trained()
	f := doctor.Facts{
		Settings: train.Values(&c), Vocabulary: r.policy.Geometry().Vocab, Parameters: w.Parameters(), Weight: typical(w.Data), Steps: c.steps(),
		Extract: reward.Extract(c.Reward.Rule), Judges: reward.FindsAnswers(c.Reward.Rule), Usual: usual(c.Objective.Name), Neighbor: r.problems.neighbor(),
		Data: r.problems.faults(t.evaluator.suites, c.Data.Prompt),
	}
	talks := r.prompter.Template.Talks(r.prompter.Tokenizer)
	f.Bare = !talks && r.prompter.Tokenizer.CheckChat() == nil
	return f
}

// usual returns the default settings of an objective, by section and key.
func usual(name string) map[string]string {
	c := Default()
	c.Objective.Settings, _ = objectives.New(name)
	return train.Values(&c, "objective")
}

// typical returns the root of the mean square of some of the weights, 0 where the host has
// none.
func typical(w []float32) float64 {
	const most = 1 << 16
	sum, n := 0.0, 0
	for i := 0; i < len(w); i += max(1, len(w)/most) {
		sum, n = sum+float64(w[i])*float64(w[i]), n+1
	}
	return math.Sqrt(sum / float64(max(1, n)))
}

// evidence returns what the finished round shows.
func (t *trainer) evidence(idle float64) *doctor.Round {
	r := t.round
	out := &doctor.Round{Problems: r.problems, Steps: r.steps, Idle: idle}
	tokens, eos, stops := t.roller.prompter.Tokenizer, t.roller.policy.Model.EOS, t.Config.Model.Stop
	known := map[int32]bool{}
	special := func(id int32) bool {
		is, seen := known[id]
		if !seen {
			is = tokens.Token(id) != "" && tokens.Decode([]int32{id}, true) == ""
			known[id] = is
		}
		return is
	}
	for i := range r.responses() {
		x := &r.rollouts[i]
		s := doctor.Response{
			Problem: x.Problem, Text: x.Text, Answer: x.Score.Answer, Value: r.trajectories[i].Reward, Skipped: x.Score.Skip, Told: x.Score.Reason == reward.ByEnvironment,
			Judged: x.Score.Judged(), Right: x.Score.Right(), Parts: x.Score.Components, Weights: x.Score.Weights, Tokens: len(x.Response), Truncated: x.Truncated,
		}
		for j := range x.LogProb {
			s.LogProb, s.Entropy = s.LogProb+x.LogProb[j], s.Entropy+x.Entropy[j]
		}
		if n := len(x.Response); n > 0 && len(x.Observed) == 0 {
			last := x.Response[n-1]
			ended := slices.Contains(eos, last)
			s.Stopped = !ended && !x.Truncated && len(stops) > 0
			if ended && !special(last) {
				s.EndsAt = tokens.Token(last)
			}
			if at := slices.IndexFunc(x.Response, special); x.Truncated && at >= 0 && at < n-1 && !slices.Contains(eos, x.Response[at]) {
				s.Passed = tokens.Token(x.Response[at])
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
	type row struct {
		file string
		line int
	}
	var answers map[row][]string
	return func(q data.Problem, rows int) []string {
		if answers == nil {
			answers = map[row][]string{}
			for _, x := range o.list() {
				answers[row{x.File, x.Line}] = x.Answers
			}
		}
		return answers[row{q.File, q.Line + rows}]
	}
}
