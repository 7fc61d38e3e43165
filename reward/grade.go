package reward

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"onering/data"
	"onering/sampler"
)

// A Grader has responses sampled and scores them meanwhile. Training and
// evaluation both use it, so a response is worth the same in both.
type Grader struct {
	Reward Reward
	// Name, if not empty, is the component that has the value of the reward. A
	// Combined names its own.
	Name string
	// Decode returns the text of response tokens, without special tokens.
	Decode func(ids []int32) string
	// Together scores all responses to a prompt at once, when the last of them
	// has ended. Otherwise each is scored alone as it ends.
	Together bool
	// GradeTruncated keeps from the reward that a limit cut a response off.
	GradeTruncated bool
	// Journal, if not nil, remembers the scores.
	Journal Journal
}

// A Task asks for responses to one problem.
type Task struct {
	Problem data.Problem
	Prompt  string // the text of Request.Prompt
	Request sampler.Request
}

// A Graded is a response with its text and its score.
type Graded struct {
	sampler.Response // Request is the index of the task
	Text             string
	Score            Score
}

// Truncated says whether a limit of length cut the response off.
func (g Graded) Truncated() bool { return g.Finish == sampler.Length }

// Sample samples the responses to the tasks, and hands each to done when it is
// scored: in any order, but never two at the same time. As many groups are scored
// at once as Groups says, while others are sampled; neither the order nor the
// overlap changes a score.
//
// A response that the reward skipped has no grade: done leaves it out, and never
// takes its value of 0 for one.
//
// An error of the reward or of done ends the sampling. When ctx ends, the reward
// is still given the responses that have ended before.
func (g Grader) Sample(ctx context.Context, lanes sampler.Lanes, o sampler.Options, tasks []Task, done func(Graded) error) (sampler.Stats, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // held for failed and done
	var failed error
	requests, total := make([]sampler.Request, len(tasks)), 0
	for i, t := range tasks {
		requests[i] = t.Request
		total += t.Request.Samples
	}
	// The queue has room for all responses, so the sampler never waits.
	queue := make(chan []sampler.Response, total)
	var workers sync.WaitGroup
	for range Groups(g.Reward) {
		workers.Go(func() {
			for responses := range queue {
				graded, err := g.grade(ctx, tasks[responses[0].Request], responses)
				mu.Lock()
				for i := 0; i < len(graded) && err == nil && failed == nil; i++ {
					err = done(graded[i])
				}
				if err != nil && failed == nil {
					failed = err
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	groups := make([][]sampler.Response, len(tasks))
	_, stats, err := lanes.Sample(ctx, o, requests, func(r sampler.Response) {
		if !g.Together {
			queue <- []sampler.Response{r}
			return
		}
		group := append(groups[r.Request], r)
		if groups[r.Request] = group; len(group) == requests[r.Request].Samples {
			queue <- group
		}
	})
	close(queue)
	workers.Wait()
	if failed != nil {
		err = failed // and the sampler's error is that it was cancelled
	}
	return stats, err
}

// grade scores responses to one task, in the order of their numbers.
func (g Grader) grade(ctx context.Context, t Task, responses []sampler.Response) ([]Graded, error) {
	slices.SortFunc(responses, func(a, b sampler.Response) int { return cmp.Compare(a.Sample, b.Sample) })
	group, out := make([]Sample, len(responses)), make([]Graded, len(responses))
	for i, r := range responses {
		out[i] = Graded{Response: r, Text: g.Decode(r.IDs)}
		group[i] = Sample{
			Problem: t.Problem, Prompt: t.Prompt, PromptIDs: t.Request.Prompt,
			Response: out[i].Text, IDs: r.IDs, LogProb: r.LogProb, Truncated: out[i].Truncated() && !g.GradeTruncated,
		}
	}
	first := responses[0]
	scores, err := g.remembered(first.Request, first.Sample, group, func() ([]Score, error) { return g.Score(ctx, group) })
	if err != nil {
		return nil, fmt.Errorf("reward: problem %q: %w", t.Problem.ID, err)
	}
	for i := range scores {
		out[i].Score = scores[i]
	}
	return out, nil
}

// Score scores responses to one prompt, and refuses scores that break the rules of
// Reward.
func (g Grader) Score(ctx context.Context, group []Sample) ([]Score, error) {
	scores, err := g.Reward.Score(ctx, group)
	if err != nil {
		return nil, err
	}
	_, combined := g.Reward.(*Combined) // which has checked its parts
	if err := checkScores(scores, len(group), combined); err != nil {
		return nil, err
	}
	for i, s := range scores {
		if _, taken := s.Components[g.Name]; g.Name == "" || taken || s.Skip {
			continue
		}
		scores[i].Components = map[string]float64{g.Name: s.Value}
		maps.Copy(scores[i].Components, s.Components)
	}
	return scores, nil
}

// checkScores refuses scores of a group of n that break the rules of Reward. Those of
// a Combined may have a value beside a status.
func checkScores(scores []Score, n int, combined bool) error {
	if len(scores) != n {
		return fmt.Errorf("%d scores for %d responses", len(scores), n)
	}
	for i, s := range scores {
		if combined {
			s.Status = OK
		}
		if err := s.Check(); err != nil {
			return fmt.Errorf("response %d: %w", i, err)
		}
	}
	return nil
}

// Check refuses a score that breaks the rules of Reward.
func (s Score) Check() error {
	if !finite(s.Value) {
		return fmt.Errorf("the value is %v, which is not a finite number", s.Value)
	}
	for _, figures := range []map[string]float64{s.Components, s.Log} {
		for _, name := range slices.Sorted(maps.Keys(figures)) {
			if !finite(figures[name]) {
				return fmt.Errorf("%q is %v, which is not a finite number", name, figures[name])
			}
		}
	}
	switch {
	case s.Status != OK && s.Status != Limit && s.Status != Error:
		return fmt.Errorf("the status %q is unknown", s.Status)
	case (s.Skip || s.Status != OK) && s.Value != 0:
		return fmt.Errorf("the sample was not graded, but its value is %v and not 0", s.Value)
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
