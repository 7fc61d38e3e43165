package rl

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"onering/data"
	"onering/objectives"
	"onering/reward"
	"onering/train/metrics"
)

// openTraining opens the training problems, in the order in which rounds draw them. Rows without a problem or an answer
// are left out; the log names the first of them and says how many there were. So are problems whose prompt, as p makes it,
// is too long.
func openTraining(c Config, p *data.Prompter, log *slog.Logger) (*problemOrder, error) {
	order := orderOptions{
		Seed: c.Data.Seed, PerRound: c.Rollout.PromptsPerRound, Rounds: c.Train.Rounds,
		Curriculum: c.Data.Curriculum, Rest: c.Data.Rest,
	}
	if strings.HasPrefix(c.Data.Train[0].Path, "builtin:") {
		problems, _, err := data.OpenProblems(c.Data.Train[0].Path, data.Options{}, false) // not the held-out part
		if err != nil {
			return nil, fmt.Errorf("train: data.train: %w", err)
		}
		return endlessOrder(problems, order), nil
	}
	var parts []filePart
	for _, file := range c.Data.Train.Named() {
		o := reward.Reading(c.Reward.Rule, c.Data.Options())
		o.Keep = p.Template.Columns                                                   // the template shows these columns, so they stay in memory
		o.NoAnswers = o.NoAnswers || objectives.NeedsOf(c.Objective.Settings).Teacher // such an objective reads no rewards
		problems, err := openFile(file, o, c.Data, log)
		if err != nil {
			return nil, err
		}
		if len(c.Data.Train) > 1 {
			markSource(file.Name, problems)
		}
		parts = append(parts, filePart{File: file, Problems: problems})
	}
	if err := dropLong(c, parts, p, log); err != nil {
		return nil, err
	}
	problems, err := newOrder(parts, order)
	if err != nil {
		return nil, fmt.Errorf("train: data.train: %w", err)
	}
	return problems, nil
}

// openFile opens one of the files of training problems, and logs what is odd in it; o says how all are read, and
// c names the columns that order them and say their roles.
func openFile(file TrainFile, o data.Options, c dataConfig, log *slog.Logger) (data.List, error) {
	o = file.Options(o)
	o.OnBad = data.LeaveOut
	problems, report, err := data.Load(file.Path, o)
	if err != nil {
		if strings.Contains(file.Path, ",") && len(report.Files) == 0 { // no such file: several may be meant
			err = fmt.Errorf(`%w; several files are a list: ["a.jsonl", "b.jsonl"]`, err)
		}
		return nil, fmt.Errorf("train: data.train: %w", err)
	}
	log.Info("training problems: "+report.String(),
		"path", file.Path, "files", len(report.Files), "problem", report.Prompt, "answer", report.Answer, "id", report.ID)
	if len(report.LeftOut) > 0 {
		log.Warn("columns of the training problems take too much memory and are left out; rewards cannot read them",
			"path", file.Path, "columns", strings.Join(report.LeftOut, ", "))
	}
	for i := 0; i < len(problems) && c.Role != ""; i++ {
		if _, err := problems[i].Fields.Shown(c.Role); err != nil {
			return nil, fmt.Errorf("train: data.role: problem %q: column %q: %w", problems[i].ID, c.Role, err)
		}
	}
	// The order and the roles read their columns, so they are not unread.
	report.Unread = slices.DeleteFunc(report.Unread, func(column string) bool { return column == strings.TrimPrefix(c.Curriculum, "-") || column == c.Role })
	report.Log(log, file.Path)
	return problems, nil
}

// dropLong drops problems whose prompt has more than rollout.max_prompt_tokens tokens, from parts itself. More than half of
// a file is an error.
func dropLong(c Config, parts []filePart, p *data.Prompter, log *slog.Logger) error {
	most, longest, dropped, left := c.Rollout.MaxPromptTokens, 0, 0, 0
	for i := range parts {
		problems := parts[i].Problems
		kept := problems[:0]
		for _, q := range problems {
			_, prompt, err := p.Prompt(q)
			if err != nil {
				return err
			}
			longest = max(longest, len(prompt))
			if len(prompt) <= most {
				kept = append(kept, q)
			}
		}
		n := len(problems) - len(kept)
		if 2*n > len(problems) {
			return fmt.Errorf("train: %d of the %d prompts of %s are longer than rollout.max_prompt_tokens = %d: raise "+
				"it, at most to the longest's %d tokens, or choose the problems with data.filter", n, len(problems), parts[i].File.Path, most, longest)
		}
		dropped, left = dropped+n, left+len(kept)
		parts[i].Problems = kept
	}
	if dropped > 0 {
		log.Warn("problems with a longer prompt than max_prompt_tokens are left out", "dropped", dropped, "kept", left, "longest", longest)
	}
	return nil
}

// measures says for each problem of the round whether the steps learned from its responses. idleShare is the share of
// the problems with a graded response that they did not learn from: NaN if none has one, which checkGraded rules out.
func (r *round) measures(c Config) (measures []measure, idleShare float64) {
	measures = make([]measure, len(r.problems))                     // all unmeasured
	k, graded, idle := len(r.responses())/len(r.problems), 0.0, 0.0 // k responses to each problem
	for i := range measures {
		rollouts, group := r.gradedAmong(i*k, (i+1)*k) // the indices of the graded rollouts, and their trajectories
		if len(rollouts) == 0 {
			continue
		}
		graded++
		_, trainedOn := slices.BinarySearch(r.trained, rollouts[0]) // a group is trained on as a whole, or not at all
		if trainedOn && learnsFrom(group, c) {
			measures[i] = taught
			continue
		}
		if len(rollouts) > 1 { // with a single one the problem stays unmeasured, though it counts as idle
			measures[i] = untaught
		}
		idle++
	}
	return measures, idle / graded
}

// learnsFrom says whether the steps learn from a group: from a teacher, or from the advantages of tokens that they do
// not mask. Where the objective compares responses with each other, their advantages must not all be equal.
func learnsFrom(group []objectives.Trajectory, c Config) bool {
	needs, first := objectives.NeedsOf(c.Objective.Settings), group[0].Advantage
	equal := !slices.ContainsFunc(group, func(t objectives.Trajectory) bool { return t.Advantage != first || t.TokenAdvantage != nil })
	return needs.Teacher || !(needs.Group && equal) && slices.ContainsFunc(group, func(t objectives.Trajectory) bool {
		return t.HasAdvantage() && len(t.LogProb) > 0 && !(t.Truncated && c.Train.Truncated == "mask")
	})
}

// sources returns the share of the problems and the mean reward of each of several files,
// and how many problems rest, if they may.
func (r *round) sources(c dataConfig, order *problemOrder) (record metrics.Record) {
	if c.Rest > 0 {
		record = record.With("data/resting", float64(order.Resting())/float64(order.Len()))
	}
	if len(c.Train) < 2 {
		return record
	}
	drawn, rewards := map[string]float64{}, map[string][]float64{}
	for _, q := range r.problems {
		drawn[q.Source]++
	}
	for _, x := range r.responses() {
		if !x.Score.Skip {
			from := r.problems[x.Problem].Source
			rewards[from] = append(rewards[from], x.Score.Value)
		}
	}
	for _, file := range c.Train.Named() {
		name := "data/source/" + file.Name
		record = record.With(name+"/share", drawn[file.Name]/float64(len(r.problems)))
		if len(rewards[file.Name]) > 0 {
			mean, _ := metrics.Moments(rewards[file.Name])
			record = record.With(name+"/reward", mean)
		}
	}
	return record
}
